//! Recovers the recorded data directory of a real Prometheus. Skipped without the directory.

mod damage;
mod import;

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;
use varve_codec::varint::put_i64;
use varve_env::RealFs;
use varve_env::damage::DamageReport;
use varve_env::testing::copy_dir;
use varve_model::{SampleColumns, TimeRange};
use varve_tsdb::{Db, Options, ReadContext};

use super::*;
use crate::block::{BlockMeta, BlockReader, Ulid};
use crate::chunk::{Encoding, StartTimestamps};
use crate::export::{ExportOptions, export};
use crate::import::import_block;
use crate::inspect::{Depth, inspect};
use crate::testing::{
    Samples, add, fs, n_samples, read_block, recorded, recorded_3_16, series_record, wal_of,
};
use crate::wal::RecordType;
use crate::wal::tests::segment;

/// Copies the recorded directory without its blocks, except for their descriptions.
fn logs_of(recorded: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["wal", "wbl", "chunks_head"] {
        copy_dir(&recorded.join(name), &dir.path().join(name));
    }
    for block in BlockReader::list(&RealFs, recorded).unwrap() {
        let target = dir.path().join(block.file_name().unwrap());
        std::fs::create_dir(&target).unwrap();
        std::fs::copy(block.join("meta.json"), target.join("meta.json")).unwrap();
    }
    dir
}

fn run(source: &Path, options: &RecoverOptions) -> (Samples, Report, TempDir) {
    let out = tempfile::tempdir().unwrap();
    let report = recover(&fs(), source, out.path(), options, &|_| {}).unwrap();
    let samples = read_blocks(out.path());
    let totals = &report.totals;
    assert_eq!(
        (totals.n_kept, totals.n_unaccounted()),
        (n_samples(&samples), 0),
        "{totals:?}"
    );
    (samples, report, out)
}

fn read_blocks(dir: &Path) -> Samples {
    let (mut samples, mut damage) = (Samples::new(), DamageReport::default());
    for dir in BlockReader::list(&RealFs, dir).unwrap() {
        for (labels, samples_of_block) in read_block(&dir, &mut damage) {
            samples.entry(labels).or_default().extend(samples_of_block);
        }
    }
    assert_eq!(damage.n_damaged(), 0);
    samples
}

#[test]
fn memory_and_concurrency_do_not_change_the_blocks() {
    let Some(recorded) = recorded() else { return };
    let (expected, whole, _out) = run(&recorded, &RecoverOptions::default());
    assert_eq!((whole.damage.n_damaged(), whole.n_unknown_samples), (0, 0));
    assert_eq!(
        n_samples(&expected),
        whole
            .blocks
            .iter()
            .map(|block| block.stats.n_samples)
            .sum::<u64>()
    );
    let options = RecoverOptions {
        memory_bytes: 1,
        concurrency: 3,
        ..RecoverOptions::default()
    };
    let (found, report, out) = run(&recorded, &options);
    assert!(found == expected);
    assert_eq!(report.blocks, whole.blocks);
    assert!(!out.path().join(SPILL_DIR).exists() && !out.path().join(UNKNOWN_SAMPLES).exists());
}

/// A WAL of floats: each record has one timestamp of all series.
fn log_of(n_series: u64, n_times: i64) -> TempDir {
    let names: Vec<_> = (1..=n_series)
        .map(|series| format!("{series:06}"))
        .collect();
    let series = (1..).zip(
        names
            .iter()
            .map(|name| vec![("__name__", "up"), ("i", name)]),
    );
    let mut records = vec![series_record(series)];
    for time in 0..n_times {
        let mut record = [
            &[2][..],
            &1_u64.to_be_bytes(),
            &(time * 30_000).to_be_bytes(),
        ]
        .concat();
        for series in 1..=n_series {
            put_i64(&mut record, series.cast_signed() - 1);
            record.push(0);
            let value = (series as f64).sqrt() * (time + 1) as f64;
            record.extend_from_slice(&value.to_bits().to_be_bytes());
        }
        records.push(record);
    }
    wal_of(&segment(&records).0)
}

