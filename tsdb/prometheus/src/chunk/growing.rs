//! Chunks of floats of many series that grow side by side: a million of them at once, each in little memory.
//!
//! Used by recovery. What an [`Encoder`](super::Encoder) has in an allocation of its own for each series, and copies when it
//! grows, lies here in blocks of 64 bytes that all chunks share: [`GrowingChunks`]. A [`GrowingChunk`] is what is
//! known of one of them, and names the last of its blocks; each block names the one before.
//!
//! Invariants
//! 1. The bytes of a chunk are those that an `Encoder` that drops start timestamps makes of the same samples.
//! 2. A block belongs to one chunk, or is free.

use varve_tsdb::Sample;
use varve_tsdb::collections::Column;

use super::ChunkError;
use super::bits::{BitReader, BitSink, gather};
use super::encoder::is_full;
use super::xor::XorState;

/// Words of eight bytes of a block.
const BLOCK_LEN: usize = 8;
/// Stands for no block.
const NONE: u32 = u32::MAX;
/// Bytes in front of the samples: their number.
const HEADER_SIZE: usize = 2;

/// The blocks of all chunks that grow.
#[derive(Debug)]
pub(crate) struct GrowingChunks {
    blocks: Column<[u64; BLOCK_LEN]>,
    /// By block, the one before it in its chunk, or the next one that is free.
    before: Column<u32>,
    free: u32,
}

impl Default for GrowingChunks {
    fn default() -> Self {
        Self { blocks: Column::default(), before: Column::default(), free: NONE }
    }
}

impl GrowingChunks {
    /// Returns the bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.blocks.size() + self.before.size()
    }

    /// Takes a block that comes behind `before`.
    fn take(&mut self, before: u32) -> u32 {
        let block = self.free;
        if block == NONE {
            self.blocks.push([0; BLOCK_LEN]);
            self.before.push(before);
            // Two hundred gigabytes of chunks would be needed for more.
            return u32::try_from(self.blocks.len() - 1).expect("memory ends before the numbers of blocks do");
        }
        self.free = std::mem::replace(&mut self.before[block as usize], before);
        block
    }

    fn give_back(&mut self, block: u32) {
        self.before[block as usize] = self.free;
        self.free = block;
    }
}

/// A chunk that grows, or none yet; and the time of the last sample, which outlives the chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrowingChunk {
    state: XorState,
    tail: Tail,
}

/// The end of a chunk.
#[derive(Debug, Clone, Copy)]
struct Tail {
    /// What does not fill a word yet.
    gathered: u64,
    /// The last block; any if there are no words.
    block: u32,
    /// Words in blocks: a chunk has at most 1024 bytes.
    n_words: u8,
    n_gathered: u8,
    n_samples: u8,
}

impl Tail {
    const EMPTY: Self = Self { gathered: 0, block: NONE, n_words: 0, n_gathered: 0, n_samples: 0 };
}

impl GrowingChunk {
    /// Begins without samples, behind one of that time.
    pub(crate) const fn behind(last_ms: i64) -> Self {
        Self { state: XorState::behind(last_ms), tail: Tail::EMPTY }
    }

    /// Returns the time of the last sample.
    #[inline]
    pub(crate) fn last_ms(&self) -> i64 {
        self.state.timestamp_ms
    }

    /// Counts the samples.
    pub(crate) fn n_samples(&self) -> u32 {
        u32::from(self.tail.n_samples)
    }

    /// Tells whether there are samples, and room for one more.
    #[inline]
    pub(crate) fn takes_more(&self) -> bool {
        let Tail { n_words, n_gathered, n_samples, .. } = self.tail;
        let size = HEADER_SIZE + usize::from(n_words) * size_of::<u64>() + usize::from(n_gathered.div_ceil(8));
        n_samples > 0 && !is_full(usize::from(n_samples), size)
    }

    /// Appends a sample, to a chunk that is empty or takes more.
    #[inline]
    pub(crate) fn push(&mut self, chunks: &mut GrowingChunks, sample: Sample) {
        debug_assert!(self.tail.n_samples == 0 || self.takes_more(), "a full chunk is ended first");
        let n_samples = usize::from(self.tail.n_samples);
        self.state.put(&mut Sink { tail: &mut self.tail, chunks }, n_samples, sample);
        self.tail.n_samples += 1;
    }

    /// Appends the bytes of the chunk to `dst`, and returns the time of its first sample.
    pub(crate) fn copy_to(&self, chunks: &GrowingChunks, dst: &mut Vec<u8>) -> i64 {
        let Tail { gathered, n_words, n_gathered, n_samples, .. } = self.tail;
        let start = dst.len() + HEADER_SIZE;
        dst.extend_from_slice(&u16::from(n_samples).to_be_bytes());
        dst.resize(start + usize::from(n_words) * size_of::<u64>(), 0);
        let (mut end, mut n_left) = (dst.len(), usize::from(n_words));
        for block in self.blocks(chunks) {
            let words = &chunks.blocks[block as usize][..(n_left - 1) % BLOCK_LEN + 1];
            for word in words.iter().rev() {
                end -= size_of::<u64>();
                dst[end..end + size_of::<u64>()].copy_from_slice(&word.to_be_bytes());
            }
            n_left -= words.len();
        }
        dst.extend_from_slice(&gathered.to_be_bytes()[..usize::from(n_gathered.div_ceil(8))]);
        first_ms(&dst[start..]).expect("a chunk begins with the time of its first sample")
    }

