//! Open float chunks of up to a million series, in little memory.
//!
//! Used by recovery. An [`Encoder`](super::Encoder) allocates per series and copies on growth. Here
//! all chunks share blocks of 64 bytes, in [`OpenChunks`]. An [`OpenChunk`] refers to its last
//! block, and each block to the previous one.
//!
//! Invariants
//! 1. A chunk has the bytes that an `Encoder` without start timestamps encodes from the same
//!    samples.
//! 2. A block belongs to one chunk or is free.

use varve_collections::Column;
use varve_model::Sample;

use super::bstream::{BitReader, BitSink, push_bits};
use super::encoder::is_full;
use super::error::ChunkError;
use super::xor::XorState;

/// Words of eight bytes per block.
const BLOCK_LEN: usize = 8;
/// Marks the end of a list of blocks.
const NONE: u32 = u32::MAX;
/// Size of the header, which is the number of samples.
const HEADER_SIZE: usize = 2;

/// The blocks of all open chunks.
#[derive(Debug)]
pub(crate) struct OpenChunks {
    blocks: Column<[u64; BLOCK_LEN]>,
    /// For each block, the block before it in its chunk, or the next free block.
    before: Column<u32>,
    free: u32,
}

impl Default for OpenChunks {
    fn default() -> Self {
        Self {
            blocks: Column::default(),
            before: Column::default(),
            free: NONE,
        }
    }
}

impl OpenChunks {
    /// Returns the memory used, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.blocks.size() + self.before.size()
    }

    /// Allocates a block that follows `before`.
    fn take(&mut self, before: u32) -> u32 {
        let block = self.free;
        if block == NONE {
            self.blocks.push([0; BLOCK_LEN]);
            self.before.push(before);
            // Overflow takes more than 200 GB of chunks.
            return u32::try_from(self.blocks.len() - 1)
                .expect("memory is exhausted before block numbers");
        }
        self.free = std::mem::replace(&mut self.before[block as usize], before);
        block
    }

    fn give_back(&mut self, block: u32) {
        self.before[block as usize] = self.free;
        self.free = block;
    }
}

/// An open chunk, possibly empty, and the timestamp of the last sample, which outlives the chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenChunk {
    state: XorState,
    tail: Tail,
}

/// The end of a chunk.
#[derive(Debug, Clone, Copy)]
struct Tail {
    /// Bits that do not fill a word yet.
    pending: u64,
    /// The last block, undefined without words.
    block: u32,
    /// Words in blocks. A chunk has at most 1024 bytes.
    n_words: u8,
    n_pending: u8,
    n_samples: u8,
}

impl Tail {
    const EMPTY: Self = Self {
        pending: 0,
        block: NONE,
        n_words: 0,
        n_pending: 0,
        n_samples: 0,
    };
}

impl OpenChunk {
    /// Creates an empty chunk for samples after `last_ms`.
    pub(crate) const fn after(last_ms: i64) -> Self {
        Self {
            state: XorState::after(last_ms),
            tail: Tail::EMPTY,
        }
    }

    /// Returns the timestamp of the last sample.
    #[inline]
    pub(crate) fn last_ms(&self) -> i64 {
        self.state.timestamp_ms
    }

    /// Returns the number of samples.
    pub(crate) fn n_samples(&self) -> u32 {
        u32::from(self.tail.n_samples)
    }

    /// Returns `true` if the chunk has samples, and room for another one.
    #[inline]
    pub(crate) fn can_append(&self) -> bool {
        let Tail {
            n_words,
            n_pending,
            n_samples,
            ..
        } = self.tail;
        let size = HEADER_SIZE
            + usize::from(n_words) * size_of::<u64>()
            + usize::from(n_pending.div_ceil(8));
        n_samples > 0 && !is_full(u32::from(n_samples), size)
    }

    /// Appends a sample to a chunk that is empty or has room.
    #[inline]
    pub(crate) fn push(&mut self, chunks: &mut OpenChunks, sample: Sample) {
        debug_assert!(
            self.tail.n_samples == 0 || self.can_append(),
            "a full chunk is ended first"
        );
        let n_samples = self.n_samples();
        self.state.put(
            &mut Sink {
                tail: &mut self.tail,
                chunks,
            },
            n_samples,
            sample,
        );
        self.tail.n_samples += 1;
    }

    /// Appends the bytes of the chunk to `dst` and returns the timestamp of its first sample.
    pub(crate) fn copy_to(&self, chunks: &OpenChunks, dst: &mut Vec<u8>) -> i64 {
        let Tail {
            pending,
            n_words,
            n_pending,
            n_samples,
            ..
        } = self.tail;
        let start = dst.len() + HEADER_SIZE;
        dst.extend_from_slice(&u16::from(n_samples).to_be_bytes());
        dst.resize(start + usize::from(n_words) * size_of::<u64>(), 0);
        let mut end = dst.len();
        let mut n_left = usize::from(n_words);
        for block in self.blocks(chunks) {
            let words = &chunks.blocks[block as usize][..(n_left - 1) % BLOCK_LEN + 1];
            for word in words.iter().rev() {
                end -= size_of::<u64>();
                dst[end..end + size_of::<u64>()].copy_from_slice(&word.to_be_bytes());
            }
            n_left -= words.len();
        }
        dst.extend_from_slice(&pending.to_be_bytes()[..usize::from(n_pending.div_ceil(8))]);
        first_ms(&dst[start..]).expect("a chunk begins with the time of its first sample")
    }

