//! Round trips, rejected files, and a disk that fails at every step.

use proptest::prelude::*;
use varve_env::testing::{Fault, MemFs, PowerCut};

use super::*;
use crate::block::{BlockId, BlockOrigin};

fn open(fs: &MemFs) -> Result<Tombstones> {
    Tombstones::open(Arc::new(fs.clone()), Path::new("/"), 0)
}

fn range(start_ms: i64, end_ms: i64) -> TimeRange {
    TimeRange { start_ms, end_ms }
}

fn numbers<'a>(tombstones: impl IntoIterator<Item = &'a Tombstone>) -> Vec<u64> {
    tombstones
        .into_iter()
        .map(|tombstone| tombstone.number)
        .collect()
}

fn block(last_flush: u64, start_ms: i64, end_ms: i64, deletions: u64) -> BlockMeta {
    let range = range(start_ms, end_ms);
    let origin = BlockOrigin {
        id: BlockId(1),
        window: range,
        level: 0,
        flushes: (0, last_flush),
        sources: vec![],
        deletions,
    };
    BlockMeta {
        origin,
        range,
        n_series: 1,
        n_samples: 1,
        size: 1,
        values_size: 0,
        timestamps_size: 0,
        index_size: 0,
    }
}

/// Three tombstones, and the bytes of their file.
fn three_tombstones() -> (MemFs, Vec<u8>) {
    let fs = MemFs::new();
    let mut tombstones = open(&fs).unwrap();
    let regexp = Matcher::new(MatchOp::Regexp, "job", "a|b.*").unwrap();
    tombstones
        .add(
            vec![Matcher::equal("__name__", "up"), regexp],
            range(10, 20),
            3,
        )
        .unwrap();
    tombstones.add(vec![], TimeRange::ALL, 1).unwrap();
    tombstones
        .add(vec![Matcher::equal("x", "ä")], range(15, 30), 5)
        .unwrap();
    let bytes = fs.read(Path::new("/tombstones"), 1 << 20).unwrap();
    (fs, bytes)
}

#[test]
fn the_example_of_the_page_is_correct() {
    let matchers = vec![
        Matcher::equal("job", "a"),
        Matcher::new(MatchOp::NotRegexp, "x", "1|2").unwrap(),
    ];
    let tombstone = Tombstone {
        number: 2,
        matchers,
        range: range(-5, 1_000),
        flush: 9,
    };
    let bytes = encode(3, std::slice::from_ref(&tombstone)).unwrap();
    varve_env::testing::assert_shown(
        include_str!("../../../../docs/format/tombstones.md"),
        &bytes,
    );
    assert_eq!(decode(&bytes).unwrap(), (3, vec![tombstone]));
}

#[test]
fn ids_without_a_successor_are_rejected() {
    let tombstone = |flush| Tombstone {
        number: 1,
        matchers: vec![],
        range: TimeRange::ALL,
        flush,
    };
    let decoded = |last, flush| decode(&encode(last, &[tombstone(flush)]).unwrap());
    assert!(decoded(NUMBER_MAX, NUMBER_MAX).is_ok());
    assert!(matches!(
        decoded(NUMBER_MAX + 1, 1),
        Err(Bad::Damaged {
            offset: LAST_NUMBER_OFFSET,
            ..
        })
    ));
    assert!(matches!(
        decoded(1, u64::MAX),
        Err(Bad::Damaged {
            offset: HEADER_SIZE,
            ..
        })
    ));
}

#[test]
fn a_tombstone_applies_to_older_blocks_of_its_time_that_have_not_applied_it() {
    let (fs, _) = three_tombstones();
    let tombstones = open(&fs).unwrap();
    for (block, expected) in [
        (block(0, 0, 100, 0), &[1, 2, 3][..]),
        (block(1, 0, 9, 0), &[2]),
        (block(2, 20, 40, 0), &[1, 3]),
        (block(2, 21, 40, 0), &[3]),
        (block(5, 0, 100, 0), &[3]),
        (block(6, 0, 100, 0), &[]),
        (block(0, 0, 100, 2), &[3]),
        (block(0, 0, 100, 3), &[]),
    ] {
        assert_eq!(numbers(tombstones.affecting(&block)), expected, "{block:?}");
    }
}

