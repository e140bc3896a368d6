//! `*_over_time`, `changes`, `resets`: compute one number from the floats in a window.

use super::rate::is_reset;
use super::window::Window;
use crate::math::kahan::{KahanSum, Mean};

pub(super) fn sum(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    let sum = window
        .values
        .iter()
        .fold(KahanSum::new(0.0), |sum, &value| sum.plus(value));
    Some(if sum.sum.is_infinite() {
        sum.sum
    } else {
        sum.total()
    })
}

pub(super) fn avg(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    let (&first, rest) = window.values.split_first()?;
    let mut mean = Mean::new(first);
    for &value in rest {
        mean.add(value);
    }
    Some(mean.finish())
}

pub(super) fn max(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    extreme_value(window.values, |value, best| value > best)
}

pub(super) fn min(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    extreme_value(window.values, |value, best| value < best)
}

pub(super) fn ts_of_max(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    extreme_index(window.values, |value, best| value >= best)
        .map(|at| window.timestamps_ms[at] as f64 / 1000.0)
}

pub(super) fn ts_of_min(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    extreme_index(window.values, |value, best| value <= best)
        .map(|at| window.timestamps_ms[at] as f64 / 1000.0)
}

/// Number of extremes that are computed side by side: two vectors of most processors.
const LANES: usize = 8;

/// Returns the extreme value, as determined by `beats`, with the bits of its first occurrence. Any
/// value replaces NaN.
fn extreme_value(values: &[f64], beats: impl Fn(f64, f64) -> bool) -> Option<f64> {
    let (chunks, rest) = values.as_chunks::<LANES>();
    // A short window is faster in order.
    let Some((&first, chunks)) = chunks.split_first() else {
        return extreme_index(values, beats).map(|idx| values[idx]);
    };
    let mut lanes = first;
    let mut has_nan = first.iter().chain(rest).any(|value| value.is_nan());
    for chunk in chunks {
        for (best, &value) in lanes.iter_mut().zip(chunk) {
            has_nan |= value.is_nan();
            *best = if beats(value, *best) { value } else { *best };
        }
    }
    if has_nan {
        return extreme_index(values, beats).map(|idx| values[idx]);
    }
    let mut extreme = lanes[0];
    for &value in lanes[1..].iter().chain(rest) {
        extreme = if beats(value, extreme) {
            value
        } else {
            extreme
        };
    }
    // 0 and -0 are equal and have different bits.
    if extreme == 0.0 {
        return values.iter().copied().find(|&value| value == 0.0);
    }
    Some(extreme)
}

/// Returns the index of the extreme value, as determined by `beats`. Any value replaces NaN.
fn extreme_index(values: &[f64], beats: impl Fn(f64, f64) -> bool) -> Option<usize> {
    let mut best = 0;
    for (idx, &value) in values.iter().enumerate() {
        if beats(value, values[best]) || values[best].is_nan() {
            best = idx;
        }
    }
    (!values.is_empty()).then_some(best)
}

pub(super) fn stddev(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    Some(variance(window.values).sqrt())
}

pub(super) fn stdvar(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    Some(variance(window.values))
}

/// Returns the variance by Welford's algorithm. Both sums are compensated.
fn variance(values: &[f64]) -> f64 {
    let mut count = 0.0;
    let mut mean = KahanSum::new(0.0);
    let mut squares = KahanSum::new(0.0);
    for &value in values {
        count += 1.0;
        let delta = value - mean.total();
        mean = mean.plus(delta / count);
        squares = squares.plus(delta * (value - mean.total()));
    }
    squares.total() / count
}

pub(super) fn quantile(window: &Window<'_>, params: &[f64]) -> Option<f64> {
    Some(quantile_of(params[0], &mut window.values.to_vec()))
}

/// Returns the median absolute deviation; NaN if any value is NaN.
pub(super) fn mad(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    if window.values.iter().any(|value| value.is_nan()) {
        return Some(f64::NAN);
    }
    let mut values = window.values.to_vec();
    let median = quantile_of(0.5, &mut values);
    for value in &mut values {
        *value = (*value - median).abs();
    }
    Some(quantile_of(0.5, &mut values))
}

