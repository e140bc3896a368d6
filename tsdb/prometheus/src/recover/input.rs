//! The files of a data directory that a recovery reads.

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;
use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};
use varve_tsdb::{Error, Result};

use super::report::Report;
use crate::block::{BlockMeta, BlockReader, META_SIZE_MAX, Ulid};
use crate::head_chunks::{HeadChunk, HeadChunkFiles};
use crate::wal::{LogKind, RecordContent, RecordType, Segment, SegmentReader, WalFiles};

/// Files to replay.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Segments of the WAL, then segments of the WBL.
    pub(super) segments: Vec<(Segment, LogKind)>,
    pub(super) head: HeadChunkFiles,
    /// Sorted by series ref, then by file and offset.
    pub(super) head_chunks: Vec<HeadChunk>,
    /// In-order samples before this timestamp are in blocks.
    pub(super) min_valid_ms: i64,
    /// Samples may be missing from the WBL, so that out-of-order samples of the WAL before
    /// `min_valid_ms` may be nowhere else.
    pub(super) is_wbl_lost: bool,
    /// Number of blocks with a damaged description, which a recovery does not read.
    pub(super) n_damaged_blocks: u64,
}

/// The head chunks of all series, and the timestamp from which they are valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadChunkList<'a> {
    pub(crate) chunks: &'a [HeadChunk],
    pub(crate) min_valid_ms: i64,
}

impl Input {
    pub(super) fn open(fs: &dyn Fs, source: &Path, report: &mut Report) -> Result<Self> {
        let wal = WalFiles::list(fs, source, LogKind::Wal, &mut report.damage)?;
        let n_damaged = report.damage.n_damaged();
        report.covered_before_ms =
            blocks_end(fs, source, report)?.max(truncated_before(fs, &wal.segments));
        let n_damaged_blocks = report.damage.n_damaged() - n_damaged;
        let wbl = WalFiles::list(fs, source, LogKind::Wbl, &mut report.damage)?;
        let (head, mut head_chunks) =
            HeadChunkFiles::scan(fs, &source.join("chunks_head"), &mut report.damage)?;
        head_chunks.par_sort_by_key(|chunk| chunk.series);
        report.n_head_chunks = head_chunks.len() as u64;
        report.checkpoint = wal.checkpoint;
        report.n_segments = (wal.segments.len() + wbl.segments.len()) as u64;
        let min_valid_ms = report.covered_before_ms.unwrap_or(i64::MIN);
        let is_wbl_lost = min_valid_ms > i64::MIN && is_lost(fs, &wbl.segments);
        let in_order = wal
            .segments
            .into_iter()
            .map(|segment| (segment, LogKind::Wal));
        let segments = in_order
            .chain(
                wbl.segments
                    .into_iter()
                    .map(|segment| (segment, LogKind::Wbl)),
            )
            .collect();
        Ok(Self {
            segments,
            head,
            head_chunks,
            min_valid_ms,
            is_wbl_lost,
            n_damaged_blocks,
        })
    }

    /// Returns all head chunks, and the timestamp from which they are valid.
    pub(super) fn head(&self) -> HeadChunkList<'_> {
        HeadChunkList {
            chunks: &self.head_chunks,
            min_valid_ms: self.min_valid_ms,
        }
    }

    /// Returns the range of the head chunks of a series. Searches at index `near` first.
    pub(super) fn head_chunks_of(&self, series_ref: u64, near: usize) -> Range<usize> {
        let series_at = |index: usize| self.head_chunks.get(index).map(|chunk| chunk.series);
        let is_there = series_at(near) == Some(series_ref)
            && near.checked_sub(1).and_then(series_at) != Some(series_ref);
        let start = if is_there {
            near
        } else {
            self.head_chunks
                .partition_point(|chunk| chunk.series < series_ref)
        };
        let n_chunks = self.head_chunks[start..]
            .iter()
            .take_while(|chunk| chunk.series == series_ref)
            .count();
        start..start + n_chunks
    }
}

/// Returns `true` if a WBL has no segments, or a damaged one. The replay reports the damage.
///
/// Prometheus leaves an empty segment when it has written the samples of a WBL to blocks. Without
/// out-of-order samples there was no WBL, and no sample of the WAL is out of order either.
fn is_lost(fs: &dyn Fs, segments: &[Segment]) -> bool {
    let mut damage = DamageReport::default();
    for segment in segments {
        let Ok(mut reader) = SegmentReader::open(fs, segment) else {
            return true;
        };
        while reader.next(&mut damage).is_some() {}
    }
    segments.is_empty() || damage.n_damaged() > 0
}

/// Returns the timestamp before which the WAL was truncated according to its checkpoint. Prometheus
/// writes it since version 3.16. Damage of the checkpoint is reported by the replay.
pub(crate) fn truncated_before(fs: &dyn Fs, segments: &[Segment]) -> Option<i64> {
    let first = segments.first().filter(|segment| segment.is_checkpoint)?;
    let record = SegmentReader::open(fs, first)
        .ok()?
        .next(&mut DamageReport::default())?;
    let bytes = record.compression.decode(&record.bytes)?;
    match RecordContent::decode(RecordType::of(&bytes)?, &bytes).0 {
        RecordContent::MinValidTime(times) => times.first().copied(),
        _ => None,
    }
}

/// Returns the end of the newest block, except for blocks that do not have all samples of their time
/// range.
///
/// `meta.json` has no checksum, and samples of the WAL before a wrong end would be dropped. So a block
/// does not end after its last chunk.
fn blocks_end(fs: &dyn Fs, source: &Path, report: &mut Report) -> Result<Option<i64>> {
    let mut blocks = Vec::new();
    for name in fs.list(source).map_err(Error::io("list", source))? {
        if Ulid::parse(&name).is_none() {
            continue;
        }
        let dir = source.join(name);
        let path = dir.join("meta.json");
        match fs
            .read(&path, META_SIZE_MAX)
            .ok()
            .and_then(|json| BlockMeta::parse(&json))
        {
            Some(meta) if meta.is_partial() => {}
            Some(meta) => blocks.push((meta.max_ms, dir)),
            None => report.damage.push(
                &path,
                0,
                DamageKind::Corrupt,
                "not a description of a block",
            ),
        }
    }
    blocks.sort_unstable();
    let mut end_ms = None;
    for (max_ms, dir) in blocks.into_iter().rev() {
        if end_ms >= Some(max_ms) {
            break;
        }
        let last_ms = last_chunk_ms(fs, &dir).unwrap_or(i64::MAX);
        end_ms = end_ms.max(Some(max_ms.min(last_ms.saturating_add(1))));
    }
    Ok(end_ms)
}

/// Returns the last timestamp of the chunks of a block. `None` if no series can be read.
fn last_chunk_ms(fs: &dyn Fs, dir: &Path) -> Option<i64> {
    // A verification of the block reports its damage.
    let mut damage = DamageReport::default();
    let block = BlockReader::open(fs, dir, &mut damage).ok()?;
    let mut series = block.cursor();
    let mut last_ms = None;
    while let Some(series) = series.next(&mut damage) {
        let ends = series.chunk_ranges().map(|range| range.end_ms);
        last_ms = last_ms.max(ends.max());
    }
    last_ms
}
