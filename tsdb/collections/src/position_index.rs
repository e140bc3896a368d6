//! Finds the position of a number in a sorted list.
//!
//! A binary search in millions of numbers waits for memory at most of its steps. A bitmap, with a
//! count of the numbers before each block of 512 bits (rank, in the literature of succinct data
//! structures), needs two memory accesses. It takes about as much memory as the list, or less; a
//! list is used if the numbers are sparser.

/// A sorted list of numbers in a form that finds positions fast: see the module documentation.
#[derive(Debug)]
pub struct PositionIndex(Layout);

#[derive(Debug)]
enum Layout {
    /// The numbers, ascending.
    Sparse(Vec<u32>),
    /// A bit for each number from `first` on, and how many numbers come before each block.
    Dense {
        first: u32,
        blocks: Vec<[u64; BLOCK_WORDS]>,
        n_before: Vec<u32>,
    },
}

/// Words per block: a cache line.
const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: usize = BLOCK_WORDS * 64;

impl Default for PositionIndex {
    fn default() -> Self {
        Self(Layout::Sparse(Vec::new()))
    }
}

impl PositionIndex {
    /// Creates the index of `numbers`, which must be strictly ascending.
    pub fn new(numbers: impl ExactSizeIterator<Item = u32> + DoubleEndedIterator + Clone) -> Self {
        let Some(first) = numbers.clone().next() else {
            return Self::default();
        };
        let last = numbers.clone().next_back().unwrap_or(first);
        let n_bits = (last - first) as usize + 1;
        if n_bits > numbers.len() * 32 {
            return Self(Layout::Sparse(numbers.collect()));
        }
        let mut blocks = vec![[0; BLOCK_WORDS]; n_bits.div_ceil(BLOCK_BITS)];
        for number in numbers {
            let bit = (number - first) as usize;
            blocks[bit / BLOCK_BITS][bit % BLOCK_BITS / 64] |= 1 << (bit % 64);
        }
        let mut n = 0;
        let mut n_before = Vec::with_capacity(blocks.len());
        for block in &blocks {
            n_before.push(n);
            n += n_ones(block);
        }
        Self(Layout::Dense {
            first,
            blocks,
            n_before,
        })
    }

    /// Returns how many numbers are less than `number`: its position, if it is in the list.
    #[inline]
    pub fn position(&self, number: u32) -> usize {
        match &self.0 {
            Layout::Sparse(numbers) => numbers.partition_point(|&other| other < number),
            Layout::Dense {
                first,
                blocks,
                n_before,
            } => {
                let bit = number.saturating_sub(*first) as usize;
                let Some(block) = blocks.get(bit / BLOCK_BITS) else {
                    return self.len();
                };
                let word = bit % BLOCK_BITS / 64;
                let below = (1u64 << (bit % 64)) - 1;
                let n = n_before[bit / BLOCK_BITS]
                    + n_ones(&block[..word])
                    + (block[word] & below).count_ones();
                n as usize
            }
        }
    }

    /// Returns the length of the list.
    fn len(&self) -> usize {
        match &self.0 {
            Layout::Sparse(numbers) => numbers.len(),
            Layout::Dense {
                blocks, n_before, ..
            } => {
                (n_before.last().map_or(0, |n| *n) + blocks.last().map_or(0, |block| n_ones(block)))
                    as usize
            }
        }
    }

    /// Returns the size of the index in bytes.
    pub fn size(&self) -> usize {
        match &self.0 {
            Layout::Sparse(numbers) => size_of_val(&**numbers),
            Layout::Dense {
                blocks, n_before, ..
            } => size_of_val(&**blocks) + size_of_val(&**n_before),
        }
    }
}

fn n_ones(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(numbers: impl IntoIterator<Item = u32>, is_dense: bool) {
        let numbers: Vec<u32> = numbers.into_iter().collect();
        let index = PositionIndex::new(numbers.iter().copied());
        assert_eq!(matches!(index.0, Layout::Dense { .. }), is_dense);
        assert!(index.size() <= 2 * size_of_val(&*numbers) + 2 * BLOCK_BITS);
        let end = numbers.last().map_or(10, |last| last + 1_000);
        for number in (0..end)
            .step_by(if end > 100_000 { 61 } else { 1 })
            .chain(numbers.iter().copied())
        {
            let expect = numbers.partition_point(|&other| other < number);
            assert_eq!(
                index.position(number),
                expect,
                "{number} of {}",
                numbers.len()
            );
        }
    }

    #[test]
    fn positions_are_those_of_a_binary_search() {
        check([], false);
        check([7], true);
        check(0..10_000, true);
        check((511..5_000).step_by(31), true);
        check(
            (3..100_000).filter(|slot| slot % 512 != 0 && slot % 3 == 0),
            true,
        );
        check((0..100_000).step_by(33), false);
        check([0, 1_000_000], false);
    }
}