#[test]
fn unneeded_tombstones_are_dropped_and_their_ids_are_not_reused() {
    let (fs, _) = three_tombstones();
    let mut tombstones = open(&fs).unwrap();
    assert_eq!(
        tombstones.prune(|tombstone| tombstone.number > 1).unwrap(),
        1
    );
    assert_eq!(numbers(open(&fs).unwrap().as_slice()), [2, 3]);
    assert_eq!(tombstones.prune(|_| false).unwrap(), 2);
    let mut tombstones = open(&fs).unwrap();
    assert_eq!(
        (tombstones.as_slice().len(), tombstones.last_number()),
        (0, 3)
    );
    assert_eq!(tombstones.add(vec![], TimeRange::ALL, 1).unwrap(), 4);
    fs.remove(Path::new("/tombstones")).unwrap();
    let mut tombstones = Tombstones::open(Arc::new(fs), Path::new("/"), 9).unwrap();
    assert_eq!(tombstones.add(vec![], TimeRange::ALL, 1).unwrap(), 10);
}

#[test]
fn a_tombstone_replaces_older_ones_that_it_covers() {
    let mut tombstones = open(&MemFs::new()).unwrap();
    let mut add = |name: &str, start_ms, end_ms, flush| {
        tombstones
            .add(
                vec![Matcher::equal("x", name)],
                range(start_ms, end_ms),
                flush,
            )
            .unwrap();
        numbers(tombstones.as_slice())
    };
    assert_eq!(add("a", 10, 20, 5), [1]);
    assert_eq!(add("b", 10, 20, 5), [1, 2]);
    assert_eq!(add("a", 10, 19, 6), [1, 2, 3]);
    assert_eq!(add("a", 10, 20, 4), [1, 2, 3, 4]);
    assert_eq!(add("a", 9, 20, 6), [2, 5]);
}

#[test]
fn the_number_and_the_size_of_tombstones_are_limited() {
    let fs = MemFs::new();
    let mut tombstones = open(&fs).unwrap();
    let large = "x".repeat(TOMBSTONE_SIZE_MAX);
    let error = tombstones
        .add(vec![Matcher::equal("x", &large)], TimeRange::ALL, 1)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Limit {
                what: varve_context::Limit::Other("bytes of a tombstone"),
                ..
            }
        ),
        "{error}"
    );
    tombstones.list = (1..=TOMBSTONES_MAX as u64)
        .map(|number| Tombstone {
            number,
            matchers: vec![],
            range: range(number as i64, 0),
            flush: 1,
        })
        .collect();
    tombstones.last_number = TOMBSTONES_MAX as u64;
    let error = tombstones
        .add(vec![Matcher::equal("x", "")], TimeRange::ALL, 1)
        .unwrap_err();
    assert!(matches!(error, Error::Limit { limit: 4096, .. }), "{error}");
    assert_eq!(tombstones.as_slice().len(), TOMBSTONES_MAX);
    assert!(
        fs.list(Path::new("/")).unwrap().is_empty(),
        "nothing was written"
    );
}

#[test]
fn every_flipped_bit_and_every_truncation_is_rejected_with_its_position() {
    let (fs, good) = three_tombstones();
    let path = Path::new("/tombstones");
    let set = |bytes: &[u8]| fs.edit(path, |file| *file = bytes.to_vec()).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        set(&bad);
        let error = open(&fs).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { offset, .. } if *offset <= bit as u64 / 8),
            "bit {bit}: {error}"
        );
    }
    for size in 0..good.len() {
        set(&good[..size]);
        assert!(
            matches!(open(&fs), Err(Error::Corrupt { .. })),
            "truncated to {size}"
        );
    }
    set(&[&good[..], &[0]].concat());
    assert!(matches!(open(&fs), Err(Error::Corrupt { offset, .. }) if offset == good.len() as u64));
    set(&good);
    open(&fs).unwrap();
}