/// Returns a quantile, interpolated between two values. Sorts the values, NaN first.
pub(crate) fn quantile_of(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    values.sort_by(|a, b| {
        b.is_nan()
            .cmp(&a.is_nan())
            .then_with(|| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
    });
    let n = values.len() as f64;
    let rank = q * (n - 1.0);
    let lower = rank.floor().max(0.0);
    let upper = (lower + 1.0).min(n - 1.0);
    let weight = rank - rank.floor();
    // Do not interpolate with weight 0: infinity times 0 is NaN.
    if weight == 0.0 {
        return values[lower as usize];
    }
    values[lower as usize] * (1.0 - weight) + values[upper as usize] * weight
}

/// The rules of `integral`: how the values at both ends of an interval are weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntegralRule {
    Left,
    Right,
    Trapezoid,
}

/// Returns the rule with the number `params[0]`, or `None` if there is no such rule. The default is
/// the trapezoidal rule.
pub(crate) fn integral_rule(params: &[f64]) -> Option<IntegralRule> {
    match params.first() {
        Some(0.0) => Some(IntegralRule::Left),
        Some(1.0) => Some(IntegralRule::Right),
        None | Some(2.0) => Some(IntegralRule::Trapezoid),
        Some(_) => None,
    }
}

/// Returns the integral over the floats of a window, in seconds; NaN counts as 0.
pub(super) fn integral(window: &Window<'_>, params: &[f64]) -> Option<f64> {
    let rule = integral_rule(params).unwrap_or(IntegralRule::Trapezoid);
    let mut sum = KahanSum::new(0.0);
    for idx in 1..window.values.len() {
        let left = zero_if_nan(window.values[idx - 1]);
        let right = zero_if_nan(window.values[idx]);
        let height = match rule {
            IntegralRule::Left => KahanSum::new(left),
            IntegralRule::Right => KahanSum::new(right),
            IntegralRule::Trapezoid => mean_of(left, right),
        };
        if height.sum != 0.0 || height.compensation != 0.0 {
            let width = (window.timestamps_ms[idx] - window.timestamps_ms[idx - 1]) as f64 / 1000.0;
            sum.compensation += height.compensation * width;
            sum = sum.plus(height.sum * width);
        }
    }
    Some(if sum.sum.is_infinite() {
        sum.sum
    } else {
        sum.total()
    })
}

fn zero_if_nan(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value }
}

/// Returns the compensated mean of two values. Does not overflow.
fn mean_of(a: f64, b: f64) -> KahanSum {
    let KahanSum { sum, compensation } = KahanSum::new(a).plus(b);
    if sum.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return KahanSum::new(a / 2.0).plus(b / 2.0);
    }
    KahanSum {
        sum: sum / 2.0,
        compensation: compensation / 2.0,
    }
}

pub(super) fn changes(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    Some(count_changes(window.values))
}

pub(super) fn changes_anchored(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    anchor(window).map(|first| count_changes(&window.values[first..]))
}

pub(super) fn resets(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    Some(count_resets(window, 0))
}

pub(super) fn resets_anchored(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    anchor(window).map(|first| count_resets(window, first))
}

/// Counts the counter resets after the float at index `first`.
fn count_resets(window: &Window<'_>, first: usize) -> f64 {
    let values = window.values;
    let at_resets =
        (first + 1..values.len()).filter(|&at| values[at] < values[at - 1] || is_reset(window, at));
    at_resets.count() as f64
}

fn differ(before: f64, value: f64) -> bool {
    value != before && !(value.is_nan() && before.is_nan())
}

fn count_changes(values: &[f64]) -> f64 {
    values
        .windows(2)
        .filter(|pair| differ(pair[0], pair[1]))
        .count() as f64
}

