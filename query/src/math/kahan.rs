//! Sums and means with Prometheus' compensation for rounding.

/// A running sum with compensation: Kahan summation with Neumaier's improvement, like Prometheus'
/// `kahansum.Inc`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KahanSum {
    /// The sum so far.
    pub(crate) sum: f64,
    /// The rounding error of `sum`; 0 after the sum has overflowed.
    pub(crate) compensation: f64,
}

impl KahanSum {
    /// Creates a sum with an initial value.
    pub(crate) const fn new(sum: f64) -> Self {
        Self {
            sum,
            compensation: 0.0,
        }
    }

    /// Returns the sum with `value` added.
    #[inline]
    #[must_use]
    pub(crate) fn plus(self, value: f64) -> Self {
        let Self { sum, compensation } = self;
        let total = sum + value;
        let compensation = if total.is_infinite() {
            0.0
        } else if sum.abs() >= value.abs() {
            compensation + ((sum - total) + value)
        } else {
            compensation + ((value - total) + sum)
        };
        Self {
            sum: total,
            compensation,
        }
    }

    /// Returns the compensated sum.
    #[inline]
    pub(crate) fn total(self) -> f64 {
        self.sum + self.compensation
    }
}

/// A running mean, for `avg` and `avg_over_time`. Holds the sum and divides it at the end; if the
/// sum overflows, switches to the incremental mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    count: f64,
    /// The sum, or the mean if `incremental`.
    sum: KahanSum,
    incremental: bool,
}

impl Mean {
    /// Creates the mean of one value.
    pub(crate) const fn new(first: f64) -> Self {
        Self {
            count: 1.0,
            sum: KahanSum::new(first),
            incremental: false,
        }
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
            self.sum.compensation /= self.count - 1.0;
        }
        let shrink = (self.count - 1.0) / self.count;
        self.sum = KahanSum {
            sum: shrink * self.sum.sum,
            compensation: shrink * self.sum.compensation,
        }
        .plus(value / self.count);
    }

    /// Returns the mean.
    pub(crate) fn finish(self) -> f64 {
        if self.incremental {
            self.sum.total()
        } else {
            self.sum.sum / self.count + self.sum.compensation / self.count
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_compensated_for_rounding() {
        let sum = |values: &[f64]| {
            values
                .iter()
                .fold(KahanSum::new(0.0), |sum, &v| sum.plus(v))
                .total()
        };
        assert_eq!(sum(&[1.0, 1e100, 1.0, -1e100]), 2.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    }

    #[test]
    fn a_mean_is_correct_after_its_sum_overflows() {
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
}