    /// Reads something of each block and returns what means nothing: the blocks are in the processor's cache then.
    pub(crate) fn touch(&self, chunks: &GrowingChunks) -> u64 {
        self.blocks(chunks).fold(0, |sum, block| sum ^ chunks.blocks[block as usize][0])
    }

    /// Ends the chunk: its blocks are free, and the next sample begins another one.
    pub(crate) fn clear(&mut self, chunks: &mut GrowingChunks) {
        let mut block = self.tail.block;
        for _ in 0..usize::from(self.tail.n_words).div_ceil(BLOCK_LEN) {
            let before = chunks.before[block as usize];
            chunks.give_back(block);
            block = before;
        }
        self.tail = Tail::EMPTY;
    }

    /// Goes on behind a sample that is not in the chunk, which is empty.
    pub(crate) fn pass(&mut self, last_ms: i64) {
        debug_assert!(self.tail.n_samples == 0, "times of a chunk are those of its samples");
        self.state.timestamp_ms = last_ms;
    }

    /// Iterates over the blocks from the last one to the first.
    fn blocks<'a>(&self, chunks: &'a GrowingChunks) -> impl Iterator<Item = u32> + use<'a> {
        let n_blocks = usize::from(self.tail.n_words).div_ceil(BLOCK_LEN);
        std::iter::successors(Some(self.tail.block), |&block| Some(chunks.before[block as usize])).take(n_blocks)
    }
}

fn first_ms(samples: &[u8]) -> Result<i64, ChunkError> {
    BitReader::new(samples).take_varint()
}

/// Where the bits of a sample go.
struct Sink<'a> {
    tail: &'a mut Tail,
    chunks: &'a mut GrowingChunks,
}

impl BitSink for Sink<'_> {
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        let tail = &mut *self.tail;
        if let Some(word) = gather(&mut tail.gathered, &mut tail.n_gathered, bits, count) {
            let place = usize::from(tail.n_words) % BLOCK_LEN;
            if place == 0 {
                tail.block = self.chunks.take(tail.block);
            }
            self.chunks.blocks[tail.block as usize][place] = word;
            tail.n_words += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chunk::{Encoder, StartTimes};

    /// Cuts samples of several series, in turns, into chunks; returns the bytes and first times of each series' chunks.
    fn grown(chunks: &mut GrowingChunks, series: &[Vec<Sample>]) -> Vec<Vec<(i64, i64, Vec<u8>)>> {
        let mut growing = vec![GrowingChunk::behind(i64::MIN); series.len()];
        let mut ended = vec![Vec::new(); series.len()];
        let end = |chunk: &mut GrowingChunk, chunks: &mut GrowingChunks, ended: &mut Vec<_>| {
            let mut bytes = Vec::new();
            ended.push((chunk.copy_to(chunks, &mut bytes), chunk.last_ms(), bytes));
            chunk.clear(chunks);
        };
        for place in 0..series.iter().map(Vec::len).max().unwrap_or(0) {
            for (i, samples) in series.iter().enumerate().filter(|(_, samples)| place < samples.len()) {
                if growing[i].n_samples() > 0 && !growing[i].takes_more() {
                    end(&mut growing[i], chunks, &mut ended[i]);
                }
                growing[i].push(chunks, samples[place]);
            }
        }
        for (chunk, ended) in growing.iter_mut().zip(&mut ended).filter(|(chunk, _)| chunk.n_samples() > 0) {
            end(chunk, chunks, ended);
        }
        ended
    }

    fn encoded(samples: &[Sample]) -> Vec<(i64, i64, Vec<u8>)> {
        let mut encoder = Encoder::new(StartTimes::Dropped);
        samples.iter().for_each(|sample| encoder.push(*sample, 0));
        encoder.finish().into_iter().map(|chunk| (chunk.min_ms, chunk.max_ms, chunk.bytes)).collect()
    }

    proptest! {
        #[test]
        fn chunks_are_those_of_an_encoder(
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
            let expected: Vec<_> = series.iter().map(|samples| encoded(samples)).collect();
            let mut chunks = GrowingChunks::default();
            prop_assert!(grown(&mut chunks, &series) == expected);
            // All blocks are free again, so that the same once more takes no more of them.
            let size = chunks.size();
            prop_assert!(grown(&mut chunks, &series) == expected);
            prop_assert_eq!(chunks.size(), size);
        }
    }

    #[test]
    fn a_series_takes_little() {
        assert_eq!(size_of::<GrowingChunk>(), 48);
        let mut chunks = GrowingChunks::default();
        let mut growing = GrowingChunk::behind(i64::MIN);
        (0..120).for_each(|i| growing.push(&mut chunks, Sample { timestamp_ms: i * 15_000, value: 1.0 }));
        assert!(!growing.takes_more());
        assert!(chunks.size() <= 1024, "{}", chunks.size());
    }
}
