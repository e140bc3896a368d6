//! What is in a Prometheus data directory, and whether it is sound. Nothing is written, and a Prometheus may be running.

use std::path::{Path, PathBuf};

use varve_tsdb::fs::damage::{DamageKind, DamageReport};
use varve_tsdb::fs::{Fs, size_of_files};
use varve_tsdb::{Error, Result, SampleColumns};

use super::block::{BlockMeta, BlockReader};
use super::chunk;
use super::head_chunks::HeadChunkFiles;
use super::recover::RecordCounts;
use super::wal::{
    Compression, RecordType, Segment, SegmentReader, WalFiles, decode_definitions, decode_exemplars, decode_histograms,
    decode_metadata, decode_samples, decode_tombstones,
};

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The records of all logs, and the descriptions of blocks.
    Summary,
    /// Also what is in records, head chunks and blocks.
    Everything,
}

/// What a directory holds.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// What is damaged, and where.
    pub damage: DamageReport,
    /// The segments of the log, then of that of late samples, in the order of replay.
    pub segments: Vec<SegmentSummary>,
    /// The number of the checkpoint.
    pub checkpoint: Option<u64>,
    /// Chunks in head chunk files.
    pub n_head_chunks: u64,
    /// Samples in them.
    pub n_head_samples: u64,
    /// The blocks whose description can be read.
    pub blocks: Vec<BlockMeta>,
}

/// What a segment holds.
#[derive(Debug, Clone)]
pub struct SegmentSummary {
    /// The file.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Records by type.
    pub records: RecordCounts,
    /// Records by compression: none, snappy, zstd.
    pub compressions: [u64; 3],
    /// Series that are defined.
    pub n_series: u64,
    /// Samples, histograms included.
    pub n_samples: u64,
    /// Times of the oldest and of the newest sample.
    pub times_ms: Option<(i64, i64)>,
}

/// A record, decompressed, and where it was found.
#[derive(Debug)]
pub struct FoundRecord<'a> {
    /// The segment.
    pub path: &'a Path,
    /// Where its first fragment begins.
    pub offset: u64,
    /// How it was compressed.
    pub compression: Compression,
    /// The type, if it is known.
    pub record_type: Option<RecordType>,
    /// The record.
    pub bytes: &'a [u8],
}

/// Tells whether a folder looks like a data directory of Prometheus: a log of its form, head chunks, or a block.
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

/// Hands out the records of all logs, in the order of replay; what cannot be read is noted. `progress` is told of the bytes
/// of logs that were read, and of all of them.
///
/// # Errors
/// [`Error::Io`] if a folder cannot be listed; what `each` returns.
pub fn for_each_record(
    fs: &dyn Fs,
    dir: &Path,
    damage: &mut DamageReport,
    progress: &mut dyn FnMut(u64, u64),
    mut each: impl FnMut(FoundRecord<'_>) -> Result<()>,
) -> Result<()> {
    let mut segments = Vec::new();
    for log in ["wal", "wbl"] {
        segments.extend(WalFiles::list(fs, &dir.join(log), damage)?.segments);
    }
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
            damage.push(&segment.path, raw.offset, DamageKind::Corrupt, "a record cannot be decompressed");
            continue;
        };
        let record_type = RecordType::of(&bytes);
        let (offset, compression) = (raw.offset, raw.compression);
        each(FoundRecord { path: &segment.path, offset, compression, record_type, bytes: &bytes })?;
    }
    Ok(())
}

/// Reads a data directory; `progress` is told of the bytes of its files that were read, and of all of them.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be listed.
pub fn inspect(fs: &dyn Fs, dir: &Path, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> Result<Inspection> {
    fs.list(dir).map_err(Error::io("list", dir))?;
    let mut inspection = Inspection::default();
    let mut segments = Vec::new();
    for log in ["wal", "wbl"] {
        let files = WalFiles::list(fs, &dir.join(log), &mut inspection.damage)?;
        inspection.checkpoint = inspection.checkpoint.or(files.checkpoint);
        segments.extend(files.segments);
    }
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
        let mut summary = SegmentSummary {
            path: segment.path.clone(),
            size: segment.size(fs),
            records: RecordCounts::default(),
            compressions: [0; 3],
            n_series: 0,
            n_samples: 0,
            times_ms: None,
        };
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
            let n_samples = block.verify(&mut self.damage)?;
            let said = block.meta().stats.n_samples;
            if n_samples != said {
                let reason = format!("{n_samples} samples can be read, meta.json says {said}");
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
            let reason = RecordType::not_known(record.bytes);
            damage.push(record.path, record.offset, DamageKind::Unsupported, reason);
            return;
        };
        self.records.add(record_type);
        let bad = match record_type {
            RecordType::Series => {
                let mut definitions = Vec::new();
                let decoded = decode_definitions(record.bytes, &mut definitions);
                self.n_series += definitions.len() as u64;
                decoded.err()
            }
            RecordType::Samples | RecordType::SamplesV2 => {
                let mut samples = Vec::new();
                let decoded = decode_samples(record.bytes, &mut samples);
                samples.iter().for_each(|sample| self.add_sample(sample.timestamp_ms));
                decoded.err()
            }
            RecordType::Tombstones => decode_tombstones(record.bytes, &mut Vec::new()).err(),
            RecordType::Exemplars => decode_exemplars(record.bytes, &mut Vec::new()).err(),
            RecordType::Metadata => decode_metadata(record.bytes, &mut Vec::new()).err(),
            RecordType::MmapMarkers => None,
            RecordType::Histograms
            | RecordType::FloatHistograms
            | RecordType::CustomHistograms
            | RecordType::CustomFloatHistograms
            | RecordType::HistogramsV2
            | RecordType::FloatHistogramsV2 => {
                let mut histograms = Vec::new();
                let decoded = decode_histograms(record.bytes, &mut histograms);
                histograms.iter().for_each(|histogram| self.add_sample(histogram.timestamp_ms));
                decoded.err()
            }
        };
        if let Some(bad) = bad {
            damage.push(record.path, record.offset, DamageKind::Corrupt, bad.to_string());
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
    use varve_tsdb::fs::RealFs;

    #[test]
    fn the_recorded_directory_is_sound() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/prometheus-data/mixed");
        if !dir.is_dir() {
            return;
        }
        assert!(is_prometheus_directory(&RealFs, &dir));
        let inspection = inspect(&RealFs, &dir, Depth::Everything, &mut |_, _| {}).unwrap();
        assert_eq!((inspection.damage.n_damaged(), inspection.segments.len(), inspection.blocks.len()), (0, 5, 3));
        assert!(inspection.segments.iter().map(|segment| segment.n_samples).sum::<u64>() > 900_000);
    }

    #[test]
    fn other_folders_are_not_taken_for_prometheus() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("wal/00000000-4/0")).unwrap();
        assert!(!is_prometheus_directory(&RealFs, dir.path()));
        std::fs::create_dir_all(dir.path().join("chunks_head")).unwrap();
        assert!(is_prometheus_directory(&RealFs, dir.path()));
    }
}
