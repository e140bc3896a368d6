//! The chunks of a series that overlap a window, and their bytes.

use varve_model::TimeRange;
use varve_tsdb::Result;

use super::chunk_log::{ChunkBytes, ChunkRef, SeriesChunk};
use super::shard::Shard;
use crate::chunk::{Chunk, Encoding};
use crate::recover::input::Input;
use crate::recover::windows::{range_of, window_of};

/// A chunk of a series, without its bytes.
pub(crate) type FoundChunk = SeriesChunk<ChunkLocation>;

/// Location of the bytes of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkLocation {
    /// In an open chunk. The timestamp of its first sample is known once it is read.
    Open,
    Finished(ChunkRef),
    /// In a head chunk file: its index in the list of head chunks.
    Head(u32),
}

impl Shard {
    /// Returns `true` if a series may have samples in a window.
    pub(crate) fn may_have_samples(&self, slot: u32, window: i64) -> bool {
        self.states[slot as usize].windows.may_have_samples(window)
    }

    /// Returns a combination of the first words that [`Shard::find`] and [`Shard::read`] need, for
    /// [`prefetch`].
    pub(crate) fn first_words(&self, slot: u32, window: i64) -> u64 {
        let state = &self.states[slot as usize];
        let is_open = window_of(state.open.last_ms()) == window;
        let growing = if is_open {
            state.open.first_words(&self.open)
        } else {
            0
        };
        growing ^ self.finished.first_byte(state.last)
    }

    /// Finds the chunks of a series that overlap a window, by time, and out-of-order chunks in the
    /// order in which they were written.
    pub(crate) fn find(
        &self,
        slot: u32,
        window: i64,
        scratch: &mut Vec<u8>,
        found: &mut Vec<FoundChunk>,
    ) -> Result<()> {
        let state = &self.states[slot as usize];
        let TimeRange { start_ms, end_ms } = range_of(window);
        found.clear();
        let mut position = state.last;
        while let Some((
            SeriesChunk {
                chunk,
                is_out_of_order,
                is_split,
            },
            before,
        )) = self.finished.get(position, scratch)?
        {
            if chunk.min_ms <= end_ms && start_ms <= chunk.max_ms {
                let location = match chunk.bytes {
                    ChunkBytes::Inline(_) => ChunkLocation::Finished(position),
                    ChunkBytes::Head(index) => ChunkLocation::Head(index),
                };
                found.push(SeriesChunk {
                    chunk: chunk.with(location),
                    is_out_of_order,
                    is_split,
                });
            }
            position = before;
        }
        found.reverse();
        let n_samples = state.open.n_samples();
        let max_ms = state.open.last_ms();
        if n_samples > 0 && window_of(max_ms) == window {
            let chunk = Chunk {
                encoding: Encoding::Xor,
                min_ms: start_ms,
                max_ms,
                n_samples,
                bytes: ChunkLocation::Open,
            };
            found.push(SeriesChunk {
                chunk,
                is_out_of_order: false,
                is_split: false,
            });
        }
        Ok(())
    }

    /// Returns the bytes of a chunk. `scratch` is the buffer for reads.
    pub(crate) fn read<'a>(
        &'a self,
        slot: u32,
        found: &mut FoundChunk,
        input: &Input,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        match found.chunk.bytes {
            ChunkLocation::Open => {
                scratch.clear();
                found.chunk.min_ms = self.states[slot as usize].open.copy_to(&self.open, scratch);
                Ok(scratch)
            }
            ChunkLocation::Finished(position) => match self.finished.get(position, scratch)? {
                Some((
                    SeriesChunk {
                        chunk:
                            Chunk {
                                bytes: ChunkBytes::Inline(bytes),
                                ..
                            },
                        ..
                    },
                    _,
                )) => Ok(bytes),
                _ => Ok(&[]),
            },
            ChunkLocation::Head(index) => {
                input
                    .head
                    .read(&input.head_chunks[index as usize], scratch)?;
                Ok(scratch)
            }
        }
    }
}
