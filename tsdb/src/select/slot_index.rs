//! A sorted list of slots that finds the position of a slot.
//!
//! Series are read in label order, so the position of each is looked up. A binary search in millions of slots waits for
//! memory at most of its steps. A bitmap with the number of slots before each block of 512 bits (rank, in the
//! literature of succinct data structures) needs two memory accesses, and is smaller than the list unless the slots are
//! sparse.

use crate::head::SlotRef;

/// See the module documentation.
#[derive(Debug)]
pub(super) enum SlotIndex {
    /// The slots, ascending.
    Sparse(Vec<u32>),
    /// A bit for each slot from `first` on, and the number of slots before each block.
    Dense { first: u32, blocks: Vec<[u64; BLOCK_WORDS]>, n_before: Vec<u32> },
}

/// Words per block: a cache line.
const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: usize = BLOCK_WORDS * 64;

impl Default for SlotIndex {
    fn default() -> Self {
        Self::Sparse(Vec::new())
    }
}

impl SlotIndex {
    /// Creates the index of `slots`, which ascend.
    pub(super) fn new(slots: &[SlotRef]) -> Self {
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else { return Self::default() };
        let (first, n_bits) = (first.slot, (last.slot - first.slot) as usize + 1);
        if n_bits > slots.len() * 32 {
            return Self::Sparse(slots.iter().map(|of| of.slot).collect());
        }
        let mut blocks = vec![[0; BLOCK_WORDS]; n_bits.div_ceil(BLOCK_BITS)];
        for of in slots {
            let bit = (of.slot - first) as usize;
            blocks[bit / BLOCK_BITS][bit % BLOCK_BITS / 64] |= 1 << (bit % 64);
        }
        let (mut n, mut n_before) = (0, Vec::with_capacity(blocks.len()));
        for block in &blocks {
            n_before.push(n);
            n += n_ones(block);
        }
        Self::Dense { first, blocks, n_before }
    }

    /// Returns the number of slots before `slot`: its position, if it is in the list.
    #[inline]
    pub(super) fn position(&self, slot: u32) -> usize {
        match self {
            Self::Sparse(slots) => slots.partition_point(|&other| other < slot),
            Self::Dense { first, blocks, n_before } => {
                let bit = slot.saturating_sub(*first) as usize;
                let Some(block) = blocks.get(bit / BLOCK_BITS) else { return self.len() };
                let (word, below) = (bit % BLOCK_BITS / 64, (1u64 << (bit % 64)) - 1);
                let n = n_before[bit / BLOCK_BITS] + n_ones(&block[..word]) + (block[word] & below).count_ones();
                n as usize
            }
        }
    }

    /// Returns the number of slots.
    fn len(&self) -> usize {
        match self {
            Self::Sparse(slots) => slots.len(),
            Self::Dense { blocks, n_before, .. } => {
                (n_before.last().map_or(0, |n| *n) + blocks.last().map_or(0, |block| n_ones(block))) as usize
            }
        }
    }

    /// Returns the size of the index in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Sparse(slots) => size_of_val(&**slots),
            Self::Dense { blocks, n_before, .. } => size_of_val(&**blocks) + size_of_val(&**n_before),
        }
    }
}

fn n_ones(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(slots: impl IntoIterator<Item = u32>, is_dense: bool) {
        let slots: Vec<_> = slots.into_iter().map(|slot| SlotRef { slot, generation: 0 }).collect();
        let index = SlotIndex::new(&slots);
        assert_eq!(matches!(index, SlotIndex::Dense { .. }), is_dense);
        assert!(index.size() <= size_of_val(&*slots) + 2 * BLOCK_BITS);
        let end = slots.last().map_or(10, |last| last.slot + 1_000);
        for slot in (0..end).step_by(if end > 100_000 { 61 } else { 1 }).chain(slots.iter().map(|of| of.slot)) {
            let expect = slots.partition_point(|of| of.slot < slot);
            assert_eq!(index.position(slot), expect, "{slot} of {}", slots.len());
        }
    }

    #[test]
    fn positions_are_those_of_a_binary_search() {
        check([], false);
        check([7], true);
        check(0..10_000, true);
        check((511..5_000).step_by(31), true);
        check((3..100_000).filter(|slot| slot % 512 != 0 && slot % 3 == 0), true);
        check((0..100_000).step_by(33), false);
        check([0, 1_000_000], false);
    }
}
