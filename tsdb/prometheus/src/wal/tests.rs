//! Segments in Prometheus' format, valid and damaged.

use std::path::Path;

use proptest::prelude::*;
use varve_env::RealFs;
use varve_env::damage::{DamageKind, DamageReport};

use super::*;

/// Writes records to pages as Prometheus does. Returns the bytes and the offsets of the records.
pub(crate) fn segment(records: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut pages, mut offsets) = (PageWriter::default(), Vec::new());
    for bytes in records {
        let before = pages.bytes.len();
        pages.put(&RawRecord {
            offset: 0,
            compression: WalCompression::None,
            bytes: bytes.clone(),
        });
        // A header never starts in the last six bytes of a page.
        let left = PAGE_SIZE - before % PAGE_SIZE;
        offsets.push(if left < 7 { before + left } else { before });
    }
    (pages.bytes, offsets)
}

fn read(bytes: &[u8], is_last: bool) -> (Vec<(u64, Vec<u8>)>, DamageReport) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000000");
    std::fs::write(&path, bytes).unwrap();
    let segment = Segment {
        path,
        number: 0,
        is_last,
        is_checkpoint: false,
    };
    let mut damage = DamageReport::default();
    let mut reader = SegmentReader::open(&RealFs, &segment).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next(&mut damage) {
        records.push((record.offset, record.bytes));
    }
    (records, damage)
}

fn records() -> Vec<Vec<u8>> {
    [10, 100_000, 0, 32_761, 5, 20_000, 12_000, 70_000, 1]
        .into_iter()
        .map(|size| vec![size as u8 | 1; size])
        .collect()
}

#[test]
fn records_that_span_pages_are_read() {
    let (bytes, offsets) = segment(&records());
    let (found, damage) = read(&bytes, true);
    assert_eq!(
        found
            .iter()
            .map(|(_, record)| record.clone())
            .collect::<Vec<_>>(),
        records()
    );
    assert_eq!(
        found
            .iter()
            .map(|(offset, _)| *offset as usize)
            .collect::<Vec<_>>(),
        offsets
    );
    assert!(damage.entries().is_empty());
}

#[test]
fn only_the_last_segment_may_have_a_torn_tail() {
    let (bytes, offsets) = segment(&records());
    for cut in [offsets[8] + 3, offsets[7] + 40_000, offsets[7] + 7] {
        for (is_last, kind) in [(true, DamageKind::TornTail), (false, DamageKind::Corrupt)] {
            let (found, damage) = read(&bytes[..cut], is_last);
            assert_eq!(found.len(), if cut > offsets[8] { 8 } else { 7 });
            assert_eq!(
                damage
                    .entries()
                    .iter()
                    .map(|damage| damage.kind)
                    .collect::<Vec<_>>(),
                [kind],
                "{cut}"
            );
        }
    }
}

#[test]
fn a_damaged_record_costs_only_itself() {
    let (bytes, offsets) = segment(&records());
    for (i, &offset) in offsets.iter().enumerate() {
        let mut damaged = bytes.clone();
        damaged[offset + 4] ^= 1;
        let (found, damage) = read(&damaged, true);
        let lost: Vec<_> = offsets
            .iter()
            .filter(|&&at| !found.iter().any(|(offset, _)| *offset == at as u64))
            .collect();
        assert_eq!(lost, [&offset], "record {i}: {damage:?}");
        assert!(damage.n_damaged() >= 1);
        assert_eq!(damage.entries()[0].offset, offset as u64);
    }
}

/// A log with these files. A file contains a record, or is empty if its name ends with `-`.
fn log_of(log: LogKind, names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (record, _) = segment(&[vec![2; 100]]);
    for name in names {
        let path = dir
            .path()
            .join(log.dir_name())
            .join(name.trim_end_matches(['-', '!']));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = match name.as_bytes().last() {
            Some(b'-') => Vec::new(),
            // The second of two records is damaged.
            Some(b'!') => [&record[..], &[1; 100]].concat(),
            _ => record.clone(),
        };
        std::fs::write(path, bytes).unwrap();
    }
    dir
}

/// Lists a log: the segments, those of a checkpoint with `c`, and the reported damage.
fn listed(log: LogKind, names: &[&str]) -> (Vec<String>, Vec<String>) {
    let dir = log_of(log, names);
    let mut damage = DamageReport::default();
    let files = WalFiles::list(&RealFs, dir.path(), log, &mut damage).unwrap();
    let mut segments = Vec::new();
    for segment in &files.segments {
        let mark = if segment.is_checkpoint { "c" } else { "" };
        segments.push(format!("{mark}{}", segment.number));
    }
    let reasons = damage.entries().iter().map(|damage| damage.reason.clone());
    (segments, reasons.collect())
}

