//! Damaged copies of the recorded directory: what is outside the damage comes out, and the damage is named.
//!
//! `VARVE_DAMAGE_VARIANTS` says how many copies are tried, `VARVE_DAMAGE_SEED` where they begin.

use std::collections::BTreeSet;
use std::ops::Range;

use super::*;
use crate::prometheus::head_chunks::HeadChunkFiles;
use crate::prometheus::wal::{PAGE_SIZE, RecordType, SegmentReader, WalFiles, decode_histograms, decode_samples};

/// Copies that are tried unless somebody asks for more: each kind of damage a few times.
const VARIANTS: u64 = 27;
/// Bytes around the data of a head chunk that belong to it: numbers, encoding and size in front, a checksum behind.
const HEAD_CHUNK_FRAME: u64 = 40;
/// The series that was deleted in the middle: what was deleted comes back if the deletion itself is damaged.
const DELETED: &str = r#"("i", "7")"#;

/// What a copy suffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Bit,
    Bytes,
    CutTail,
    Zeros,
    NoSegment,
    /// A fragment of a record that spans pages.
    Fragment,
    Checkpoint,
    CheckpointCut,
    HeadChunks,
}

const ALL: [Damage; 9] = [
    Damage::Bit,
    Damage::Bytes,
    Damage::CutTail,
    Damage::Zeros,
    Damage::NoSegment,
    Damage::Fragment,
    Damage::Checkpoint,
    Damage::CheckpointCut,
    Damage::HeadChunks,
];

/// A piece of a file, and the samples that need it.
#[derive(Debug)]
struct Piece {
    path: PathBuf,
    bytes: Range<u64>,
    n_samples: u64,
}

/// Cuts the logs of a directory into records with the pages that they touch, and its head chunks into chunks.
fn pieces(dir: &Path) -> Vec<Piece> {
    let (mut pieces, mut faults) = (Vec::new(), Faults::default());
    for log in ["wal", "wbl"] {
        for segment in WalFiles::list(&RealFs, &dir.join(log), &mut faults).unwrap().segments {
            let mut reader = SegmentReader::open(&RealFs, &segment).unwrap();
            while let Some(record) = reader.next(&mut faults) {
                let page = PAGE_SIZE as u64;
                let bytes = record.offset / page * page..reader.position().next_multiple_of(page);
                let n_samples = samples_of(&record.compression.decode(&record.bytes).unwrap());
                pieces.push(Piece { path: segment.path.clone(), bytes, n_samples });
            }
        }
    }
    let (files, chunks) = HeadChunkFiles::scan(&RealFs, &dir.join("chunks_head"), &mut faults).unwrap();
    for chunk in &chunks {
        let (start, end) = (u64::from(chunk.offset), u64::from(chunk.offset + chunk.size));
        let bytes = start.saturating_sub(HEAD_CHUNK_FRAME)..end + HEAD_CHUNK_FRAME;
        pieces.push(Piece { path: files.path(chunk).to_owned(), bytes, n_samples: u64::from(chunk.n_samples) });
    }
    assert_eq!(faults.n_unsound(), 0);
    pieces
}

fn samples_of(record: &[u8]) -> u64 {
    let (mut samples, mut histograms) = (Vec::new(), Vec::new());
    match RecordType::of(record) {
        Some(RecordType::Samples | RecordType::SamplesV2) => decode_samples(record, &mut samples).unwrap(),
        Some(record_type) if record_type.name().contains("histogram") => {
            decode_histograms(record, &mut histograms).unwrap();
        }
        _ => {}
    }
    (samples.len() + histograms.len()) as u64
}

/// Makes a checkpoint of the first two segments, as Prometheus lays one out.
fn move_to_checkpoint(dir: &Path) {
    let checkpoint = dir.join("wal/checkpoint.00000001");
    std::fs::create_dir(&checkpoint).unwrap();
    for name in ["00000000", "00000001"] {
        std::fs::rename(dir.join("wal").join(name), checkpoint.join(name)).unwrap();
    }
}

