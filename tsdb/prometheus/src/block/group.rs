//! Series that are prepared for a block in parallel.
//!
//! Chunks are framed first. [`BlockWriter::write_chunks`](super::BlockWriter::write_chunks) writes
//! them and assigns their refs. Then the index entries can be encoded, and
//! [`BlockWriter::add_entries`](super::BlockWriter::add_entries) writes them.

use varve_model::SampleColumns;

use super::chunks::{frame, unframe};
use super::index::{IndexEntries, IndexedChunk, SERIES_ALIGN, put_entry};
use super::meta::BlockStats;
use crate::chunk::{self, Chunk};

/// Consecutive series of a block.
#[derive(Debug, Default)]
pub(crate) struct SeriesGroup {
    /// Framed chunks.
    pub(super) bytes: Vec<u8>,
    /// For each chunk, its end in `bytes`.
    pub(super) ends: Vec<usize>,
    /// The chunks. Their refs are assigned when they are written.
    pub(super) chunks: Vec<IndexedChunk>,
    pub(super) stats: BlockStats,
    /// Statistics of the unfinished series.
    open: BlockStats,
    /// For each series, the end of its chunks.
    series: Vec<usize>,
}

impl SeriesGroup {
    /// Appends a chunk of the unfinished series. Chunks ascend in time.
    pub(crate) fn push<B: AsRef<[u8]>>(&mut self, chunk: &Chunk<B>) {
        let &Chunk {
            encoding,
            min_ms,
            max_ms,
            n_samples,
            ref bytes,
        } = chunk;
        frame(encoding, bytes.as_ref(), &mut self.bytes);
        self.ends.push(self.bytes.len());
        self.chunks.push(IndexedChunk {
            min_ms,
            max_ms,
            chunk_ref: 0,
        });
        self.open.add(encoding, n_samples);
    }

    /// Finishes a series with at least one chunk.
    pub(crate) fn end_series(&mut self) {
        self.series.push(self.chunks.len());
        self.open.n_series += 1;
        self.stats.merge(&std::mem::take(&mut self.open));
    }

    /// Removes the chunks of the unfinished series.
    pub(crate) fn undo(&mut self) {
        let n_chunks = self.series.last().copied().unwrap_or(0);
        self.chunks.truncate(n_chunks);
        self.ends.truncate(n_chunks);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        self.open = BlockStats::default();
    }

    /// Appends the samples of a series of the group to empty columns.
    pub(crate) fn decode(&self, series_idx: usize, dst: &mut SampleColumns) {
        let first_chunk = series_idx
            .checked_sub(1)
            .map_or(0, |before| self.series[before]);
        let mut later = SampleColumns::default();
        for idx in first_chunk..self.series[series_idx] {
            let start = idx.checked_sub(1).map_or(0, |before| self.ends[before]);
            let (encoding, bytes) =
                unframe(&self.bytes[start..self.ends[idx]]).expect("`push` framed it");
            let columns = if dst.is_empty() {
                &mut *dst
            } else {
                &mut later
            };
            let decoded = chunk::decode(encoding, bytes, columns);
            debug_assert_eq!(decoded, Ok(()), "what was encoded, or verified, before");
            dst.merge(&later);
            later.clear();
        }
    }

    /// Encodes the entries of the index. `labels` returns the labels of a series of the group as
    /// symbols.
    pub(crate) fn entries<L>(&self, labels: impl Fn(usize) -> L) -> IndexEntries
    where
        L: ExactSizeIterator<Item = (u32, u32)>,
    {
        let mut entries = IndexEntries::default();
        let mut buffer = Vec::new();
        let mut start = 0;
        for (i, &end) in self.series.iter().enumerate() {
            entries.bytes.resize(
                entries.bytes.len().next_multiple_of(SERIES_ALIGN as usize),
                0,
            );
            // A group is far smaller than the 64 GiB that the offset can address.
            entries
                .starts
                .push((entries.bytes.len() / SERIES_ALIGN as usize) as u32);
            put_entry(
                &mut entries.bytes,
                &mut buffer,
                labels(i),
                &self.chunks[start..end],
            );
            start = end;
        }
        entries
    }
}
