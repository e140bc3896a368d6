//! Quantiles, fractions and variance of native histograms.
//!
//! Inside of an exponential bucket observations are taken as evenly spread on a logarithmic scale, inside of the zero
//! bucket and of buckets with bounds of their own as evenly spread.

use super::{Bucket, FloatHistogram};
use crate::float::KahanSum;
use crate::functions::math::{exp2, log2};

/// What observations of NaN, which are counted and in no bucket, do to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NanNote {
    /// A quantile is NaN.
    Result,
    /// A quantile is higher than it should be.
    Skew,
    /// A fraction leaves them out.
    Excluded,
}

impl FloatHistogram {
    /// Returns a quantile, and what observations of NaN did to it.
    pub(crate) fn quantile(&self, q: f64) -> (f64, Option<NanNote>) {
        if q < 0.0 {
            return (f64::NEG_INFINITY, None);
        }
        if q > 1.0 {
            return (f64::INFINITY, None);
        }
        if self.count == 0.0 || q.is_nan() {
            return (f64::NAN, None);
        }
        // With observations of NaN the ranks count from below.
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
    ) -> (f64, Option<NanNote>) {
        let (mut bucket, mut count) = (Bucket::default(), 0.0);
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
        count = if count > self.count { self.count } else { count };
        if count < rank {
            return if self.sum.is_nan() { (f64::NAN, Some(NanNote::Result)) } else { (bucket.upper, None) };
        }
        let rank_in_bucket = if from_below { rank - (count - bucket.count) } else { count - rank };
        let mut note = None;
        if self.sum.is_nan() {
            // The rest of the buckets tells whether observations are missing. The last of them becomes the bucket, as in
            // Prometheus.
            for next in buckets {
                bucket = next;
                count += bucket.count;
            }
            note = (count < self.count).then_some(NanNote::Skew);
        }
        (self.interpolate(bucket, rank_in_bucket / bucket.count), note)
    }

    /// Cuts the zero bucket of a histogram that has buckets on one side only: there is nothing on the other.
    fn one_sided(&self, mut bucket: Bucket) -> Bucket {
        if self.negative.is_empty() && !self.positive.is_empty() {
            bucket.lower = 0.0;
        } else if self.positive.is_empty() && !self.negative.is_empty() {
            bucket.upper = 0.0;
        }
        bucket
    }

    /// Returns the value below which a fraction of a bucket lies.
    fn interpolate(&self, bucket: Bucket, fraction: f64) -> f64 {
        let Bucket { lower, upper, .. } = bucket;
        if self.is_custom() || (lower <= 0.0 && upper >= 0.0) {
            return lower + (upper - lower) * fraction;
        }
        let (log_lower, log_upper) = (log2(lower.abs()), log2(upper.abs()));
        if lower > 0.0 {
            exp2(log_lower + (log_upper - log_lower) * fraction)
        } else {
            -exp2(log_upper + (log_lower - log_upper) * (1.0 - fraction))
        }
    }

    /// Returns the part of the observations between two bounds, and what observations of NaN did to it.
    pub(crate) fn fraction(&self, lower: f64, upper: f64) -> (f64, Option<NanNote>) {
        if self.count == 0.0 || lower.is_nan() || upper.is_nan() {
            return (f64::NAN, None);
        }
        if lower >= upper {
            return (0.0, None);
        }
        let (mut seen, mut rank) = (0.0, 0.0);
        let (mut lower_rank, mut upper_rank) = (None, None);
        let mut buckets = self.ascending();
        for bucket in buckets.by_ref() {
            seen += bucket.count;
            let (bucket, is_zero) = if bucket.lower <= 0.0 && bucket.upper >= 0.0 {
                (self.one_sided(bucket), true)
            } else {
                (bucket, false)
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
        let (mut count, mut note) = (self.count, None);
        if self.sum.is_nan() {
            count = buckets.fold(seen, |seen, bucket| seen + bucket.count);
            note = (count < self.count).then_some(NanNote::Excluded);
        }
        let capped = |rank: Option<f64>| rank.map_or(count, |rank| if rank > count { count } else { rank });
        ((capped(upper_rank) - capped(lower_rank)) / self.count, note)
    }

    /// Returns the estimated variance: all observations of a bucket are taken to lie in its middle.
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
    /// Returns the part of a bucket with finite bounds that lies below a value inside of it.
    pub(super) fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        let Self { lower, upper, .. } = *self;
        if linear {
            return (value - lower) / (upper - lower);
        }
        let (log_lower, log_upper, log_value) = (log2(lower.abs()), log2(upper.abs()), log2(value.abs()));
        if value > 0.0 {
            (log_value - log_lower) / (log_upper - log_lower)
        } else {
            1.0 - (log_value - log_upper) / (log_lower - log_upper)
        }
    }
}

/// Returns how many observations lie below a bound that a bucket begins with or contains; `rank` lie below the bucket.
fn rank_in(bucket: Bucket, bound: f64, rank: f64, linear: bool) -> Option<f64> {
    if bucket.lower >= bound {
        return Some(rank);
    }
    if bucket.lower < bound && bucket.upper > bound {
        // A bucket without lower end cannot be interpolated.
        let endless = linear && bucket.lower == f64::NEG_INFINITY;
        return Some(if endless { bucket.count } else { rank + bucket.count * bucket.fraction_below(bound, linear) });
    }
    None
}
