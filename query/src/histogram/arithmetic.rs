//! Sums, differences and multiples of histograms.
//!
//! Two histograms are first converted to a common layout: the wider zero bucket, the coarser
//! schema, the common bounds.

use std::cmp::Ordering;
use std::sync::Arc;

use varve_model::histogram::ResetHint;

use super::bounds;
use super::buckets::Buckets;
use super::float_histogram::FloatHistogram;
use crate::math::kahan::KahanSum;

/// The histograms cannot be combined: one has exponential and the other custom buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot apply this operation on histograms with a mix of exponential and custom bucket schemas"
)]
pub struct MixedSchemas;

/// Conflicts that were resolved when two histograms were combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Combined {
    /// One histogram has the hint `Reset` and the other the hint `NoReset`.
    pub counter_reset_collision: bool,
    /// The custom bounds differed and were reduced to the common ones.
    pub custom_bounds_reconciled: bool,
}

/// Compensation terms of the numbers of a summed histogram.
#[derive(Debug, Clone, Default)]
pub(super) struct Compensation {
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) zero_count: f64,
    /// One term per bucket.
    pub(super) positive: Vec<f64>,
    pub(super) negative: Vec<f64>,
}

impl FloatHistogram {
    /// Multiplies all counts and the sum.
    pub(crate) fn multiply(&mut self, factor: f64) {
        self.each_number(|number| *number *= factor);
        if factor < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    /// Divides all counts and the sum. Division by 0 also removes all buckets.
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
        change(&mut self.zero_count);
        change(&mut self.count);
        change(&mut self.sum);
        for count in self.positive.counts_mut() {
            change(count);
        }
        for count in self.negative.counts_mut() {
            change(count);
        }
    }

    /// Adds another histogram.
    ///
    /// # Errors
    /// [`MixedSchemas`]; the histogram is unchanged.
    pub fn add(&mut self, other: &Self) -> Result<Combined, MixedSchemas> {
        self.combine(other, 1.0)
    }

    /// Subtracts another histogram.
    ///
    /// # Errors
    /// [`MixedSchemas`]; the histogram is unchanged.
    pub fn subtract(&mut self, other: &Self) -> Result<Combined, MixedSchemas> {
        self.combine(other, -1.0)
    }

    fn combine(&mut self, other: &Self, sign: f64) -> Result<Combined, MixedSchemas> {
        if self.is_custom() != other.is_custom() {
            return Err(MixedSchemas);
        }
        let counter_reset_collision = self.merge_hint(other.reset_hint);
        if !self.is_custom() {
            let zero = self.merge_zero_buckets(other, None);
            self.zero_count += sign * zero.sum;
        }
        self.count += sign * other.count;
        self.sum += sign * other.sum;
        if self.is_custom() {
            let custom_bounds_reconciled = self.custom_bounds() != other.custom_bounds();
            if custom_bounds_reconciled {
                drop(self.combine_on_common_bounds(other, &[], sign));
            } else {
                self.positive.add(&other.positive, 0, sign);
            }
            return Ok(Combined {
                counter_reset_collision,
                custom_bounds_reconciled,
            });
        }
        if other.schema < self.schema {
            *self = std::mem::take(self).in_schema(other.schema);
        }
        let finer = (other.schema > self.schema).then(|| other.clone().in_schema(self.schema));
        let other = finer.as_ref().unwrap_or(other);
        self.positive.add(
            &other.positive,
            self.n_in_zero_bucket(&other.positive),
            sign,
        );
        self.negative.add(
            &other.negative,
            self.n_in_zero_bucket(&other.negative),
            sign,
        );
        Ok(Combined {
            counter_reset_collision,
            custom_bounds_reconciled: false,
        })
    }

    /// Reduces the resolution of exponential buckets to `schema`, which must not be finer. Custom
    /// buckets are unchanged.
    pub(crate) fn in_schema(mut self, schema: i8) -> Self {
        if schema != self.schema && !self.is_custom() {
            self.positive = self.positive.reduce_resolution(self.schema, schema);
            self.negative = self.negative.reduce_resolution(self.schema, schema);
            self.schema = schema;
        }
        self
    }

