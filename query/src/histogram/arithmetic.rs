//! Sums, differences and multiples of histograms.
//!
//! Two histograms are brought to one layout first: the wider zero bucket, the coarser schema, the bounds that both have.

use std::sync::Arc;

use varve_tsdb::histogram::ResetHint;

use super::buckets::Buckets;
use super::sum::Lost;
use super::{FloatHistogram, bounds};
use crate::float::KahanSum;

/// One of two histograms has exponential buckets, the other bounds of its own: they cannot be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot apply this operation on histograms with a mix of exponential and custom bucket schemas")]
pub struct MixedSchemas;

/// What is to be said about a combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Added {
    /// One histogram says that its counters were reset, the other that they were not.
    pub(crate) resets_collide: bool,
    /// The bounds differed and were reduced to those that both have.
    pub(crate) bounds_reconciled: bool,
}

impl FloatHistogram {
    /// Multiplies all counts and the sum.
    pub(crate) fn multiply(&mut self, factor: f64) {
        self.each_number(|number| *number *= factor);
        if factor < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    /// Divides all counts and the sum. Nothing is left of the buckets when dividing by 0.
    pub(crate) fn divide(&mut self, divisor: f64) {
        if divisor == 0.0 {
            self.positive.clear();
            self.negative.clear();
        }
        self.each_number(|number| *number /= divisor);
        if divisor < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    fn each_number(&mut self, change: impl Fn(&mut f64)) {
        [&mut self.zero_count, &mut self.count, &mut self.sum].into_iter().for_each(&change);
        self.positive.counts_mut().iter_mut().for_each(&change);
        self.negative.counts_mut().iter_mut().for_each(&change);
    }

    /// Adds another histogram.
    ///
    /// # Errors
    /// [`MixedSchemas`]; then nothing is changed.
    pub fn add(&mut self, other: &Self) -> Result<(), MixedSchemas> {
        self.plus(other).map(|_| ())
    }

    /// Subtracts another histogram.
    ///
    /// # Errors
    /// [`MixedSchemas`]; then nothing is changed.
    pub fn subtract(&mut self, other: &Self) -> Result<(), MixedSchemas> {
        self.minus(other).map(|_| ())
    }

    /// Adds another histogram, and tells what had to be done for it.
    pub(crate) fn plus(&mut self, other: &Self) -> Result<Added, MixedSchemas> {
        self.combine(other, 1.0)
    }

    /// Subtracts another histogram, and tells what had to be done for it.
    pub(crate) fn minus(&mut self, other: &Self) -> Result<Added, MixedSchemas> {
        self.combine(other, -1.0)
    }

    fn combine(&mut self, other: &Self, sign: f64) -> Result<Added, MixedSchemas> {
        if self.is_custom() != other.is_custom() {
            return Err(MixedSchemas);
        }
        let resets_collide = self.join_hint(other.reset_hint);
        if !self.is_custom() {
            let zero = self.join_zero_buckets(other, None);
            self.zero_count += sign * zero.sum;
        }
        self.count += sign * other.count;
        self.sum += sign * other.sum;
        if self.is_custom() {
            let bounds_reconciled = self.custom_bounds() != other.custom_bounds();
            match bounds_reconciled {
                true => drop(self.combine_on_common_bounds(other, &[], sign)),
                false => self.positive.add(&other.positive, 0, sign),
            }
            return Ok(Added { resets_collide, bounds_reconciled });
        }
        if other.schema < self.schema {
            *self = std::mem::take(self).in_schema(other.schema);
        }
        let finer = (other.schema > self.schema).then(|| other.clone().in_schema(self.schema));
        let other = finer.as_ref().unwrap_or(other);
        self.positive.add(&other.positive, self.n_in_zero_bucket(&other.positive), sign);
        self.negative.add(&other.negative, self.n_in_zero_bucket(&other.negative), sign);
        Ok(Added { resets_collide, bounds_reconciled: false })
    }

    /// Returns the histogram in a coarser exponential schema.
    pub(crate) fn in_schema(mut self, schema: i8) -> Self {
        if schema != self.schema && !self.is_custom() {
            self.positive = self.positive.coarser(self.schema, schema);
            self.negative = self.negative.coarser(self.schema, schema);
            self.schema = schema;
        }
        self
    }

    /// Counts the leading buckets that lie in this histogram's zero bucket.
    pub(super) fn n_in_zero_bucket(&self, buckets: &Buckets) -> usize {
        let inside = |&(index, _): &(i32, f64)| bounds::exponential(index, self.schema) <= self.zero_threshold;
        buckets.iter().take_while(inside).count()
    }

    /// Takes in what another histogram knows of resets; tells whether the two contradict each other.
    pub(super) fn join_hint(&mut self, other: ResetHint) -> bool {
        use ResetHint::{Gauge, Unknown};
        let ours = self.reset_hint;
        self.reset_hint = match (ours, other) {
            _ if ours == other => ours,
            (Gauge, _) | (_, Gauge) => Gauge,
            _ => Unknown,
        };
        ours != other && ![ours, other].iter().any(|hint| matches!(hint, Gauge | Unknown))
    }

    /// Widens the zero bucket until it holds both and cuts no populated bucket of either; returns what it would hold of the
    /// other histogram.
    pub(super) fn join_zero_buckets(&mut self, other: &Self, mut lost: Option<&mut Lost>) -> KahanSum {
        let (mut zero, mut threshold) = (KahanSum::new(other.zero_count), other.zero_threshold);
        // A threshold that is NaN equals nothing; it cannot be widened either.
        while threshold != self.zero_threshold {
            let (before, ours_before) = (threshold, self.zero_threshold);
            if self.zero_threshold > threshold {
                (zero, threshold) = other.zero_bucket_up_to(self.zero_threshold, None);
            }
            if threshold > self.zero_threshold {
                let (ours, widened) = self.zero_bucket_up_to(threshold, lost.as_deref());
                (self.zero_count, self.zero_threshold) = (ours.sum, widened);
                if let Some(lost) = &mut lost {
                    lost.zero_count = ours.lost;
                }
                self.empty_zero_bucket(lost.as_deref_mut());
            }
            if threshold == before && self.zero_threshold == ours_before {
                break;
            }
        }
        zero
    }

    /// Returns what the zero bucket would hold if it reached up to `threshold`, and up to where it would reach then: a
    /// populated bucket is taken in as a whole.
    pub(super) fn zero_bucket_up_to(&self, mut threshold: f64, lost: Option<&Lost>) -> (KahanSum, f64) {
        let mut zero = KahanSum { sum: self.zero_count, lost: lost.map_or(0.0, |lost| lost.zero_count) };
        if threshold == self.zero_threshold {
            return (zero, threshold);
        }
        'widened: loop {
            zero.sum = self.zero_count;
            for (at, (index, count)) in self.positive.iter().enumerate() {
                let bucket = self.positive_bucket(index, count);
                if bucket.lower >= threshold {
                    break;
                }
                zero = zero.plus(count);
                if let Some(lost) = lost {
                    zero = zero.plus(lost.positive[at]);
                }
                if bucket.upper > threshold {
                    if count != 0.0 {
                        threshold = bucket.upper;
                    }
                    break;
                }
            }
            for (at, (index, count)) in self.negative.iter().enumerate() {
                let bucket = self.negative_bucket(index, count);
                if bucket.upper <= -threshold {
                    break;
                }
                zero = zero.plus(count);
                if let Some(lost) = lost {
                    zero = zero.plus(lost.negative[at]);
                }
                if bucket.lower < -threshold {
                    if count != 0.0 {
                        // The positive buckets have to be looked at again.
                        threshold = -bucket.lower;
                        continue 'widened;
                    }
                    break;
                }
            }
            return (zero, threshold);
        }
    }

    /// Removes the buckets that lie in the zero bucket, which counts them already.
    fn empty_zero_bucket(&mut self, lost: Option<&mut Lost>) {
        let below = |index: i32| bounds::exponential(index.saturating_sub(1), self.schema) < self.zero_threshold;
        let n_positive = self.positive.iter().take_while(|&(index, _)| below(index)).count();
        let n_negative = self.negative.iter().take_while(|&(index, _)| below(index)).count();
        self.positive.counts_mut()[..n_positive].fill(0.0);
        self.negative.counts_mut()[..n_negative].fill(0.0);
        match lost {
            Some(lost) => {
                lost.positive[..n_positive].fill(0.0);
                lost.negative[..n_negative].fill(0.0);
                self.positive.compact(Some(&mut lost.positive));
                self.negative.compact(Some(&mut lost.negative));
            }
            None => self.compact(),
        }
    }

    /// Combines the buckets of two histograms with different bounds on the bounds that both have. `lost` is what rounding
    /// has lost of this one's buckets; what it has lost afterwards is returned.
    pub(super) fn combine_on_common_bounds(&mut self, other: &Self, lost: &[f64], sign: f64) -> Vec<f64> {
        let common = common_bounds(self.custom_bounds(), other.custom_bounds());
        let mut sums = vec![KahanSum::new(0.0); common.len() + 1];
        for (at, (index, count)) in self.positive.iter().enumerate() {
            let sum = &mut sums[place_of(index, self.custom_bounds(), &common)];
            *sum = sum.plus(count);
            if let Some(&lost) = lost.get(at) {
                *sum = sum.plus(lost);
            }
        }
        for (index, count) in other.positive.iter() {
            let sum = &mut sums[place_of(index, other.custom_bounds(), &common)];
            *sum = sum.plus(sign * count);
        }
        self.positive = Buckets::default();
        let mut lost = Vec::new();
        for (index, sum) in (0..).zip(&sums).filter(|(_, sum)| sum.sum != 0.0 || sum.lost != 0.0) {
            self.positive.push(index, sum.sum);
            lost.push(sum.lost);
        }
        self.custom_bounds = Some(Arc::from(common));
        lost
    }

    /// Tells whether any number has overflowed.
    pub(super) fn has_overflow(&self) -> bool {
        [self.zero_count, self.count, self.sum].into_iter().any(f64::is_infinite)
            || self.positive.counts().iter().any(|count| count.is_infinite())
            || self.negative.counts().iter().any(|count| count.is_infinite())
            || self.custom_bounds().iter().any(|bound| bound.is_infinite())
    }
}

/// Returns the bounds that two ascending lists share.
pub(super) fn common_bounds(a: &[f64], b: &[f64]) -> Vec<f64> {
    let (mut at_a, mut at_b) = (0, 0);
    let mut common = Vec::new();
    while let (Some(&in_a), Some(&in_b)) = (a.get(at_a), b.get(at_b)) {
        if in_a == in_b {
            common.push(in_a);
        }
        at_a += usize::from(in_a <= in_b);
        at_b += usize::from(in_a.partial_cmp(&in_b).is_none_or(std::cmp::Ordering::is_ge));
    }
    common
}

/// Returns the place of the bucket of `common` that takes in a bucket of `bounds`.
pub(super) fn place_of(index: i32, bounds: &[f64], common: &[f64]) -> usize {
    match usize::try_from(index).ok().and_then(|index| bounds.get(index)) {
        Some(&bound) => common.partition_point(|&other| other < bound),
        None => common.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HistogramSum, literal};
    use super::*;
    use varve_tsdb::histogram::CUSTOM_BUCKETS_SCHEMA;

    fn exponential(schema: i8, offset: i32, counts: &[f64], zero: (f64, f64)) -> FloatHistogram {
        literal(schema, zero, (offset, counts), (0, &[]), &[])
    }

    fn custom(bounds: &[f64], counts: &[f64]) -> FloatHistogram {
        literal(CUSTOM_BUCKETS_SCHEMA, (0.0, 0.0), (0, counts), (0, &[]), bounds)
    }

    /// The sum must have the same text, whichever is added to which, with compensation and without.
    fn check_sum(a: &FloatHistogram, b: &FloatHistogram, expect: &str) {
        for (first, second) in [(a, b), (b, a)] {
            let mut plain = first.clone();
            plain.plus(second).unwrap();
            let mut sum = HistogramSum::new(first.clone());
            sum.add(second).unwrap();
            for mut sum in [plain, sum.finish()] {
                sum.compact();
                assert_eq!(sum.to_string(), expect);
            }
        }
    }

    #[test]
    fn layouts_are_reconciled_before_adding() {
        let fine = exponential(1, 1, &[1.0, 2.0, 3.0, 4.0], (0.0, 0.0));
        let coarse = exponential(0, 2, &[10.0, 10.0], (0.0, 0.0));
        check_sum(&fine, &coarse, "{count:30, sum:30, (1,2]:3, (2,4]:17, (4,8]:10}");
        // The zero bucket of one cuts a populated bucket of the other, which is taken in as a whole.
        let wide = exponential(0, 4, &[1.0], (1.5, 5.0));
        check_sum(&coarse, &wide, "{count:26, sum:26, [-1.5,1.5]:5, (2,4]:10, (4,8]:10, (8,16]:1}");
        let low = exponential(0, 1, &[1.0, 1.0], (0.0, 0.0));
        check_sum(&low, &wide, "{count:8, sum:8, [-2,2]:6, (2,4]:1, (8,16]:1}");
        check_sum(
            &custom(&[1.0, 2.0, 5.0], &[1.0, 1.0, 1.0, 1.0]),
            &custom(&[2.0, 3.0, 5.0], &[1.0, 1.0, 1.0, 1.0]),
            "{count:8, sum:8, [-Inf,2]:3, (2,5]:3, (5,+Inf]:2}",
        );
    }

    #[test]
    fn exponential_and_custom_buckets_do_not_mix() {
        let (mut a, b) = (exponential(0, 0, &[1.0], (0.0, 0.0)), custom(&[1.0], &[1.0]));
        assert_eq!((a.plus(&b), HistogramSum::new(b.clone()).add(&a)), (Err(MixedSchemas), Err(MixedSchemas)));
    }

    #[test]
    fn hints_of_resets_collide_only_if_they_contradict_each_other() {
        use ResetHint::{Gauge, NoReset, Reset, Unknown};
        for (a, b, expect) in [
            (Unknown, Reset, (Unknown, false)),
            (Gauge, Reset, (Gauge, false)),
            (NoReset, NoReset, (NoReset, false)),
            (NoReset, Reset, (Unknown, true)),
        ] {
            for (a, b) in [(a, b), (b, a)] {
                let mut sum = FloatHistogram { reset_hint: a, ..FloatHistogram::default() };
                let added = sum.plus(&FloatHistogram { reset_hint: b, ..FloatHistogram::default() }).unwrap();
                assert_eq!((sum.reset_hint, added.resets_collide), expect, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn sums_keep_what_rounding_loses() {
        let of = |count: f64| exponential(0, 1, &[count], (0.0, 0.0));
        let mut sum = HistogramSum::new(of(1.0));
        [1e100, 1.0, -1e100].into_iter().for_each(|count| assert!(sum.add(&of(count)).is_ok()));
        assert_eq!(sum.finish().to_string(), "{count:2, sum:2, (1,2]:2}");
    }
}
