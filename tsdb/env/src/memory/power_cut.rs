//! Power cuts, and the random choice of their outcome.

/// What survives of unsynced data in a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// Nothing: the worst case.
    LosesAll,
    /// Everything, as if only the process had died: the best case.
    KeepsAll,
    /// A random part, determined by the seed.
    Seeded(u64),
}

/// A seeded random number generator (splitmix64).
#[derive(Debug)]
pub(super) struct Rng {
    state: u64,
    /// Entries kept out of four: extreme outcomes are as frequent as mixed ones.
    kept_of_4: u64,
}

impl Rng {
    pub(super) fn new(cut: PowerCut) -> Self {
        let PowerCut::Seeded(seed) = cut else {
            return Self {
                state: 0,
                kept_of_4: 0,
            };
        };
        let mut rng = Self {
            state: seed,
            kept_of_4: 0,
        };
        rng.kept_of_4 = rng.below(5) as u64;
        rng
    }

    /// Returns a number below `n`, which must not be 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns a number from 0 to `n`; the two ends are as likely as all others together.
    pub(super) fn share_of(&mut self, n: usize) -> usize {
        match self.below(4) {
            0 => 0,
            1 => n,
            _ => self.below(n + 1),
        }
    }

    pub(super) fn keeps(&mut self) -> bool {
        (self.below(4) as u64) < self.kept_of_4
    }
}
