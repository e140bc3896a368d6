//! Quantiles, fractions and variance of native histograms.
//!
//! Observations are assumed to be spread evenly on a logarithmic scale within an exponential
//! bucket, and on a linear scale within the zero bucket and custom buckets.

use super::float_histogram::{Bucket, FloatHistogram};
use crate::math::kahan::KahanSum;
use crate::math::{exp2, log2};

/// The effect of NaN observations on a result. They are counted, but are in no bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NanEffect {
    /// The quantile is NaN.
    Result,
    /// The quantile is too high.
    Skew,
    /// The fraction excludes the NaN observations.
    Excluded,
}

impl FloatHistogram {
    /// Returns a quantile, and the effect of NaN observations.
    pub(crate) fn quantile(&self, q: f64) -> (f64, Option<NanEffect>) {
        if q < 0.0 {
            return (f64::NEG_INFINITY, None);
        }
        if q > 1.0 {
            return (f64::INFINITY, None);
        }
        if self.count == 0.0 || q.is_nan() {
            return (f64::NAN, None);
        }
        // With NaN observations, ranks are counted from the lowest bucket.
        if self.sum.is_nan() || q < 0.5 {
            self.quantile_at(q * self.count, true, &mut self.ascending())
        } else {
            self.quantile_at((1.0 - q) * self.count, false, &mut self.descending())
        }
    }

    fn quantile_at(
        &self,
        rank: f64,
        from_below: bool,
        buckets: &mut dyn Iterator<Item = Bucket>,
    ) -> (f64, Option<NanEffect>) {
        let mut bucket = Bucket::default();
        let mut count = 0.0;
        for next in &mut *buckets {
            bucket = next;
            count += bucket.count;
            if bucket.count != 0.0 && count >= rank {
                break;
            }
        }
        if self.is_custom() {
            if bucket.lower == f64::NEG_INFINITY {
                if bucket.upper <= 0.0 {
                    return (bucket.upper, None);
                }
                bucket.lower = 0.0;
            } else if bucket.upper == f64::INFINITY {
                return (bucket.lower, None);
            }
        } else if bucket.lower < 0.0 && bucket.upper > 0.0 {
            bucket = self.one_sided(bucket);
        }
        count = if count > self.count {
            self.count
        } else {
            count
        };
        if count < rank {
            return if self.sum.is_nan() {
                (f64::NAN, Some(NanEffect::Result))
            } else {
                (bucket.upper, None)
            };
        }
        let rank_in_bucket = if from_below {
            rank - (count - bucket.count)
        } else {
            count - rank
        };
        let mut effect = None;
        if self.sum.is_nan() {
            // The remaining counts show whether observations are in no bucket.
            count = buckets.fold(count, |count, next| count + next.count);
            effect = (count < self.count).then_some(NanEffect::Skew);
        }
        (
            self.interpolate(bucket, rank_in_bucket / bucket.count),
            effect,
        )
    }

    /// Truncates the zero bucket at 0 if the histogram has only positive or only negative buckets.
    fn one_sided(&self, mut bucket: Bucket) -> Bucket {
        if self.negative.is_empty() && !self.positive.is_empty() {
            bucket.lower = 0.0;
        } else if self.positive.is_empty() && !self.negative.is_empty() {
            bucket.upper = 0.0;
        }
        bucket
    }

    /// Returns the value below which a fraction of the observations in a bucket lies.
    fn interpolate(&self, bucket: Bucket, fraction: f64) -> f64 {
        let Bucket { lower, upper, .. } = bucket;
        if self.is_custom() || (lower <= 0.0 && upper >= 0.0) {
            return lower + (upper - lower) * fraction;
        }
        let log_lower = log2(lower.abs());
        let log_upper = log2(upper.abs());
        if lower > 0.0 {
            exp2(log_lower + (log_upper - log_lower) * fraction)
        } else {
            -exp2(log_upper + (log_lower - log_upper) * (1.0 - fraction))
        }
    }

