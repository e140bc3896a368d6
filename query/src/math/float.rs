//! Floating-point operations of Go that differ from Rust's: extrema, conversion, comparison.

/// Go's `math.Max`: infinity takes precedence over NaN, and NaN over all other values.
#[inline]
pub(crate) fn max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_negative() { b } else { a }
    } else if a > b {
        a
    } else {
        b
    }
}

/// Go's `math.Min`: negative infinity takes precedence over NaN, and NaN over all other values.
#[inline]
pub(crate) fn min(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY {
        f64::NEG_INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_negative() { a } else { b }
    } else if a < b {
        a
    } else {
        b
    }
}

/// Go's `int64(f)` on amd64: values that do not fit become the smallest integer.
pub(crate) fn to_i64(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

/// Prometheus' `almost.Equal` for values that are not staleness markers.
pub(crate) fn almost_equal(a: f64, b: f64, epsilon: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < epsilon * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < epsilon
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extrema_treat_infinity_nan_and_zero_as_go_does() {
        assert_eq!(max(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert!(max(f64::NAN, 1.0).is_nan() && min(1.0, f64::NAN).is_nan());
        assert_eq!(min(f64::NEG_INFINITY, f64::NAN), f64::NEG_INFINITY);
        assert!(max(-0.0, 0.0).is_sign_positive() && min(0.0, -0.0).is_sign_negative());
    }

    #[test]
    fn values_that_do_not_fit_become_the_smallest_integer() {
        assert_eq!(
            (to_i64(-1.9), to_i64(f64::NAN), to_i64(1e19)),
            (-1, i64::MIN, i64::MIN)
        );
    }
}
