//! Selects the blocks that retention removes: a pure function of their metadata.
//!
//! As in Prometheus (`tsdb/db.go`, BeyondTimeRetention and BeyondSizeRetention): only whole blocks are removed, the
//! oldest first by their newest sample, and the log counts towards the size although it is not removed.
//!
//! Time passes slowly, so few blocks get too old at once. Many are too old after a jump of the clock, and also after a
//! long downtime or with a shorter retention. These need a confirmation.

use crate::block::{BlockId, BlockMeta};

/// Maximum number of blocks that get too old at once without a confirmation. In a store with few blocks it is a quarter of
/// them, but at least one.
const TOO_OLD_MAX: usize = 4;

/// Retention limits. `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Maximum age of samples in milliseconds.
    pub(crate) time_ms: Option<i64>,
    /// Maximum bytes of blocks and log.
    pub(crate) size: Option<u64>,
}

/// The blocks that exceed the limits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Blocks to remove, the newest first.
    pub(crate) blocks: Vec<BlockId>,
    /// Number of blocks that are too old and need a confirmation.
    pub(crate) n_held: usize,
}

impl Retention {
    /// Returns the blocks to remove.
    ///
    /// A block is removed if its newest sample is at least [`time_ms`](Self::time_ms) older than `now_ms`; or if it,
    /// together with all newer blocks and the `log_size` bytes of the log, exceeds [`size`](Self::size). So a log above
    /// that size leaves no block. Unless the removal is confirmed, no block is too old if more than [`TOO_OLD_MAX`]
    /// are.
    pub(crate) fn expired(self, blocks: &[BlockMeta], now_ms: i64, log_size: u64, is_confirmed: bool) -> Expired {
        let mut newest_first: Vec<&BlockMeta> = blocks.iter().collect();
        newest_first.sort_unstable_by_key(|block| std::cmp::Reverse((block.range.end_ms, block.origin.id)));
        let n_too_old = blocks.iter().filter(|block| self.is_too_old(block, now_ms)).count();
        let is_held = !is_confirmed && n_too_old > (blocks.len() / 4).clamp(1, TOO_OLD_MAX);
        let (mut size, mut n_held) = (log_size, 0);
        newest_first.retain(|block| {
            size = size.saturating_add(block.size);
            let (is_too_old, is_too_much) = (self.is_too_old(block, now_ms), self.size.is_some_and(|max| size > max));
            n_held += usize::from(is_held && is_too_old && !is_too_much);
            is_too_much || is_too_old && !is_held
        });
        Expired { blocks: newest_first.iter().map(|block| block.origin.id).collect(), n_held }
    }

    fn is_too_old(self, block: &BlockMeta, now_ms: i64) -> bool {
        self.time_ms.is_some_and(|time_ms| now_ms.saturating_sub(block.range.end_ms) >= time_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockOrigin;
    use crate::sample::TimeRange;

    /// Creates blocks of `(first time, last time, size)`, numbered from 0.
    fn metas(blocks: &[(i64, i64, u64)]) -> Vec<BlockMeta> {
        let block = |(&(start_ms, end_ms, size), id)| {
            let range = TimeRange { start_ms, end_ms };
            let (id, flushes, sources) = (BlockId(id), (0, 0), vec![]);
            let origin = BlockOrigin { id, window: range, level: 0, flushes, sources, deletions: 0 };
            let (n_series, n_samples, values_size, timestamps_size, index_size) = (1, 1, 0, 0, 0);
            BlockMeta { origin, range, n_series, n_samples, size, values_size, timestamps_size, index_size }
        };
        blocks.iter().zip(0..).map(block).collect()
    }

    /// Asserts which blocks a confirmed removal removes at time 100 if the log takes 10 bytes.
    #[track_caller]
    fn check(blocks: &[(i64, i64, u64)], time_ms: Option<i64>, size: Option<u64>, expected: &[u64]) {
        let expired = Retention { time_ms, size }.expired(&metas(blocks), 100, 10, true);
        assert_eq!(expired, Expired { blocks: expected.iter().map(|&id| BlockId(id)).collect(), n_held: 0 });
    }

    #[test]
    fn many_blocks_that_are_too_old_at_once_need_a_confirmation() {
        for (n_blocks, n_too_old, is_held) in
            [(1, 1, false), (2, 2, true), (3, 1, false), (8, 2, false), (8, 3, true), (40, 4, false), (40, 5, true)]
        {
            let blocks: Vec<_> = (0..n_blocks).map(|i| (0, if i < n_too_old { 10 } else { 90 }, 1)).collect();
            let expired = |size, confirmed| {
                let found = Retention { time_ms: Some(50), size }.expired(&metas(&blocks), 100, 0, confirmed);
                (found.blocks.len(), found.n_held)
            };
            let held = if is_held { (0, n_too_old) } else { (n_too_old, 0) };
            assert_eq!(expired(None, false), held, "{n_blocks} {n_too_old}");
            assert_eq!(expired(None, true), (n_too_old, 0));
            // The limit of the size applies to held blocks.
            assert_eq!(expired(Some(0), false), (n_blocks, 0));
        }
    }

    #[test]
    fn blocks_with_a_newest_sample_that_is_too_old_are_removed() {
        let blocks = [(0, 49, 1), (0, 50, 1), (0, 51, 1), (90, 100, 1)];
        check(&blocks, None, None, &[]);
        check(&blocks, Some(50), None, &[1, 0]);
        check(&blocks, Some(0), None, &[3, 2, 1, 0]);
        check(&blocks, Some(i64::MAX), None, &[]);
        check(&[(i64::MIN, i64::MIN, 1)], Some(i64::MAX), None, &[0]);
    }

    #[test]
    fn the_oldest_blocks_are_removed_until_the_rest_fits() {
        let blocks = [(60, 69, 5), (0, 9, 5), (90, 99, 5), (30, 39, 5)];
        check(&blocks, None, Some(30), &[]);
        check(&blocks, None, Some(29), &[1]);
        check(&blocks, None, Some(20), &[3, 1]);
        check(&blocks, None, Some(14), &[2, 0, 3, 1]);
        check(&[(0, 9, 1), (20, 29, 100), (30, 39, 1)], None, Some(20), &[1, 0]);
        check(&[(0, 9, u64::MAX), (20, 29, u64::MAX)], None, Some(u64::MAX), &[]);
        check(&blocks, Some(50), Some(20), &[3, 1]);
    }
}