    /// Returns the number of leading buckets in `buckets` that lie within the zero bucket of this
    /// histogram.
    pub(super) fn n_in_zero_bucket(&self, buckets: &Buckets) -> usize {
        buckets
            .iter()
            .take_while(|&(index, _)| {
                bounds::exponential(index, self.schema) <= self.zero_threshold
            })
            .count()
    }

    /// Merges the counter reset hint of another histogram. Returns `true` if the two hints
    /// conflict.
    pub(super) fn merge_hint(&mut self, other: ResetHint) -> bool {
        use ResetHint::{Gauge, Unknown};
        let ours = self.reset_hint;
        self.reset_hint = match (ours, other) {
            _ if ours == other => ours,
            (Gauge, _) | (_, Gauge) => Gauge,
            _ => Unknown,
        };
        ours != other
            && ![ours, other]
                .iter()
                .any(|hint| matches!(hint, Gauge | Unknown))
    }

    /// Widens the zero bucket until it contains both zero buckets and splits no populated bucket of
    /// either histogram. Returns the count of the other histogram in the widened zero bucket.
    pub(super) fn merge_zero_buckets(
        &mut self,
        other: &Self,
        mut compensation: Option<&mut Compensation>,
    ) -> KahanSum {
        let mut zero = KahanSum::new(other.zero_count);
        let mut threshold = other.zero_threshold;
        // A threshold of NaN is neither less nor greater than another, so it is not widened.
        while threshold
            .partial_cmp(&self.zero_threshold)
            .is_some_and(Ordering::is_ne)
        {
            if self.zero_threshold > threshold {
                (zero, threshold) = other.zero_bucket_up_to(self.zero_threshold, None);
            }
            if threshold > self.zero_threshold {
                let (ours, widened) = self.zero_bucket_up_to(threshold, compensation.as_deref());
                self.zero_count = ours.sum;
                self.zero_threshold = widened;
                if let Some(compensation) = &mut compensation {
                    compensation.zero_count = ours.compensation;
                }
                self.empty_zero_bucket(compensation.as_deref_mut());
            }
        }
        zero
    }

