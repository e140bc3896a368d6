//! What a data directory consists of.

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;
use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::DamageKind;
use varve_tsdb::{Error, Result};

use super::report::Report;
use super::shard::Head;
use crate::block::{BlockMeta, META_SIZE_MAX, Ulid};
use crate::head_chunks::{HeadChunk, HeadChunkFiles};
use crate::wal::{Segment, WalFiles};

/// The files that are replayed.
#[derive(Debug)]
pub(super) struct Input {
    /// The log, then the log of late samples.
    pub(super) segments: Vec<(Segment, Log)>,
    pub(super) head: HeadChunkFiles,
    /// By series, then in the order of files and offsets.
    pub(super) head_chunks: Vec<HeadChunk>,
    /// Samples before that are in blocks.
    pub(super) valid_from_ms: i64,
}

/// Which log a segment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    InOrder,
    Late,
}

impl Input {
    pub(super) fn open(fs: &dyn Fs, source: &Path, report: &mut Report) -> Result<Self> {
        report.covered_before_ms = covered_before(fs, source, report)?;
        let wal = WalFiles::list(fs, &source.join("wal"), &mut report.damage)?;
        let wbl = WalFiles::list(fs, &source.join("wbl"), &mut report.damage)?;
        let (head, mut head_chunks) = HeadChunkFiles::scan(fs, &source.join("chunks_head"), &mut report.damage)?;
        head_chunks.par_sort_by_key(|chunk| chunk.series);
        report.n_head_chunks = head_chunks.len() as u64;
        report.checkpoint = wal.checkpoint;
        report.n_segments = (wal.segments.len() + wbl.segments.len()) as u64;
        let in_order = wal.segments.into_iter().map(|segment| (segment, Log::InOrder));
        let segments = in_order.chain(wbl.segments.into_iter().map(|segment| (segment, Log::Late))).collect();
        let valid_from_ms = report.covered_before_ms.unwrap_or(i64::MIN);
        Ok(Self { segments, head, head_chunks, valid_from_ms })
    }

    /// Returns all head chunks, and since when they count.
    pub(super) fn head(&self) -> Head<'_> {
        Head { chunks: &self.head_chunks, valid_from_ms: self.valid_from_ms }
    }

    /// Returns the places of a series' head chunks, which are looked for at `near` first.
    pub(super) fn head_chunks_of(&self, number: u64, near: usize) -> Range<usize> {
        let series_at = |place: usize| self.head_chunks.get(place).map(|chunk| chunk.series);
        let is_there = series_at(near) == Some(number) && near.checked_sub(1).and_then(series_at) != Some(number);
        let start = match is_there {
            true => near,
            false => self.head_chunks.partition_point(|chunk| chunk.series < number),
        };
        let n_chunks = self.head_chunks[start..].iter().take_while(|chunk| chunk.series == number).count();
        start..start + n_chunks
    }
}

/// Returns the end of the newest block that does not consist of late samples.
fn covered_before(fs: &dyn Fs, source: &Path, report: &mut Report) -> Result<Option<i64>> {
    let mut end_ms = None;
    for name in fs.list(source).map_err(Error::io("list", source))? {
        if Ulid::parse(&name).is_none() {
            continue;
        }
        let path = source.join(name).join("meta.json");
        match fs.read(&path, META_SIZE_MAX).ok().and_then(|json| BlockMeta::parse(&json)) {
            Some(meta) if meta.is_out_of_order() => {}
            Some(meta) => end_ms = end_ms.max(Some(meta.max_ms)),
            None => report.damage.push(&path, 0, DamageKind::Corrupt, "not the description of a block"),
        }
    }
    Ok(end_ms)
}
