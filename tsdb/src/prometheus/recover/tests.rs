//! Recovery of the recorded directory of a real Prometheus, whole and damaged. Without the directory these tests pass.
//!
//! `VARVE_DAMAGE_VARIANTS` says how many damaged copies are tried, `VARVE_DAMAGE_SEED` where they begin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::context::QueryContext;
use crate::db::Db;
use crate::fs::RealFs;
use crate::options::Options;
use crate::prometheus::block::BlockReader;
use crate::prometheus::export::{ExportOptions, export};
use crate::prometheus::fault::Faults;
use crate::prometheus::import::import_block;
use crate::prometheus::wal::{PAGE_SIZE, RecordType, SegmentReader, WalFiles, decode_histograms, decode_samples};
use crate::sample::{SampleColumns, TimeRange};

/// Times, and values as bits, by labels.
type Samples = BTreeMap<String, BTreeMap<i64, u64>>;

const VARIANTS: u64 = 24;

fn recorded() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/prometheus-data/mixed");
    dir.is_dir().then_some(dir)
}

fn fs() -> Arc<dyn Fs> {
    Arc::new(RealFs)
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_dir(&path, &target) } else { std::fs::copy(&path, &target).map(|_| ()).unwrap() }
    }
}

/// A directory with what is replayed of the recorded one, and the descriptions of its blocks.
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
    (samples, report, out)
}

fn read_blocks(dir: &Path) -> Samples {
    let mut samples = Samples::new();
    for dir in BlockReader::list(&RealFs, dir).unwrap() {
        let mut faults = Faults::default();
        let block = BlockReader::open(&RealFs, &dir, &mut faults).unwrap();
        let mut of_series = Faults::default();
        block
            .for_each(&mut faults, |series| {
                let mut columns = SampleColumns::default();
                series.read(&mut columns, &mut of_series);
                add(&mut samples, format!("{:?}", series.labels()), &columns);
                Ok(())
            })
            .unwrap();
        assert_eq!((faults.n_unsound(), of_series.n_unsound()), (0, 0));
    }
    samples
}

fn add(samples: &mut Samples, labels: String, columns: &SampleColumns) {
    let of_series = samples.entry(labels).or_default();
    of_series.extend(columns.iter().map(|sample| (sample.timestamp_ms, sample.value.to_bits())));
}

fn n_samples(samples: &Samples) -> u64 {
    samples.values().map(|of_series| of_series.len() as u64).sum()
}

#[test]
fn memory_and_workers_do_not_change_what_comes_out() {
    let Some(recorded) = recorded() else { return };
    let (expected, whole, _out) = run(&recorded, &RecoverOptions::default());
    assert_eq!((whole.faults.n_unsound(), whole.n_unknown_samples), (0, 0));
    assert_eq!(n_samples(&expected), whole.blocks.iter().map(|block| block.stats.n_samples).sum::<u64>());
    let options = RecoverOptions { memory_bytes: 1, concurrency: 3, ..RecoverOptions::default() };
    let (found, report, out) = run(&recorded, &options);
    assert!(found == expected);
    assert_eq!(report.blocks, whole.blocks);
    assert!(!out.path().join(SCRATCH).exists() && !out.path().join(UNKNOWN_SAMPLES).exists());
}

/// What lies on each page of a log, in samples, those of records that reach into it included.
fn samples_by_page(dir: &Path) -> BTreeMap<(PathBuf, u64), u64> {
    let mut pages = BTreeMap::new();
    let mut faults = Faults::default();
    for segment in WalFiles::list(&RealFs, dir, &mut faults).unwrap().segments {
        let mut reader = SegmentReader::open(&RealFs, &segment).unwrap();
        while let Some(record) = reader.next(&mut faults) {
            let bytes = record.compression.decode(&record.bytes).unwrap();
            let (mut samples, mut histograms) = (Vec::new(), Vec::new());
            match RecordType::of(&bytes) {
                Some(RecordType::Samples | RecordType::SamplesV2) => decode_samples(&bytes, &mut samples).unwrap(),
                Some(record_type) if record_type.name().contains("histogram") => {
                    decode_histograms(&bytes, &mut histograms).unwrap();
                }
                _ => {}
            }
            let page = PAGE_SIZE as u64;
            for page in record.offset / page..=(reader.position() - 1) / page {
                *pages.entry((segment.path.clone(), page)).or_default() += (samples.len() + histograms.len()) as u64;
            }
        }
    }
    pages
}

