//! Quantiles and fractions of classic histograms, which have one series per bucket, with an upper
//! bound and a cumulative count.

use std::cmp::Ordering;

use crate::math::float;

/// One bucket of a classic histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    /// The upper bound, included.
    pub(crate) upper: f64,
    /// Number of observations that are at most `upper`.
    pub(crate) count: f64,
}

/// Extent of the counts that were raised to the count of the bucket below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Raised {
    /// Smallest and greatest bound of the raised buckets.
    pub(crate) bounds: (f64, f64),
    /// Maximum increase of a count.
    pub(crate) difference_max: f64,
}

/// Counts are treated as equal if their relative difference is less than this: rates of equal
/// counters may differ in their last digits.
const SMALL_DIFFERENCE: f64 = 1e-12;

/// Returns a quantile of a classic histogram, and the extent of raised buckets, if any.
///
/// Assumes that observations are spread evenly within a bucket, and that the lowest bucket begins
/// at 0 if it ends above
/// 0. In the highest bucket, the result is the lower bound. The result is NaN without observations,
/// with fewer than two buckets, or if the highest bucket is not `+Inf`. `buckets` must ascend by
/// bound and must not be empty; they are merged and made monotonic in place.
pub(crate) fn quantile(q: f64, buckets: &mut Vec<Bucket>) -> (f64, Option<Raised>) {
    if q.is_nan() {
        return (f64::NAN, None);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    if !ends_with_infinity(buckets) {
        return (f64::NAN, None);
    }
    merge_equal_bounds(buckets);
    let raised = make_monotonic(buckets);
    (interpolate(q, buckets), raised)
}

fn interpolate(q: f64, buckets: &[Bucket]) -> f64 {
    let [.., second_last, last] = buckets else {
        return f64::NAN;
    };
    if last.count == 0.0 {
        return f64::NAN;
    }
    let rank = q * last.count;
    let below_last = &buckets[..buckets.len() - 1];
    // A count of NaN reaches no rank.
    let at = below_last
        .partition_point(|bucket| bucket.count.partial_cmp(&rank).is_none_or(Ordering::is_lt));
    if at == below_last.len() {
        return second_last.upper;
    }
    let bucket = buckets[at];
    if at == 0 {
        // Adding the lower bound 0 changes -0 to 0.
        return if bucket.upper <= 0.0 {
            bucket.upper
        } else {
            0.0 + bucket.upper * (rank / bucket.count)
        };
    }
    let below = buckets[at - 1];
    below.upper
        + (bucket.upper - below.upper) * ((rank - below.count) / (bucket.count - below.count))
}

/// Returns the fraction of the observations between two bounds, with the assumptions and
/// requirements of [`quantile`].
pub(crate) fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if !ends_with_infinity(buckets) {
        return f64::NAN;
    }
    merge_equal_bounds(buckets);
    let count = buckets.last().map_or(0.0, |bucket| bucket.count);
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (rank_of(upper, buckets, count) - rank_of(lower, buckets, count)) / count
}

/// Returns the number of observations that are at most `value`.
fn rank_of(value: f64, buckets: &[Bucket], count: f64) -> f64 {
    let rank = interpolated_rank(value, buckets).unwrap_or(count);
    if rank > count { count } else { rank }
}

/// Returns the number of observations that are at most `value`, or `None` if it is above all
/// buckets.
fn interpolated_rank(value: f64, buckets: &[Bucket]) -> Option<f64> {
    let mut rank = 0.0;
    let mut lower_bound = if buckets[0].upper <= 0.0 {
        f64::NEG_INFINITY
    } else {
        0.0
    };
    for bucket in buckets {
        if lower_bound >= value {
            return Some(rank);
        }
        if bucket.upper > value {
            // A bucket without a lower bound cannot be interpolated.
            if lower_bound == f64::NEG_INFINITY {
                return Some(bucket.count);
            }
            let part = (bucket.count - rank) * (value - lower_bound) / (bucket.upper - lower_bound);
            return Some(rank + part);
        }
        rank = bucket.count;
        lower_bound = bucket.upper;
    }
    None
}

