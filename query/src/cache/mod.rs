//! Result cache: results of queries, each valid until a sample that it depends on changes.
//!
//! Used by [`Engine`](crate::Engine). A result is cached with the version of the store that it saw.
//! Before it is used again, the store is asked which samples changed since ([`Db::changes`]). The
//! steps that read none of them are returned from the cache. Later steps are evaluated and joined
//! to them. The proof that the response equals that of an evaluation of all steps is in
//! docs/decisions/query/0022-result-cache.md.
//!
//! Invariants
//! 1. A cached step is used only if none of the samples that it depends on changed ([`query`]),
//!    both before the other steps are evaluated and after.
//! 2. Steps are joined only if each can be computed without the others ([`dependencies`]), and if
//!    both parts have the same annotations: none, or the info that a metric might not be a counter.
//!    Any other result is used only for the same query at the same times.
//! 3. The entries have at most the size of the cache. The least recently used ones are evicted.
//!
//! Threads: any; the lock is held to look up, insert or evict an entry, not to copy or join
//! results.

mod dependencies;
mod join;
mod query;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use varve_tsdb::changes::ReadVersion;

use crate::annotations::Annotations;
use crate::steps::Steps;
use crate::value::Value;
pub(crate) use query::{CachedQuery, Found};

/// An entry larger than this part of the cache is not cached.
const ENTRY_SIZE_PART: usize = 4;
/// Approximate memory of an entry besides its key and its value.
const ENTRY_OVERHEAD: usize = 512;

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
    by_key: HashMap<Arc<str>, (Arc<Entry>, u64)>,
    /// Keys by their last use.
    by_use: BTreeMap<u64, Arc<str>>,
    n_uses: u64,
    size: usize,
    n_evicted: u64,
}

/// A cached result.
#[derive(Debug)]
struct Entry {
    /// The text of the query, which determines the positions of annotations.
    query: Box<str>,
    steps: Steps,
    /// The evaluation saw every change before this version.
    version: ReadVersion,
    value: Value,
    annotations: Annotations,
    /// `true` if some steps may be used without the others.
    is_divisible: bool,
    size: usize,
}

impl ResultCache {
    /// Creates a cache of at most `size_max` bytes. With 0, nothing is cached.
    pub(crate) fn new(size_max: usize) -> Self {
        Self {
            size_max,
            ..Self::default()
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        let old = {
            let mut entries = self.entries.lock();
            let (n_uses, n_evicted) = (
                entries.n_uses,
                entries.n_evicted + entries.by_key.len() as u64,
            );
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
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts {
            n_hits,
            n_partial_hits,
            n_misses,
            n_steps,
        } = &self.counts;
        let entries = self.entries.lock();
        CacheStats {
            n_hits: read(n_hits),
            n_partial_hits: read(n_partial_hits),
            n_misses: read(n_misses),
            n_steps: read(n_steps),
            n_evicted: entries.n_evicted,
            n_entries: entries.by_key.len() as u64,
            size_bytes: entries.size as u64,
        }
    }

    fn get(&self, key: &Arc<str>) -> Option<Arc<Entry>> {
        let entries = &mut *self.entries.lock();
        let (entry, last_use) = entries.by_key.get_mut(key)?;
        entries.by_use.remove(last_use);
        entries.n_uses += 1;
        *last_use = entries.n_uses;
        entries.by_use.insert(entries.n_uses, Arc::clone(key));
        Some(Arc::clone(entry))
    }

    /// Returns the largest size of an entry.
    fn entry_size_max(&self) -> usize {
        self.size_max / ENTRY_SIZE_PART
    }

    fn insert(&self, key: Arc<str>, entry: Entry) {
        if entry.size > self.entry_size_max() {
            return;
        }
        let mut evicted = Vec::new();
        let entries = &mut *self.entries.lock();
        entries.size += entry.size;
        entries.n_uses += 1;
        let old = entries
            .by_key
            .insert(Arc::clone(&key), (Arc::new(entry), entries.n_uses));
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

#[cfg(test)]
mod tests;
