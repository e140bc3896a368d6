//! Selects the blocks that retention removes: a pure function of their metadata.
//!
//! As in Prometheus (`tsdb/db.go`, BeyondTimeRetention and BeyondSizeRetention): only whole blocks
//! are removed, the oldest first by their newest sample, and the log counts towards the size
//! although it is not removed.
//!
//! Many blocks become too old at once after a jump of the clock, a long downtime, an import of old
//! samples, or a shorter retention. Retention holds these blocks until an operator confirms. Blocks
//! that become too old later are removed meanwhile.

mod hold;
pub(crate) mod rules;

use std::cmp::Reverse;
use std::sync::Arc;

use crate::block::{BlockId, BlockMeta};
use rules::{RetentionRule, RuleProgress};

pub(crate) use hold::{Hold, ends_by};

/// Retention limits. `None` is unlimited.
#[derive(Debug, Clone, Default)]
pub(crate) struct Retention {
    /// Maximum age of samples in milliseconds.
    pub(crate) time_ms: Option<i64>,
    /// Maximum size of blocks and log.
    pub(crate) size: Option<RetentionSize>,
    /// Rules for series. They affect samples inside of blocks, not which blocks are removed.
    pub(crate) rules: Arc<[RetentionRule]>,
}

/// The maximum size of blocks and log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RetentionSize {
    /// Bytes.
    Bytes(u64),
    /// A part of the size of the volume.
    VolumePercent {
        /// From 0 to 100.
        percent: f64,
        /// Bytes to use while the size of the volume is not known; `None` is unlimited.
        otherwise: Option<u64>,
    },
}

/// How far retention has come, from one round to the next. Held by the thread that compacts.
#[derive(Debug, Default)]
pub(crate) struct RetentionProgress {
    /// [`Expired::held_ms`] of the last round.
    pub(crate) held_ms: Option<i64>,
    /// The progress of retention rules.
    pub(crate) rules: RuleProgress,
}

/// The blocks that exceed the limits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Blocks to remove, the newest first.
    pub(crate) blocks: Vec<BlockId>,
    /// Number of blocks that are too old and need a confirmation.
    pub(crate) n_held: usize,
    /// Blocks whose newest sample is not newer are held, also by the next round. `None` if no block
    /// is held.
    pub(crate) held_ms: Option<i64>,
}