    /// Returns the count that the zero bucket would have if widened to `threshold`, and the
    /// resulting threshold, which may be greater because populated buckets are never split.
    pub(super) fn zero_bucket_up_to(
        &self,
        mut threshold: f64,
        compensation: Option<&Compensation>,
    ) -> (KahanSum, f64) {
        let mut zero = KahanSum {
            sum: self.zero_count,
            compensation: compensation.map_or(0.0, |c| c.zero_count),
        };
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
                if let Some(compensation) = compensation {
                    zero = zero.plus(compensation.positive[at]);
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
                if let Some(compensation) = compensation {
                    zero = zero.plus(compensation.negative[at]);
                }
                if bucket.lower < -threshold {
                    if count != 0.0 {
                        // The threshold changed: visit the positive buckets again.
                        threshold = -bucket.lower;
                        continue 'widened;
                    }
                    break;
                }
            }
            return (zero, threshold);
        }
    }

    /// Removes the buckets within the zero bucket, which already includes their counts.
    fn empty_zero_bucket(&mut self, compensation: Option<&mut Compensation>) {
        let below = |index: i32| {
            bounds::exponential(index.saturating_sub(1), self.schema) < self.zero_threshold
        };
        let n_positive = self
            .positive
            .iter()
            .take_while(|&(index, _)| below(index))
            .count();
        let n_negative = self
            .negative
            .iter()
            .take_while(|&(index, _)| below(index))
            .count();
        self.positive.counts_mut()[..n_positive].fill(0.0);
        self.negative.counts_mut()[..n_negative].fill(0.0);
        match compensation {
            Some(compensation) => {
                compensation.positive[..n_positive].fill(0.0);
                compensation.negative[..n_negative].fill(0.0);
                self.positive.compact(Some(&mut compensation.positive));
                self.negative.compact(Some(&mut compensation.negative));
            }
            None => self.compact(),
        }
    }

    /// Combines the buckets of two histograms on their common bounds. `compensation` has the
    /// compensation terms of this histogram's buckets. Returns the new compensation terms.
    pub(super) fn combine_on_common_bounds(
        &mut self,
        other: &Self,
        compensation: &[f64],
        sign: f64,
    ) -> Vec<f64> {
        let common = common_bounds(self.custom_bounds(), other.custom_bounds());
        let mut sums = vec![KahanSum::new(0.0); common.len() + 1];
        for (at, (index, count)) in self.positive.iter().enumerate() {
            let sum = &mut sums[common_index(index, self.custom_bounds(), &common)];
            *sum = sum.plus(count);
            if let Some(&compensation) = compensation.get(at) {
                *sum = sum.plus(compensation);
            }
        }
        for (index, count) in other.positive.iter() {
            let sum = &mut sums[common_index(index, other.custom_bounds(), &common)];
            *sum = sum.plus(sign * count);
        }
        self.positive = Buckets::default();
        let mut compensation = Vec::new();
        for (index, sum) in (0..)
            .zip(&sums)
            .filter(|(_, sum)| sum.sum != 0.0 || sum.compensation != 0.0)
        {
            self.positive.push(index, sum.sum);
            compensation.push(sum.compensation);
        }
        self.custom_bounds = Some(Arc::from(common));
        compensation
    }

    /// Returns `true` if the sum or any count has overflowed.
    pub(super) fn has_overflow(&self) -> bool {
        [self.zero_count, self.count, self.sum]
            .into_iter()
            .any(f64::is_infinite)
            || self
                .positive
                .counts()
                .iter()
                .any(|count| count.is_infinite())
            || self
                .negative
                .counts()
                .iter()
                .any(|count| count.is_infinite())
            || self.custom_bounds().iter().any(|bound| bound.is_infinite())
    }
}

/// Returns the common bounds of two ascending lists.
pub(super) fn common_bounds(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut a_idx = 0;
    let mut b_idx = 0;
    let mut common = Vec::new();
    while a_idx < a.len() && b_idx < b.len() {
        let in_a = a[a_idx];
        let in_b = b[b_idx];
        if in_a == in_b {
            common.push(in_a);
        }
        a_idx += usize::from(in_a <= in_b);
        b_idx += usize::from(
            in_a.partial_cmp(&in_b)
                .is_none_or(std::cmp::Ordering::is_ge),
        );
    }
    common
}

