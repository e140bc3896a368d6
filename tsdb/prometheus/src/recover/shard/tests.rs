use varve_model::{SampleColumns, TimeRange};

use super::*;
use crate::chunk::decode;
use crate::chunk::{Encoding, StartTimestamps};
use crate::head_chunks::HeadChunk;
use crate::recover::WINDOW_MS;
use crate::recover::input::{HeadChunkList, Input};
use crate::recover::replay::record_reader::Record;
use crate::recover::replay::route::{Routed, Router};
use crate::recover::series::SeriesTable;
use crate::recover::series::tests::define;
use crate::recover::shard::spill::SpillDir;
use crate::recover::windows::window_of;
use crate::testing::fs;

fn head_chunk(min_ms: i64, max_ms: i64, is_out_of_order: bool) -> HeadChunk {
    let encoding = Encoding::Xor;
    HeadChunk {
        series: 1,
        min_ms,
        max_ms,
        n_samples: 2,
        encoding,
        is_out_of_order,
        file: 0,
        offset: 0,
        size: 0,
    }
}

fn shard(dir: &std::path::Path) -> Shard {
    let mut shard = Shard::new(
        SpillDir::create(&fs(), dir).unwrap().file(0),
        StartTimestamps::Drop,
    );
    shard.grow(1);
    shard
}

/// Base of the timestamps of samples.
const BASE_MS: i64 = -5;

fn item(timestamp_ms: i64, value: f64) -> RoutedSample {
    RoutedSample {
        bits: value.to_bits(),
        slot: 0,
        offset_ms: u32::try_from(timestamp_ms - BASE_MS).unwrap(),
    }
}

fn apply(shard: &mut Shard, times: &[i64], is_out_of_order: bool, head: HeadChunkList<'_>) -> u64 {
    let items: Vec<_> = times.iter().map(|&time| item(time, time as f64)).collect();
    let before = shard.n_appended;
    shard.apply(
        &ShardBatch {
            items: &items,
            extras: &[],
            base_ms: BASE_MS,
            is_out_of_order,
        },
        head,
    );
    shard.n_appended - before
}

/// Returns start, end, order and split of the chunks of a window.
fn found(shard: &Shard, window: i64) -> Vec<(i64, i64, bool, bool)> {
    let (mut found, mut scratch) = (Vec::new(), Vec::new());
    shard.find(0, window, &mut scratch, &mut found).unwrap();
    let read = |it: &mut FoundChunk| {
        if !matches!(it.chunk.bytes, ChunkLocation::Head(_)) {
            let mut columns = SampleColumns::default();
            let bytes = shard.read(0, it, &Input::default(), &mut scratch).unwrap();
            decode(it.chunk.encoding, bytes, &mut columns).unwrap();
            assert_eq!(columns.len(), it.chunk.n_samples as usize);
            assert_eq!(
                (columns.timestamps_ms[0], columns.timestamps_ms.last()),
                (it.chunk.min_ms, Some(&it.chunk.max_ms))
            );
        }
        (
            it.chunk.min_ms,
            it.chunk.max_ms,
            it.is_out_of_order,
            it.is_split,
        )
    };
    found.iter_mut().map(read).collect()
}

const NO_HEAD: HeadChunkList<'static> = HeadChunkList {
    chunks: &[],
    min_valid_ms: i64::MIN,
};

#[test]
fn wal_samples_fill_gaps_between_head_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let chunks = [
        head_chunk(0, 5, false),
        head_chunk(10, 20, false),
        head_chunk(30, 40, false),
        head_chunk(3, 9, true),
    ];
    let head = HeadChunkList {
        chunks: &chunks,
        min_valid_ms: 10,
    };
    let mut shard = shard(dir.path());
    shard.add_head_chunks(0, 0..4, head);
    let taken: Vec<_> = [11, 20, 21, 25, 24, 30, 41, 45, 45]
        .into_iter()
        .filter(|&time| apply(&mut shard, &[time], false, head) == 1)
        .collect();
    assert_eq!(taken, [21, 25, 41, 45]);
    assert_eq!((shard.n_appended, shard.n_not_newer), (4, 5));
    // Head chunks have 11, 20 and 30. Those that the WAL has before newer ones may be nowhere else.
    assert_eq!(shard.n_out_of_order_in_wal, 2);
    apply(&mut shard, &[7, 2, 7], true, head);
    shard.finish(head);
    let expected = [
        (3, 9, true),
        (10, 20, false),
        (21, 25, false),
        (30, 40, false),
        (2, 45, true),
        (41, 45, false),
    ];
    assert_eq!(
        found(&shard, 0),
        expected.map(|(min, max, is_out_of_order)| (min, max, is_out_of_order, false))
    );
    assert_eq!(shard.newest_ms(), 45);
}