#[test]
fn open_chunks_are_spilled() {
    let source = log_of(4000, 59);
    let (expected, whole, _out) = run(source.path(), &RecoverOptions::default());
    assert_eq!(
        (
            whole.damage.n_damaged(),
            n_samples(&expected),
            whole.spilled_size
        ),
        (0, 4000 * 59, 0)
    );
    let options = RecoverOptions {
        memory_bytes: 1,
        concurrency: 2,
        ..RecoverOptions::default()
    };
    let (found, report, _out) = run(source.path(), &options);
    // No chunk is full, and the spilled size is about the size of the chunks.
    let n_chunks: u64 = whole.blocks.iter().map(|block| block.stats.n_chunks).sum();
    assert_eq!(n_chunks, 4000);
    assert!(report.spilled_size > 1 << 20, "{}", report.spilled_size);
    assert!(found == expected);
    assert_eq!(report.blocks, whole.blocks);
}

#[test]
fn the_memory_budget_includes_writing_blocks() {
    let source = log_of(4000, 59);
    let (expected, whole, _out) = run(source.path(), &RecoverOptions::default());
    // Chunks of two megabytes, plus the memory of eight threads for writing.
    for (memory_bytes, is_spilled) in [(48 << 20, true), (160 << 20, false)] {
        let options = RecoverOptions {
            memory_bytes,
            concurrency: 8,
            ..RecoverOptions::default()
        };
        let (found, report, _out) = run(source.path(), &options);
        assert_eq!(report.spilled_size > 0, is_spilled, "{memory_bytes}");
        assert!(found == expected && report.blocks == whole.blocks);
    }
}

#[test]
fn progress_counts_bytes() {
    let source = log_of(4000, 200);
    let (out, seen) = (
        tempfile::tempdir().unwrap(),
        std::sync::Mutex::new(Vec::new()),
    );
    let note = |it: Progress| {
        seen.lock()
            .unwrap()
            .push((it.phase == RecoverPhase::Read, it.done, it.total))
    };
    recover(
        &fs(),
        source.path(),
        out.path(),
        &RecoverOptions::default(),
        &note,
    )
    .unwrap();
    let seen = seen.into_inner().unwrap();
    let read: Vec<_> = seen.iter().filter(|(is_read, ..)| *is_read).collect();
    let size = std::fs::metadata(source.path().join("wal/00000000"))
        .unwrap()
        .len();
    // One segment takes several steps.
    assert!(
        read.len() > 3 && read.iter().all(|(_, _, total)| *total == size),
        "{read:?}"
    );
    assert!(
        read.is_sorted_by(|a, b| a.1 < b.1) && read.last().unwrap().1 == size,
        "{read:?}"
    );
}

/// Records of types 11 to 13, which Prometheus 3.5 does not write: one series each, with start
/// timestamps.
#[test]
fn samples_with_start_timestamps_are_recovered() {
    let definitions =
        series_record((1..).zip(["a", "b", "c"].map(|name| vec![("__name__", name)])));
    let one = 1.0_f64.to_bits().to_be_bytes();
    // No spans and no buckets: hint, schema 0, threshold, zero count 1, count 1, sum, and four
    // empty lists.
    let integer = [&[0, 0][..], &one, &[1, 1], &one, &[0; 4]].concat();
    let float = [&[0, 0][..], &one, &one, &one, &one, &[0; 4]].concat();
    let mut records = vec![definitions];
    for (code, value) in [(11, &one[..]), (12, &integer), (13, &float)] {
        // At 100 s, started at 50 s; a second later with the same start; then without a start.
        let mut record = vec![code];
        put_i64(&mut record, i64::from(code) - 10);
        for time in [100_000, 50_000] {
            put_i64(&mut record, time);
        }
        record.extend_from_slice(value);
        for (time, start) in [(1000, 1), (2000, 0)] {
            put_i64(&mut record, 0);
            put_i64(&mut record, time);
            record.push(start);
            record.extend_from_slice(value);
        }
        records.push(record);
    }
    let dir = wal_of(&segment(&records).0);
    for (kept, expected) in [
        (StartTimestamps::Drop, [0; 3]),
        (StartTimestamps::Keep, [50_000, 50_000, 0]),
    ] {
        let options = RecoverOptions {
            start_timestamps: kept,
            ..RecoverOptions::default()
        };
        let (found, report, out) = run(dir.path(), &options);
        assert_eq!(
            (report.damage.n_damaged(), n_samples(&found)),
            (0, 9),
            "{kept:?}"
        );
        let mut damage = DamageReport::default();
        let block = &BlockReader::list(&RealFs, out.path()).unwrap()[0];
        let block = BlockReader::open(&RealFs, block, &mut damage).unwrap();
        let mut cursor = block.cursor();
        while let Some(series) = cursor.next(&mut damage) {
            let mut columns = SampleColumns::default();
            series.read(&mut columns, &mut damage);
            assert_eq!(columns.timestamps_ms, [100_000, 101_000, 102_000]);
            assert_eq!(
                [0, 1, 2].map(|idx| columns.start_ms(idx)),
                expected,
                "{kept:?}"
            );
            assert_eq!(columns.histogram(0).is_some(), series.labels()[0].1 != "a");
        }
    }
}

