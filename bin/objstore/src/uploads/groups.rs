//! Which windows local blocks cover, and which blocks cover the same ones.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use anyhow::{Result, ensure};
use varve_prometheus::export::EXPORT_WINDOWS_MAX;
use varve_prometheus::recover::WINDOW_MS;
use varve_tsdb::stats::BlockSummary;

/// Blocks that share windows with each other and with no other block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// The numbers of the blocks.
    pub(super) numbers: Vec<u64>,
    /// All windows from the oldest sample to the newest.
    pub(super) windows: RangeInclusive<i64>,
}

/// Returns the windows that blocks cover.
///
/// # Errors
/// If a block covers more than [`EXPORT_WINDOWS_MAX`].
pub(super) fn windows(blocks: &[BlockSummary]) -> Result<BTreeSet<i64>> {
    let mut all = BTreeSet::new();
    for block in blocks {
        let windows = block_windows(block);
        let n_windows = windows.end().abs_diff(*windows.start()).saturating_add(1);
        ensure!(
            n_windows <= EXPORT_WINDOWS_MAX,
            "block {} covers {n_windows} windows of two hours, more than {EXPORT_WINDOWS_MAX}",
            block.number
        );
        all.extend(windows);
    }
    Ok(all)
}

/// Returns the groups of blocks, ascending by time. `blocks` ascend by their oldest sample.
pub(super) fn groups(blocks: &[BlockSummary]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for block in blocks {
        let windows = block_windows(block);
        match groups.last_mut() {
            Some(last) if last.windows.end() >= windows.start() => {
                last.numbers.push(block.number);
                last.windows = *last.windows.start()..=*last.windows.end().max(windows.end());
            }
            _ => groups.push(Group {
                numbers: vec![block.number],
                windows,
            }),
        }
    }
    groups
}

fn block_windows(block: &BlockSummary) -> RangeInclusive<i64> {
    block.range.start_ms.div_euclid(WINDOW_MS)..=block.range.end_ms.div_euclid(WINDOW_MS)
}

#[cfg(test)]
mod tests {
    use varve_model::TimeRange;

    use super::*;

    /// Returns blocks of `(first window, last window)`, numbered from 0.
    fn blocks(windows: &[(i64, i64)]) -> Vec<BlockSummary> {
        let block = |(&(first, last), number)| BlockSummary {
            number,
            range: TimeRange {
                start_ms: first * WINDOW_MS + 5,
                end_ms: last * WINDOW_MS + 9,
            },
            level: 0,
            sources: Vec::new(),
            n_series: 1,
            n_samples: 1,
            size_bytes: 1,
            values_bytes: 0,
            timestamps_bytes: 0,
            index_bytes: 0,
        };
        windows.iter().zip(0..).map(block).collect()
    }

    #[test]
    fn blocks_with_a_common_window_are_in_one_group() {
        let blocks = blocks(&[(-1, -1), (0, 11), (3, 3), (11, 12), (13, 13), (13, 13)]);
        let group = |numbers: &[u64], windows| Group {
            numbers: numbers.to_vec(),
            windows,
        };
        assert_eq!(
            groups(&blocks),
            [
                group(&[0], -1..=-1),
                group(&[1, 2, 3], 0..=12),
                group(&[4, 5], 13..=13)
            ]
        );
        assert_eq!(windows(&blocks).unwrap(), (-1..=13).collect());
    }

    #[test]
    fn a_block_with_too_many_windows_is_an_error() {
        let last = EXPORT_WINDOWS_MAX as i64;
        assert_eq!(
            windows(&blocks(&[(1, last)])).unwrap().len() as u64,
            EXPORT_WINDOWS_MAX
        );
        assert!(
            windows(&blocks(&[(0, last)]))
                .unwrap_err()
                .to_string()
                .contains("covers 50001 windows")
        );
    }
}
