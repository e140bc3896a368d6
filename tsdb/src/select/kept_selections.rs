//! The resolved series of recent selections.
//!
//! Dashboards and rules select the same series again and again. Their lists are kept, up to a
//! maximum size: those that were used recently or often. A list is used for any range of time: see
//! [`ResolvedSeries`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use varve_context::Charge;
use varve_model::Matcher;

use super::resolved::{ResolvedSeries, Updated};
use super::selection::{MatchingSeries, Selection};
use crate::error::Result;
use crate::label_hint::LabelHint;

/// A list that is estimated to be larger than this part of the maximum size is not made, and one
/// that is larger is not kept.
const LIST_SIZE_PART: usize = 8;
/// Estimated number of kept lists, for the memory that is reserved.
const ESTIMATED_LISTS: usize = 512;
/// Memory of an entry besides its list and its matchers, in bytes.
const ENTRY_OVERHEAD: usize = 256;

/// See the module documentation.
pub(crate) struct KeptSelections {
    lists: Cache<SelectionKey, Arc<ResolvedSeries>, ListSize>,
    size_max: usize,
    n_found: AtomicU64,
    n_updated: AtomicU64,
    n_resolved: AtomicU64,
}

/// What a list depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SelectionKey {
    matchers: Vec<Matcher>,
    labels: LabelHint,
}

/// Statistics of the kept selections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptSelectionStats {
    /// Number of selections whose list was kept and had all series.
    pub n_found: u64,
    /// Number of selections whose list was kept, and that added new series to it.
    pub n_updated: u64,
    /// Number of selections that resolved their series.
    pub n_resolved: u64,
    /// Number of kept lists.
    pub n_kept: u64,
    /// Their size in bytes.
    pub size_bytes: u64,
}

/// Weighs a list by its size in bytes.
#[derive(Debug, Clone)]
struct ListSize;

impl Weighter<SelectionKey, Arc<ResolvedSeries>> for ListSize {
    fn weight(&self, key: &SelectionKey, resolved: &Arc<ResolvedSeries>) -> u64 {
        (ENTRY_OVERHEAD + key.size() + resolved.size()) as u64
    }
}

/// The series of a selection in the heads.
pub(super) enum Resolution {
    Kept(Arc<ResolvedSeries>),
    /// The matching series of each shard, which are too many to be kept.
    TooLarge(Vec<MatchingSeries>),
}

impl KeptSelections {
    /// Creates a cache of at most `size_max` bytes. With 0, no selection is kept.
    pub(crate) fn new(size_max: usize) -> Self {
        let options = OptionsBuilder::new()
            // A list may take a large part of the memory, so there is only one part.
            .shards(1)
            .estimated_items_capacity(ESTIMATED_LISTS)
            .weight_capacity(size_max as u64)
            .build()
            .expect("all required options are set");
        Self {
            lists: Cache::with_options(
                options,
                ListSize,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            size_max,
            n_found: AtomicU64::new(0),
            n_updated: AtomicU64::new(0),
            n_resolved: AtomicU64::new(0),
        }
    }

    /// Returns the resolved series of a selection.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(super) fn resolve(
        &self,
        selection: &Selection<'_>,
        requested: &LabelHint,
        charge: &mut Charge,
    ) -> Result<Resolution> {
        let key = SelectionKey {
            matchers: selection.matchers.to_vec(),
            labels: requested.clone(),
        };
        if let Some(kept) = self.lists.get(&key) {
            match kept.update(selection, requested, charge)? {
                Updated::Current => {
                    self.n_found.fetch_add(1, Ordering::Relaxed);
                    return Ok(Resolution::Kept(kept));
                }
                Updated::Grown(grown) => {
                    self.n_updated.fetch_add(1, Ordering::Relaxed);
                    return Ok(Resolution::Kept(self.keep(key, grown)));
                }
                Updated::Outdated => {}
            }
        }
        let matching = selection.matching_series()?;
        let n_matching = matching.iter().map(|matching| matching.slots.len()).sum();
        let size_max = self.size_max / LIST_SIZE_PART;
        if ResolvedSeries::estimated_size(n_matching, requested) > size_max as u64 {
            return Ok(Resolution::TooLarge(matching));
        }
        let resolved = ResolvedSeries::new(selection, requested, matching, charge)?;
        self.n_resolved.fetch_add(1, Ordering::Relaxed);
        Ok(Resolution::Kept(self.keep(key, resolved)))
    }

    fn keep(&self, key: SelectionKey, resolved: ResolvedSeries) -> Arc<ResolvedSeries> {
        let resolved = Arc::new(resolved);
        if resolved.size() <= self.size_max / LIST_SIZE_PART {
            self.lists.insert(key, Arc::clone(&resolved));
        }
        resolved
    }

    /// Forgets all selections.
    pub(crate) fn clear(&self) {
        self.lists.clear();
    }

    /// Returns statistics.
    pub(crate) fn stats(&self) -> KeptSelectionStats {
        KeptSelectionStats {
            n_found: self.n_found.load(Ordering::Relaxed),
            n_updated: self.n_updated.load(Ordering::Relaxed),
            n_resolved: self.n_resolved.load(Ordering::Relaxed),
            n_kept: self.lists.len() as u64,
            size_bytes: self.lists.weight(),
        }
    }
}

impl fmt::Debug for KeptSelections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptSelections")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl SelectionKey {
    /// Returns the approximate size of the strings in bytes.
    fn size(&self) -> usize {
        let matchers = self.matchers.iter();
        let texts = matchers.map(|matcher| matcher.name().len() + matcher.value_bytes().len());
        let names: usize = match &self.labels {
            LabelHint::With(names) | LabelHint::Without(names) => names
                .iter()
                .map(|name| size_of::<String>() + name.len())
                .sum(),
            LabelHint::All | LabelHint::None => 0,
        };
        texts.sum::<usize>() + self.matchers.len() * size_of::<Matcher>() + names
    }
}
