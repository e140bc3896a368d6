//! Resets: whether counters have begun anew between two histograms.

use varve_tsdb::histogram::ResetHint;

use super::FloatHistogram;
use super::arithmetic::{common_bounds, place_of};
use super::buckets::Buckets;

impl FloatHistogram {
    /// Tells whether counters were reset between `previous` and this histogram. What the hint says is believed; without one
    /// a count that has decreased says so, as does a finer layout.
    pub(crate) fn detect_reset(&self, previous: &Self) -> bool {
        match self.reset_hint {
            ResetHint::Reset => true,
            ResetHint::NoReset => false,
            ResetHint::Unknown | ResetHint::Gauge => self.detects_reset_of_counts(previous),
        }
    }

    /// Tells whether the counts show a reset, whatever the hint says.
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

    /// Tells whether a bucket outside of the zero bucket counts less than it did.
    fn any_decreases(&self, ours: &Buckets, previous: &Buckets, previous_schema: i8) -> bool {
        let merged = (previous_schema != self.schema).then(|| previous.coarser(previous_schema, self.schema));
        let previous = merged.as_ref().unwrap_or(previous);
        let skip = if self.is_custom() || self.zero_threshold == 0.0 { 0 } else { self.n_in_zero_bucket(previous) };
        previous.iter().skip(skip).any(|(index, before)| match ours.get(index) {
            Some(count) => count < before,
            None => before != 0.0,
        })
    }

    fn decreases_on_common_bounds(&self, previous: &Self) -> bool {
        let common = common_bounds(self.custom_bounds(), previous.custom_bounds());
        let sums = |of: &Self| {
            let mut sums = vec![0.0; common.len() + 1];
            of.positive.iter().for_each(|(index, count)| sums[place_of(index, of.custom_bounds(), &common)] += count);
            sums
        };
        sums(self).iter().zip(&sums(previous)).any(|(now, before)| now < before)
    }
}

#[cfg(test)]
mod tests {
    use super::super::literal;
    use super::*;

    #[test]
    fn counts_that_decrease_or_a_finer_layout_tell_of_a_reset() {
        let before = literal(1, (0.5, 1.0), (2, &[1.0, 2.0, 3.0]), (0, &[]), &[]);
        let check = |now: &FloatHistogram, expect| assert_eq!(now.detect_reset(&before), expect, "{now}");
        check(&before, false);
        check(&literal(1, (0.5, 1.0), (2, &[1.0, 2.0, 3.0, 4.0]), (0, &[2.0]), &[]), false);
        check(&literal(1, (0.5, 1.0), (2, &[1.0, 1.0, 3.0, 4.0]), (0, &[]), &[]), true);
        check(&literal(1, (0.5, 1.0), (3, &[2.0, 3.0, 9.0]), (0, &[]), &[]), true);
        check(&literal(1, (0.5, 0.0), (2, &[1.0, 2.0, 9.0]), (0, &[]), &[]), true);
        check(&literal(1, (0.5, 1.0), (2, &[1.0, 2.0]), (0, &[]), &[]), true);
        // Coarser buckets, or a wider zero bucket, take in those from before; a zero bucket must not cut one.
        check(&literal(0, (0.5, 1.0), (1, &[1.0, 5.0]), (0, &[]), &[]), false);
        check(&literal(0, (0.5, 1.0), (1, &[1.0, 4.0, 9.0]), (0, &[]), &[]), true);
        check(&literal(2, (0.5, 1.0), (3, &[1.0, 2.0, 3.0, 9.0]), (0, &[]), &[]), true);
        check(&literal(1, (2.0, 2.0), (3, &[2.0, 3.0]), (0, &[]), &[]), false);
        check(&literal(1, (1.5, 9.0), (3, &[2.0, 3.0]), (0, &[]), &[]), true);
        check(&literal(-53, (0.0, 0.0), (0, &[99.0]), (0, &[]), &[1.0]), true);
    }

    #[test]
    fn bounds_of_their_own_are_compared_where_both_have_them() {
        let before = literal(-53, (0.0, 0.0), (0, &[1.0, 1.0, 1.0]), (0, &[]), &[1.0, 2.0]);
        let check = |now: FloatHistogram, expect| assert_eq!(now.detect_reset(&before), expect, "{now}");
        check(literal(-53, (0.0, 0.0), (0, &[2.0, 1.0]), (0, &[]), &[2.0]), false);
        check(literal(-53, (0.0, 0.0), (0, &[1.0, 9.0]), (0, &[]), &[2.0]), true);
        check(literal(0, (0.0, 0.0), (0, &[9.0]), (0, &[]), &[]), true);
    }

    #[test]
    fn a_hint_is_believed() {
        let before = literal(0, (0.0, 0.0), (0, &[5.0]), (0, &[]), &[]);
        let with = |reset_hint| FloatHistogram { reset_hint, ..literal(0, (0.0, 0.0), (0, &[4.0]), (0, &[]), &[]) };
        use ResetHint::{Gauge, NoReset, Reset, Unknown};
        let found = [Gauge, NoReset, Reset, Unknown].map(|hint| with(hint).detect_reset(&before));
        assert_eq!(found, [true, false, true, true]);
    }
}