/// A damaged file, and which of its pages.
fn damage(dir: &Path, random: &mut impl FnMut(usize) -> usize) -> (PathBuf, std::ops::RangeInclusive<u64>) {
    let folder = ["wal", "wal", "wbl"][random(3)];
    let mut files: Vec<_> = std::fs::read_dir(dir.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let path = files[random(files.len())].clone();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = random(bytes.len().max(1));
    let page = |at: usize| (at / PAGE_SIZE) as u64;
    let last = page(bytes.len());
    let pages = match random(4) {
        0 => {
            bytes[at] ^= 1 << random(8);
            page(at)..=page(at)
        }
        1 => {
            let end = (at + 1 + random(9000)).min(bytes.len());
            bytes[at..end].iter_mut().for_each(|byte| *byte = random(256) as u8);
            page(at)..=page(end)
        }
        2 => {
            bytes.truncate(at);
            page(at)..=last
        }
        _ => {
            let end = (at + 1 + random(70_000)).min(bytes.len());
            bytes[at..end].fill(0);
            page(at)..=page(end)
        }
    };
    std::fs::write(&path, bytes).unwrap();
    (path, pages)
}

#[test]
fn damage_costs_the_damaged_pages_and_is_named() {
    let Some(recorded) = recorded() else { return };
    let variable = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (n_variants, first) = (variable("VARVE_DAMAGE_VARIANTS", VARIANTS), variable("VARVE_DAMAGE_SEED", 1));
    let source = logs_of(&recorded);
    let options = RecoverOptions { concurrency: 2, ..RecoverOptions::default() };
    let (whole, _, _out) = run(source.path(), &options);
    for seed in first..first + n_variants {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        let copy = tempfile::tempdir().unwrap();
        copy_dir(source.path(), copy.path());
        let mut by_page = samples_by_page(&copy.path().join("wal"));
        by_page.extend(samples_by_page(&copy.path().join("wbl")));
        let (path, pages) = damage(copy.path(), &mut random);
        let (found, report, _out) = run(copy.path(), &options);
        let in_pages: u64 = pages.map(|page| by_page.get(&(path.clone(), page)).copied().unwrap_or(0)).sum();
        let mut n_lost = 0;
        for (labels, samples) in &whole {
            let found = found.get(labels);
            n_lost += samples.keys().filter(|time| found.is_none_or(|found| !found.contains_key(time))).count() as u64;
        }
        for (labels, samples) in &found {
            let whole = &whole[labels];
            assert!(samples.iter().all(|(time, bits)| whole.get(time) == Some(bits)), "seed {seed}: {labels}");
        }
        let n_faults = report.faults.kept().len();
        assert!(n_lost <= in_pages + report.n_unknown_samples, "seed {seed}: {n_lost} lost of {in_pages}: {report:?}");
        assert!(n_lost == 0 || n_faults > 0, "seed {seed}: {n_lost} lost, nothing reported");
    }
}

#[test]
fn a_missing_segment_and_missing_definitions_are_named() {
    let Some(recorded) = recorded() else { return };
    let source = logs_of(&recorded);
    std::fs::remove_file(source.path().join("wal/00000001")).unwrap();
    let (found, report, _out) = run(source.path(), &RecoverOptions::default());
    assert_eq!(report.faults.kept()[0].reason, "segments 1 to 1 are missing");
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

/// Blocks and recovered log go into a store; what the store exports is what went in.
#[test]
fn what_is_imported_is_exported_again() {
    let Some(recorded) = recorded() else { return };
    let (mut expected, _, out) = run(&recorded, &RecoverOptions::default());
    let data = tempfile::tempdir().unwrap();
    let import_dir = data.path().join("import");
    let mut blocks = BlockReader::list(&RealFs, &recorded).unwrap();
    blocks.extend(BlockReader::list(&RealFs, out.path()).unwrap());
    let (mut number, mut faults) = (1, Faults::default());
    for block in &blocks {
        number += import_block(&fs(), block, &import_dir, number, &mut faults).unwrap().n_blocks;
    }
    assert_eq!(faults.kept(), []);
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
