//! Inspects a Prometheus data directory: contents and damage. Read-only, so Prometheus may be
//! running on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hashbrown::{HashMap, HashSet};
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::sample_totals::SampleTotals;
use varve_env::{Fs, size_of_files};
use varve_model::SampleColumns;
use varve_tsdb::{Error, Result};

use super::block::{BlockMeta, BlockReader};
use super::chunk;
use super::head_chunks::{HeadChunk, HeadChunkFiles};
use super::losses::{lose_block, lose_unread};
use super::recover::{RecordCounts, UNKNOWN_SERIES_MAX, truncated_before};
use super::wal::{
    HEADER_SIZE, LogKind, PAGE_SIZE, RecordContent, RecordType, Segment, SegmentReader,
    WalCompression, WalFiles,
};

/// Amount of data that an inspection reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The records of WAL and WBL, and the descriptions of blocks.
    Summary,
    /// Additionally the content of records, head chunks and blocks.
    Everything,
}

/// The content of a data directory.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// Damage in its files.
    pub damage: DamageReport,
    /// The segments of the WAL, then the segments of the WBL, in the order of replay.
    pub segments: Vec<SegmentSummary>,
    /// Number of the checkpoint.
    pub checkpoint: Option<u64>,
    /// Number of head chunks.
    pub n_head_chunks: u64,
    /// Number of samples in them.
    pub n_head_samples: u64,
    /// The blocks with a readable description.
    pub blocks: Vec<BlockMeta>,
    /// Number of readable samples. A sample that the WAL repeats, because a head chunk or a block
    /// has it, counts once, as in a recovery.
    pub n_samples: u64,
    /// Samples among them in the WAL or in head chunks whose series is not defined: its definition
    /// is lost.
    pub n_unknown_samples: u64,
    /// Number of these samples by series ref, for the first 100,000 series.
    pub unknown_series: BTreeMap<u64, u64>,
    /// Estimated number of samples that a recovery loses: those in unreadable parts of files that
    /// exist, and those of unknown series. Head chunks and blocks count only at
    /// [`Depth::Everything`].
    pub n_lost_samples: u64,
    /// What became of the samples of the blocks. Those that can be read are kept.
    /// [`recover::dry_run`](crate::recover::dry_run) returns what becomes of the others.
    pub block_totals: SampleTotals,
    /// End of the blocks: earlier in-order samples of the WAL are in blocks.
    covered_before_ms: i64,
    /// The newest in-order sample by series ref.
    newest_ms: HashMap<u64, i64>,
    /// Refs of defined series.
    defined: HashSet<u64>,
}

/// The content of a segment.
#[derive(Debug, Clone, Default)]
pub struct SegmentSummary {
    /// Path of the file.
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Number of records by type.
    pub records: RecordCounts,
    /// Number of records by compression: none, snappy, zstd.
    pub compressions: [u64; 3],
    /// Number of series definitions.
    pub n_series: u64,
    /// Number of samples, including histograms.
    pub n_samples: u64,
    /// Timestamps of the oldest and of the newest sample.
    pub times_ms: Option<(i64, i64)>,
    /// Size of the readable records.
    record_bytes: u64,
    /// Number of samples that neither blocks, nor head chunks, nor earlier records have.
    n_distinct: u64,
}

/// A decompressed record and its location.
#[derive(Debug)]
pub struct FoundRecord<'a> {
    /// Path of the segment.
    pub path: &'a Path,
    /// Offset of its first fragment.
    pub offset: u64,
    /// Compression in the segment.
    pub compression: WalCompression,
    /// Size in the segment in bytes, without the headers of its fragments.
    pub size: u64,
    /// Type, if known.
    pub record_type: Option<RecordType>,
    /// The decompressed record.
    pub bytes: &'a [u8],
}

impl<'a> FoundRecord<'a> {
    /// Decodes the record. Returns `None` if its type is unknown. Of an invalid record, returns
    /// what precedes the invalid bytes.
    #[must_use]
    pub fn content(&self) -> Option<RecordContent<'a>> {
        self.record_type
            .map(|record_type| RecordContent::decode(record_type, self.bytes).0)
    }
}