fn ends_with_infinity(buckets: &[Bucket]) -> bool {
    buckets
        .last()
        .is_some_and(|bucket| bucket.upper == f64::INFINITY)
}

/// Merges buckets with equal bounds.
fn merge_equal_bounds(buckets: &mut Vec<Bucket>) {
    buckets.dedup_by(|next, kept| {
        let same = next.upper == kept.upper;
        if same {
            kept.count += next.count;
        }
        same
    });
}

/// Raises each count that is less than a previous one, and removes differences due to rounding.
fn make_monotonic(buckets: &mut [Bucket]) -> Option<Raised> {
    let (first, rest) = buckets.split_first_mut()?;
    let mut before = first.count;
    let mut raised = Raised {
        bounds: (f64::INFINITY, f64::NEG_INFINITY),
        difference_max: 0.0,
    };
    let mut any = false;
    for bucket in rest {
        if bucket.count == before {
            continue;
        }
        if float::almost_equal(before, bucket.count, SMALL_DIFFERENCE) {
            bucket.count = before;
            continue;
        }
        if bucket.count < before {
            let (low, high) = raised.bounds;
            raised.bounds = (low.min(bucket.upper), high.max(bucket.upper));
            raised.difference_max = raised.difference_max.max(before - bucket.count);
            any = true;
            bucket.count = before;
            continue;
        }
        before = bucket.count;
    }
    any.then_some(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(list: &[(f64, f64)]) -> Vec<Bucket> {
        list.iter()
            .map(|&(upper, count)| Bucket { upper, count })
            .collect()
    }

    #[test]
    fn quantiles_are_interpolated() {
        let check = |q, list: &[(f64, f64)], expect: f64| {
            let (value, raised) = quantile(q, &mut buckets(list));
            assert!(
                value == expect || (value.is_nan() && expect.is_nan()),
                "{q}: {value}, expected {expect}"
            );
            assert_eq!(raised, None);
        };
        let list = [(1.0, 2.0), (2.0, 6.0), (f64::INFINITY, 8.0)];
        check(0.125, &list, 0.5);
        check(0.5, &list, 1.5);
        check(0.9, &list, 2.0);
        check(-0.1, &list, f64::NEG_INFINITY);
        check(1.1, &list, f64::INFINITY);
        check(0.5, &list[..2], f64::NAN);
        check(0.5, &[(f64::INFINITY, 8.0)], f64::NAN);
        check(0.5, &[(1.0, 0.0), (f64::INFINITY, 0.0)], f64::NAN);
        check(0.1, &[(-1.0, 5.0), (f64::INFINITY, 8.0)], -1.0);
        check(
            0.5,
            &[(1.0, 1.0), (1.0, 1.0), (2.0, 6.0), (f64::INFINITY, 8.0)],
            1.5,
        );
    }

    #[test]
    fn decreasing_counts_are_raised_and_reported() {
        let list = [(1.0, 4.0), (2.0, 1.0), (3.0, 3.0), (f64::INFINITY, 8.0)];
        let (value, raised) = quantile(0.25, &mut buckets(&list));
        assert_eq!(value, 0.5);
        assert_eq!(
            raised,
            Some(Raised {
                bounds: (2.0, 3.0),
                difference_max: 3.0
            })
        );
    }

    #[test]
    fn fractions_are_interpolated() {
        let list = [(1.0, 2.0), (2.0, 6.0), (f64::INFINITY, 8.0)];
        let check =
            |lower, upper, expect| assert_eq!(fraction(lower, upper, &mut buckets(&list)), expect);
        check(0.0, 1.0, 0.25);
        check(0.5, 1.5, 0.375);
        check(f64::NEG_INFINITY, f64::INFINITY, 1.0);
        check(2.0, 1.0, 0.0);
        assert!(fraction(f64::NAN, 1.0, &mut buckets(&list)).is_nan());
    }
}
