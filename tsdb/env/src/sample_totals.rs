//! What became of the samples that a reader of a directory found.
//!
//! `found = kept + covered + duplicates + deleted + filtered + known losses`. A loss whose number
//! of samples cannot be known is listed as such. A reader that counts what it finds apart from what
//! it keeps thus cannot lose samples in silence: [`SampleTotals::n_unaccounted`] is 0 then.

/// Numbers of samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleTotals {
    /// Samples that were found.
    pub n_found: u64,
    /// Samples that were written, printed, or can be read.
    pub n_kept: u64,
    /// Samples that a block has, found elsewhere.
    pub n_covered: u64,
    /// Other samples of a series with a timestamp that it has already.
    pub n_duplicates: u64,
    /// Samples that a tombstone deletes.
    pub n_deleted: u64,
    /// Samples that were not selected.
    pub n_filtered: u64,
    /// Lost samples, in the order in which they were found: see [`SampleTotals::lose`].
    pub losses: Vec<Loss>,
}

/// Samples that are lost for one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Why they are lost, such as `of unknown series`.
    pub cause: &'static str,
    /// Their number. `None` if it cannot be known.
    pub n_samples: Option<u64>,
}

impl SampleTotals {
    /// Adds lost samples, which were found.
    pub fn lose(&mut self, cause: &'static str, n_samples: u64) {
        if n_samples == 0 {
            return;
        }
        let known = self.losses.iter_mut().find_map(|loss| match loss {
            Loss {
                cause: other,
                n_samples: Some(n),
            } if *other == cause => Some(n),
            _ => None,
        });
        match known {
            Some(n) => *n += n_samples,
            None => self.losses.push(Loss {
                cause,
                n_samples: Some(n_samples),
            }),
        }
    }

    /// Adds a loss of unknown size.
    pub fn lose_unknown(&mut self, cause: &'static str) {
        let loss = Loss {
            cause,
            n_samples: None,
        };
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    /// Adds the samples that another reader found.
    pub fn append(&mut self, other: &Self) {
        self.n_found += other.n_found;
        self.n_kept += other.n_kept;
        self.n_covered += other.n_covered;
        self.n_duplicates += other.n_duplicates;
        self.n_deleted += other.n_deleted;
        self.n_filtered += other.n_filtered;
        for loss in &other.losses {
            match loss.n_samples {
                Some(n_samples) => self.lose(loss.cause, n_samples),
                None => self.lose_unknown(loss.cause),
            }
        }
    }

    /// Returns the number of samples that were found and whose fate is unknown. Negative if more are
    /// accounted for than were found. Anything but 0 is an error of the reader, or a file that
    /// contradicts itself.
    #[must_use]
    pub fn n_unaccounted(&self) -> i64 {
        let lost = self.losses.iter().filter_map(|loss| loss.n_samples);
        let n_accounted = self.n_kept
            + self.n_covered
            + self.n_duplicates
            + self.n_deleted
            + self.n_filtered
            + lost.sum::<u64>();
        self.n_found.wrapping_sub(n_accounted).cast_signed()
    }

    /// Returns `true` if nothing is lost and the numbers add up.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && self.n_unaccounted() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_add_up_by_cause() {
        let mut totals = SampleTotals {
            n_found: 20,
            n_kept: 10,
            n_covered: 1,
            n_duplicates: 2,
            n_deleted: 3,
            n_filtered: 1,
            ..SampleTotals::default()
        };
        assert_eq!(totals.n_unaccounted(), 3);
        totals.lose("a", 0);
        totals.lose("a", 1);
        totals.lose("a", 1);
        totals.lose("b", 2);
        assert_eq!((totals.n_unaccounted(), totals.losses.len()), (-1, 2));
        totals.n_found += 1;
        assert!(totals.n_unaccounted() == 0 && !totals.is_complete());
        totals.lose_unknown("a");
        totals.lose_unknown("a");
        assert_eq!((totals.n_unaccounted(), totals.losses.len()), (0, 3));
        let mut sum = SampleTotals::default();
        assert!(sum.is_complete());
        sum.append(&totals);
        sum.append(&totals);
        assert_eq!((sum.n_found, sum.losses.len()), (42, 3));
        assert_eq!(sum.n_unaccounted(), 0);
    }
}