/// Returns `true` if a directory looks like a Prometheus data directory: it has a Prometheus WAL,
/// head chunks or a block.
#[must_use]
pub fn is_prometheus_directory(fs: &dyn Fs, dir: &Path) -> bool {
    let mut damage = DamageReport::default();
    let has_log = WalFiles::list(fs, dir, LogKind::Wal, &mut damage).is_ok_and(|files| {
        files
            .segments
            .iter()
            .any(|segment| fs.open(&segment.path).is_ok_and(|file| file.size().is_ok()))
    });
    has_log
        || fs.list(&dir.join("chunks_head")).is_ok()
        || BlockReader::list(fs, dir)
            .is_ok_and(|blocks| blocks.iter().any(|block| fs.list(block).is_ok()))
}

/// Calls `each` with the records of WAL and WBL in the order of replay, and reports damage. Calls
/// `progress` with the bytes read so far and in total.
///
/// # Errors
/// [`Error::Io`] if a directory cannot be listed; errors of `each`.
pub fn for_each_record(
    fs: &dyn Fs,
    dir: &Path,
    damage: &mut DamageReport,
    progress: &mut dyn FnMut(u64, u64),
    mut each: impl FnMut(FoundRecord<'_>) -> Result<()>,
) -> Result<()> {
    let segments = WalFiles::list_all(fs, dir, damage)?.segments;
    let total = segments.iter().map(|segment| segment.size(fs)).sum();
    let mut done = 0;
    for segment in segments {
        records_of(fs, &segment, damage, &mut |record| {
            progress(done + record.offset, total);
            each(record)
        })?;
        done += segment.size(fs);
    }
    Ok(())
}

fn records_of(
    fs: &dyn Fs,
    segment: &Segment,
    damage: &mut DamageReport,
    each: &mut dyn FnMut(FoundRecord<'_>) -> Result<()>,
) -> Result<()> {
    let mut reader = match SegmentReader::open(fs, segment) {
        Ok(reader) => reader,
        Err(error) => {
            damage.push(&segment.path, 0, DamageKind::Corrupt, error.to_string());
            return Ok(());
        }
    };
    while let Some(raw) = reader.next(damage) {
        let Some(bytes) = raw.compression.decode(&raw.bytes) else {
            damage.push(
                &segment.path,
                raw.offset,
                DamageKind::Corrupt,
                "cannot decompress record",
            );
            continue;
        };
        each(FoundRecord {
            path: &segment.path,
            offset: raw.offset,
            compression: raw.compression,
            size: raw.bytes.len() as u64,
            record_type: RecordType::of(&bytes),
            bytes: &bytes,
        })?;
    }
    Ok(())
}

/// Inspects a data directory. Calls `progress` with the bytes read so far and in total.
///
/// # Errors
/// [`Error::Io`] if the directory cannot be listed.
pub fn inspect(
    fs: &dyn Fs,
    dir: &Path,
    depth: Depth,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Inspection> {
    fs.list(dir).map_err(Error::io("list", dir))?;
    let mut inspection = Inspection {
        covered_before_ms: i64::MIN,
        ..Inspection::default()
    };
    let WalFiles {
        segments,
        checkpoint,
    } = WalFiles::list_all(fs, dir, &mut inspection.damage)?;
    inspection.checkpoint = checkpoint;
    let head_dir = dir.join("chunks_head");
    let blocks = BlockReader::list(fs, dir)?;
    let sizes = segments.iter().map(|segment| segment.size(fs));
    let total = sizes.sum::<u64>()
        + size_of_files(fs, &head_dir)
        + blocks
            .iter()
            .map(|dir| BlockReader::size(fs, dir))
            .sum::<u64>();
    let mut done = 0;
    let mut step = |size: u64| {
        done += size;
        progress(done, total);
    };
    // A sample of the WAL does not count if a block or a head chunk has it.
    let metas = blocks
        .iter()
        .filter_map(|block| BlockReader::read_meta(fs, block).ok());
    let ends_ms = metas
        .filter(|meta| !meta.is_partial())
        .map(|meta| meta.max_ms);
    inspection.covered_before_ms = ends_ms
        .max()
        .max(truncated_before(fs, &segments))
        .unwrap_or(i64::MIN);
    let head_chunks = inspection.head_chunks(fs, dir, depth)?;
    step(size_of_files(fs, &head_dir));
    for segment in segments {
        inspection.segment(fs, &segment)?;
        step(inspection.segments.last().map_or(0, |summary| summary.size));
    }
    // Blocks last: they take longest, and a running Prometheus removes segments meanwhile.
    for block in blocks {
        inspection.block(fs, &block, depth)?;
        step(BlockReader::size(fs, &block));
    }
    // As in a recovery: Prometheus drops the definition of a series only when blocks cover its
    // chunks.
    for (chunk, n_samples) in head_chunks {
        if !inspection.defined.contains(&chunk.series) {
            inspection.add_unknown(chunk.series, n_samples);
        }
    }
    inspection.n_lost_samples += inspection.n_unknown_samples;
    Ok(inspection)
}

impl Inspection {
    fn segment(&mut self, fs: &dyn Fs, segment: &Segment) -> Result<()> {
        let mut summary = SegmentSummary {
            path: segment.path.clone(),
            size: segment.size(fs),
            ..SegmentSummary::default()
        };
        let mut unreadable = DamageReport::default();
        let mut invalid = DamageReport::default();
        records_of(fs, segment, &mut unreadable, &mut |record| {
            self.record(&record, &mut summary, &mut invalid);
            Ok(())
        })?;
        self.n_samples += summary.n_distinct;
        if unreadable.n_damaged() > 0 {
            self.n_lost_samples += summary.n_lost_samples();
        }
        self.damage.append(unreadable);
        self.damage.append(invalid);
        self.segments.push(summary);
        Ok(())
    }

    /// Counts a record, and its samples.
    fn record(
        &mut self,
        record: &FoundRecord<'_>,
        summary: &mut SegmentSummary,
        damage: &mut DamageReport,
    ) {
        summary.compressions[record.compression as usize] += 1;
        summary.record_bytes += record.size;
        let Some(record_type) = record.record_type else {
            let reason = RecordType::unknown_reason(record.bytes);
            damage.push(record.path, record.offset, DamageKind::Unsupported, reason);
            return;
        };
        summary.records.add(record_type);
        let is_wbl = record.path.parent().is_some_and(|dir| dir.ends_with("wbl"));
        let (content, error) = RecordContent::decode(record_type, record.bytes);
        match content {
            RecordContent::Series(definitions) => {
                summary.n_series += definitions.len() as u64;
                self.defined
                    .extend(definitions.iter().map(|definition| definition.series));
            }
            RecordContent::Samples(samples) => {
                for sample in &samples {
                    self.sample(sample.series, sample.timestamp_ms, is_wbl, summary);
                }
            }
            RecordContent::Histograms(samples) => {
                for sample in &samples {
                    self.sample(sample.series, sample.timestamp_ms, is_wbl, summary);
                }
            }
            RecordContent::MinValidTime(times) => {
                self.covered_before_ms = times
                    .iter()
                    .fold(self.covered_before_ms, |end_ms, time| end_ms.max(*time));
            }
            _ => {}
        }
        if let Some(error) = error {
            damage.push(
                record.path,
                record.offset,
                DamageKind::Corrupt,
                error.to_string(),
            );
        }
    }

    fn sample(
        &mut self,
        series: u64,
        timestamp_ms: i64,
        is_out_of_order: bool,
        summary: &mut SegmentSummary,
    ) {
        summary.add_sample(timestamp_ms);
        if !is_out_of_order {
            if timestamp_ms < self.covered_before_ms {
                return;
            }
            let newest_ms = self.newest_ms.entry(series).or_insert(i64::MIN);
            if timestamp_ms <= *newest_ms {
                return;
            }
            *newest_ms = timestamp_ms;
        }
        summary.n_distinct += 1;
        if !self.defined.contains(&series) {
            self.add_unknown(series, 1);
        }
    }

    fn add_unknown(&mut self, series: u64, n: u64) {
        self.n_unknown_samples += n;
        let is_full = self.unknown_series.len() >= UNKNOWN_SERIES_MAX;
        match self.unknown_series.get_mut(&series) {
            Some(n_samples) => *n_samples += n,
            None if is_full => {}
            None => drop(self.unknown_series.insert(series, n)),
        }
    }

    /// Returns the in-order chunks that no block covers, and the number of readable samples of each.
    fn head_chunks(
        &mut self,
        fs: &dyn Fs,
        dir: &Path,
        depth: Depth,
    ) -> Result<Vec<(HeadChunk, u64)>> {
        let (files, chunks) = HeadChunkFiles::scan(fs, &dir.join("chunks_head"), &mut self.damage)?;
        self.n_head_chunks = chunks.len() as u64;
        self.n_head_samples = chunks.iter().map(|chunk| u64::from(chunk.n_samples)).sum();
        // The samples of out-of-order chunks are in the WBL as well.
        let covered_before_ms = self.covered_before_ms;
        let mut bytes = Vec::new();
        let mut columns = SampleColumns::default();
        let mut counted = Vec::new();
        for chunk in chunks {
            let n_samples = u64::from(chunk.n_samples);
            let mut n_readable = n_samples;
            if depth == Depth::Everything {
                columns.clear();
                let decoded = match files.read(&chunk, &mut bytes) {
                    Ok(()) => chunk::decode(chunk.encoding, &bytes, &mut columns)
                        .map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                if let Err(reason) = decoded {
                    n_readable = n_readable.min(columns.len() as u64);
                    let path = files.path(&chunk);
                    let offset = u64::from(chunk.offset);
                    self.damage.push(path, offset, DamageKind::Corrupt, reason);
                }
            }

            if chunk.is_out_of_order || chunk.max_ms < covered_before_ms {
                continue;
            }
            self.n_samples += n_readable;
            self.n_lost_samples += n_samples - n_readable;
            let newest_ms = self.newest_ms.entry(chunk.series).or_insert(i64::MIN);
            *newest_ms = chunk.max_ms.max(*newest_ms);
            counted.push((chunk, n_readable));
        }
        Ok(counted)
    }

    fn block(&mut self, fs: &dyn Fs, dir: &Path, depth: Depth) -> Result<()> {
        let block = match BlockReader::open(fs, dir, &mut self.damage) {
            Ok(block) => block,
            Err(error) => {
                self.damage
                    .push(dir, 0, DamageKind::Corrupt, error.to_string());
                self.n_lost_samples += lose_block(fs, dir, &mut self.block_totals);
                return Ok(());
            }
        };
        let n_written = block.meta().stats.n_samples;
        let mut totals = match depth {
            Depth::Everything => block.verify(&mut self.damage),
            Depth::Summary => SampleTotals {
                n_found: n_written,
                n_kept: n_written,
                ..SampleTotals::default()
            },
        };
        let n_found = totals.n_found;
        if n_found != n_written {
            let reason = format!("{n_found} samples are readable, meta.json has {n_written}");
            self.damage.push(dir, 0, DamageKind::Corrupt, reason);
        }
        self.n_lost_samples += lose_unread(n_written, &mut totals);
        self.n_samples += totals.n_kept;
        self.block_totals.append(&totals);
        self.blocks.push(block.meta().clone());
        Ok(())
    }
}

impl SegmentSummary {
    /// Estimates the number of samples in the unreadable part: the readable part has as many
    /// samples per byte.
    fn n_lost_samples(&self) -> u64 {
        // Each page begins a fragment.
        let n_fragments =
            self.compressions.iter().sum::<u64>() + self.size.div_ceil(PAGE_SIZE as u64);
        let lost_bytes = self
            .size
            .saturating_sub(self.record_bytes + n_fragments * HEADER_SIZE as u64);
        (lost_bytes as f64 * self.n_distinct as f64 / self.record_bytes.max(1) as f64).ceil() as u64
    }

    fn add_sample(&mut self, timestamp_ms: i64) {
        self.n_samples += 1;
        let (min_ms, max_ms) = self.times_ms.unwrap_or((timestamp_ms, timestamp_ms));
        self.times_ms = Some((min_ms.min(timestamp_ms), max_ms.max(timestamp_ms)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::{RecoverOptions, recover};
    use crate::testing::{fs, recorded};
    use varve_env::RealFs;
    use varve_env::testing::copy_dir;

    #[test]
    fn the_recorded_directory_is_sound() {
        let Some(dir) = recorded() else { return };
        assert!(is_prometheus_directory(&RealFs, &dir));
        let inspection = inspect(&RealFs, &dir, Depth::Everything, &mut |_, _| {}).unwrap();
        assert_eq!(
            (
                inspection.damage.n_damaged(),
                inspection.segments.len(),
                inspection.blocks.len()
            ),
            (0, 5, 3)
        );
        assert!(
            inspection
                .segments
                .iter()
                .map(|segment| segment.n_samples)
                .sum::<u64>()
                > 900_000
        );
        assert_eq!(inspection.n_lost_samples, 0);
    }

    #[test]
    fn the_samples_of_an_unreadable_part_are_estimated() {
        let Some(dir) = recorded() else { return };
        let WalFiles { segments, .. } =
            WalFiles::list_all(&RealFs, &dir, &mut DamageReport::default()).unwrap();
        let largest = segments
            .iter()
            .max_by_key(|segment| segment.size(&RealFs))
            .unwrap();
        let copy = tempfile::tempdir().unwrap();
        std::fs::create_dir(copy.path().join("wal")).unwrap();
        let mut bytes = std::fs::read(&largest.path).unwrap();
        let path = copy.path().join("wal/00000000");
        let inspect = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            inspect(&RealFs, copy.path(), Depth::Summary, &mut |_, _| {}).unwrap()
        };
        let n_samples = |inspection: &Inspection| inspection.segments[0].n_samples;
        let n_written = n_samples(&inspect(&bytes));
        let middle = bytes.len() / 2 / PAGE_SIZE * PAGE_SIZE;
        bytes[middle..middle + 4 * PAGE_SIZE].fill(0xff);
        let damaged = inspect(&bytes);
        let n_lost = n_written - n_samples(&damaged);
        assert!(damaged.damage.n_damaged() > 0 && n_lost > 0);
        let ratio = damaged.n_lost_samples as f64 / n_lost as f64;
        assert!(
            (0.5..2.0).contains(&ratio),
            "{} estimated, {n_lost} lost",
            damaged.n_lost_samples
        );
    }

    /// What `verify` counts is what a recovery finds, and what it estimates to be lost is what a
    /// recovery loses.
    #[test]
    fn samples_count_once_and_samples_of_unknown_series_are_lost() {
        let Some(recorded) = recorded() else { return };
        let check = |dir: &Path| {
            let found = inspect(&RealFs, dir, Depth::Everything, &mut |_, _| {}).unwrap();
            let out = tempfile::tempdir().unwrap();
            let report =
                recover(&fs(), dir, out.path(), &RecoverOptions::default(), &|_| {}).unwrap();
            let blocks = found.blocks.iter().chain(&report.blocks);
            let n_recovered: u64 = blocks.map(|block| block.stats.n_samples).sum();
            (found, n_recovered, report.n_unknown_samples)
        };
        let near = |a: u64, b: u64, share: f64| a.abs_diff(b) as f64 <= share * b as f64;
        let (sound, n_whole, _) = check(&recorded);
        assert!(
            near(sound.n_samples, n_whole, 0.01),
            "{} counted, {n_whole} recovered",
            sound.n_samples
        );
        assert_eq!((sound.n_lost_samples, sound.n_unknown_samples), (0, 0));

        let copy = tempfile::tempdir().unwrap();
        copy_dir(&recorded, copy.path());
        // The first page of the first segment defines series.
        for (segment, page) in [(0, 0), (0, 9), (1, 7), (1, 8), (2, 20)] {
            let path = copy.path().join(format!("wal/{segment:08}"));
            let mut bytes = std::fs::read(&path).unwrap();
            let page = page * PAGE_SIZE % (bytes.len() - PAGE_SIZE);
            bytes[page..page + PAGE_SIZE].fill(0xff);
            // The copy may be read-only.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        let (damaged, n_left, n_unknown) = check(copy.path());
        let n_lost = n_whole - n_left;
        let n_listed = damaged.unknown_series.values().sum::<u64>();
        println!(
            "{} estimated, {n_lost} lost; {n_listed} unknown, {n_unknown} in recovery",
            damaged.n_lost_samples
        );
        assert!(n_unknown > 0 && damaged.n_unknown_samples == n_listed && n_listed >= n_unknown);
        assert!(
            near(damaged.n_lost_samples, n_lost, 0.5),
            "{} estimated, {n_lost} lost",
            damaged.n_lost_samples
        );
    }

    #[test]
    fn other_directories_are_not_prometheus_directories() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("wal/00000000-4/0")).unwrap();
        assert!(!is_prometheus_directory(&RealFs, dir.path()));
        std::fs::create_dir_all(dir.path().join("chunks_head")).unwrap();
        assert!(is_prometheus_directory(&RealFs, dir.path()));
    }
}