    /// Returns the fraction of the observations between two bounds, and the effect of NaN
    /// observations.
    pub(crate) fn fraction(&self, lower: f64, upper: f64) -> (f64, Option<NanEffect>) {
        if self.count == 0.0 || lower.is_nan() || upper.is_nan() {
            return (f64::NAN, None);
        }
        if lower >= upper {
            return (0.0, None);
        }
        let mut seen = 0.0;
        let mut rank = 0.0;
        let mut lower_rank = None;
        let mut upper_rank = None;
        let mut buckets = self.ascending();
        for bucket in buckets.by_ref() {
            seen += bucket.count;
            let (bucket, is_zero) = match bucket {
                // As for classic histograms, the first bucket begins at 0.
                Bucket {
                    lower: f64::NEG_INFINITY,
                    upper,
                    ..
                } if self.is_custom() && upper > 0.0 => (
                    Bucket {
                        lower: 0.0,
                        ..bucket
                    },
                    false,
                ),
                Bucket { lower, upper, .. }
                    if !self.is_custom() && lower <= 0.0 && upper >= 0.0 =>
                {
                    (self.one_sided(bucket), true)
                }
                _ => (bucket, false),
            };
            let linear = self.is_custom() || is_zero;
            for (bound, found) in [(lower, &mut lower_rank), (upper, &mut upper_rank)] {
                if found.is_none() {
                    *found = rank_in(bucket, bound, rank, linear);
                }
            }
            if lower_rank.is_some() && upper_rank.is_some() {
                break;
            }
            rank += bucket.count;
        }
        let mut count = self.count;
        let mut effect = None;
        if self.sum.is_nan() {
            count = buckets.fold(seen, |seen, bucket| seen + bucket.count);
            effect = (count < self.count).then_some(NanEffect::Excluded);
        }
        let capped =
            |rank: Option<f64>| rank.map_or(count, |rank| if rank > count { count } else { rank });
        (
            (capped(upper_rank) - capped(lower_rank)) / self.count,
            effect,
        )
    }

    /// Returns the estimated variance. Assumes that all observations of a bucket are in its middle.
    pub(crate) fn variance(&self) -> f64 {
        let mean = self.sum / self.count;
        let mut variance = KahanSum::new(0.0);
        for bucket in self.buckets() {
            let Bucket { lower, upper, .. } = bucket;
            let middle = if self.is_custom() {
                (upper + lower) / 2.0
            } else if lower <= 0.0 && upper >= 0.0 {
                0.0
            } else {
                let middle = (upper * lower).sqrt();
                if upper < 0.0 { -middle } else { middle }
            };
            let delta = middle - mean;
            variance = variance.plus(bucket.count * delta * delta);
        }
        variance.total() / self.count
    }
}

impl Bucket {
    /// Returns the fraction of observations in this bucket that are below `value`. The bounds must
    /// be finite, and `value` within the bucket.
    pub(super) fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        let Self { lower, upper, .. } = *self;
        if linear {
            return (value - lower) / (upper - lower);
        }
        let log_lower = log2(lower.abs());
        let log_upper = log2(upper.abs());
        let log_value = log2(value.abs());
        if value > 0.0 {
            (log_value - log_lower) / (log_upper - log_lower)
        } else {
            1.0 - (log_value - log_upper) / (log_lower - log_upper)
        }
    }
}