#[test]
fn newer_versions_and_invalid_files_are_rejected_and_left_alone() {
    let (fs, good) = three_tombstones();
    let path = Path::new("/tombstones");
    let check = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        let crc = crc32c::crc32c(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..HEADER_SIZE].copy_from_slice(&crc.to_le_bytes());
        fs.edit(path, |file| file.clone_from(&bytes)).unwrap();
        let error = open(&fs).unwrap_err();
        assert_eq!(fs.read(path, 1 << 20).unwrap(), bytes);
        error
    };
    assert!(matches!(
        check(VERSION_OFFSET, 9),
        Error::Version {
            found: 9,
            supported: 1,
            ..
        }
    ));
    assert!(matches!(
        check(ZERO_OFFSET, 1),
        Error::Corrupt { offset: 5, .. }
    ));
    assert!(
        matches!(check(LAST_NUMBER_OFFSET, 2), Error::Corrupt { .. }),
        "a tombstone above the newest id"
    );
    assert!(
        matches!(check(N_TOMBSTONES_OFFSET, 2), Error::Corrupt { .. }),
        "fewer tombstones than there are"
    );
    assert!(
        matches!(
            check(N_TOMBSTONES_OFFSET + 3, 1),
            Error::Corrupt { offset: 16, .. }
        ),
        "too many tombstones"
    );
}

/// Acknowledged tombstones exist after a power cut. A rejected tombstone exists entirely or not at all.
#[test]
fn no_tombstone_is_lost_at_any_failing_operation() {
    for fault in [
        Fault::Fails(ErrorKind::StorageFull),
        Fault::Cut,
        Fault::Dies,
    ] {
        for at in 0.. {
            let fs = MemFs::new();
            let mut tombstones = open(&fs).unwrap();
            tombstones.add(vec![], range(1, 1), 1).unwrap();
            fs.fail_at(fs.n_operations() + at, fault);
            let acknowledged: Vec<u64> = (2..5)
                .filter_map(|i| tombstones.add(vec![], range(i, i), 1).ok())
                .chain([1])
                .collect();
            for cut in (0..20)
                .map(PowerCut::Seeded)
                .chain([PowerCut::LosesAll, PowerCut::KeepsAll])
            {
                let mut reopened = open(&fs.crash(cut))
                    .unwrap_or_else(|e| panic!("{:?}, {cut:?}: {e}", fs.failed()));
                let found = numbers(reopened.as_slice());
                let all_there = acknowledged.iter().all(|number| found.contains(number));
                assert!(
                    all_there,
                    "{:?}, {cut:?}: {found:?} of {acknowledged:?}",
                    fs.failed()
                );
                let next = reopened.add(vec![], range(9, 9), 1).unwrap();
                assert!(!found.contains(&next) && !acknowledged.contains(&next));
            }
            if fs.failed().is_none() {
                break;
            }
        }
    }
}

fn tombstone() -> impl Strategy<Value = Tombstone> {
    let value = prop_oneof!["[a-z|.*]{0,5}", "\\PC{0,20}"];
    let matcher = (0..4_usize, "\\PC{0,10}", value)
        .prop_filter_map("is a regular expression", |(op, name, value)| {
            Matcher::new(OPS[op], &name, &value).ok()
        });
    let matchers = proptest::collection::vec(matcher, 0..4);
    let ranges = any::<(i64, i64)>().prop_map(|(start_ms, end_ms)| range(start_ms, end_ms));
    (matchers, ranges, 0..=NUMBER_MAX, 1..1000_u64).prop_map(|(matchers, range, flush, number)| {
        Tombstone {
            number,
            matchers,
            range,
            flush,
        }
    })
}

proptest! {
    #[test]
    fn tombstones_round_trip(mut tombstones in proptest::collection::vec(tombstone(), 0..10), more in 0..5_u64) {
        let mut last_number = 0;
        for tombstone in &mut tombstones {
            last_number += tombstone.number;
            tombstone.number = last_number;
        }
        let bytes = encode(last_number + more, &tombstones).unwrap();
        prop_assert_eq!(decode(&bytes).unwrap(), (last_number + more, tombstones));
    }

    #[test]
    fn any_bytes_with_correct_checksums_are_accepted_or_rejected(payload in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = encode(NUMBER_MAX, &[]).unwrap();
        bytes[N_TOMBSTONES_OFFSET] = 1;
        let crc = crc32c::crc32c(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        let sized = [&u32::try_from(payload.len()).unwrap().to_le_bytes(), &payload[..]].concat();
        bytes.extend(crc32c::crc32c(&sized).to_le_bytes());
        bytes.extend(sized);
        if let Ok((last_number, tombstones)) = decode(&bytes) {
            let again = decode(&encode(last_number, &tombstones).unwrap()).unwrap();
            prop_assert_eq!(again, (last_number, tombstones));
        }
    }
}