/// The files of a folder that are named by numbers.
fn numbered(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Damages a copy; returns the file, and which of its bytes.
fn damage(kind: Damage, dir: &Path, random: &mut impl FnMut(usize) -> usize) -> (PathBuf, Range<u64>) {
    let folder = match kind {
        Damage::Checkpoint | Damage::CheckpointCut => "wal/checkpoint.00000001",
        Damage::HeadChunks => "chunks_head",
        Damage::NoSegment | Damage::Fragment => "wal",
        _ => ["wal", "wal", "wbl"][random(3)],
    };
    let files = numbered(&dir.join(folder));
    let path = match kind {
        Damage::NoSegment => files[1 + random(files.len() - 2)].clone(),
        _ => files[random(files.len())].clone(),
    };
    let mut bytes = std::fs::read(&path).unwrap();
    let size = bytes.len();
    let at = random(size);
    let mut hurt = |from: usize, len: usize, random: &mut dyn FnMut(usize) -> usize| {
        let end = (from + len).min(size);
        bytes[from..end].iter_mut().for_each(|byte| *byte = random(256) as u8);
        from..end
    };
    let range = match kind {
        Damage::NoSegment => {
            std::fs::remove_file(&path).unwrap();
            return (path, 0..size as u64);
        }
        Damage::Bytes | Damage::HeadChunks => hurt(at, 1 + random(9000), random),
        Damage::Fragment => hurt((at / PAGE_SIZE * PAGE_SIZE).saturating_sub(8), 40, random),
        Damage::Zeros => {
            let end = (at + 1 + random(70_000)).min(size);
            bytes[at..end].fill(0);
            at..end
        }
        Damage::CutTail | Damage::CheckpointCut => {
            bytes.truncate(at);
            at..size
        }
        Damage::Bit | Damage::Checkpoint => {
            bytes[at] ^= 1 << random(8);
            at..at + 1
        }
    };
    std::fs::write(&path, bytes).unwrap();
    (path, range.start as u64..range.end as u64)
}

fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end.max(1)
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn damage_costs_the_damaged_pages_and_is_named() {
    let Some(recorded) = recorded() else { return };
    let (n_variants, first) = (variable("VARVE_DAMAGE_VARIANTS", VARIANTS), variable("VARVE_DAMAGE_SEED", 1));
    let (plain, with_checkpoint) = (logs_of(&recorded), logs_of(&recorded));
    move_to_checkpoint(with_checkpoint.path());
    let options = RecoverOptions { concurrency: 2, ..RecoverOptions::default() };
    let (whole, report, _out) = run(plain.path(), &options);
    assert_eq!(report.n_unknown_samples, 0);
    assert!(run(with_checkpoint.path(), &options).0 == whole, "a checkpoint holds what its segments held");
    for seed in first..first + n_variants {
        let kind = ALL[(seed % ALL.len() as u64) as usize];
        let is_checkpoint = matches!(kind, Damage::Checkpoint | Damage::CheckpointCut);
        let source = if is_checkpoint { &with_checkpoint } else { &plain };
        let copy = tempfile::tempdir().unwrap();
        copy_dir(source.path(), copy.path());
        let pieces = pieces(copy.path());
        let (path, bytes) = damage(kind, copy.path(), &mut random(seed));
        let (found, report, out) = run(copy.path(), &options);
        let page = PAGE_SIZE as u64;
        // What of a log cannot be found again on a page is lost up to its end.
        let pages = bytes.start / page * page..bytes.end.next_multiple_of(page);
        let touched = if kind == Damage::HeadChunks { bytes } else { pages };
        let is_touched =
            |piece: &&Piece| piece.path == path && piece.bytes.start < touched.end && touched.start < piece.bytes.end;
        let n_touched: u64 = pieces.iter().filter(is_touched).map(|piece| piece.n_samples).sum();
        let context = format!("seed {seed}, {kind:?} of {path:?} at {touched:?}");
        check(&context, &whole, &found, &report, n_touched);
        check_unknown(&context, &report, out.path());
    }
}

/// Checks that no more is lost than the damage touched, that what is found is right, and that the damage is named.
fn check(context: &str, whole: &Samples, found: &Samples, report: &Report, n_touched: u64) {
    let lost_of = |(labels, samples): (&String, &BTreeMap<i64, u64>)| {
        let found = found.get(labels);
        samples.keys().filter(|time| found.is_none_or(|found| !found.contains_key(time))).count() as u64
    };
    let n_lost: u64 = whole.iter().map(lost_of).sum();
    let n_unknown = report.n_unknown_samples;
    assert!(
        n_lost <= n_touched + n_unknown,
        "{context}: {n_lost} lost of {n_touched}, {n_unknown} unknown: {report:?}"
    );
    assert!(n_lost == 0 || !report.faults.kept().is_empty(), "{context}: {n_lost} lost, nothing reported");
    for (labels, samples) in found.iter().filter(|(labels, _)| !labels.contains(DELETED)) {
        let whole = whole.get(labels).unwrap_or_else(|| panic!("{context}: {labels} was made up"));
        assert!(samples.iter().all(|(time, bits)| whole.get(time) == Some(bits)), "{context}: {labels}");
    }
}

/// Checks that samples of series without a definition are all in the side file, under the numbers that are reported.
fn check_unknown(context: &str, report: &Report, out: &Path) {
    let lines = std::fs::read_to_string(out.join(UNKNOWN_SAMPLES)).unwrap_or_default();
    assert_eq!(lines.lines().count() as u64, report.n_unknown_samples, "{context}");
    let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["series"].as_u64().unwrap();
    let numbers: BTreeSet<u64> = lines.lines().map(number).collect();
    assert!(numbers.iter().eq(report.unknown_series.keys()), "{context}");
    let listed: u64 = report.unknown_series.values().map(|lost| lost.n_samples).sum();
    assert_eq!(listed, report.n_unknown_samples, "{context}");
}

/// A block: samples by labels, none if nothing of it can be read.
fn read_block(dir: &Path, faults: &mut Faults) -> Samples {
    let mut samples = Samples::new();
    let mut of_series = Faults::default();
    match BlockReader::open(&RealFs, dir, faults) {
        Ok(block) => block
            .for_each(faults, |series| {
                let mut columns = SampleColumns::default();
                series.read(&mut columns, &mut of_series);
                add(&mut samples, format!("{:?}", series.labels()), &columns);
                Ok(())
            })
            .unwrap(),
        Err(error) => faults.push(dir, 0, crate::prometheus::fault::FaultKind::Damage, error.to_string()),
    }
    faults.append(of_series);
    samples
}

#[test]
fn damage_of_a_block_is_named_and_costs_the_chunks_that_are_damaged() {
    let Some(recorded) = recorded() else { return };
    let blocks = BlockReader::list(&RealFs, &recorded).unwrap();
    let (n_variants, first) = (variable("VARVE_DAMAGE_VARIANTS", VARIANTS), variable("VARVE_DAMAGE_SEED", 1));
    let whole: Vec<_> = blocks.iter().map(|block| read_block(block, &mut Faults::default())).collect();
    for seed in first..first + n_variants {
        let mut random = random(seed);
        let which = random(blocks.len());
        let copy = tempfile::tempdir().unwrap();
        copy_dir(&blocks[which], copy.path());
        let file = ["index", "chunks/000001"][random(2)];
        let path = copy.path().join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = random(bytes.len());
        let end = (at + 1 + random(300)).min(bytes.len());
        match random(3) {
            0 => bytes[at] ^= 1 << random(8),
            1 => bytes[at..end].fill(0),
            _ => bytes.truncate(at),
        }
        std::fs::write(&path, &bytes).unwrap();
        let mut faults = Faults::default();
        let found = read_block(copy.path(), &mut faults);
        let whole = &whole[which];
        let context = format!("seed {seed}: {file} of {} at {at}", blocks[which].display());
        let (n_whole, n_found) = (n_samples(whole), n_samples(&found));
        assert!(n_found == n_whole || faults.n_unsound() > 0, "{context}: {n_found} of {n_whole}, nothing reported");
        if file == "index" {
            continue;
        }
        for (labels, samples) in &found {
            assert!(samples.iter().all(|(time, bits)| whole[labels].get(time) == Some(bits)), "{context}: {labels}");
        }
        // What is not behind a cut, nor in the bytes themselves, is there: at least the series in front of them.
        assert!(n_found > 0 || at < 10_000, "{context}: nothing is left");
        let import = tempfile::tempdir().unwrap();
        let imported = import_block(&fs(), copy.path(), import.path(), 1, &mut Faults::default()).unwrap();
        assert_eq!(imported.n_samples, n_found, "{context}");
    }
}
