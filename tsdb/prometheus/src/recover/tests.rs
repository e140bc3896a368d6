//! Recovers the recorded data directory of a real Prometheus. Skipped without the directory.

mod damage;

use std::path::Path;

use tempfile::TempDir;
use varve_tsdb::fs::RealFs;
use varve_tsdb::fs::damage::DamageReport;
use varve_tsdb::varint::put_i64;
use varve_tsdb::{Db, Options, QueryContext, SampleColumns, TimeRange};

use super::*;
use crate::block::BlockReader;
use crate::chunk::StartTimestamps;
use crate::export::{ExportOptions, export};
use crate::import::import_block;
use crate::testing::{Samples, add, fs, n_samples, read_block, recorded, series_record, wal_of};
use crate::wal::tests::segment;

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_dir(&path, &target) } else { std::fs::copy(&path, &target).map(|_| ()).unwrap() }
    }
}

/// Copies the recorded directory without its blocks, except for their descriptions.
fn logs_of(recorded: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["wal", "wbl", "chunks_head"] {
        copy_dir(&recorded.join(name), &dir.path().join(name));
    }
    for block in BlockReader::list(&RealFs, &recorded).unwrap() {
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
    assert_eq!(n_samples(&expected), whole.blocks.iter().map(|block| block.stats.n_samples).sum::<u64>());
    let options = RecoverOptions { memory_bytes: 1, concurrency: 3, ..RecoverOptions::default() };
    let (found, report, out) = run(&recorded, &options);
    assert!(found == expected);
    assert_eq!(report.blocks, whole.blocks);
    assert!(!out.path().join(SPILL_DIR).exists() && !out.path().join(UNKNOWN_SAMPLES).exists());
}

/// A WAL of floats: each record has one timestamp of all series.
fn log_of(n_series: u64, n_times: i64) -> TempDir {
    let names: Vec<_> = (1..=n_series).map(|series| format!("{series:06}")).collect();
    let series = (1..).zip(names.iter().map(|name| vec![("__name__", "up"), ("i", name)]));
    let mut records = vec![series_record(series)];
    for time in 0..n_times {
        let mut record = [&[2][..], &1_u64.to_be_bytes(), &(time * 30_000).to_be_bytes()].concat();
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
    assert_eq!((whole.damage.n_damaged(), n_samples(&expected), whole.spilled_size), (0, 4000 * 59, 0));
    let options = RecoverOptions { memory_bytes: 1, concurrency: 2, ..RecoverOptions::default() };
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
        let options = RecoverOptions { memory_bytes, concurrency: 8, ..RecoverOptions::default() };
        let (found, report, _out) = run(source.path(), &options);
        assert_eq!(report.spilled_size > 0, is_spilled, "{memory_bytes}");
        assert!(found == expected && report.blocks == whole.blocks);
    }
}

#[test]
fn progress_counts_bytes() {
    let source = log_of(4000, 200);
    let (out, seen) = (tempfile::tempdir().unwrap(), std::sync::Mutex::new(Vec::new()));
    let note = |it: Progress| seen.lock().unwrap().push((it.phase == Phase::Read, it.done, it.total));
    recover(&fs(), source.path(), out.path(), &RecoverOptions::default(), &note).unwrap();
    let seen = seen.into_inner().unwrap();
    let read: Vec<_> = seen.iter().filter(|(is_read, ..)| *is_read).collect();
    let size = std::fs::metadata(source.path().join("wal/00000000")).unwrap().len();
    // One segment takes several steps.
    assert!(read.len() > 3 && read.iter().all(|(_, _, total)| *total == size), "{read:?}");
    assert!(read.is_sorted_by(|a, b| a.1 < b.1) && read.last().unwrap().1 == size, "{read:?}");
}

/// Records of types 11 to 13, which Prometheus 3.5 does not write: one series each, with start timestamps.
#[test]
fn samples_with_start_timestamps_are_recovered() {
    let definitions = series_record((1..).zip(["a", "b", "c"].map(|name| vec![("__name__", name)])));
    let one = 1.0_f64.to_bits().to_be_bytes();
    // No spans and no buckets: hint, schema 0, threshold, zero count 1, count 1, sum, and four empty lists.
    let integer = [&[0, 0][..], &one, &[1, 1], &one, &[0; 4]].concat();
    let float = [&[0, 0][..], &one, &one, &one, &one, &[0; 4]].concat();
    let mut records = vec![definitions];
    for (code, value) in [(11, &one[..]), (12, &integer), (13, &float)] {
        // At 100 s, started at 50 s; a second later with the same start; then without a start.
        let mut record = vec![code];
        put_i64(&mut record, i64::from(code) - 10);
        [100_000, 50_000].into_iter().for_each(|time| put_i64(&mut record, time));
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
    for (kept, expected) in [(StartTimestamps::Drop, [0; 3]), (StartTimestamps::Keep, [50_000, 50_000, 0])] {
        let options = RecoverOptions { start_timestamps: kept, ..RecoverOptions::default() };
        let (found, report, out) = run(dir.path(), &options);
        assert_eq!((report.damage.n_damaged(), n_samples(&found)), (0, 9), "{kept:?}");
        let mut damage = DamageReport::default();
        let block = &BlockReader::list(&RealFs, out.path()).unwrap()[0];
        let block = BlockReader::open(&RealFs, block, &mut damage).unwrap();
        let mut cursor = block.cursor();
        while let Some(series) = cursor.next(&mut damage) {
            let mut columns = SampleColumns::default();
            series.read(&mut columns, &mut damage);
            assert_eq!(columns.timestamps_ms, [100_000, 101_000, 102_000]);
            assert_eq!([0, 1, 2].map(|idx| columns.start_ms(idx)), expected, "{kept:?}");
            assert_eq!(columns.histogram(0).is_some(), series.labels()[0].1 != "a");
        }
    }
}

#[test]
fn missing_segments_and_definitions_are_reported() {
    let Some(recorded) = recorded() else { return };
    let source = logs_of(&recorded);
    std::fs::remove_file(source.path().join("wal/00000001")).unwrap();
    let (found, report, _out) = run(source.path(), &RecoverOptions::default());
    assert_eq!(report.damage.entries()[0].reason, "segments 1 to 1 are missing");
    assert!(n_samples(&found) > 0);
    // The first segment defines nearly all series.
    std::fs::remove_file(source.path().join("wal/00000000")).unwrap();
    let (_, report, out) = run(source.path(), &RecoverOptions::default());
    let listed: u64 = report.unknown_series.values().map(|lost| lost.n_samples).sum();
    assert!(report.n_unknown_samples > 10_000 && listed == report.n_unknown_samples);
    let lines = std::fs::read_to_string(out.path().join(UNKNOWN_SAMPLES)).unwrap();
    assert_eq!(lines.lines().count() as u64, report.n_unknown_samples);
    assert!(lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

/// Imports recorded blocks and recovered WAL. The store exports the same samples.
#[test]
fn an_import_followed_by_an_export_keeps_all_samples() {
    let Some(recorded) = recorded() else { return };
    let (mut expected, _, out) = run(&recorded, &RecoverOptions::default());
    let data = tempfile::tempdir().unwrap();
    let import_dir = data.path().join("import");
    let mut blocks = BlockReader::list(&RealFs, &recorded).unwrap();
    blocks.extend(BlockReader::list(&RealFs, out.path()).unwrap());
    let (mut number, mut damage) = (1, DamageReport::default());
    for block in &blocks {
        number += import_block(&fs(), block, &import_dir, number, &mut damage).unwrap().n_blocks;
    }
    assert_eq!(damage.entries(), []);
    for (labels, samples) in read_blocks(&recorded) {
        expected.entry(labels).or_default().extend(samples);
    }
    let options = Options { background: false, ..Options::default() };
    let db = Db::open(data.path(), options).unwrap();
    assert_eq!(db.import().unwrap() as u64, number - 1);
    let ctx = QueryContext::unbounded();
    let mut found = Samples::new();
    for series in db.select(&ctx, &[], TimeRange::ALL).unwrap() {
        let (series, mut columns) = (series.unwrap(), SampleColumns::default());
        series.read(&mut columns).unwrap();
        add(&mut found, format!("{:?}", series.labels().iter().collect::<Vec<_>>()), &columns);
    }
    assert!(found == expected, "{} samples of {}", n_samples(&found), n_samples(&expected));
    let exported = tempfile::tempdir().unwrap();
    let metas = export(&db, &fs(), &ctx, exported.path(), &ExportOptions::default()).unwrap();
    assert_eq!(metas.iter().map(|meta| meta.stats.n_samples).sum::<u64>(), n_samples(&expected));
    assert!(read_blocks(exported.path()) == expected);
    let again = export(&db, &fs(), &ctx, exported.path(), &ExportOptions::default()).unwrap();
    assert_eq!(again, metas);
}
