//! The state and the statistics of flushes.

use std::cmp::Reverse;

use crate::head::StaleSeries;

/// The result of a flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlushStats {
    /// Number of parts written.
    pub n_parts: u64,
    /// Number of samples in the written parts.
    pub n_samples: u64,
    /// Number of evicted series.
    pub n_evicted: u64,
    /// Duration of the pause of appends, in microseconds.
    pub paused_us: u64,
}

/// Series to evict, by shard.
pub(super) type SeriesByShard = Vec<Vec<StaleSeries>>;

/// State that persists between flushes.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    /// The id of the flush that writes the frozen chunks.
    pub(super) flush_id: u64,
    /// `true` if the flush began but did not finish.
    pub(super) is_unfinished: bool,
    /// Series whose newest sample was a staleness marker when it was flushed, each once. They are
    /// removed from the list when they are evicted or get new samples. After a restart the list is
    /// empty, and these series are evicted as idle ones.
    pub(super) stale: SeriesByShard,
    /// Series whose newest samples were deleted, and that are not evicted yet.
    pub(super) deleted: SeriesByShard,
    /// The epoch in which frozen samples were dropped, if no series was evicted since. Readers of
    /// earlier epochs may look these series up.
    pub(super) dropped: Option<u64>,
    /// The number of the last ranking of series.
    pub(super) ranking: u64,
}

impl Flushing {
    /// Adds stale series. A series that is in the list already had new samples and became stale
    /// again.
    pub(super) fn add_stale(&mut self, stale: SeriesByShard) {
        add(&mut self.stale, stale);
    }

    /// Adds series whose newest samples were deleted.
    pub(super) fn add_deleted(&mut self, deleted: SeriesByShard) {
        add(&mut self.deleted, deleted);
    }
}

/// Adds series to a list, each once with its newest timestamp.
fn add(all: &mut SeriesByShard, new: SeriesByShard) {
    all.resize_with(new.len(), Vec::new);
    for (known, new) in all.iter_mut().zip(new) {
        known.extend(new);
        known.sort_unstable_by_key(|stale| (stale.slot_ref.slot, Reverse(stale.at_ms)));
        known.dedup_by_key(|stale| stale.slot_ref.slot);
    }
}
