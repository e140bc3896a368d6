//! Inspects a Prometheus data directory: contents and damage. Read-only, so Prometheus may be running on it.

use std::path::{Path, PathBuf};

use varve_tsdb::fs::damage::{DamageKind, DamageReport};
use varve_tsdb::fs::{Fs, size_of_files};
use varve_tsdb::{Error, Result, SampleColumns};

use super::block::{BlockMeta, BlockReader};
use super::chunk;
use super::head_chunks::HeadChunkFiles;
use super::recover::RecordCounts;
use super::wal::{Compression, RecordContent, RecordType, Segment, SegmentReader, WalFiles};

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
}

/// A decompressed record and its location.
#[derive(Debug)]
pub struct FoundRecord<'a> {
    /// Path of the segment.
    pub path: &'a Path,
    /// Offset of its first fragment.
    pub offset: u64,
    /// Compression in the segment.
    pub compression: Compression,
    /// Type, if known.
    pub record_type: Option<RecordType>,
    /// The decompressed record.
    pub bytes: &'a [u8],
}

impl<'a> FoundRecord<'a> {
    /// Decodes the record. Returns `None` if its type is unknown. Of an invalid record, returns what precedes the
    /// invalid bytes.
    #[must_use]
    pub fn content(&self) -> Option<RecordContent<'a>> {
        self.record_type.map(|record_type| RecordContent::decode(record_type, self.bytes).0)
    }
}

/// Returns `true` if a directory looks like a Prometheus data directory: it has a Prometheus WAL, head chunks or a
/// block.
#[must_use]
pub fn is_prometheus_directory(fs: &dyn Fs, dir: &Path) -> bool {
    let mut damage = DamageReport::default();
    let has_log = WalFiles::list(fs, &dir.join("wal"), &mut damage).is_ok_and(|files| {
        files.segments.iter().any(|segment| fs.open(&segment.path).is_ok_and(|file| file.size().is_ok()))
    });
    has_log
        || fs.list(&dir.join("chunks_head")).is_ok()
        || BlockReader::list(fs, dir).is_ok_and(|blocks| blocks.iter().any(|block| fs.list(block).is_ok()))
}

/// Calls `each` with the records of WAL and WBL in the order of replay, and reports damage. Calls `progress` with the
/// bytes read so far and in total.
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
            damage.push(&segment.path, raw.offset, DamageKind::Corrupt, "cannot decompress record");
            continue;
        };
        let record_type = RecordType::of(&bytes);
        let (offset, compression) = (raw.offset, raw.compression);
        each(FoundRecord { path: &segment.path, offset, compression, record_type, bytes: &bytes })?;
    }
    Ok(())
}

