//! Pseudorandom numbers of the training cluster: a sequence for schedules and faults, and noise
//! that is computed from a position.

use crate::fleet::mix2;

/// A sequence of random numbers.
#[derive(Debug)]
pub(super) struct Random {
    seed: u64,
    n_drawn: u64,
}

/// What a sequence is for. Each has its own, so that more numbers for one do not change the others.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    Jobs = 1,
    HalfScheduled = 2,
    Faults = 3,
    ImagePulls = 4,
    Unscheduled = 5,
    PreflightFailures = 6,
    Preflights = 7,
}

impl Random {
    pub(super) fn new(seed: u64, stream: Stream) -> Self {
        Self {
            seed: mix2(seed, stream as u64),
            n_drawn: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.n_drawn += 1;
        mix2(self.seed, self.n_drawn)
    }

    /// Returns a number in `0.0..1.0`.
    pub(super) fn share(&mut self) -> f64 {
        share(self.next())
    }

    /// Returns a number in `low..=high`.
    pub(super) fn rounds(&mut self, low: i64, high: i64) -> i64 {
        let n_values = (high - low).max(0) + 1;
        low + ((self.share() * n_values as f64) as i64).min(n_values - 1)
    }

    /// Returns an index below `len`, which must not be 0.
    pub(super) fn index(&mut self, len: usize) -> usize {
        ((self.share() * len as f64) as usize).min(len - 1)
    }

    pub(super) fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }
}

/// Maps a hash to `0.0..1.0`.
pub(super) fn share(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// Maps a hash to a number with mean 0 and variance 1: the sum of four uniform numbers. It lies
/// within ±3.5, so noise alone never looks like a fault.
pub(super) fn normal(hash: u64) -> f64 {
    let sum: u64 = (0..4).map(|part| hash >> (16 * part) & 0xffff).sum();
    (sum as f64 / 65536.0 - 2.0) * 3.0_f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_noise_has_mean_0_and_variance_1() {
        let values: Vec<f64> = (0..20_000).map(|i| normal(mix2(3, i))).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut random = Random::new(1, Stream::HalfScheduled);
        for _ in 0..1_000 {
            assert!((3..=5).contains(&random.rounds(3, 5)));
            assert!(random.index(7) < 7);
        }
    }
}
