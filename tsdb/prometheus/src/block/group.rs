//! Series made ready for a block apart from it, so that many threads can do it at once.
//!
//! Their chunks are framed first. Where these lie is known once [`BlockWriter::place`](super::BlockWriter::place) has
//! written them; then the entries of the index are made, and [`BlockWriter::add_entries`](super::BlockWriter::add_entries)
//! writes those.

use super::chunks::frame;
use super::index::{IndexedChunk, SERIES_ALIGN, put_entry};
use super::meta::BlockStats;
use super::writer::EncodedChunk;

/// Series that follow each other in a block.
#[derive(Debug, Default)]
pub(crate) struct SeriesGroup {
    /// Chunks as they lie in a file.
    pub(super) bytes: Vec<u8>,
    /// By chunk, where it ends in `bytes`.
    pub(super) ends: Vec<usize>,
    /// By chunk; names come when they are written.
    pub(super) chunks: Vec<IndexedChunk>,
    pub(super) stats: BlockStats,
    /// Of the chunks of the series that ends next.
    open: BlockStats,
    /// By series, where its chunks end.
    series: Vec<usize>,
}

/// Entries of an index, each at a multiple of [`SERIES_ALIGN`].
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(super) bytes: Vec<u8>,
    /// By series, where it begins, in units of [`SERIES_ALIGN`].
    pub(super) starts: Vec<u32>,
}

impl SeriesGroup {
    /// Appends a chunk of the series that ends next; chunks come in the order of time.
    pub(crate) fn push(&mut self, chunk: &EncodedChunk<'_>) {
        frame(chunk, &mut self.bytes);
        self.ends.push(self.bytes.len());
        self.chunks.push(IndexedChunk { min_ms: chunk.min_ms, max_ms: chunk.max_ms, name: 0 });
        self.open.add(chunk);
    }

    /// Ends a series that has chunks.
    pub(crate) fn end_series(&mut self) {
        self.series.push(self.chunks.len());
        self.open.n_series += 1;
        self.stats.merge(&std::mem::take(&mut self.open));
    }

    /// Takes the chunks of the series that has not ended out again.
    pub(crate) fn undo(&mut self) {
        let n_chunks = self.series.last().copied().unwrap_or(0);
        self.chunks.truncate(n_chunks);
        self.ends.truncate(n_chunks);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        self.open = BlockStats::default();
    }

    /// Makes the entries of the index: `labels` gives those of a series, by its place here, as places of the block's symbols.
    pub(crate) fn entries<L>(&self, labels: impl Fn(usize) -> L) -> Entries
    where
        L: ExactSizeIterator<Item = (u32, u32)>,
    {
        let (mut entries, mut entry, mut start) = (Entries::default(), Vec::new(), 0);
        for (i, &end) in self.series.iter().enumerate() {
            entries.bytes.resize(entries.bytes.len().next_multiple_of(SERIES_ALIGN as usize), 0);
            // A group is far smaller than the 64 GiB that such a number reaches.
            entries.starts.push((entries.bytes.len() / SERIES_ALIGN as usize) as u32);
            put_entry(&mut entries.bytes, &mut entry, labels(i), &self.chunks[start..end]);
            start = end;
        }
        entries
    }
}