/// Inspects a data directory. Calls `progress` with the bytes read so far and in total.
///
/// # Errors
/// [`Error::Io`] if the directory cannot be listed.
pub fn inspect(fs: &dyn Fs, dir: &Path, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> Result<Inspection> {
    fs.list(dir).map_err(Error::io("list", dir))?;
    let mut inspection = Inspection::default();
    let WalFiles { segments, checkpoint } = WalFiles::list_all(fs, dir, &mut inspection.damage)?;
    inspection.checkpoint = checkpoint;
    let (head_dir, blocks) = (dir.join("chunks_head"), BlockReader::list(fs, dir)?);
    let sizes = segments.iter().map(|segment| segment.size(fs));
    let total = sizes.sum::<u64>()
        + size_of_files(fs, &head_dir)
        + blocks.iter().map(|dir| BlockReader::size(fs, dir)).sum::<u64>();
    let mut done = 0;
    let mut step = |size: u64| {
        done += size;
        progress(done, total);
    };
    for segment in segments {
        inspection.segment(fs, &segment)?;
        step(inspection.segments.last().map_or(0, |summary| summary.size));
    }
    inspection.head_chunks(fs, dir, depth)?;
    step(size_of_files(fs, &head_dir));
    for block in blocks {
        inspection.block(fs, &block, depth)?;
        step(BlockReader::size(fs, &block));
    }
    Ok(inspection)
}

impl Inspection {
    fn segment(&mut self, fs: &dyn Fs, segment: &Segment) -> Result<()> {
        let (path, size) = (segment.path.clone(), segment.size(fs));
        let mut summary = SegmentSummary { path, size, ..SegmentSummary::default() };
        let mut found = DamageReport::default();
        records_of(fs, segment, &mut self.damage, &mut |record| {
            summary.add(&record, &mut found);
            Ok(())
        })?;
        self.damage.append(found);
        self.segments.push(summary);
        Ok(())
    }

    fn head_chunks(&mut self, fs: &dyn Fs, dir: &Path, depth: Depth) -> Result<()> {
        let (files, chunks) = HeadChunkFiles::scan(fs, &dir.join("chunks_head"), &mut self.damage)?;
        self.n_head_chunks = chunks.len() as u64;
        self.n_head_samples = chunks.iter().map(|chunk| u64::from(chunk.n_samples)).sum();
        if depth == Depth::Summary {
            return Ok(());
        }
        let (mut bytes, mut columns) = (Vec::new(), SampleColumns::default());
        for chunk in &chunks {
            columns.clear();
            files.read(chunk, &mut bytes)?;
            if let Err(error) = chunk::decode(chunk.encoding, &bytes, &mut columns) {
                let path = files.path(chunk);
                self.damage.push(path, u64::from(chunk.offset), DamageKind::Corrupt, error.to_string());
            }
        }
        Ok(())
    }

    fn block(&mut self, fs: &dyn Fs, dir: &Path, depth: Depth) -> Result<()> {
        let block = match BlockReader::open(fs, dir, &mut self.damage) {
            Ok(block) => block,
            Err(error) => {
                self.damage.push(dir, 0, DamageKind::Corrupt, error.to_string());
                return Ok(());
            }
        };
        if depth == Depth::Everything {
            let n_samples = block.verify(&mut self.damage);
            let expected = block.meta().stats.n_samples;
            if n_samples != expected {
                let reason = format!("{n_samples} samples are readable, meta.json has {expected}");
                self.damage.push(dir, 0, DamageKind::Corrupt, reason);
            }
        }
        self.blocks.push(block.meta().clone());
        Ok(())
    }
}

impl SegmentSummary {
    fn add(&mut self, record: &FoundRecord<'_>, damage: &mut DamageReport) {
        self.compressions[record.compression as usize] += 1;
        let Some(record_type) = record.record_type else {
            let reason = RecordType::unknown_reason(record.bytes);
            damage.push(record.path, record.offset, DamageKind::Unsupported, reason);
            return;
        };
        self.records.add(record_type);
        let (content, error) = RecordContent::decode(record_type, record.bytes);
        match content {
            RecordContent::Series(definitions) => self.n_series += definitions.len() as u64,
            RecordContent::Samples(samples) => samples.iter().for_each(|it| self.add_sample(it.timestamp_ms)),
            RecordContent::Histograms(samples) => samples.iter().for_each(|it| self.add_sample(it.timestamp_ms)),
            _ => {}
        }
        if let Some(error) = error {
            damage.push(record.path, record.offset, DamageKind::Corrupt, error.to_string());
        }
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
    use crate::testing::recorded;
    use varve_tsdb::fs::RealFs;

    #[test]
    fn the_recorded_directory_is_sound() {
        let Some(dir) = recorded() else { return };
        assert!(is_prometheus_directory(&RealFs, &dir));
        let inspection = inspect(&RealFs, &dir, Depth::Everything, &mut |_, _| {}).unwrap();
        assert_eq!((inspection.damage.n_damaged(), inspection.segments.len(), inspection.blocks.len()), (0, 5, 3));
        assert!(inspection.segments.iter().map(|segment| segment.n_samples).sum::<u64>() > 900_000);
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
