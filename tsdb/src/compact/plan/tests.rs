//! Plans against stores whose blocks hold real samples: whatever is merged, the answers stay.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::block::superseded;

const HOUR_MS: i64 = 3_600_000;
const DATA_TIME: DataTime = DataTime {
    newest_ms: 0,
    out_of_order_window_ms: HOUR_MS / 2,
    in_order_max_age_ms: 3 * HOUR_MS,
};

/// A block with one byte per sample.
fn block(id: u64, window: TimeRange, level: u8, flushes: (u64, u64), size: u64) -> BlockMeta {
    BlockMeta {
        origin: BlockOrigin {
            id: BlockId(id),
            window,
            level,
            flushes,
            sources: Vec::new(),
            deletions: 0,
        },
        range: window,
        n_series: 1,
        n_samples: size,
        size,
        values_size: 0,
        timestamps_size: 0,
        index_size: 0,
    }
}

fn hours(start: i64, end: i64) -> TimeRange {
    TimeRange {
        start_ms: start * HOUR_MS,
        end_ms: end * HOUR_MS - 1,
    }
}

/// Creates blocks of `(first hour, last hour, level, first flush, last flush, size)`, numbered from
/// 1, and asserts which ones are merged when the newest sample is of this hour, and into which
/// hours and level.
#[track_caller]
fn check(
    blocks: &[(i64, i64, u8, u64, u64, u64)],
    newest_hour: f64,
    expected: Option<(&[u64], i64, i64, u8)>,
) {
    let blocks: Vec<_> = blocks
        .iter()
        .zip(1..)
        .map(|(&(start, end, level, first, last, size), id)| {
            block(id, hours(start, end), level, (first, last), size)
        })
        .collect();
    let data_time = DataTime {
        newest_ms: (newest_hour * HOUR_MS as f64) as i64,
        ..DATA_TIME
    };
    let planned = plan(&blocks, data_time);
    let found = planned.map(|merge| {
        (
            merge.sources.iter().map(|id| id.0).collect::<Vec<_>>(),
            merge.window,
            merge.level,
        )
    });
    let expected =
        expected.map(|(sources, start, end, level)| (sources.to_vec(), hours(start, end), level));
    assert_eq!(found, expected);
}

#[test]
fn an_open_window_is_merged_when_it_has_many_parts_of_one_level() {
    let parts = |n: u64| {
        (1..=n)
            .map(|flush| (0, 2, 0, flush, flush, 10))
            .collect::<Vec<_>>()
    };
    check(&parts(7), 1.0, None);
    check(&parts(8), 1.0, Some((&[1, 2, 3, 4, 5, 6, 7, 8], 0, 2, 1)));
    let mut higher: Vec<_> = (0..7)
        .map(|i| (0, 2, 1, i * 8 + 1, i * 8 + 8, 80))
        .collect();
    higher.extend((57..64).map(|flush| (0, 2, 0, flush, flush, 10)));
    check(&higher, 1.0, None);
    higher[7].2 = 1;
    check(
        &higher,
        1.0,
        Some((&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], 0, 2, 2)),
    );
}

#[test]
fn a_closed_window_is_merged_unless_that_rewrites_too_much() {
    let two = [(0, 2, 1, 1, 8, 80), (0, 2, 0, 9, 9, 10)];
    check(&two, 2.4, None);
    check(&two, 2.6, Some((&[1, 2], 0, 2, 2)));
    let few = [(0, 2, 1, 1, 8, 80), (0, 2, 0, 9, 9, 9)];
    check(&few, 2.6, None);
    check(&few, 5.1, Some((&[1, 2], 0, 2, 2)));
    check(&[(0, 2, 0, 9, 9, 9)], 2.6, None);
    check(&[(0, 2, 0, 9, 9, 9)], 5.1, Some((&[1], 0, 2, 1)));
    check(&[(0, 2, 1, 9, 9, 9)], 5.1, None);
}

#[test]
fn a_settled_day_is_merged_at_once_and_later_parts_are_added() {
    let windows: Vec<_> = (0..12)
        .map(|i| (2 * i, 2 * i + 2, 1, i as u64, i as u64 + 1, 100))
        .collect();
    check(&windows, 26.9, None);
    let all: Vec<u64> = (1..=12).collect();
    check(&windows, 27.1, Some((&all, 0, 24, 2)));
    check(
        &[(0, 24, 2, 0, 12, 1200), (4, 6, 0, 40, 40, 1)],
        100.0,
        Some((&[1, 2], 0, 24, 3)),
    );
    check(
        &[(0, 24, 2, 0, 12, 1200), (24, 26, 1, 40, 40, 1)],
        100.0,
        None,
    );
    check(&[(-2, 0, 1, 1, 1, 9), (0, 2, 1, 2, 2, 9)], 100.0, None);
    check(
        &[(-4, -2, 1, 1, 1, 9), (-2, 0, 1, 2, 2, 9)],
        100.0,
        Some((&[1, 2], -24, 0, 2)),
    );
}