/// Prometheus 3.16 begins a checkpoint with the time before which it truncated the WAL. Blocks of
/// stale or selected series lack samples of other series.
#[test]
fn samples_before_the_truncation_of_the_wal_are_covered() {
    let mut samples = [&[2][..], &1_u64.to_be_bytes(), &0_u64.to_be_bytes()].concat();
    for time in [10, 20, 30, 40] {
        samples.push(0);
        put_i64(&mut samples, time);
        samples.extend_from_slice(&1.0_f64.to_be_bytes());
    }
    for (truncated, hint, covered, expected) in [
        (None, None, None, &[10, 20, 30, 40][..]),
        (Some(25), None, Some(25), &[30, 40]),
        (None, Some(""), Some(35), &[40]),
        (Some(25), Some(""), Some(35), &[40]),
        (Some(25), Some("from-stale-series"), Some(25), &[30, 40]),
        (None, Some("from-selected-series"), None, &[10, 20, 30, 40]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (checkpoint, block) = (dir.path().join("wal/checkpoint.00000000"), Ulid::new(0, 1));
        std::fs::create_dir_all(&checkpoint).unwrap();
        let mut records: Vec<_> = truncated
            .iter()
            .map(|time: &i64| [&[14][..], &time.to_be_bytes()].concat())
            .collect();
        records.push(series_record([(1, vec![("a", "b")])]));
        std::fs::write(checkpoint.join("00000000"), segment(&records).0).unwrap();
        std::fs::write(
            dir.path().join("wal/00000001"),
            segment(&[samples.clone()]).0,
        )
        .unwrap();
        if let Some(hint) = hint {
            let meta = BlockMeta {
                ulid: block,
                max_ms: 35,
                hints: vec![hint.to_owned()],
                ..BlockMeta::default()
            };
            std::fs::create_dir(dir.path().join(block.to_string())).unwrap();
            std::fs::write(
                dir.path().join(block.to_string()).join("meta.json"),
                meta.to_json(),
            )
            .unwrap();
        }
        let (found, report, _out) = run(dir.path(), &RecoverOptions::default());
        assert_eq!(
            (report.damage.entries(), report.covered_before_ms),
            (&[][..], covered),
            "{truncated:?} {hint:?}"
        );
        assert!(
            found.values().flat_map(|series| series.keys()).eq(expected),
            "{truncated:?} {hint:?}"
        );
        let n_marks = report
            .records
            .iter()
            .filter(|(kind, _)| *kind == RecordType::MinValidTime)
            .count();
        assert_eq!(n_marks, usize::from(truncated.is_some()));
    }
}

#[test]
fn missing_segments_and_definitions_are_reported() {
    let Some(recorded) = recorded() else { return };
    let source = logs_of(&recorded);
    std::fs::remove_file(source.path().join("wal/00000001")).unwrap();
    let (found, report, _out) = run(source.path(), &RecoverOptions::default());
    assert_eq!(
        report.damage.entries()[0].reason,
        "segments 1 to 1 are missing"
    );
    assert!(n_samples(&found) > 0 && !report.totals.is_complete());
    // The first segment defines nearly all series.
    std::fs::remove_file(source.path().join("wal/00000000")).unwrap();
    let (_, report, out) = run(source.path(), &RecoverOptions::default());
    let listed: u64 = report
        .unknown_series
        .values()
        .map(|lost| lost.n_samples)
        .sum();
    assert!(report.n_unknown_samples > 10_000 && listed == report.n_unknown_samples);
    let lines = std::fs::read_to_string(out.path().join(UNKNOWN_SAMPLES)).unwrap();
    assert_eq!(lines.lines().count() as u64, report.n_unknown_samples);
    assert!(
        lines
            .lines()
            .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
    );
}

/// Samples as `promtool tsdb dump` prints them. All NaN are equal.
fn printed(samples: &Samples) -> Vec<(String, i64, Option<f64>)> {
    let number = |bits: u64| Some(f64::from_bits(bits)).filter(|value| !value.is_nan());
    let series = |(labels, samples): (&String, &BTreeMap<i64, u64>)| {
        samples
            .iter()
            .map(|(time, bits)| (labels.clone(), *time, number(*bits)))
            .collect::<Vec<_>>()
    };
    samples.iter().flat_map(series).collect()
}

/// Parses the dump of Prometheus 3.16.
fn dump_3_16() -> Vec<(String, i64, Option<f64>)> {
    let dump = std::fs::File::open(recorded_3_16().with_extension("16.dump.zst")).unwrap();
    let dump = String::from_utf8(zstd::decode_all(dump).unwrap()).unwrap();
    let line = |line: &str| {
        let (labels, sample) = line.strip_prefix('{').unwrap().split_once("} ").unwrap();
        let (value, time) = sample.split_once(' ').unwrap();
        let labels: Vec<_> = labels
            .split(", ")
            .map(|label| label.split_once('=').unwrap())
            .collect();
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| (*name, value.trim_matches('"')))
            .collect();
        let value = value.parse::<f64>().unwrap();
        (
            format!("{labels:?}"),
            time.parse().unwrap(),
            Some(value).filter(|value| !value.is_nan()),
        )
    };
    let mut lines: Vec<_> = dump.lines().map(line).collect();
    lines.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    lines
}