/// Returns the index of the last float at or before the start of the range, or 0 if there is none.
/// Returns `None` if no float is in the range.
fn anchor(window: &Window<'_>) -> Option<usize> {
    let inside = window
        .timestamps_ms
        .partition_point(|&time_ms| time_ms <= window.start_ms);
    (inside < window.values.len()).then(|| inside.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::super::RangeKernel;
    use super::super::window::on_window;
    use super::*;
    use proptest::prelude::*;

    fn check(kernel: RangeKernel, values: &[f64], expect: f64) {
        let value = on_window(10_000, values, |window| kernel(window, &[0.5])).unwrap();
        assert!(
            value == expect || (value.is_nan() && expect.is_nan()),
            "{value}, expected {expect}"
        );
    }

    #[test]
    fn sums_and_means_handle_extremes() {
        check(sum, &[1.0, 1e100, 1.0, -1e100], 2.0);
        check(sum, &[f64::MAX, f64::MAX, -1.0], f64::INFINITY);
        check(avg, &[f64::MAX, f64::MAX], f64::MAX);
        check(avg, &[1.0, 2.0, 6.0], 3.0);
    }

    proptest! {
        #[test]
        fn extremes_have_the_bits_of_the_first_in_order(
            values in proptest::collection::vec(prop_oneof![8 => -3..3_i32, 1 => Just(99)], 0..60), is_zero: bool,
        ) {
            let value = |&number: &i32| match number {
                99 => f64::NAN,
                0 => -0.0,
                1 if is_zero => 0.0,
                _ => f64::from(number) * if is_zero { 0.0 } else { 0.5 },
            };
            let values: Vec<_> = values.iter().map(value).collect();
            let greater = |value: f64, best: f64| value > best;
            let less = |value: f64, best: f64| value < best;
            let in_order = |idx: usize| values[idx].to_bits();
            prop_assert_eq!(extreme_value(&values, greater).map(f64::to_bits), extreme_index(&values, greater).map(in_order));
            prop_assert_eq!(extreme_value(&values, less).map(f64::to_bits), extreme_index(&values, less).map(in_order));
        }
    }

    #[test]
    fn any_value_beats_nan() {
        check(max, &[f64::NAN, 1.0, f64::NAN], 1.0);
        check(min, &[2.0, f64::NAN, 1.0], 1.0);
        check(max, &[f64::NAN], f64::NAN);
        check(ts_of_max, &[3.0, 3.0, 1.0], 20.0);
        check(ts_of_min, &[3.0, 1.0, 1.0], 30.0);
    }

    #[test]
    fn quantiles_are_interpolated_and_nan_is_the_smallest_value() {
        check(quantile, &[4.0, 0.0, 1.0], 1.0);
        check(quantile, &[0.0, 1.0], 0.5);
        check(quantile, &[f64::NAN, 1.0, 2.0], 1.0);
        assert_eq!(quantile_of(-1.0, &mut [1.0]), f64::NEG_INFINITY);
        assert_eq!(quantile_of(2.0, &mut [1.0]), f64::INFINITY);
        check(mad, &[4.0, 6.0, 2.0, 1.0, 999.0, 1.0, 2.0], 1.0);
        // At an exact rank there is no interpolation, whose product 0 times infinity would be NaN.
        let infinities = [f64::NEG_INFINITY, 1.0, f64::INFINITY];
        for (q, expect) in [
            (0.0, infinities[0]),
            (0.25, infinities[0]),
            (0.5, 1.0),
            (0.75, infinities[2]),
            (1.0, infinities[2]),
        ] {
            assert_eq!(quantile_of(q, &mut infinities.clone()), expect, "{q}");
        }
    }

    #[test]
    fn integrals_follow_their_rule() {
        let values = [1.0, f64::NAN, 4.0, -2.0];
        for (params, expect) in [
            (&[][..], 3.0),
            (&[0.0], 50.0),
            (&[1.0], 20.0),
            (&[2.0], 35.0),
            (&[7.0], 35.0),
        ] {
            let value = on_window(10_000, &values, |window| integral(window, params));
            assert_eq!(
                value,
                Some(if params.is_empty() { 35.0 } else { expect }),
                "{params:?}"
            );
        }
        check(integral, &[f64::MAX], 0.0);
        assert_eq!(
            on_window(1000, &[f64::MAX; 2], |window| integral(window, &[])),
            Some(f64::MAX)
        );
        assert_eq!(
            (integral_rule(&[1.5]), integral_rule(&[f64::NAN])),
            (None, None)
        );
    }

    #[test]
    fn variance_of_equal_values_is_zero() {
        check(stdvar, &[1.5; 7], 0.0);
        check(stddev, &[0.0, 8.0, 8.0, 2.0, 3.0], 3.249_615_361_854_384);
    }

    #[test]
    fn nan_after_nan_is_no_change() {
        check(changes, &[f64::NAN, f64::NAN, 1.0, 1.0, f64::NAN], 2.0);
        check(resets, &[3.0, 2.0, 5.0, f64::NAN, 1.0], 1.0);
    }
}