#[test]
fn blocks_across_days_are_not_merged_and_merges_do_not_pass_over_them() {
    check(&[(20, 30, 0, 1, 1, 9)], 100.0, None);
    // The second of three flushes crosses the day; parts before it must not be merged with parts
    // after it.
    check(
        &[
            (20, 22, 1, 1, 1, 9),
            (20, 30, 0, 2, 2, 9),
            (20, 22, 1, 3, 3, 9),
        ],
        100.0,
        None,
    );
    check(
        &[
            (20, 22, 1, 1, 1, 9),
            (23, 30, 0, 2, 2, 9),
            (20, 22, 1, 3, 3, 9),
        ],
        100.0,
        Some((&[1, 3], 20, 22, 2)),
    );
    check(
        &[
            (20, 22, 1, 1, 1, 9),
            (20, 30, 0, 3, 3, 9),
            (20, 22, 1, 2, 2, 9),
        ],
        100.0,
        Some((&[1, 3], 20, 22, 2)),
    );
    check(
        &[(0, 6, 0, 1, 1, 9), (6, 8, 0, 2, 2, 9)],
        100.0,
        Some((&[1, 2], 0, 24, 1)),
    );
}

#[test]
fn a_merge_is_bounded_and_takes_the_smallest_neighbors() {
    let mut parts: Vec<_> = (1..=100)
        .map(|flush| (0, 2, 0, flush, flush, 1000 - flush))
        .collect();
    let smallest: Vec<u64> = (37..=100).collect();
    check(&parts, 100.0, Some((&smallest[32..], 0, 2, 1)));
    parts.truncate(64);
    check(
        &parts,
        100.0,
        Some((&(1..=64).collect::<Vec<_>>(), 0, 2, 1)),
    );
}

#[test]
fn merging_fully_does_not_wait() {
    let blocks = [
        block(1, hours(0, 2), 0, (1, 1), 1),
        block(2, hours(2, 4), 0, (1, 1), 1),
        block(3, hours(2, 4), 0, (2, 2), 1),
    ];
    let merge = full(&blocks).unwrap();
    assert_eq!(
        (merge.sources, merge.window, merge.flushes),
        (
            vec![BlockId(1), BlockId(2), BlockId(3)],
            hours(0, 24),
            (1, 2)
        )
    );
    assert_eq!(full(&[block(4, hours(0, 24), 1, (1, 2), 3)]), None);
    assert_eq!(
        plan(&[block(4, hours(0, 24), 1, (1, 2), 3)], DATA_TIME),
        None
    );
}

#[test]
fn sources_of_sources_are_superseded_and_no_two_blocks_replace_each_other() {
    let with_sources = |id: u64, sources: &[u64]| {
        let mut block = block(id, hours(0, 2), 1, (id, id), 1);
        block.origin.sources = sources.iter().copied().map(BlockId).collect();
        block
    };
    let blocks = [
        with_sources(1, &[]),
        with_sources(3, &[1, 2]),
        with_sources(4, &[]),
        with_sources(5, &[3, 4]),
    ];
    assert!(
        superseded(blocks.iter())
            .into_iter()
            .eq([1, 3, 4].map(BlockId))
    );
    assert_eq!(
        Merge::of(vec![&blocks[1], &blocks[2]]).replaces,
        [1, 2, 3, 4].map(BlockId)
    );
    let corrupt = [with_sources(1, &[2]), with_sources(2, &[1, 2])];
    assert!(superseded(corrupt.iter()).into_iter().eq([BlockId(1)]));
    let many = with_sources(9000, &(1..9000).collect::<Vec<_>>());
    let replaces = Merge::of(vec![&blocks[0], &many]).replaces;
    assert_eq!(
        (replaces.len(), replaces[0], replaces.last()),
        (SOURCES_LISTED_MAX, BlockId(1), Some(&BlockId(9000)))
    );
}