/// All of them counted as covered by blocks.
#[test]
fn samples_before_the_end_of_blocks_are_covered_unless_they_are_out_of_order() {
    let dir = tempfile::tempdir().unwrap();
    let head = HeadChunkList {
        chunks: &[],
        min_valid_ms: 10,
    };
    let mut shard = shard(dir.path());
    // 2 comes after a covered sample, 9 after one that no block has. 3 is repeated.
    assert_eq!(
        apply(&mut shard, &[1, 3, 3, 2, 4, 12, 9, 13], false, head),
        2
    );
    assert_eq!((shard.n_covered, shard.n_out_of_order_in_wal), (4, 2));
    // They are deleted, and one of them is written again.
    let delete = [RoutedSample {
        bits: 0,
        slot: 0,
        offset_ms: EXTRA,
    }];
    let range = TimeRange {
        start_ms: 2,
        end_ms: 2,
    };
    shard.apply(
        &ShardBatch {
            items: &delete,
            extras: &[Extra::Delete(range)],
            base_ms: BASE_MS,
            is_out_of_order: false,
        },
        head,
    );
    apply(&mut shard, &[3], false, head);
    assert_eq!((shard.n_deleted, shard.n_out_of_order_in_wal), (1, 3));
    shard.finish(head);
    assert_eq!(
        found(&shard, 0),
        [(3, 9, true, false), (12, 13, false, false)]
    );
}

#[test]
fn chunks_end_at_window_boundaries() {
    let dir = tempfile::tempdir().unwrap();
    let mut shard = shard(dir.path());
    apply(
        &mut shard,
        &[WINDOW_MS - 2, WINDOW_MS - 1, WINDOW_MS, 3 * WINDOW_MS],
        false,
        NO_HEAD,
    );
    shard.finish(NO_HEAD);
    let starts: Vec<_> = (0..4)
        .flat_map(|window| found(&shard, window))
        .map(|(min, max, ..)| (min, max))
        .collect();
    assert_eq!(
        starts,
        [
            (WINDOW_MS - 2, WINDOW_MS - 1),
            (WINDOW_MS, WINDOW_MS),
            (3 * WINDOW_MS, 3 * WINDOW_MS)
        ]
    );
    assert!(shard.may_have_samples(0, 3) && !shard.may_have_samples(0, 2));
    let items = [RoutedSample {
        bits: 0,
        slot: 0,
        offset_ms: EXTRA,
    }];
    shard.apply(
        &ShardBatch {
            items: &items,
            extras: &[Extra::Evict],
            base_ms: BASE_MS,
            is_out_of_order: false,
        },
        NO_HEAD,
    );
    assert!(
        (0..4).all(|window| found(&shard, window).is_empty() && !shard.may_have_samples(0, window))
    );
    assert_eq!(shard.newest_ms(), i64::MIN);
}

#[test]
fn timestamps_far_from_the_base_are_routed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut table, layout) = (SeriesTable::default(), ShardLayout::at_least(1));
    define(&mut table, 1, &[("a", "b")]).unwrap();
    let times = [
        i64::MIN + 1,
        -1_i64 << 40,
        0,
        1,
        i64::from(u32::MAX) + 1,
        1 << 40,
        i64::MAX,
    ];
    let one = |time: i64| {
        let mut record = vec![2];
        record.extend_from_slice(&1_u64.to_be_bytes());
        record.extend_from_slice(&time.to_be_bytes());
        record.extend_from_slice(&[0, 0]);
        record.extend_from_slice(&1.5_f64.to_be_bytes());
        Record::of(record)
    };
    let records: Vec<_> = times.into_iter().map(one).collect();
    let (mut shard, mut routed) = (shard(dir.path()), Routed::default());
    Router {
        table: &table,
        layout,
        keeps_beside: false,
        min_valid_ms: i64::MIN,
        is_wbl_lost: false,
    }
    .route(&records, &mut routed);
    shard.apply(&routed.for_shard(0), NO_HEAD);
    let mut taken = Vec::new();
    for time in times {
        taken.extend(
            found(&shard, window_of(time))
                .into_iter()
                .map(|(min_ms, ..)| min_ms),
        );
    }
    taken.dedup();
    assert_eq!(
        taken,
        [
            i64::MIN + 1,
            -1_i64 << 40,
            0,
            i64::from(u32::MAX) + 1,
            1 << 40,
            i64::MAX
        ]
    );
    assert_eq!((shard.n_appended, shard.n_not_newer), (7, 0));
}

#[test]
fn spilled_open_chunks_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut shard = shard(dir.path());
    let times: Vec<i64> = (0..300).map(|i| i * 1000).collect();
    for times in times.chunks(50) {
        apply(&mut shard, times, false, NO_HEAD);
        let memory = shard.memory();
        assert!(memory > 0);
        shard.spill().unwrap();
        assert_eq!(shard.memory(), 0);
    }
    assert!(shard.spilled_size() > 300);
    apply(&mut shard, &[400_000], false, NO_HEAD);
    shard.finish(NO_HEAD);
    let found = found(&shard, 0);
    assert_eq!(found.iter().filter(|(.., is_split)| *is_split).count(), 6);
    assert_eq!(
        (found[0].0, found[5].1, found[6]),
        (0, 299_000, (400_000, 400_000, false, false))
    );
}
