//! Reads the series of a block in label order.
//!
//! Invariant: no byte that a checksum covers is used before the checksum was verified. The description
//! of the block and the headers of files have none. A checksum says nothing of
//! the place of a chunk. So a chunk counts as damaged if its samples are not in the time range that
//! the index says. A chunk of an exchanged file with the same times is not found.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::damage::{DamageKind, DamageReport};
use varve_env::sample_totals::SampleTotals;
use varve_env::{Fs, ReadFile, size_of_file, size_of_files};
use varve_model::{SampleColumns, TimeRange};
use varve_tsdb::{Error, Result};

use super::chunks::{HEADER_SIZE, MAGIC, VERSION};
use super::index::{IndexReader, IndexedChunk, IndexedSeries};
use super::meta::{BlockMeta, META_SIZE_MAX};
use super::tombstones::{self, Tombstones};
use super::ulid::Ulid;
use crate::chunk::{self, Chunk, Encoding};
use crate::cursor::Cursor;

/// Bytes read first for a chunk: most are smaller.
const CHUNK_SIZE_GUESS: usize = 4096;
/// Maximum size of the fields before the data of a chunk: a varint size, and the encoding.
const CHUNK_HEADER_SIZE_MAX: usize = 11;
const CRC_SIZE: usize = 4;

/// An open block.
#[derive(Debug)]
pub struct BlockReader {
    meta: BlockMeta,
    index: IndexReader,
    /// Ascending by number.
    segments: Vec<ChunkSegment>,
    tombstones: Tombstones,
}

/// An open file of chunks.
#[derive(Debug)]
struct ChunkSegment {
    /// The number in its name, from 1.
    number: u64,
    path: PathBuf,
    file: Arc<dyn ReadFile>,
}

/// A series of a block.
#[derive(Debug)]
pub struct BlockSeries<'a> {
    block: &'a BlockReader,
    series: IndexedSeries<'a>,
}

/// A position in the series of a block.
#[derive(Debug)]
pub struct BlockCursor<'a> {
    block: &'a BlockReader,
    /// Offset of the next series in the index.
    offset: usize,
    /// The labels of the last series.
    last: Option<Vec<(&'a str, &'a str)>>,
}

impl BlockReader {
    /// Returns the directories in `dir` that are named like blocks, by name.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be listed.
    pub fn list(fs: &dyn Fs, dir: &Path) -> Result<Vec<PathBuf>> {
        let names = fs.list(dir).map_err(Error::io("list", dir))?;
        Ok(names
            .iter()
            .filter(|name| Ulid::parse(name).is_some())
            .map(|name| dir.join(name))
            .collect())
    }

    /// Returns the size of the index and the chunks of the block in the directory `dir`.
    pub fn size(fs: &dyn Fs, dir: &Path) -> u64 {
        size_of_file(fs, &dir.join("index")) + size_of_files(fs, &dir.join("chunks"))
    }

    /// Reads the description of the block in the directory `dir`.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] if it is invalid.
    pub fn read_meta(fs: &dyn Fs, dir: &Path) -> Result<BlockMeta> {
        let path = dir.join("meta.json");
        let json = fs
            .read(&path, META_SIZE_MAX)
            .map_err(Error::io("read", &path))?;
        BlockMeta::parse(&json).ok_or_else(|| Error::Corrupt {
            path,
            offset: 0,
            reason: "not a description of a block".to_owned(),
        })
    }

    /// Opens the block in the directory `dir`. Reports damage that does not prevent reading series.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] and [`Error::Version`] if no series can be read, or if
    /// nobody knows the labels of the series or which samples are deleted.
    pub fn open(fs: &dyn Fs, dir: &Path, damage: &mut DamageReport) -> Result<Self> {
        let meta = Self::read_meta(fs, dir)?;
        let index = IndexReader::open(fs, dir, damage)?;
        let segments = open_segments(fs, &dir.join("chunks"), damage)?;
        Ok(Self {
            meta,
            index,
            segments,
            tombstones: tombstones::read(fs, dir)?,
        })
    }