/// Returns the number of observations below `bound` if the bucket begins with or contains `bound`.
/// `rank` is the number of observations below the bucket.
fn rank_in(bucket: Bucket, bound: f64, rank: f64, linear: bool) -> Option<f64> {
    if bucket.lower >= bound {
        return Some(rank);
    }
    if bucket.lower < bound && bucket.upper > bound {
        // A bucket without a lower bound cannot be interpolated.
        let endless = linear && bucket.lower == f64::NEG_INFINITY;
        return Some(if endless {
            bucket.count
        } else {
            rank + bucket.count * bucket.fraction_below(bound, linear)
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::float_histogram::literal;
    use super::*;

    /// Formats a number rounded to 12 digits.
    fn rounded(value: f64) -> String {
        format!("{value:.12}")
    }

    #[test]
    fn quantiles_are_interpolated_on_a_logarithmic_scale() {
        let histogram = literal(0, (0.001, 0.0), (0, &[1.0, 2.0, 1.0]), (0, &[]), &[]);
        for (q, expect) in [(0.0, 0.5), (0.25, 1.0), (0.5, 2.0_f64.sqrt()), (1.0, 4.0)] {
            assert_eq!(rounded(histogram.quantile(q).0), rounded(expect), "{q}");
        }
        assert_eq!(
            (histogram.quantile(-1.0).0, histogram.quantile(1.5).0),
            (f64::NEG_INFINITY, f64::INFINITY)
        );
        assert!(histogram.quantile(f64::NAN).0.is_nan());
        let negative = literal(0, (0.001, 0.0), (0, &[]), (0, &[1.0, 2.0, 1.0]), &[]);
        assert_eq!(rounded(negative.quantile(0.5).0), rounded(-2.0_f64.sqrt()));
        // The quantile is in the zero bucket, which is cut off at 0 if there are no buckets on the
        // other side.
        let zero = literal(0, (2.0, 2.0), (3, &[2.0]), (0, &[]), &[]);
        assert_eq!(zero.quantile(0.25).0, 1.0);
        let custom = literal(
            -53,
            (0.0, 0.0),
            (0, &[2.0, 2.0, 4.0]),
            (0, &[]),
            &[1.0, 3.0],
        );
        assert_eq!(
            [0.125, 0.375, 0.9].map(|q| custom.quantile(q).0),
            [0.5, 2.0, 3.0]
        );
    }

    #[test]
    fn nan_observations_are_reported() {
        let mut histogram = literal(0, (0.0, 0.0), (0, &[2.0]), (0, &[]), &[]);
        (histogram.count, histogram.sum) = (4.0, f64::NAN);
        assert_eq!(histogram.quantile(0.25).1, Some(NanEffect::Skew));
        assert_eq!(histogram.quantile(0.75).1, Some(NanEffect::Result));
        assert_eq!(
            histogram.fraction(0.0, 2.0),
            (0.5, Some(NanEffect::Excluded))
        );
        histogram.count = 2.0;
        assert_eq!(histogram.quantile(0.25).1, None);
        // The bucket of the quantile is interpolated, not the last one.
        let mut several = literal(
            -53,
            (0.0, 0.0),
            (0, &[2.0, 2.0, 4.0]),
            (0, &[]),
            &[1.0, 3.0],
        );
        several.sum = f64::NAN;
        assert_eq!(several.quantile(0.125), (0.5, None));
    }

    #[test]
    fn fractions_are_the_inverse_of_quantiles() {
        let histogram = literal(
            2,
            (0.01, 3.0),
            (-3, &[1.0, 0.0, 2.0, 1.0]),
            (2, &[4.0, 1.0]),
            &[],
        );
        for q in [0.1, 0.3, 0.5, 0.7, 0.9] {
            let (value, _) = histogram.quantile(q);
            assert_eq!(
                rounded(histogram.fraction(f64::NEG_INFINITY, value).0),
                rounded(q)
            );
        }
        assert_eq!(histogram.fraction(1.0, 1.0).0, 0.0);
        // No custom bucket is a zero bucket, and the first one begins at 0 if it ends above.
        let custom = literal(
            -53,
            (0.0, 0.0),
            (0, &[2.0, 2.0, 4.0]),
            (0, &[]),
            &[-1.0, 0.0],
        );
        assert_eq!(
            (
                custom.fraction(-1.0, 0.0).0,
                custom.fraction(0.0, f64::INFINITY).0
            ),
            (0.25, 0.5)
        );
        let positive = literal(-53, (0.0, 0.0), (0, &[2.0, 2.0]), (0, &[]), &[1.0]);
        assert_eq!(positive.fraction(0.0, 0.5).0, 0.25);
        assert!(
            literal(0, (0.0, 0.0), (0, &[]), (0, &[]), &[])
                .fraction(0.0, 1.0)
                .0
                .is_nan()
        );
    }

    #[test]
    fn the_variance_uses_the_middles_of_buckets() {
        let mut histogram = literal(
            -53,
            (0.0, 0.0),
            (0, &[0.0, 1.0, 1.0]),
            (0, &[]),
            &[1.0, 3.0, 5.0],
        );
        histogram.sum = 6.0;
        assert_eq!(histogram.variance(), 1.0);
    }
}
