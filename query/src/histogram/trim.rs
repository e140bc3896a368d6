//! `h </ x` and `h >/ x`: remove the observations above or below a value.
//!
//! A bucket that contains the value is split with the interpolation of
//! [`FloatHistogram::quantile`]. If observations are removed, count and sum are estimated from the
//! remaining buckets.

use super::float_histogram::{Bucket, FloatHistogram};

/// The observations that remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Observations below the value: `</`.
    Below,
    /// Observations above the value: `>/`.
    Above,
}

/// Totals of the remaining observations.
#[derive(Default)]
struct Remaining {
    count: f64,
    sum: f64,
    is_cut: bool,
}

impl FloatHistogram {
    /// Removes the observations on one side of a value.
    pub(crate) fn trim(&mut self, value: f64, keep: Keep) {
        let mut remaining = Remaining::default();
        let has_positive = self.trim_side(true, value, keep, &mut remaining);
        let has_negative = self.trim_side(false, value, keep, &mut remaining);
        if let Some(bucket) = self.zero_bucket() {
            let (count, middle) =
                trim_zero_bucket(bucket, value, keep, (has_negative, has_positive));
            remaining.is_cut |= count != self.zero_count;
            self.zero_count = count;
            remaining.sum += middle * count;
            remaining.count += count;
        }
        if remaining.is_cut {
            self.count = remaining.count;
            self.sum = remaining.sum;
            self.compact();
        }
    }

    /// Trims the positive or the negative buckets. Returns `true` if any of them had observations.
    fn trim_side(
        &mut self,
        positive: bool,
        value: f64,
        keep: Keep,
        remaining: &mut Remaining,
    ) -> bool {
        let linear = self.is_custom();
        let mut any = false;
        let n_buckets = if positive {
            self.positive.len()
        } else {
            self.negative.len()
        };
        for bucket_idx in 0..n_buckets {
            let side = if positive {
                &self.positive
            } else {
                &self.negative
            };
            let index = side.index(bucket_idx);
            let count = side.counts()[bucket_idx];
            if count == 0.0 {
                continue;
            }
            any = true;
            let bucket = if positive {
                self.positive_bucket(index, count)
            } else {
                self.negative_bucket(index, count)
            };
            let is_whole = match keep {
                Keep::Below => bucket.upper <= value,
                Keep::Above => bucket.lower >= value,
            };
            let is_partial = match keep {
                Keep::Below => bucket.lower < value,
                Keep::Above => bucket.upper > value,
            };
            let (kept, middle) = if is_whole {
                let middle = middle_of(bucket.lower, bucket.upper, positive, linear);
                (count, middle)
            } else if is_partial {
                trim_bucket(bucket, value, keep, positive, linear)
            } else {
                self.side_mut(positive)[bucket_idx] = 0.0;
                remaining.is_cut = true;
                continue;
            };
            remaining.count += kept;
            remaining.sum += middle * kept;
            if kept != count {
                self.side_mut(positive)[bucket_idx] = kept;
                remaining.is_cut = true;
            }
        }
        any
    }

    fn side_mut(&mut self, positive: bool) -> &mut [f64] {
        if positive {
            self.positive.counts_mut()
        } else {
            self.negative.counts_mut()
        }
    }
}

/// Returns the remaining count of a bucket that contains `value`, and the middle of the remaining
/// part.
fn trim_bucket(bucket: Bucket, value: f64, keep: Keep, positive: bool, linear: bool) -> (f64, f64) {
    let Bucket {
        lower,
        upper,
        count,
        ..
    } = bucket;
    if lower == f64::NEG_INFINITY || upper == f64::INFINITY {
        return trim_endless(bucket, value, keep);
    }
    let below = if value <= lower {
        0.0
    } else if value >= upper {
        count
    } else {
        count * bucket.fraction_below(value, linear)
    };
    match keep {
        Keep::Below => (below, middle_of(lower, value, positive, linear)),
        Keep::Above => (count - below, middle_of(value, upper, positive, linear)),
    }
}

fn zero_if_infinite(bound: f64) -> f64 {
    if bound.is_infinite() { 0.0 } else { bound }
}

