//! Damages copies of the recorded directory: undamaged samples are recovered, and damage is
//! reported.
//!
//! `VARVE_DAMAGE_VARIANTS` sets the number of copies, `VARVE_DAMAGE_SEED` the first seed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use varve_env::damage;
use varve_env::testing::random;

use super::*;
use crate::chunk;
use crate::head_chunks::HeadChunkFiles;
use crate::wal::{LogKind, PAGE_SIZE, RecordContent, RecordType, SegmentReader, WalFiles};

/// Default number of copies: each kind of damage a few times.
const VARIANTS: u64 = 27;
/// Bytes around the data of a head chunk that belong to it: ref, times, encoding and size before,
/// checksum after.
const HEAD_CHUNK_FRAME: u64 = 40;
/// The series with a tombstone: damage to the tombstone restores its samples.
const DELETED: &str = r#"("i", "7")"#;

/// Damage to a copy.
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

/// A range of a file, and the samples that need it: series refs and timestamps.
#[derive(Debug)]
struct Piece {
    /// Relative to the directory.
    path: PathBuf,
    bytes: Range<u64>,
    samples: Vec<(u64, i64)>,
}

/// A data directory, cut into ranges.
struct Source {
    dir: TempDir,
    pieces: Vec<Piece>,
    /// Labels by series ref.
    labels: BTreeMap<u64, String>,
}

impl Source {
    /// Cuts WAL and WBL into records with the pages that they touch, and head chunks into chunks.
    fn of(dir: TempDir) -> Self {
        let (mut pieces, mut labels, mut damage) =
            (Vec::new(), BTreeMap::new(), DamageReport::default());
        let inside = |path: &Path| path.strip_prefix(dir.path()).unwrap().to_owned();
        for log in [LogKind::Wal, LogKind::Wbl] {
            for segment in WalFiles::list(&RealFs, dir.path(), log, &mut damage)
                .unwrap()
                .segments
            {
                let mut reader = SegmentReader::open(&RealFs, &segment).unwrap();
                while let Some(record) = reader.next(&mut damage) {
                    let page = PAGE_SIZE as u64;
                    let bytes =
                        record.offset / page * page..reader.position().next_multiple_of(page);
                    let record = record.compression.decode(&record.bytes).unwrap();
                    define(&record, &mut labels);
                    pieces.push(Piece {
                        path: inside(&segment.path),
                        bytes,
                        samples: samples_of(&record),
                    });
                }
            }
        }
        let (files, chunks) =
            HeadChunkFiles::scan(&RealFs, &dir.path().join("chunks_head"), &mut damage).unwrap();
        for chunk in &chunks {
            let (start, end) = (
                u64::from(chunk.offset),
                u64::from(chunk.offset + chunk.size),
            );
            let bytes = start.saturating_sub(HEAD_CHUNK_FRAME)..end + HEAD_CHUNK_FRAME;
            let (mut data, mut columns) = (Vec::new(), SampleColumns::default());
            files.read(chunk, &mut data).unwrap();
            chunk::decode(chunk.encoding, &data, &mut columns).unwrap();
            let samples = columns
                .timestamps_ms
                .iter()
                .map(|&time| (chunk.series, time))
                .collect();
            pieces.push(Piece {
                path: inside(files.path(chunk)),
                bytes,
                samples,
            });
        }
        assert_eq!(damage.n_damaged(), 0);
        Self {
            dir,
            pieces,
            labels,
        }
    }

    /// Returns the samples in a range of a file, by labels.
    fn samples_in(&self, path: &Path, bytes: &Range<u64>) -> BTreeSet<(&str, i64)> {
        let is_touched = |piece: &&Piece| {
            piece.path == path && piece.bytes.start < bytes.end && bytes.start < piece.bytes.end
        };
        let samples = self
            .pieces
            .iter()
            .filter(is_touched)
            .flat_map(|piece| &piece.samples);
        // Samples that blocks cover may be of series that no longer have a definition.
        samples
            .filter_map(|&(series, time)| Some((self.labels.get(&series)?.as_str(), time)))
            .collect()
    }
}

fn decoded(record: &[u8]) -> RecordContent<'_> {
    let (content, error) = RecordContent::decode(RecordType::of(record).unwrap(), record);
    assert_eq!(error, None);
    content
}

fn define(record: &[u8], labels: &mut BTreeMap<u64, String>) {
    if let RecordContent::Series(definitions) = decoded(record) {
        labels.extend(
            definitions
                .iter()
                .map(|it| (it.series, format!("{:?}", it.labels().collect::<Vec<_>>()))),
        );
    }
}