#[test]
fn aligned_ranges_cover_all_of_time() {
    for time in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
        for length in [WINDOW_MS, DAY_MS] {
            let span = aligned(time, length);
            assert!(span.contains(time), "{time} in {span:?}");
            assert_eq!(aligned(span.start_ms.max(time), length), span);
        }
    }
    assert_eq!(window_of(-1), hours(-2, 0));
}

/// A store whose blocks hold samples: which flush wrote the value at a timestamp.
#[derive(Default)]
struct Store {
    blocks: Vec<BlockMeta>,
    samples: HashMap<BlockId, BTreeMap<i64, u64>>,
    /// The first flush of each timestamp.
    truth: BTreeMap<i64, u64>,
    next_id: u64,
    next_flush: u64,
    newest_ms: i64,
}

impl Store {
    /// Adds a block with a flush of its own if `window` is given, otherwise a part per window.
    fn add(&mut self, times: &[i64], window: Option<TimeRange>) {
        let flush = self.next_flush;
        self.next_flush += 1;
        let mut parts: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for &time in times {
            self.truth.entry(time).or_insert(flush);
            self.newest_ms = self.newest_ms.max(time);
            parts
                .entry(window.unwrap_or(window_of(time)).start_ms)
                .or_default()
                .push(time);
        }
        for (start_ms, times) in parts {
            let origin = BlockOrigin {
                id: BlockId(0),
                window: window.unwrap_or(window_of(start_ms)),
                level: 0,
                flushes: (flush, flush),
                sources: Vec::new(),
                deletions: 0,
            };
            self.push(
                origin,
                times.into_iter().map(|time| (time, flush)).collect(),
            );
        }
    }

    fn push(&mut self, mut origin: BlockOrigin, samples: BTreeMap<i64, u64>) {
        self.next_id += 1;
        origin.id = BlockId(self.next_id);
        let size = samples.len() as u64;
        let range = TimeRange {
            start_ms: *samples.first_key_value().unwrap().0,
            end_ms: *samples.last_key_value().unwrap().0,
        };
        assert!(
            origin.window.contains(range.start_ms) && origin.window.contains(range.end_ms),
            "samples lie inside"
        );
        self.samples.insert(origin.id, samples);
        self.blocks.push(BlockMeta {
            origin,
            range,
            ..block(0, range, 0, (0, 0), size)
        });
    }

    fn apply(&mut self, merge: &Merge) {
        assert!((1..=SOURCES_MAX).contains(&merge.sources.len()));
        assert_eq!(
            aligned(merge.window.start_ms, DAY_MS),
            aligned(merge.window.end_ms, DAY_MS),
            "no merge crosses a day"
        );
        let mut samples = BTreeMap::new();
        for source in &merge.sources {
            for (time, flush) in self
                .samples
                .remove(source)
                .expect("a source is there, and named once")
            {
                samples.entry(time).or_insert(flush);
            }
        }
        self.push(merge.origin(BlockId(0), 0), samples);
        self.blocks
            .retain(|block| !merge.sources.contains(&block.origin.id));
        assert!(superseded(self.blocks.iter()).is_empty());
    }

    fn check_answers(&self) {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        blocks.sort_unstable_by_key(|block| precedence(block));
        let mut found = BTreeMap::new();
        for block in blocks {
            for (&time, &flush) in &self.samples[&block.origin.id] {
                found.entry(time).or_insert(flush);
            }
        }
        assert_eq!(found, self.truth);
    }

    /// Asserts that the flushes of blocks of one window do not interleave.
    fn check_contiguous(&self) {
        for inside in spans(&self.blocks, WINDOW_MS).values_mut() {
            inside.sort_unstable_by_key(|block| precedence(block));
            for pair in inside.windows(2) {
                assert!(
                    pair[0].origin.flushes.1 < pair[1].origin.flushes.0,
                    "{pair:?}"
                );
            }
        }
    }

    /// Merges until nothing is left to merge, at most `n_max` times, and returns the number of
    /// merges.
    fn merge(
        &mut self,
        n_max: usize,
        next: impl Fn(&[BlockMeta], DataTime) -> Option<Merge>,
    ) -> usize {
        for n in 0..n_max {
            let data_time = DataTime {
                newest_ms: self.newest_ms,
                ..DATA_TIME
            };
            let Some(merge) = next(&self.blocks, data_time) else {
                return n;
            };
            self.apply(&merge);
            self.check_answers();
            self.check_contiguous();
        }
        n_max
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Time advances by some minutes, and samples of these ages in minutes are flushed.
    Flush(i64, Vec<i64>),
    /// A block with a window of the given hours is imported, which begins so many hours ago.
    Adopt(i64, i64),
    Merge(usize),
    MergeFully,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..60_i64, proptest::collection::vec(prop_oneof![4 => 0..30_i64, 1 => 0..180_i64], 1..6))
            .prop_map(|(minutes, ago)| Step::Flush(minutes, ago)),
        2 => (0..72_i64, 1..30_i64).prop_map(|(ago, length)| Step::Adopt(ago, length)),
        8 => (0..4_usize).prop_map(Step::Merge),
        1 => Just(Step::MergeFully),
    ]
}