impl Retention {
    /// Returns the blocks to remove.
    ///
    /// A block is removed if its newest sample is at least [`time_ms`](Self::time_ms) older than
    /// `now_ms`; or if it, together with all newer blocks and the `log_size` bytes of the log,
    /// exceeds `size_max` bytes. So a log above that size leaves no block. Blocks that are too old
    /// are held if `hold` says so.
    pub(crate) fn expired(
        &self,
        blocks: &[BlockMeta],
        now_ms: i64,
        log_size: u64,
        size_max: Option<u64>,
        hold: Hold,
    ) -> Expired {
        let too_old_ms = self.time_ms.map(|time_ms| now_ms.saturating_sub(time_ms));
        let held_ms = hold.held_ms(blocks, too_old_ms, |_| true);
        let mut newest_first: Vec<&BlockMeta> = blocks.iter().collect();
        newest_first.sort_unstable_by_key(|block| Reverse((block.range.end_ms, block.origin.id)));
        let mut size = log_size;
        let mut n_held = 0;
        newest_first.retain(|block| {
            size = size.saturating_add(block.size);
            let is_held = ends_by(block, held_ms);
            let is_too_much = size_max.is_some_and(|max| size > max);
            n_held += usize::from(is_held && !is_too_much);
            is_too_much || ends_by(block, too_old_ms) && !is_held
        });
        let blocks = newest_first.iter().map(|block| block.origin.id).collect();
        Expired {
            blocks,
            n_held,
            held_ms: if n_held > 0 { held_ms } else { None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockOrigin;
    use varve_model::TimeRange;

    /// Creates blocks of `(first time, last time, size)`, numbered from 0.
    pub(super) fn metas(blocks: &[(i64, i64, u64)]) -> Vec<BlockMeta> {
        let block = |(&(start_ms, end_ms, size), id)| {
            let range = TimeRange { start_ms, end_ms };
            let id = BlockId(id);
            let flushes = (0, 0);
            let sources = vec![];
            let origin = BlockOrigin {
                id,
                window: range,
                level: 0,
                flushes,
                sources,
                deletions: 0,
            };
            let n_series = 1;
            let n_samples = 1;
            let values_size = 0;
            let timestamps_size = 0;
            let index_size = 0;
            BlockMeta {
                origin,
                range,
                n_series,
                n_samples,
                size,
                values_size,
                timestamps_size,
                index_size,
            }
        };
        blocks.iter().zip(0..).map(block).collect()
    }

    /// Asserts which blocks a confirmed removal removes at time 100 if the log takes 10 bytes.
    #[track_caller]
    fn check(
        blocks: &[(i64, i64, u64)],
        time_ms: Option<i64>,
        size: Option<u64>,
        expected: &[u64],
    ) {
        let expired = Retention {
            time_ms,
            ..Retention::default()
        }
        .expired(&metas(blocks), 100, 10, size, Hold::Confirmed);
        let blocks = expected.iter().map(|&id| BlockId(id)).collect();
        assert_eq!(
            expired,
            Expired {
                blocks,
                ..Expired::default()
            }
        );
    }

    #[test]
    fn many_blocks_that_are_too_old_at_once_need_a_confirmation() {
        for (n_blocks, n_too_old, is_held) in [
            (1, 1, false),
            (2, 2, true),
            (3, 1, false),
            (8, 2, false),
            (8, 3, true),
            (40, 4, false),
            (40, 5, true),
        ] {
            let blocks: Vec<_> = (0..n_blocks)
                .map(|i| (0, if i < n_too_old { 10 } else { 90 }, 1))
                .collect();
            let expired = |size, hold| {
                let found = Retention {
                    time_ms: Some(50),
                    ..Retention::default()
                }
                .expired(&metas(&blocks), 100, 0, size, hold);
                (found.blocks.len(), found.n_held)
            };
            let held = if is_held {
                (0, n_too_old)
            } else {
                (n_too_old, 0)
            };
            let unconfirmed = Hold::Unconfirmed { held_ms: None };
            assert_eq!(expired(None, unconfirmed), held, "{n_blocks} {n_too_old}");
            assert_eq!(expired(None, Hold::Confirmed), (n_too_old, 0));
            // The limit of the size applies to held blocks.
            assert_eq!(expired(Some(0), unconfirmed), (n_blocks, 0));
        }
    }

    /// Held blocks blocked the removal of all others: a store that imported old samples grew until
    /// its disk was full.
    #[test]
    fn while_blocks_are_held_others_are_removed_as_they_get_too_old() {
        // Six blocks of old samples, then one block for each day.
        let mut blocks = metas(
            &[
                [(0, 10, 1); 6].to_vec(),
                (1..40).map(|day| (day * 10, day * 10 + 9, 1)).collect(),
            ]
            .concat(),
        );
        let retention = Retention {
            time_ms: Some(100),
            ..Retention::default()
        };
        let mut held_ms = None;
        // Returns how many blocks are removed and held.
        let mut round = |now_ms, blocks: &mut Vec<BlockMeta>| {
            let expired = retention.expired(blocks, now_ms, 0, None, Hold::Unconfirmed { held_ms });
            held_ms = expired.held_ms;
            blocks.retain(|block| !expired.blocks.contains(&block.origin.id));
            (expired.blocks.len(), expired.n_held)
        };
        assert_eq!(round(110, &mut blocks), (0, 6));
        for day in 1..10 {
            assert_eq!(round(109 + day * 10, &mut blocks), (1, 6), "{day}");
        }
        // The clock jumps ahead, and is corrected.
        assert_eq!(round(350, &mut blocks), (0, 6 + 15));
        assert_eq!(round(360, &mut blocks), (1, 6 + 15));
        assert_eq!(round(200, &mut blocks), (0, 6));
        assert_eq!(round(209, &mut blocks), (1, 6));
        assert_eq!(round(50, &mut blocks), (0, 0));
        assert_eq!(round(209, &mut blocks), (0, 6));
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
        check(
            &[(0, 9, 1), (20, 29, 100), (30, 39, 1)],
            None,
            Some(20),
            &[1, 0],
        );
        check(
            &[(0, 9, u64::MAX), (20, 29, u64::MAX)],
            None,
            Some(u64::MAX),
            &[],
        );
        check(&blocks, Some(50), Some(20), &[3, 1]);
    }
}