    /// Returns the description.
    #[must_use]
    pub fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    /// Returns a cursor before the first series.
    #[must_use]
    pub fn cursor(&self) -> BlockCursor<'_> {
        BlockCursor {
            block: self,
            offset: self.index.start(),
            last: None,
        }
    }

    /// Reads the whole block and reports damage. Returns what became of its samples: those that can
    /// be read are kept.
    pub fn verify(&self, damage: &mut DamageReport) -> SampleTotals {
        self.index.check_postings(damage);
        let mut totals = SampleTotals::default();
        let mut columns = SampleColumns::default();
        let mut cursor = self.cursor();
        while let Some(series) = cursor.next(damage) {
            columns.clear();
            series.read_range(TimeRange::ALL, &mut columns, &mut totals, damage);
            totals.n_kept += columns.len() as u64;
        }
        totals
    }

    /// Reads a chunk, or reports why it cannot be read.
    fn read_chunk(&self, chunk: &IndexedChunk, damage: &mut DamageReport) -> Option<Chunk> {
        self.try_read_chunk(chunk)
            .map_err(|reason| self.report(chunk, reason, damage))
            .ok()
    }

    fn report(&self, chunk: &IndexedChunk, reason: String, damage: &mut DamageReport) {
        let (number, offset) = locate(chunk);
        let path = match self.segment(number) {
            Some(segment) => segment.path.clone(),
            // The file is missing.
            None => PathBuf::from(format!("chunks/{number:06}")),
        };
        damage.push(&path, offset, DamageKind::Corrupt, reason);
    }

    fn segment(&self, number: u64) -> Option<&ChunkSegment> {
        let found = self
            .segments
            .binary_search_by_key(&number, |segment| segment.number);
        found.ok().map(|idx| &self.segments[idx])
    }

    fn try_read_chunk(&self, chunk: &IndexedChunk) -> std::result::Result<Chunk, String> {
        let (number, offset) = locate(chunk);
        let segment = self.segment(number).ok_or("chunk file is missing")?;
        let file = &segment.file;
        let size = file.size().map_err(|error| error.to_string())?;
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; CHUNK_SIZE_GUESS.min(left)];
        file.read_at(&mut bytes, offset)
            .map_err(|error| error.to_string())?;
        let mut src = Cursor::new(&bytes);
        let data_size = src.uvarint().and_then(|size| usize::try_from(size).ok());
        let start = bytes.len() - src.len();
        let whole = data_size
            .and_then(|size| size.checked_add(start + 1 + CRC_SIZE))
            .filter(|&whole| whole <= left);
        let whole = whole.ok_or("chunk exceeds its file")?;
        debug_assert!(
            start < CHUNK_HEADER_SIZE_MAX,
            "a varint has at most ten bytes"
        );
        if whole > bytes.len() {
            bytes.resize(whole, 0);
            file.read_at(&mut bytes, offset)
                .map_err(|error| error.to_string())?;
        }
        let (data, checksum) = bytes[start..whole].split_at(whole - start - CRC_SIZE);
        if crc32c::crc32c(data).to_be_bytes() != checksum {
            return Err("checksum mismatch of a chunk".to_owned());
        }
        let encoding = Encoding::from_code(data[0])
            .ok_or_else(|| format!("unknown chunk encoding {}", data[0]))?;
        let n_samples =
            chunk::n_samples(encoding, &data[1..]).map_err(|error| error.to_string())?;
        let IndexedChunk { min_ms, max_ms, .. } = *chunk;
        Ok(Chunk {
            encoding,
            min_ms,
            max_ms,
            n_samples,
            bytes: data[1..].to_vec(),
        })
    }
}

/// Returns the number of the file of a chunk, and its offset there.
fn locate(chunk: &IndexedChunk) -> (u64, u64) {
    (
        (chunk.chunk_ref >> 32) + 1,
        chunk.chunk_ref & u64::from(u32::MAX),
    )
}

impl<'a> BlockCursor<'a> {
    /// Returns the next series in label order. Skips and reports series that are damaged or out of
    /// order.
    pub fn next(&mut self, damage: &mut DamageReport) -> Option<BlockSeries<'a>> {
        let series = self
            .block
            .index
            .next(&mut self.offset, &mut self.last, damage)?;
        Some(BlockSeries {
            block: self.block,
            series,
        })
    }
}

impl<'a> BlockSeries<'a> {
    /// Returns names and values in ascending order of names.
    #[must_use]
    pub fn labels(&self) -> &[(&'a str, &'a str)] {
        &self.series.labels
    }