    /// Returns the exclusive or of the first words of all blocks, for
    /// [`prefetch`](varve_collections::prefetch).
    pub(crate) fn first_words(&self, chunks: &OpenChunks) -> u64 {
        self.blocks(chunks)
            .fold(0, |sum, block| sum ^ chunks.blocks[block as usize][0])
    }

    /// Frees the blocks. The next sample starts a new chunk.
    pub(crate) fn clear(&mut self, chunks: &mut OpenChunks) {
        let mut block = self.tail.block;
        for _ in 0..usize::from(self.tail.n_words).div_ceil(BLOCK_LEN) {
            let before = chunks.before[block as usize];
            chunks.give_back(block);
            block = before;
        }
        self.tail = Tail::EMPTY;
    }

    /// Sets the timestamp of the last sample of an empty chunk.
    pub(crate) fn skip_to(&mut self, last_ms: i64) {
        debug_assert!(
            self.tail.n_samples == 0,
            "the times of a chunk are the times of its samples"
        );
        self.state.timestamp_ms = last_ms;
    }

    /// Iterates over the blocks, last one first.
    fn blocks<'a>(&self, chunks: &'a OpenChunks) -> impl Iterator<Item = u32> + use<'a> {
        let n_blocks = usize::from(self.tail.n_words).div_ceil(BLOCK_LEN);
        std::iter::successors(Some(self.tail.block), |&block| {
            Some(chunks.before[block as usize])
        })
        .take(n_blocks)
    }
}

fn first_ms(samples: &[u8]) -> Result<i64, ChunkError> {
    BitReader::new(samples).take_varint()
}

/// Appends bits to the blocks of a chunk.
struct Sink<'a> {
    tail: &'a mut Tail,
    chunks: &'a mut OpenChunks,
}

impl BitSink for Sink<'_> {
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        let tail = &mut *self.tail;
        if let Some(bits) = push_bits(&mut tail.pending, &mut tail.n_pending, bits, count) {
            let word = usize::from(tail.n_words) % BLOCK_LEN;
            if word == 0 {
                tail.block = self.chunks.take(tail.block);
            }
            self.chunks.blocks[tail.block as usize][word] = bits;
            tail.n_words += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::encoded;

    /// Cuts samples of several series, interleaved, into chunks. Returns start, end and bytes of
    /// each series' chunks.
    fn grown(chunks: &mut OpenChunks, series: &[Vec<Sample>]) -> Vec<Vec<(i64, i64, Vec<u8>)>> {
        let mut open = vec![OpenChunk::after(i64::MIN); series.len()];
        let mut ended = vec![Vec::new(); series.len()];
        let end = |chunk: &mut OpenChunk, chunks: &mut OpenChunks, ended: &mut Vec<_>| {
            let mut bytes = Vec::new();
            ended.push((chunk.copy_to(chunks, &mut bytes), chunk.last_ms(), bytes));
            chunk.clear(chunks);
        };
        for idx in 0..series.iter().map(Vec::len).max().unwrap_or(0) {
            for (i, samples) in series
                .iter()
                .enumerate()
                .filter(|(_, samples)| idx < samples.len())
            {
                if open[i].n_samples() > 0 && !open[i].can_append() {
                    end(&mut open[i], chunks, &mut ended[i]);
                }
                open[i].push(chunks, samples[idx]);
            }
        }
        for (chunk, ended) in open
            .iter_mut()
            .zip(&mut ended)
            .filter(|(chunk, _)| chunk.n_samples() > 0)
        {
            end(chunk, chunks, ended);
        }
        ended
    }

    proptest! {
        #[test]
        fn open_chunks_have_the_bytes_of_an_encoder(
            series in proptest::collection::vec(
                proptest::collection::vec((1..40_000_i64, 0..4_u8, any::<u64>()), 0..300), 1..5),
            start_ms in any::<i32>(),
        ) {
            let samples = |steps: &Vec<(i64, u8, u64)>| {
                let mut time = i64::from(start_ms);
                let sample = |&(step, kind, bits): &(i64, u8, u64)| {
                    let value = match kind { 0 => 1.0, 1 => (bits % 100) as f64, 2 => bits as f64 / 7.0, _ => f64::from_bits(bits) };
                    time += if kind == 0 { 15_000 } else { step };
                    Sample { timestamp_ms: time, value }
                };
                steps.iter().map(sample).collect::<Vec<_>>()
            };
            let series: Vec<_> = series.iter().map(samples).collect();
            let chunks_of = |samples: &Vec<Sample>| {
                let chunks = encoded(samples.iter().map(|sample| (sample.timestamp_ms, sample.value)));
                chunks.into_iter().map(|chunk| (chunk.min_ms, chunk.max_ms, chunk.bytes)).collect::<Vec<_>>()
            };
            let expected: Vec<_> = series.iter().map(chunks_of).collect();
            let mut chunks = OpenChunks::default();
            prop_assert!(grown(&mut chunks, &series) == expected);
            // All blocks are free again: the second pass allocates none.
            let size = chunks.size();
            prop_assert!(grown(&mut chunks, &series) == expected);
            prop_assert_eq!(chunks.size(), size);
        }
    }

    #[test]
    fn an_open_chunk_is_small() {
        assert_eq!(size_of::<OpenChunk>(), 48);
        let mut chunks = OpenChunks::default();
        let mut open = OpenChunk::after(i64::MIN);
        (0..120).for_each(|i| {
            open.push(
                &mut chunks,
                Sample {
                    timestamp_ms: i * 15_000,
                    value: 1.0,
                },
            )
        });
        assert!(!open.can_append());
        assert!(chunks.size() <= 1024, "{}", chunks.size());
    }
}
