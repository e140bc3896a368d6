//! [`Random`]: a seeded generator of random numbers, SplitMix64 (Steele, Lea, Flood 2014).

/// A sequence of random numbers that the seed determines.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Returns `true` once in `n` calls on average.
    pub(crate) fn chance(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns a number from 1 to `max`; small numbers are as frequent as large ones.
    pub(crate) fn size(&mut self, max: usize) -> usize {
        let n_bits = self.below(max.ilog2() as usize + 1);
        (1 + self.below(2 << n_bits)).min(max)
    }

    /// Returns one of the items.
    pub(crate) fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}