#[test]
fn a_directory_of_prometheus_3_16_is_recovered() {
    let source = recorded_3_16();
    let inspection = inspect(&RealFs, &source, Depth::Everything, &mut |_, _| {}).unwrap();
    assert_eq!(
        (inspection.damage.entries(), inspection.blocks.len()),
        (&[][..], 2)
    );
    assert!(
        inspection.n_head_chunks >= 9,
        "{}",
        inspection.n_head_chunks
    );
    let mut whole = read_blocks(&source);
    let (found, report, _out) = run(&source, &RecoverOptions::default());
    assert_eq!(
        (report.damage.entries(), report.n_unknown_samples),
        (&[][..], 0)
    );
    let n_of = |wanted| {
        report
            .records
            .iter()
            .find(|(kind, _)| *kind == wanted)
            .map_or(0, |(_, n)| n)
    };
    assert_eq!(n_of(RecordType::MinValidTime), 1);
    assert!(n_of(RecordType::SamplesV2) > 100 && n_of(RecordType::Samples) == 0);
    for (labels, samples) in found {
        whole.entry(labels).or_default().extend(samples);
    }
    let (whole, expected) = (printed(&whole), dump_3_16());
    assert_eq!(whole.len(), expected.len());
    assert!(
        whole == expected,
        "{:?}",
        whole.iter().zip(&expected).find(|(a, b)| a != b)
    );
    // With start timestamps, which only the counter has.
    let options = RecoverOptions {
        start_timestamps: StartTimestamps::Keep,
        ..RecoverOptions::default()
    };
    let (_, _, out) = run(&source, &options);
    let block = &BlockReader::list(&RealFs, out.path()).unwrap()[0];
    let block = BlockReader::open(&RealFs, block, &mut DamageReport::default()).unwrap();
    let (mut cursor, mut damage) = (block.cursor(), DamageReport::default());
    while let Some(series) = cursor.next(&mut damage) {
        let mut columns = SampleColumns::default();
        series.read(&mut columns, &mut damage);
        let has_starts = !columns.starts_ms.is_empty();
        assert_eq!(
            has_starts,
            series.labels()[0].1 == "requests_total",
            "{:?}",
            series.labels()
        );
        assert!(
            series
                .chunks(&mut damage)
                .iter()
                .all(|chunk| chunk.encoding == Encoding::Xor2)
        );
    }
}