fn samples_of(record: &[u8]) -> Vec<(u64, i64)> {
    match decoded(record) {
        RecordContent::Samples(samples) => samples
            .iter()
            .map(|it| (it.series, it.timestamp_ms))
            .collect(),
        RecordContent::Histograms(samples) => samples
            .iter()
            .map(|it| (it.series, it.timestamp_ms))
            .collect(),
        _ => Vec::new(),
    }
}

/// Creates a checkpoint from the first two segments, as Prometheus does.
fn move_to_checkpoint(dir: &Path) {
    let checkpoint = dir.join("wal/checkpoint.00000001");
    std::fs::create_dir(&checkpoint).unwrap();
    for name in ["00000000", "00000001"] {
        std::fs::rename(dir.join("wal").join(name), checkpoint.join(name)).unwrap();
    }
}

/// Returns the files of a directory with numeric names.
fn numbered(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Damages a copy. Returns the file and the range of damaged bytes.
fn damage(
    kind: Damage,
    dir: &Path,
    random: &mut impl FnMut(usize) -> usize,
) -> (PathBuf, Range<u64>) {
    let log = match kind {
        Damage::Checkpoint | Damage::CheckpointCut => "wal/checkpoint.00000001",
        Damage::HeadChunks => "chunks_head",
        Damage::NoSegment | Damage::Fragment => "wal",
        _ => ["wal", "wal", "wbl"][random(3)],
    };
    let files = numbered(&dir.join(log));
    let path = match kind {
        Damage::NoSegment => files[1 + random(files.len() - 2)].clone(),
        _ => files[random(files.len())].clone(),
    };
    let mut bytes = std::fs::read(&path).unwrap();
    let size = bytes.len();
    let at = random(size);
    let mut hurt = |from: usize, len: usize, random: &mut dyn FnMut(usize) -> usize| {
        let end = (from + len).min(size);
        bytes[from..end]
            .iter_mut()
            .for_each(|byte| *byte = random(256) as u8);
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

/// Seeds of damage that once went unreported: a page of a WAL, and series of an index, filled with
/// zeros.
const ZEROED_PAGE: u64 = 57;
const ZEROED_SERIES: u64 = 163;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn damage_costs_the_damaged_pages_and_is_reported() {
    let Some(recorded) = recorded() else { return };
    let (n_variants, first) = (
        variable("VARVE_DAMAGE_VARIANTS", VARIANTS),
        variable("VARVE_DAMAGE_SEED", 1),
    );
    let (plain, with_checkpoint) = (logs_of(&recorded), logs_of(&recorded));
    move_to_checkpoint(with_checkpoint.path());
    let (plain, with_checkpoint) = (Source::of(plain), Source::of(with_checkpoint));
    let options = RecoverOptions {
        concurrency: 2,
        ..RecoverOptions::default()
    };
    let (whole, report, _out) = run(plain.dir.path(), &options);
    assert_eq!(report.n_unknown_samples, 0);
    assert!(
        run(with_checkpoint.dir.path(), &options).0 == whole,
        "a checkpoint holds what its segments held"
    );
    // If the WBL is damaged, late samples that blocks have are recovered, too.
    let in_blocks = read_blocks(&recorded);
    for seed in (first..first + n_variants).chain([ZEROED_PAGE]) {
        let kind = ALL[(seed % ALL.len() as u64) as usize];
        let is_checkpoint = matches!(kind, Damage::Checkpoint | Damage::CheckpointCut);
        let source = if is_checkpoint {
            &with_checkpoint
        } else {
            &plain
        };
        let copy = tempfile::tempdir().unwrap();
        copy_dir(source.dir.path(), copy.path());
        let (path, bytes) = damage(kind, copy.path(), &mut random(seed));
        let (found, report, out) = run(copy.path(), &options);
        let page = PAGE_SIZE as u64;
        // The rest of the segment is lost if the next record cannot be found in the page.
        let pages = bytes.start / page * page..bytes.end.next_multiple_of(page);
        let touched = if kind == Damage::HeadChunks {
            bytes
        } else {
            pages
        };
        let context = format!("seed {seed}, {kind:?} of {path:?} at {touched:?}");
        let unknown = check_unknown(&context, &report, out.path());
        let mut excused = source.samples_in(path.strip_prefix(copy.path()).unwrap(), &touched);
        excused.extend(
            unknown
                .iter()
                .map(|(series, time)| (source.labels[series].as_str(), *time)),
        );
        let n_lost = check(&context, &whole, &found, &excused, &in_blocks);
        let names_it = |found: &damage::Damage| {
            found.path == path || Some(found.path.as_path()) == path.parent()
        };
        assert!(
            n_lost == 0 || report.damage.entries().iter().any(names_it),
            "{context}: {:?}",
            report.damage
        );
    }
}

/// Asserts that only damaged samples are lost, and that the recovered ones are correct: those of
/// `whole`, or those that blocks have. Returns the number of lost ones.
fn check(
    context: &str,
    whole: &Samples,
    found: &Samples,
    excused: &BTreeSet<(&str, i64)>,
    in_blocks: &Samples,
) -> u64 {
    let mut n_lost = 0;
    for (labels, samples) in whole {
        let found = found.get(labels);
        for time in samples
            .keys()
            .filter(|time| found.is_none_or(|found| !found.contains_key(time)))
        {
            assert!(
                excused.contains(&(labels.as_str(), *time)),
                "{context}: {labels} at {time} is lost"
            );
            n_lost += 1;
        }
    }
    for (labels, samples) in found.iter().filter(|(labels, _)| !labels.contains(DELETED)) {
        let whole = whole
            .get(labels)
            .unwrap_or_else(|| panic!("{context}: {labels} was made up"));
        let in_blocks = in_blocks.get(labels);
        for (time, bits) in samples {
            let expected = whole
                .get(time)
                .or_else(|| in_blocks.and_then(|samples| samples.get(time)));
            assert_eq!(expected, Some(bits), "{context}: {labels} at {time}");
        }
    }
    n_lost
}

/// Asserts that samples of unknown series are in their file as reported. Returns refs and
/// timestamps.
fn check_unknown(context: &str, report: &Report, out: &Path) -> Vec<(u64, i64)> {
    let text = std::fs::read_to_string(out.join(UNKNOWN_SAMPLES)).unwrap_or_default();
    let sample = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        (
            line["series"].as_u64().unwrap(),
            line["timestamp_ms"].as_i64().unwrap(),
        )
    };
    let samples: Vec<_> = text.lines().map(sample).collect();
    assert_eq!(samples.len() as u64, report.n_unknown_samples, "{context}");
    let mut by_series = BTreeMap::<u64, UnknownSeries>::new();
    for &(series, time) in &samples {
        let lost = by_series.entry(series).or_insert(UnknownSeries {
            n_samples: 0,
            min_ms: time,
            max_ms: time,
        });
        lost.n_samples += 1;
        (lost.min_ms, lost.max_ms) = (lost.min_ms.min(time), lost.max_ms.max(time));
    }
    assert_eq!(by_series, report.unknown_series, "{context}");
    samples
}

#[test]
fn damage_to_a_block_costs_the_damaged_chunks_and_is_reported() {
    let Some(recorded) = recorded() else { return };
    let blocks = BlockReader::list(&RealFs, &recorded).unwrap();
    let (n_variants, first) = (
        variable("VARVE_DAMAGE_VARIANTS", VARIANTS),
        variable("VARVE_DAMAGE_SEED", 1),
    );
    let whole: Vec<_> = blocks
        .iter()
        .map(|block| read_block(block, &mut DamageReport::default()))
        .collect();
    for seed in (first..first + n_variants).chain([ZEROED_SERIES]) {
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
        let mut damage = DamageReport::default();
        let found = read_block(copy.path(), &mut damage);
        let whole = &whole[which];
        let context = format!("seed {seed}: {file} of {} at {at}", blocks[which].display());
        let (n_whole, n_found) = (n_samples(whole), n_samples(&found));
        assert!(
            n_found == n_whole || damage.n_damaged() > 0,
            "{context}: {n_found} of {n_whole}, nothing reported"
        );
        if file == "index" {
            continue;
        }
        for (labels, samples) in &found {
            assert!(
                samples
                    .iter()
                    .all(|(time, bits)| whole[labels].get(time) == Some(bits)),
                "{context}: {labels}"
            );
        }
        // At least the series before the damage are readable.
        assert!(n_found > 0 || at < 10_000, "{context}: nothing is left");
        let import = tempfile::tempdir().unwrap();
        let imported = import_block(
            &fs(),
            copy.path(),
            import.path(),
            1,
            &[],
            &mut DamageReport::default(),
        )
        .unwrap();
        assert_eq!(imported.totals.n_kept, n_found, "{context}");
        assert_eq!(imported.totals.n_unaccounted(), 0, "{context}");
    }
}