#[test]
fn missing_segments_are_reported() {
    let begin = "segments 0 to 0 are missing at the beginning";
    for (log, names, segments, reasons) in [
        (
            LogKind::Wal,
            &[
                "00000004",
                "00000005",
                "00000008",
                "checkpoint.00000004/00000000",
                "checkpoint.00000002/00000000",
                "checkpoint.00000009.tmp/00000000",
                "00000004.tmp",
            ][..],
            &["c0", "5", "8"][..],
            &["segments 6 to 7 are missing"][..],
        ),
        // Without a checkpoint, the samples and definitions of the first segment are lost.
        (LogKind::Wal, &["00000001"], &["1"], &[begin]),
        (LogKind::Wal, &["00000000", "00000001"], &["0", "1"], &[]),
        // Prometheus removes segments of the WBL without a checkpoint.
        (LogKind::Wbl, &["00000001"], &["1"], &[]),
        (
            LogKind::Wbl,
            &["00000001", "00000003"],
            &["1", "3"],
            &["segments 2 to 2 are missing"],
        ),
        (
            LogKind::Wal,
            &["checkpoint.00000002/00000000", "00000005"],
            &["c0", "5"],
            &["segments 3 to 4 are missing after the checkpoint"],
        ),
        (
            LogKind::Wal,
            &["checkpoint.00000002/00000000"],
            &["c0"],
            &["the segments after checkpoint 2 are missing"],
        ),
        (
            LogKind::Wal,
            &["checkpoint.00000002/00000001", "00000003"],
            &["c1", "3"],
            &[begin],
        ),
    ] {
        let (found, damage) = listed(log, names);
        assert_eq!(
            (&found[..], &damage[..]),
            (&own(segments)[..], &own(reasons)[..]),
            "{names:?}"
        );
    }
    let mut damage = DamageReport::default();
    let nowhere = WalFiles::list(&RealFs, Path::new("nowhere"), LogKind::Wal, &mut damage).unwrap();
    assert!(nowhere.segments.is_empty() && damage.entries().is_empty());
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A checkpoint of 0 bytes replaced intact segments.
#[test]
fn a_checkpoint_counts_by_its_content() {
    let empty = "the checkpoint has no records";
    let replaced =
        "the checkpoint is damaged; segments 0 to 1, which it replaces, are read instead";
    for (names, segments, reasons) in [
        (
            &[
                "checkpoint.00000001/00000000-",
                "00000000",
                "00000001",
                "00000002",
            ][..],
            &["0", "1", "2"][..],
            &[empty][..],
        ),
        (
            &[
                "checkpoint.00000001/00000000!",
                "00000000",
                "00000001",
                "00000002",
            ],
            &["0", "1", "2"],
            &[replaced],
        ),
        // Its sound half, then what is left of the segments.
        (
            &["checkpoint.00000001/00000000!", "00000001", "00000002"],
            &["c0", "1", "2"],
            &[],
        ),
        // The replay reports the damage.
        (
            &["checkpoint.00000001/00000000!", "00000002"],
            &["c0", "2"],
            &[],
        ),
        (
            &[
                "checkpoint.00000001/00000000",
                "00000000",
                "00000001",
                "00000002",
            ],
            &["c0", "2"],
            &[],
        ),
        (
            &[
                "checkpoint.00000003/00000000-",
                "checkpoint.00000001/00000000",
                "00000002",
                "00000003",
                "00000004",
            ],
            &["c0", "2", "3", "4"],
            &[empty],
        ),
        (
            &["checkpoint.00000001/00000000-", "00000002"],
            &["2"],
            &[empty, "segments 0 to 1 are missing at the beginning"],
        ),
    ] {
        let (found, damage) = listed(LogKind::Wal, names);
        assert_eq!(
            (&found[..], &damage[..]),
            (&own(segments)[..], &own(reasons)[..]),
            "{names:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Returned records are correct, and records in undamaged pages are returned.
    #[test]
    fn damage_costs_no_more_than_its_page(
        sizes in proptest::collection::vec(0..40_000_usize, 1..12),
        at in any::<prop::sample::Index>(), len in 1..40_usize, with: u8,
    ) {
        let records: Vec<_> = (0..).zip(&sizes).map(|(i, &size)| vec![i as u8 + 1; size]).collect();
        let (bytes, offsets) = segment(&records);
        let at = at.index(bytes.len());
        let mut damaged = bytes.clone();
        damaged.iter_mut().skip(at).take(len).for_each(|byte| *byte = with);
        let (found, damage) = read(&damaged, true);
        prop_assert!(damaged == bytes || found.len() == records.len() || !damage.entries().is_empty());
        let pages = at / PAGE_SIZE..=(at + len - 1) / PAGE_SIZE;
        for (i, &offset) in offsets.iter().enumerate() {
            let end = offsets.get(i + 1).copied().unwrap_or(bytes.len());
            let is_far = end.div_ceil(PAGE_SIZE) <= *pages.start() || offset / PAGE_SIZE > *pages.end();
            let is_found = found.iter().any(|(found, record)| *found == offset as u64 && *record == records[i]);
            prop_assert!(is_found || !is_far, "record {i} at {offset}, damage at {at}");
        }
        for (_, record) in &found {
            prop_assert!(records.contains(record));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes, true);
    }
}

#[test]
fn pooled_memory_is_limited() {
    let mut spare = BufferPool::default();
    spare.put(Vec::with_capacity(1 << 20));
    assert_eq!(spare.get().capacity(), 0);
    (0..1000).for_each(|_| spare.put(Vec::with_capacity(10_000)));
    let n_kept = std::iter::repeat_with(|| spare.get())
        .take_while(|piece| piece.capacity() > 0)
        .count();
    assert_eq!(n_kept, (4 << 20) / 10_000);
}
