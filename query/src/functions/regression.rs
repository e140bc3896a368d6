//! `deriv`, `predict_linear`, `double_exponential_smoothing`: trends of a series over a range.

use super::window::Window;
use crate::math::kahan::KahanSum;

/// Returns the slope of the least-squares line.
pub(super) fn deriv(window: &Window<'_>, _: &[f64]) -> Option<f64> {
    // An origin near the samples reduces rounding errors of the sums.
    (window.values.len() > 1).then(|| least_squares(window, window.timestamps_ms[0]).0)
}

/// Returns the value of the least-squares line at `params[0]` seconds after the step.
pub(super) fn predict_linear(window: &Window<'_>, params: &[f64]) -> Option<f64> {
    if window.values.len() < 2 {
        return None;
    }
    let (slope, intercept) = least_squares(window, window.eval_ms);
    Some(slope * params[0] + intercept)
}

/// Returns the slope per second and the value at `origin_ms` of the least-squares line.
fn least_squares(window: &Window<'_>, origin_ms: i64) -> (f64, f64) {
    let first = window.values[0];
    if window.values.iter().all(|&value| value == first) || window.values.len() == 1 {
        return if first.is_infinite() {
            (f64::NAN, f64::NAN)
        } else {
            (0.0, first)
        };
    }
    let zero = KahanSum::new(0.0);
    let mut n = 0.0;
    let mut x_sum = zero;
    let mut y_sum = zero;
    let mut xy_sum = zero;
    let mut x2_sum = zero;
    for (&time_ms, &y) in window.timestamps_ms.iter().zip(window.values) {
        n += 1.0;
        let x = (time_ms - origin_ms) as f64 / 1e3;
        x_sum = x_sum.plus(x);
        y_sum = y_sum.plus(y);
        xy_sum = xy_sum.plus(x * y);
        x2_sum = x2_sum.plus(x * x);
    }
    let x = x_sum.total();
    let y = y_sum.total();
    let xy = xy_sum.total();
    let x2 = x2_sum.total();
    let covariance = xy - x * y / n;
    let variance = x2 - x * x / n;
    let slope = covariance / variance;
    (slope, y / n - slope * x / n)
}

/// Returns the result of Holt's linear exponential smoothing. `params` are the smoothing and the
/// trend factor, both in (0, 1).
pub(super) fn double_exponential_smoothing(window: &Window<'_>, params: &[f64]) -> Option<f64> {
    let [smoothing, trend] = [params[0], params[1]];
    let [first, second, ..] = *window.values else {
        return None;
    };
    let mut before = 0.0;
    let mut level = first;
    let mut slope = second - first;
    for (i, &value) in window.values[1..].iter().enumerate() {
        let scaled = smoothing * value;
        if i > 0 {
            slope = trend * (level - before) + (1.0 - trend) * slope;
        }
        let continued = (1.0 - smoothing) * (level + slope);
        before = level;
        level = scaled + continued;
    }
    Some(level)
}

#[cfg(test)]
mod tests {
    use super::super::window::on_window;
    use super::*;

    #[test]
    fn a_line_is_fitted_and_extrapolated() {
        on_window(10_000, &[10.0, 20.0, 30.0], |window| {
            assert_eq!(deriv(window, &[]), Some(1.0));
            assert_eq!(predict_linear(window, &[60.0]), Some(90.0));
        });
    }

    #[test]
    fn constants_have_slope_zero_and_infinities_none() {
        on_window(10_000, &[5.0, 5.0], |window| {
            assert_eq!(predict_linear(window, &[60.0]), Some(5.0))
        });
        on_window(10_000, &[f64::INFINITY; 2], |window| {
            assert!(deriv(window, &[]).is_some_and(f64::is_nan))
        });
        on_window(10_000, &[5.0], |window| {
            assert_eq!(deriv(window, &[]), None)
        });
    }

    #[test]
    fn smoothing_follows_a_line_exactly() {
        on_window(10_000, &[1.0, 2.0, 3.0, 4.0], |window| {
            assert_eq!(double_exponential_smoothing(window, &[0.5, 0.5]), Some(4.0));
        });
    }
}