/// Returns the number of blocks in each settled range, except where a block reaches beyond the
/// range.
fn settled_blocks(store: &Store, length_ms: i64) -> Vec<usize> {
    let crossing = |span: TimeRange| {
        let mut overlapping = store
            .blocks
            .iter()
            .filter(|block| block.range.overlaps(span));
        overlapping.any(|block| {
            !(span.contains(block.origin.window.start_ms)
                && span.contains(block.origin.window.end_ms))
        })
    };
    let data_time = DataTime {
        newest_ms: store.newest_ms,
        ..DATA_TIME
    };
    let settled = spans(&store.blocks, length_ms)
        .into_iter()
        .filter(|(start_ms, _)| {
            let span = aligned(*start_ms, length_ms);
            data_time.age(span) == Age::Settled && !crossing(span)
        });
    settled.map(|(_, inside)| inside.len()).collect()
}

proptest! {
    #[test]
    fn merging_terminates_loses_nothing_and_changes_no_result(steps in proptest::collection::vec(step(), 0..120)) {
        let mut store = Store { newest_ms: 1_700_000_000_000, ..Store::default() };
        let minute = 60_000;
        for step in steps {
            match step {
                Step::Flush(minutes, ago) => {
                    let now = store.newest_ms + minutes * minute;
                    store.add(&ago.iter().map(|ago| now - ago * minute).collect::<Vec<_>>(), None);
                }
                Step::Adopt(ago, length) => {
                    let start_ms = aligned(store.newest_ms - ago * HOUR_MS, HOUR_MS).start_ms;
                    let window = TimeRange { start_ms, end_ms: start_ms + length * HOUR_MS - 1 };
                    let times: Vec<_> = (0..length * 3).map(|i| start_ms + i * 20 * minute).filter(|time| *time < store.newest_ms).collect();
                    if !times.is_empty() { store.add(&times, Some(window)); }
                }
                Step::Merge(n_max) => { store.merge(n_max, plan); }
                Step::MergeFully => {
                    let n = store.merge(usize::MAX, |blocks, _| full(blocks));
                    prop_assert!(n < 1000);
                }
            }
        }
        let n_blocks = store.blocks.len();
        prop_assert!(store.merge(1000, plan) <= 2 * n_blocks);
        prop_assert!(settled_blocks(&store, WINDOW_MS).iter().all(|n| *n == 1));
        prop_assert!(settled_blocks(&store, DAY_MS).iter().all(|n| *n == 1));
        store.check_answers();
    }
}

/// Three days of flushes every 30 minutes; the module documentation quotes the results.
#[test]
fn samples_are_written_few_times() {
    for (late, written_max) in [(0, 3.0), (1, 4.0), (14, 4.0), (39, 5.0)] {
        let start_ms = 19_675 * DAY_MS;
        let mut store = Store {
            newest_ms: start_ms,
            ..Store::default()
        };
        let (mut n_flushed, mut n_written) = (0, 0);
        for flush in 1..=3 * 48 + 7 {
            let now = start_ms + flush * 1_800_000;
            // 100 samples since the last flush, and out-of-order samples up to three hours old.
            let late_times = (0..late).map(|i| now - 3 * HOUR_MS + i * 250_001 + 1);
            let times: Vec<_> = (0..100)
                .map(|i| now - i * 18_000)
                .chain(late_times)
                .collect();
            store.add(&times, None);
            n_flushed += times.len();
            n_written += times.len();
            while let Some(merge) = plan(
                &store.blocks,
                DataTime {
                    newest_ms: store.newest_ms,
                    ..DATA_TIME
                },
            ) {
                n_written += merge
                    .sources
                    .iter()
                    .map(|id| store.samples[id].len())
                    .sum::<usize>();
                store.apply(&merge);
            }
            assert!(store.blocks.len() < 60, "{} blocks", store.blocks.len());
        }
        let written = n_written as f64 / n_flushed as f64;
        assert!(
            written < written_max,
            "{late} out-of-order samples per flush: each sample was written {written} times"
        );
    }
}