/// Returns the index of the bucket of `common` that contains a bucket of `bounds`.
pub(super) fn common_index(index: i32, bounds: &[f64], common: &[f64]) -> usize {
    match usize::try_from(index)
        .ok()
        .and_then(|index| bounds.get(index))
    {
        Some(&bound) => common.partition_point(|&other| other < bound),
        None => common.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::float_histogram::literal;
    use super::super::sum::HistogramSum;
    use super::*;
    use varve_model::histogram::CUSTOM_BUCKETS_SCHEMA;

    fn exponential(schema: i8, offset: i32, counts: &[f64], zero: (f64, f64)) -> FloatHistogram {
        literal(schema, zero, (offset, counts), (0, &[]), &[])
    }

    fn custom(bounds: &[f64], counts: &[f64]) -> FloatHistogram {
        literal(
            CUSTOM_BUCKETS_SCHEMA,
            (0.0, 0.0),
            (0, counts),
            (0, &[]),
            bounds,
        )
    }

    /// Checks that the sum is the same in either order, with and without compensation.
    fn check_sum(a: &FloatHistogram, b: &FloatHistogram, expect: &str) {
        for (first, second) in [(a, b), (b, a)] {
            let mut plain = first.clone();
            plain.add(second).unwrap();
            let mut sum = HistogramSum::new(first.clone());
            sum.add(second).unwrap();
            for mut sum in [plain, sum.finish()] {
                sum.compact();
                assert_eq!(sum.to_string(), expect);
            }
        }
    }

    #[test]
    fn layouts_are_reconciled_before_addition() {
        let fine = exponential(1, 1, &[1.0, 2.0, 3.0, 4.0], (0.0, 0.0));
        let coarse = exponential(0, 2, &[10.0, 10.0], (0.0, 0.0));
        check_sum(
            &fine,
            &coarse,
            "{count:30, sum:30, (1,2]:3, (2,4]:17, (4,8]:10}",
        );
        // The zero bucket of one histogram would split a populated bucket of the other, so it is
        // widened to contain the whole bucket.
        let wide = exponential(0, 4, &[1.0], (1.5, 5.0));
        check_sum(
            &coarse,
            &wide,
            "{count:26, sum:26, [-1.5,1.5]:5, (2,4]:10, (4,8]:10, (8,16]:1}",
        );
        let low = exponential(0, 1, &[1.0, 1.0], (0.0, 0.0));
        check_sum(&low, &wide, "{count:8, sum:8, [-2,2]:6, (2,4]:1, (8,16]:1}");
        check_sum(
            &custom(&[1.0, 2.0, 5.0], &[1.0, 1.0, 1.0, 1.0]),
            &custom(&[2.0, 3.0, 5.0], &[1.0, 1.0, 1.0, 1.0]),
            "{count:8, sum:8, [-Inf,2]:3, (2,5]:3, (5,+Inf]:2}",
        );
    }

    /// A threshold of NaN is neither less nor greater than the other one, so no zero bucket is
    /// widened.
    #[test]
    fn zero_thresholds_of_nan_can_be_added() {
        for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::NAN)] {
            let [a, b] = [a, b].map(|threshold| exponential(0, 4, &[1.0], (threshold, 2.0)));
            let mut plain = a.clone();
            let mut sum = HistogramSum::new(a);
            plain.add(&b).unwrap();
            sum.add(&b).unwrap();
            assert_eq!([plain.zero_count, sum.finish().zero_count], [4.0, 4.0]);
        }
    }

    #[test]
    fn exponential_and_custom_buckets_do_not_mix() {
        let mut a = exponential(0, 0, &[1.0], (0.0, 0.0));
        let b = custom(&[1.0], &[1.0]);
        assert_eq!(
            (a.add(&b), HistogramSum::new(b.clone()).add(&a)),
            (Err(MixedSchemas), Err(MixedSchemas))
        );
    }

    #[test]
    fn only_contradicting_counter_reset_hints_collide() {
        use ResetHint::{Gauge, NoReset, Reset, Unknown};
        for (a, b, expect) in [
            (Unknown, Reset, (Unknown, false)),
            (Gauge, Reset, (Gauge, false)),
            (NoReset, NoReset, (NoReset, false)),
            (NoReset, Reset, (Unknown, true)),
        ] {
            for (a, b) in [(a, b), (b, a)] {
                let mut sum = FloatHistogram {
                    reset_hint: a,
                    ..FloatHistogram::default()
                };
                let combined = sum
                    .add(&FloatHistogram {
                        reset_hint: b,
                        ..FloatHistogram::default()
                    })
                    .unwrap();
                assert_eq!(
                    (sum.reset_hint, combined.counter_reset_collision),
                    expect,
                    "{a:?} {b:?}"
                );
            }
        }
    }

    #[test]
    fn sums_are_compensated_for_rounding() {
        let histogram = |count: f64| exponential(0, 1, &[count], (0.0, 0.0));
        let mut sum = HistogramSum::new(histogram(1.0));
        for count in [1e100, 1.0, -1e100] {
            assert!(sum.add(&histogram(count)).is_ok());
        }
        assert_eq!(sum.finish().to_string(), "{count:2, sum:2, (1,2]:2}");
    }
}
