//! The entries of the result cache, and their eviction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use varve_tsdb::changes::ReadVersion;

use super::key::QueryKey;
use crate::annotations::Annotations;
use crate::steps::Steps;
use crate::value::Value;

/// An entry larger than this part of the cache is not cached.
const ENTRY_SIZE_PART: usize = 4;
/// Approximate memory of an entry besides its key and its value.
pub(super) const ENTRY_OVERHEAD: usize = 512;

/// The results of earlier queries.
#[derive(Debug, Default)]
pub(crate) struct ResultCache {
    size_max: usize,
    entries: Mutex<Entries>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    n_hits: AtomicU64,
    n_partial_hits: AtomicU64,
    n_misses: AtomicU64,
    n_steps: AtomicU64,
}

/// Statistics of the result cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Number of queries whose steps all came from the cache.
    pub n_hits: u64,
    /// Number of queries some of whose steps came from the cache.
    pub n_partial_hits: u64,
    /// Number of queries that may be cached but had no valid step in the cache.
    pub n_misses: u64,
    /// Number of steps that came from the cache.
    pub n_steps: u64,
    /// Number of evicted entries.
    pub n_evicted: u64,
    /// Number of entries.
    pub n_entries: u64,
    /// Size of the entries in bytes.
    pub size_bytes: u64,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<QueryKey, (Arc<Entry>, u64)>,
    /// Keys by their last use.
    by_use: BTreeMap<u64, QueryKey>,
    n_uses: u64,
    size: usize,
    n_evicted: u64,
}

/// A cached result.
#[derive(Debug)]
pub(super) struct Entry {
    /// The text of the query, which determines the positions of annotations.
    pub(super) query: Box<str>,
    pub(super) steps: Steps,
    /// The evaluation saw every change before this version.
    pub(super) version: ReadVersion,
    pub(super) value: Value,
    pub(super) annotations: Annotations,
    /// `true` if some steps may be used without the others.
    pub(super) is_divisible: bool,
    pub(super) size: usize,
}

impl ResultCache {
    /// Creates a cache of at most `size_max` bytes. With 0, nothing is cached.
    pub(crate) fn new(size_max: usize) -> Self {
        Self {
            size_max,
            ..Self::default()
        }
    }

    /// Returns `true` if results are cached.
    pub(crate) fn is_enabled(&self) -> bool {
        self.size_max > 0
    }

    /// Counts a lookup that found `n_found` of `n_steps` steps.
    pub(super) fn note_lookup(&self, n_found: usize, n_steps: usize) {
        let outcome = if n_found == 0 {
            &self.counts.n_misses
        } else if n_found == n_steps {
            &self.counts.n_hits
        } else {
            &self.counts.n_partial_hits
        };
        outcome.fetch_add(1, Ordering::Relaxed);
        self.counts
            .n_steps
            .fetch_add(n_found as u64, Ordering::Relaxed);
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        let old = {
            let mut entries = self.entries.lock();
            let n_uses = entries.n_uses;
            let n_evicted = entries.n_evicted + entries.by_key.len() as u64;
            std::mem::replace(
                &mut *entries,
                Entries {
                    n_uses,
                    n_evicted,
                    ..Entries::default()
                },
            )
        };
        // Frees the entries after the lock is released.
        drop(old);
    }

    /// Returns statistics.
    pub(crate) fn stats(&self) -> CacheStats {
        let counts = &self.counts;
        let entries = self.entries.lock();
        CacheStats {
            n_hits: counts.n_hits.load(Ordering::Relaxed),
            n_partial_hits: counts.n_partial_hits.load(Ordering::Relaxed),
            n_misses: counts.n_misses.load(Ordering::Relaxed),
            n_steps: counts.n_steps.load(Ordering::Relaxed),
            n_evicted: entries.n_evicted,
            n_entries: entries.by_key.len() as u64,
            size_bytes: entries.size as u64,
        }
    }

    pub(super) fn get(&self, key: &QueryKey) -> Option<Arc<Entry>> {
        let entries = &mut *self.entries.lock();
        let (entry, last_use) = entries.by_key.get_mut(key)?;
        entries.by_use.remove(last_use);
        entries.n_uses += 1;
        *last_use = entries.n_uses;
        entries.by_use.insert(entries.n_uses, key.clone());
        Some(Arc::clone(entry))
    }

    /// Returns the largest size of an entry.
    pub(super) fn entry_size_max(&self) -> usize {
        self.size_max / ENTRY_SIZE_PART
    }

    pub(super) fn insert(&self, key: QueryKey, entry: Entry) {
        if entry.size > self.entry_size_max() {
            return;
        }
        let mut evicted = Vec::new();
        let entries = &mut *self.entries.lock();
        entries.size += entry.size;
        entries.n_uses += 1;
        let old = entries
            .by_key
            .insert(key.clone(), (Arc::new(entry), entries.n_uses));
        entries.by_use.insert(entries.n_uses, key);
        if let Some((old, last_use)) = old {
            entries.by_use.remove(&last_use);
            entries.size -= old.size;
            evicted.push(old);
        }
        while entries.size > self.size_max
            && let Some((_, key)) = entries.by_use.pop_first()
            && let Some((old, _)) = entries.by_key.remove(&key)
        {
            entries.size -= old.size;
            entries.n_evicted += 1;
            evicted.push(old);
        }
    }
}
