//! Detection of counter resets between two histograms.

use varve_model::histogram::ResetHint;

use super::arithmetic::{common_bounds, common_index};
use super::buckets::Buckets;
use super::float_histogram::FloatHistogram;

impl FloatHistogram {
    /// Returns `true` if counters were reset between `previous` and this histogram. The hint
    /// decides; without a hint, it is a reset if a count has decreased or the layout is finer.
    pub(crate) fn detect_reset(&self, previous: &Self) -> bool {
        match self.reset_hint {
            ResetHint::Reset => true,
            ResetHint::NoReset => false,
            ResetHint::Unknown | ResetHint::Gauge => self.detects_reset_of_counts(previous),
        }
    }

    /// Returns `true` if the counts or the layout show a reset. Ignores the hint.
    pub(super) fn detects_reset_of_counts(&self, previous: &Self) -> bool {
        if self.count < previous.count {
            return true;
        }
        if self.is_custom() {
            if !previous.is_custom() {
                return true;
            }
            if self.custom_bounds() != previous.custom_bounds() {
                return self.decreases_on_common_bounds(previous);
            }
        }
        if self.schema > previous.schema || self.zero_threshold < previous.zero_threshold {
            return true;
        }
        let (previous_zero, threshold) = previous.zero_bucket_up_to(self.zero_threshold, None);
        if threshold != self.zero_threshold || self.zero_count < previous_zero.sum {
            return true;
        }
        self.any_decreases(&self.positive, &previous.positive, previous.schema)
            || self.any_decreases(&self.negative, &previous.negative, previous.schema)
    }

    /// Returns `true` if the count of a bucket outside of the zero bucket has decreased.
    fn any_decreases(&self, ours: &Buckets, previous: &Buckets, previous_schema: i8) -> bool {
        let merged = (previous_schema != self.schema)
            .then(|| previous.reduce_resolution(previous_schema, self.schema));
        let previous = merged.as_ref().unwrap_or(previous);
        let skip = if self.is_custom() || self.zero_threshold == 0.0 {
            0
        } else {
            self.n_in_zero_bucket(previous)
        };
        previous
            .iter()
            .skip(skip)
            .any(|(index, before)| match ours.get(index) {
                Some(count) => count < before,
                None => before != 0.0,
            })
    }

    fn decreases_on_common_bounds(&self, previous: &Self) -> bool {
        let common = common_bounds(self.custom_bounds(), previous.custom_bounds());
        let sums = self.sums_on_common_bounds(&common);
        let previous_sums = previous.sums_on_common_bounds(&common);
        sums.iter()
            .zip(&previous_sums)
            .any(|(now, before)| now < before)
    }

    /// Returns the counts of the buckets between common bounds.
    fn sums_on_common_bounds(&self, common: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; common.len() + 1];
        for (index, count) in self.positive.iter() {
            sums[common_index(index, self.custom_bounds(), common)] += count;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::float_histogram::literal;
    use super::*;

    #[test]
    fn decreasing_counts_and_finer_layouts_are_resets() {
        let before = literal(1, (0.5, 1.0), (2, &[1.0, 2.0, 3.0]), (0, &[]), &[]);
        let check =
            |now: &FloatHistogram, expect| assert_eq!(now.detect_reset(&before), expect, "{now}");
        check(&before, false);
        check(
            &literal(1, (0.5, 1.0), (2, &[1.0, 2.0, 3.0, 4.0]), (0, &[2.0]), &[]),
            false,
        );
        check(
            &literal(1, (0.5, 1.0), (2, &[1.0, 1.0, 3.0, 4.0]), (0, &[]), &[]),
            true,
        );
        check(
            &literal(1, (0.5, 1.0), (3, &[2.0, 3.0, 9.0]), (0, &[]), &[]),
            true,
        );
        check(
            &literal(1, (0.5, 0.0), (2, &[1.0, 2.0, 9.0]), (0, &[]), &[]),
            true,
        );
        check(
            &literal(1, (0.5, 1.0), (2, &[1.0, 2.0]), (0, &[]), &[]),
            true,
        );
        // Coarser buckets and a wider zero bucket are not resets if they contain whole previous
        // buckets.
        check(
            &literal(0, (0.5, 1.0), (1, &[1.0, 5.0]), (0, &[]), &[]),
            false,
        );
        check(
            &literal(0, (0.5, 1.0), (1, &[1.0, 4.0, 9.0]), (0, &[]), &[]),
            true,
        );
        check(
            &literal(2, (0.5, 1.0), (3, &[1.0, 2.0, 3.0, 9.0]), (0, &[]), &[]),
            true,
        );
        check(
            &literal(1, (2.0, 2.0), (3, &[2.0, 3.0]), (0, &[]), &[]),
            false,
        );
        check(
            &literal(1, (1.5, 9.0), (3, &[2.0, 3.0]), (0, &[]), &[]),
            true,
        );
        check(
            &literal(-53, (0.0, 0.0), (0, &[99.0]), (0, &[]), &[1.0]),
            true,
        );
    }

    #[test]
    fn custom_buckets_are_compared_on_common_bounds() {
        let before = literal(
            -53,
            (0.0, 0.0),
            (0, &[1.0, 1.0, 1.0]),
            (0, &[]),
            &[1.0, 2.0],
        );
        let check =
            |now: FloatHistogram, expect| assert_eq!(now.detect_reset(&before), expect, "{now}");
        check(
            literal(-53, (0.0, 0.0), (0, &[2.0, 1.0]), (0, &[]), &[2.0]),
            false,
        );
        check(
            literal(-53, (0.0, 0.0), (0, &[1.0, 9.0]), (0, &[]), &[2.0]),
            true,
        );
        check(literal(0, (0.0, 0.0), (0, &[9.0]), (0, &[]), &[]), true);
    }

    #[test]
    fn a_hint_takes_precedence_over_the_counts() {
        let before = literal(0, (0.0, 0.0), (0, &[5.0]), (0, &[]), &[]);
        let with = |reset_hint| FloatHistogram {
            reset_hint,
            ..literal(0, (0.0, 0.0), (0, &[4.0]), (0, &[]), &[])
        };
        use ResetHint::{Gauge, NoReset, Reset, Unknown};
        let found = [Gauge, NoReset, Reset, Unknown].map(|hint| with(hint).detect_reset(&before));
        assert_eq!(found, [true, false, true, true]);
    }
}