/// Nothing checks `meta.json`: with one flipped bit of its `maxTime`, all samples of the WAL before it
/// counted as covered by blocks.
#[test]
fn a_block_covers_no_samples_after_its_last_chunk() {
    let source = recorded_3_16();
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&source, copy.path());
    for block in BlockReader::list(&RealFs, copy.path()).unwrap() {
        let meta = BlockReader::read_meta(&RealFs, &block).unwrap();
        let later = BlockMeta {
            max_ms: meta.max_ms + 100_000_000,
            ..meta
        };
        std::fs::write(block.join("meta.json"), later.to_json()).unwrap();
    }
    let (expected, report, _out) = run(&source, &RecoverOptions::default());
    let (found, report_of_copy, _out) = run(copy.path(), &RecoverOptions::default());
    assert!(n_samples(&expected) > 0);
    assert_eq!(found, expected);
    assert_eq!(report_of_copy.n_covered, report.n_covered);
}

/// Imports recorded blocks and recovered WAL. The store exports the same samples.
#[test]
fn an_import_followed_by_an_export_keeps_all_samples() {
    recorded()
        .into_iter()
        .chain([recorded_3_16()])
        .for_each(|dir| check_import_and_export(&dir));
}

fn check_import_and_export(recorded: &Path) {
    let (mut expected, _, out) = run(recorded, &RecoverOptions::default());
    let data = tempfile::tempdir().unwrap();
    let import_dir = data.path().join("import");
    let mut blocks = BlockReader::list(&RealFs, recorded).unwrap();
    blocks.extend(BlockReader::list(&RealFs, out.path()).unwrap());
    let (mut number, mut damage) = (1, DamageReport::default());
    for block in &blocks {
        number += import_block(&fs(), block, &import_dir, number, &[], &mut damage)
            .unwrap()
            .n_blocks;
    }
    assert_eq!(damage.entries(), []);
    for (labels, samples) in read_blocks(recorded) {
        expected.entry(labels).or_default().extend(samples);
    }
    let options = Options {
        background: false,
        ..Options::default()
    };
    let db = Db::open(data.path(), options).unwrap();
    assert_eq!(db.import().unwrap() as u64, number - 1);
    let ctx = ReadContext::unbounded();
    let mut found = Samples::new();
    for series in db.select(&ctx, &[], TimeRange::ALL).unwrap() {
        let (series, mut columns) = (series.unwrap(), SampleColumns::default());
        series.read(&mut columns).unwrap();
        add(
            &mut found,
            format!("{:?}", series.labels().iter().collect::<Vec<_>>()),
            &columns,
        );
    }
    assert!(
        found == expected,
        "{} samples of {}",
        n_samples(&found),
        n_samples(&expected)
    );
    let exported = tempfile::tempdir().unwrap();
    let metas = export(&db, &fs(), &ctx, exported.path(), &ExportOptions::default()).unwrap();
    assert_eq!(
        metas.iter().map(|meta| meta.stats.n_samples).sum::<u64>(),
        n_samples(&expected)
    );
    assert!(read_blocks(exported.path()) == expected);
    let again = export(&db, &fs(), &ctx, exported.path(), &ExportOptions::default()).unwrap();
    assert_eq!(again, metas);
}
