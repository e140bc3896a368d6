//! Selects the blocks that retention removes: a pure function of their metadata.
//!
//! As in Prometheus (`tsdb/db.go`, BeyondTimeRetention and BeyondSizeRetention): only whole blocks are removed, the
//! oldest first by their newest sample, and the log counts towards the size although it is not removed.

use crate::block::{BlockId, BlockMeta};

/// Retention limits. `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Maximum age of samples in milliseconds.
    pub(crate) time_ms: Option<i64>,
    /// Maximum bytes of blocks and log.
    pub(crate) size: Option<u64>,
}

impl Retention {
    /// Returns the blocks to remove, the newest first.
    ///
    /// A block is removed if its newest sample is at least [`time_ms`](Self::time_ms) older than `newest_ms`, the
    /// newest of the store; or if it, together with all newer blocks and the `log_size` bytes of the log, exceeds
    /// [`size`](Self::size). So a log above that size leaves no block.
    pub(crate) fn expired(self, blocks: &[BlockMeta], newest_ms: i64, log_size: u64) -> Vec<BlockId> {
        let mut newest_first: Vec<&BlockMeta> = blocks.iter().collect();
        newest_first.sort_unstable_by_key(|block| std::cmp::Reverse((block.range.end_ms, block.origin.id)));
        let mut size = log_size;
        newest_first.retain(|block| {
            size = size.saturating_add(block.size);
            self.is_too_old(block, newest_ms) || self.size.is_some_and(|size_max| size > size_max)
        });
        newest_first.iter().map(|block| block.origin.id).collect()
    }

    fn is_too_old(self, block: &BlockMeta, newest_ms: i64) -> bool {
        self.time_ms.is_some_and(|time_ms| newest_ms.saturating_sub(block.range.end_ms) >= time_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockOrigin;
    use crate::sample::TimeRange;

    /// Creates blocks of `(first time, last time, size)`, numbered from 0, and asserts which ones are removed when the
    /// store's newest timestamp is 100 and the log takes 10 bytes.
    #[track_caller]
    fn check(blocks: &[(i64, i64, u64)], time_ms: Option<i64>, size: Option<u64>, expected: &[u64]) {
        let block = |(&(start_ms, end_ms, size), id)| {
            let range = TimeRange { start_ms, end_ms };
            let origin = BlockOrigin {
                id: BlockId(id),
                window: range,
                level: 0,
                flushes: (0, 0),
                sources: vec![],
                deletions: 0,
            };
            BlockMeta {
                origin,
                range,
                n_series: 1,
                n_samples: 1,
                size,
                values_size: 0,
                timestamps_size: 0,
                index_size: 0,
            }
        };
        let blocks: Vec<_> = blocks.iter().zip(0..).map(block).collect();
        let expired: Vec<_> = Retention { time_ms, size }.expired(&blocks, 100, 10).iter().map(|id| id.0).collect();
        assert_eq!(expired, expected);
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