/// Like [`trim_bucket`], for buckets with an infinite bound. The distribution of their observations
/// is unknown, so a bucket that would be split is removed. Exception: a bucket with a positive
/// upper bound is assumed to begin at 0.
fn trim_endless(bucket: Bucket, value: f64, keep: Keep) -> (f64, f64) {
    let Bucket {
        lower,
        upper,
        count,
        ..
    } = bucket;
    if lower == f64::NEG_INFINITY {
        return match keep {
            Keep::Below if value >= upper => (count, 0.0),
            Keep::Below if value > 0.0 && upper > 0.0 && upper != f64::INFINITY => {
                (count * value / upper, value / 2.0)
            }
            Keep::Below if upper <= 0.0 => (count, value),
            Keep::Above if value <= lower => (count, 0.0),
            Keep::Above if value >= 0.0 && upper > value && upper != f64::INFINITY => {
                (count * (1.0 - value / upper), (value + upper) / 2.0)
            }
            _ => (0.0, zero_if_infinite(upper)),
        };
    }
    match keep {
        Keep::Above if value >= lower => (count, value),
        _ => (0.0, zero_if_infinite(lower)),
    }
}

/// Like [`trim_bucket`], for the zero bucket. `sides` tells whether there are negative and positive
/// observations.
fn trim_zero_bucket(bucket: Bucket, value: f64, keep: Keep, sides: (bool, bool)) -> (f64, f64) {
    let Bucket {
        mut lower,
        mut upper,
        count,
        ..
    } = bucket;
    match sides {
        (true, false) => upper = 0.0,
        (false, true) => lower = 0.0,
        _ => {}
    }
    match keep {
        Keep::Below if value <= lower => (0.0, 0.0),
        Keep::Above if value >= upper && value > lower => (0.0, 0.0),
        Keep::Below if value >= upper => (count, (lower + upper) / 2.0),
        Keep::Above if value <= lower => (count, (lower + upper) / 2.0),
        Keep::Below => (
            count * ((value - lower) / (upper - lower)),
            (lower + value) / 2.0,
        ),
        Keep::Above => (
            count * ((upper - value) / (upper - lower)),
            (value + upper) / 2.0,
        ),
    }
}

/// Returns the assumed value of the observations between two bounds.
fn middle_of(lower: f64, upper: f64, positive: bool, linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) => {
            if upper > 0.0 {
                upper / 2.0
            } else {
                upper
            }
        }
        (false, true) => lower,
        (false, false) if linear => (lower + upper) / 2.0,
        (false, false) => {
            let middle = (lower * upper).abs().sqrt();
            if positive { middle } else { -middle }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::float_histogram::literal;
    use super::*;

    fn check(histogram: &FloatHistogram, value: f64, keep: Keep, expect: &str) {
        let mut trimmed = histogram.clone();
        trimmed.trim(value, keep);
        assert_eq!(trimmed.to_string(), expect, "{keep:?} {value}");
    }

    #[test]
    fn observations_on_one_side_of_a_value_remain() {
        let custom = literal(
            -53,
            (0.0, 0.0),
            (0, &[2.0, 4.0, 2.0]),
            (0, &[]),
            &[1.0, 3.0],
        );
        check(
            &custom,
            2.0,
            Keep::Below,
            "{count:4, sum:4, [-Inf,1]:2, (1,3]:2}",
        );
        check(
            &custom,
            2.0,
            Keep::Above,
            "{count:4, sum:11, (1,3]:2, (3,+Inf]:2}",
        );
        check(&custom, 0.5, Keep::Below, "{count:1, sum:0.25, [-Inf,1]:1}");
        check(
            &custom,
            f64::INFINITY,
            Keep::Below,
            "{count:8, sum:8, [-Inf,1]:2, (1,3]:4, (3,+Inf]:2}",
        );
        let exponential = literal(0, (0.5, 2.0), (2, &[4.0]), (0, &[1.0]), &[]);
        check(
            &exponential,
            0.0,
            Keep::Above,
            "{count:5, sum:11.563708498984761, [-0.5,0.5]:1, (2,4]:4}",
        );
        check(&exponential, -2.0, Keep::Below, "{count:0, sum:0}");
    }

    #[test]
    fn count_and_sum_are_unchanged_if_nothing_is_removed() {
        let mut histogram = literal(0, (0.0, 0.0), (0, &[1.0]), (0, &[]), &[]);
        histogram.sum = 0.75;
        check(
            &histogram,
            2.0,
            Keep::Below,
            "{count:1, sum:0.75, (0.5,1]:1}",
        );
    }
}
