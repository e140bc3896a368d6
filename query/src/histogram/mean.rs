//! Means of histograms, for `avg` and `avg_over_time`.

use super::arithmetic::{Combined, MixedSchemas};
use super::float_histogram::FloatHistogram;
use super::sum::HistogramSum;

/// A running mean. Holds the sum and divides it at the end; if the sum overflows, switches to the
/// incremental mean.
#[derive(Debug, Clone)]
pub(crate) struct HistogramMean {
    /// The sum, or the mean if `incremental`.
    sum: HistogramSum,
    count: f64,
    incremental: bool,
}

impl HistogramMean {
    /// Creates the mean of one histogram.
    pub(crate) fn new(first: FloatHistogram) -> Self {
        Self {
            sum: HistogramSum::new(first),
            count: 1.0,
            incremental: false,
        }
    }

    /// Adds a histogram.
    pub(crate) fn add(&mut self, other: &FloatHistogram) -> Result<Combined, MixedSchemas> {
        self.count += 1.0;
        if !self.incremental {
            let mut sum = self.sum.clone();
            let combined = sum.add(other)?;
            // Fast path: no overflow.
            if !sum.has_overflow() {
                self.sum = sum;
                return Ok(combined);
            }
            self.incremental = true;
            self.sum.divide(self.count - 1.0);
        }
        self.sum.multiply((self.count - 1.0) / self.count);
        let mut part = other.clone();
        part.divide(self.count);
        self.sum.add(&part)
    }

    /// Returns the mean.
    pub(crate) fn finish(mut self) -> FloatHistogram {
        if !self.incremental {
            self.sum.divide(self.count);
        }
        self.sum.finish()
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.sum.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_correct_after_its_sum_overflows() {
        let histogram = |sum: f64| FloatHistogram {
            count: 2.0,
            sum,
            ..FloatHistogram::default()
        };
        let mean = |sums: &[f64]| {
            let mut mean = HistogramMean::new(histogram(sums[0]));
            sums[1..]
                .iter()
                .for_each(|&sum| assert!(mean.add(&histogram(sum)).is_ok()));
            let mean = mean.finish();
            (mean.count, mean.sum)
        };
        assert_eq!(mean(&[1.0, 2.0, 6.0]), (2.0, 3.0));
        assert_eq!(mean(&[f64::MAX, f64::MAX]), (2.0, f64::MAX));
    }
}