    /// Returns the time ranges of the chunks according to the index.
    pub fn chunk_ranges(&self) -> impl Iterator<Item = TimeRange> + '_ {
        self.series.chunks.iter().map(|chunk| TimeRange {
            start_ms: chunk.min_ms,
            end_ms: chunk.max_ms,
        })
    }

    /// Returns first timestamp, last timestamp and ref of each chunk.
    #[cfg(test)]
    pub(super) fn chunk_refs(&self) -> impl Iterator<Item = (i64, i64, u64)> + '_ {
        self.series
            .chunks
            .iter()
            .map(|chunk| (chunk.min_ms, chunk.max_ms, chunk.chunk_ref))
    }

    /// Returns the ref of the series, as postings and tombstones use it.
    #[cfg(test)]
    pub(super) fn series_ref(&self) -> u64 {
        self.block.index.series_ref(self.series.offset)
    }

    /// Returns `true` if a chunk overlaps a range.
    pub(crate) fn overlaps(&self, range: TimeRange) -> bool {
        self.chunk_ranges()
            .any(|chunk_range| chunk_range.overlaps(range))
    }

    /// Reads the chunks, with their times according to the index. Skips and reports damaged ones.
    pub fn chunks(&self, damage: &mut DamageReport) -> Vec<Chunk> {
        self.series
            .chunks
            .iter()
            .filter_map(|chunk| self.block.read_chunk(chunk, damage))
            .collect()
    }

    /// Appends the samples to empty columns, with tombstones applied. Reports damage. Of two
    /// samples with the same timestamp, the one of the earlier chunk wins.
    pub fn read(&self, dst: &mut SampleColumns, damage: &mut DamageReport) {
        let mut totals = SampleTotals::default();
        self.read_range(TimeRange::ALL, dst, &mut totals, damage);
    }

    /// Like [`BlockSeries::read`], from the chunks that overlap a range. Does not cut their samples
    /// to the range. Adds what the range has to `totals`, except for the samples that are kept.
    pub(crate) fn read_range(
        &self,
        range: TimeRange,
        dst: &mut SampleColumns,
        totals: &mut SampleTotals,
        damage: &mut DamageReport,
    ) {
        self.read_counted(range, dst, totals, |chunk, reason| {
            self.block.report(chunk, reason, damage);
        });
    }

    /// Like [`BlockSeries::read_range`], but reports only damaged chunks that start in the range. A
    /// caller that reads all windows of a block reports each damaged chunk once.
    pub(crate) fn read_window(
        &self,
        window: TimeRange,
        dst: &mut SampleColumns,
        totals: &mut SampleTotals,
        damage: &mut DamageReport,
    ) {
        self.read_counted(window, dst, totals, |chunk, reason| {
            if window.contains(chunk.min_ms) {
                self.block.report(chunk, reason, damage);
            }
        });
    }

    fn read_counted(
        &self,
        range: TimeRange,
        dst: &mut SampleColumns,
        totals: &mut SampleTotals,
        report: impl FnMut(&IndexedChunk, String),
    ) {
        let n_found = self.read_chunks(range, dst, report);
        let n_merged = dst.len_within(range) as u64;
        self.remove_deleted(dst);
        let n_left = dst.len_within(range) as u64;
        totals.n_found += n_found;
        totals.n_duplicates += n_found.saturating_sub(n_merged);
        totals.n_deleted += n_merged.saturating_sub(n_left);
    }

    /// Returns the number of samples of all chunks in the range.
    fn read_chunks(
        &self,
        range: TimeRange,
        dst: &mut SampleColumns,
        mut report: impl FnMut(&IndexedChunk, String),
    ) -> u64 {
        let mut n_samples = 0;
        let mut columns = SampleColumns::default();
        for chunk in &self.series.chunks {
            if chunk.max_ms < range.start_ms || range.end_ms < chunk.min_ms {
                continue;
            }
            columns.clear();
            if let Err(reason) = self.decode_chunk(chunk, &mut columns) {
                report(chunk, reason);
            }
            n_samples += columns.len_within(range) as u64;
            dst.merge(&columns);
        }
        n_samples
    }

    /// Appends the samples of a chunk to empty columns. Of a damaged one, appends those before the
    /// damage, and none if it is another chunk.
    fn decode_chunk(
        &self,
        indexed: &IndexedChunk,
        dst: &mut SampleColumns,
    ) -> std::result::Result<(), String> {
        let Chunk {
            encoding, bytes, ..
        } = self.block.try_read_chunk(indexed)?;
        let decoded = chunk::decode(encoding, &bytes, dst).map_err(|error| error.to_string());
        let IndexedChunk { min_ms, max_ms, .. } = *indexed;
        // The checksum of a chunk says nothing of its place: a file may have the name of another.
        let is_of_index = dst
            .timestamps_ms
            .iter()
            .all(|time_ms| (min_ms..=max_ms).contains(time_ms));
        if !is_of_index {
            dst.clear();
            return Err(format!(
                "the samples of the chunk are not from {min_ms} to {max_ms}, as the index says"
            ));
        }
        decoded
    }

    fn remove_deleted(&self, dst: &mut SampleColumns) {
        for &range in self.tombstones() {
            dst.remove(range);
        }
    }

    fn tombstones(&self) -> &'a [TimeRange] {
        // Version 2 counts offsets in postings and tombstones in units of 16 bytes, version 1 in
        // bytes.
        let series_ref = self.block.index.series_ref(self.series.offset);
        self.block
            .tombstones
            .get(&series_ref)
            .map_or(&[], Vec::as_slice)
    }
}

fn open_segments(fs: &dyn Fs, dir: &Path, damage: &mut DamageReport) -> Result<Vec<ChunkSegment>> {
    let mut segments = Vec::new();
    for name in fs.list(dir).map_err(Error::io("list", dir))? {
        // Not its position in the list: a file before it may be missing.
        let Ok(number) = name.parse() else { continue };
        let path = dir.join(&name);
        let file = fs.open(&path).map_err(Error::io("open", &path))?;
        let mut header = [0; HEADER_SIZE as usize];
        let is_sound = file.read_at(&mut header, 0).is_ok()
            && header[..4] == MAGIC.to_be_bytes()
            && header[4] == VERSION;
        if !is_sound {
            damage.push(
                &path,
                0,
                DamageKind::Corrupt,
                "not the header of a chunk file",
            );
        }
        segments.push(ChunkSegment { number, path, file });
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}
