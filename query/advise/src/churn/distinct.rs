//! An estimate of a number of distinct hashes in bounded memory.

/// Maximum number of hashes that a [`Distinct`] keeps: up to here counts are exact. Above, the
/// standard error is 1 / √512, or 4 %.
const KEPT_MAX: usize = 512;

/// Counts distinct hashes by their smallest values (k minimum values, Bar-Yossef et al. 2002).
#[derive(Debug, Default)]
pub(super) struct Distinct {
    /// The smallest hashes, in ascending order.
    smallest: Vec<u64>,
}

impl Distinct {
    /// Adds a hash of uniform distribution. Returns the number of bytes by which the memory grew.
    pub(super) fn insert(&mut self, hash: u64) -> usize {
        let is_full = self.smallest.len() == KEPT_MAX;
        if is_full && self.smallest.last().is_some_and(|largest| hash >= *largest) {
            return 0;
        }
        let Err(position) = self.smallest.binary_search(&hash) else {
            return 0;
        };
        if is_full {
            self.smallest.pop();
        }
        let before = self.smallest.capacity();
        self.smallest.insert(position, hash);
        (self.smallest.capacity() - before) * size_of::<u64>()
    }

    /// Returns the estimated number of distinct hashes.
    pub(super) fn count(&self) -> u64 {
        let n_kept = self.smallest.len();
        match self.smallest.last() {
            Some(&largest) if n_kept == KEPT_MAX => {
                let share = largest as f64 / u64::MAX as f64;
                ((n_kept - 1) as f64 / share) as u64
            }
            _ => n_kept as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

    use super::*;

    #[test]
    fn counts_are_exact_and_then_estimates_in_bounded_memory() {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        for (n_hashes, tolerance) in [(0, 0), (1, 0), (KEPT_MAX - 1, 0), (100_000, 15_000)] {
            let mut distinct = Distinct::default();
            let mut size = 0;
            for i in (0..n_hashes).chain(0..n_hashes) {
                size += distinct.insert(hasher.hash_one(i));
            }
            let found = distinct.count();
            assert!(found.abs_diff(n_hashes as u64) <= tolerance, "{found}");
            assert_eq!(size, distinct.smallest.capacity() * size_of::<u64>());
            assert!(size <= KEPT_MAX * size_of::<u64>(), "{size} bytes");
        }
    }
}
