//! Floating point as Go has it, where it differs from Rust: summation, extrema, conversions.
//!
//! Prometheus' answers depend on the order of every operation; the kernels of `functions` and `eval` use these.

/// A running sum with its compensation: Kahan's summation with Neumaier's improvement, as Prometheus' `kahansum.Inc`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KahanSum {
    /// The sum so far.
    pub(crate) sum: f64,
    /// What rounding has lost so far; 0 once the sum has overflowed.
    pub(crate) lost: f64,
}

impl KahanSum {
    /// Starts at a value.
    pub(crate) const fn new(sum: f64) -> Self {
        Self { sum, lost: 0.0 }
    }

    /// Returns the sum with `value` added.
    #[inline]
    #[must_use]
    pub(crate) fn plus(self, value: f64) -> Self {
        let Self { sum, lost } = self;
        let total = sum + value;
        let lost = if total.is_infinite() {
            0.0
        } else if sum.abs() >= value.abs() {
            lost + ((sum - total) + value)
        } else {
            lost + ((value - total) + sum)
        };
        Self { sum: total, lost }
    }

    /// Returns sum and compensation together.
    #[inline]
    pub(crate) fn total(self) -> f64 {
        self.sum + self.lost
    }
}

/// A running mean: the sum divided at the end while it does not overflow, from then on the mean itself.
///
/// This is what `avg` and `avg_over_time` compute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    count: f64,
    /// The sum, or the mean once `incremental`.
    sum: KahanSum,
    incremental: bool,
}

impl Mean {
    /// Starts with the first value.
    pub(crate) const fn new(first: f64) -> Self {
        Self { count: 1.0, sum: KahanSum::new(first), incremental: false }
    }

    /// Adds a value.
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.incremental {
            let sum = self.sum.plus(value);
            // Fast path: no overflow.
            if !sum.sum.is_infinite() {
                self.sum = sum;
                return;
            }
            self.incremental = true;
            self.sum.sum /= self.count - 1.0;
            self.sum.lost /= self.count - 1.0;
        }
        let shrink = (self.count - 1.0) / self.count;
        self.sum = KahanSum { sum: shrink * self.sum.sum, lost: shrink * self.sum.lost }.plus(value / self.count);
    }

    /// Returns the mean.
    pub(crate) fn finish(self) -> f64 {
        if self.incremental { self.sum.total() } else { self.sum.sum / self.count + self.sum.lost / self.count }
    }
}

/// Go's `math.Max`: infinity wins over NaN, NaN over all else.
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

/// Go's `math.Min`: negative infinity wins over NaN, NaN over all else.
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

/// Go's `int64(f)` on amd64: what does not fit becomes the smallest integer.
pub(crate) fn to_i64(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) { value as i64 } else { i64::MIN }
}

/// Prometheus' `almost.Equal` for values that are no staleness markers.
pub(crate) fn almost_equal(a: f64, b: f64, epsilon: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < epsilon * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < epsilon
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_what_rounding_loses() {
        let sum = |values: &[f64]| values.iter().fold(KahanSum::new(0.0), |sum, &v| sum.plus(v)).total();
        assert_eq!(sum(&[1.0, 1e100, 1.0, -1e100]), 2.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    }

    #[test]
    fn a_mean_survives_the_overflow_of_its_sum() {
        let mean = |values: &[f64]| {
            let mut mean = Mean::new(values[0]);
            values[1..].iter().for_each(|&v| mean.add(v));
            mean.finish()
        };
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(mean(&[f64::MAX, f64::MAX]), f64::MAX);
        assert_eq!(mean(&[-1.0, f64::INFINITY]), f64::INFINITY);
        assert!(mean(&[f64::NEG_INFINITY, f64::INFINITY]).is_nan());
    }

    #[test]
    fn extrema_treat_infinity_nan_and_zero_as_go_does() {
        assert_eq!(max(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert!(max(f64::NAN, 1.0).is_nan() && min(1.0, f64::NAN).is_nan());
        assert_eq!(min(f64::NEG_INFINITY, f64::NAN), f64::NEG_INFINITY);
        assert!(max(-0.0, 0.0).is_sign_positive() && min(0.0, -0.0).is_sign_negative());
    }

    #[test]
    fn integers_that_do_not_fit_become_the_smallest() {
        assert_eq!((to_i64(-1.9), to_i64(f64::NAN), to_i64(1e19)), (-1, i64::MIN, i64::MIN));
    }
}
