//! Compensated sums of histograms, for `sum` and `sum_over_time`.

use super::arithmetic::{Combined, Compensation, MixedSchemas};
use super::float_histogram::FloatHistogram;
use crate::math::kahan::KahanSum;

/// A running sum of histograms with compensation for rounding.
#[derive(Debug, Clone)]
pub(crate) struct HistogramSum {
    sum: FloatHistogram,
    /// `None` until a second histogram is added.
    compensation: Option<Compensation>,
}

impl HistogramSum {
    /// Creates the sum of one histogram.
    pub(crate) fn new(first: FloatHistogram) -> Self {
        Self {
            sum: first,
            compensation: None,
        }
    }

    /// Adds a histogram.
    pub(crate) fn add(&mut self, other: &FloatHistogram) -> Result<Combined, MixedSchemas> {
        let Self { sum, compensation } = self;
        if sum.is_custom() != other.is_custom() {
            return Err(MixedSchemas);
        }
        let counter_reset_collision = sum.merge_hint(other.reset_hint);
        let compensation = compensation.get_or_insert_with(|| Compensation {
            positive: vec![0.0; sum.positive.len()],
            negative: vec![0.0; sum.negative.len()],
            ..Compensation::default()
        });
        if !sum.is_custom() {
            let zero = sum.merge_zero_buckets(other, Some(compensation));
            add_to(&mut sum.zero_count, &mut compensation.zero_count, zero.sum);
            add_to(
                &mut sum.zero_count,
                &mut compensation.zero_count,
                zero.compensation,
            );
        }
        add_to(&mut sum.count, &mut compensation.count, other.count);
        add_to(&mut sum.sum, &mut compensation.sum, other.sum);
        let custom_bounds_reconciled =
            sum.is_custom() && sum.custom_bounds() != other.custom_bounds();
        if custom_bounds_reconciled {
            compensation.positive =
                sum.combine_on_common_bounds(other, &compensation.positive, 1.0);
        } else if sum.is_custom() {
            sum.positive
                .add_compensated(&mut compensation.positive, &other.positive, None, 0);
        } else {
            add_exponential(sum, compensation, other);
        }
        Ok(Combined {
            counter_reset_collision,
            custom_bounds_reconciled,
        })
    }

    /// Returns the compensated sum.
    pub(crate) fn finish(self) -> FloatHistogram {
        let Self {
            mut sum,
            compensation,
        } = self;
        if let Some(compensation) = compensation {
            let mut first_positive = 0;
            let mut first_negative = 0;
            // Buckets within the zero bucket are counted there.
            if !sum.is_custom() {
                first_positive = sum.n_in_zero_bucket(&sum.positive);
                first_negative = sum.n_in_zero_bucket(&sum.negative);
            }
            sum.zero_count += compensation.zero_count;
            sum.count += compensation.count;
            sum.sum += compensation.sum;
            add_terms(
                sum.positive.counts_mut(),
                &compensation.positive,
                first_positive,
            );
            add_terms(
                sum.negative.counts_mut(),
                &compensation.negative,
                first_negative,
            );
        }
        sum
    }

    /// Multiplies the sum and its compensation.
    pub(super) fn multiply(&mut self, factor: f64) {
        self.sum.multiply(factor);
        self.each_compensation(|number| *number *= factor);
    }

    /// Divides the sum and its compensation.
    pub(super) fn divide(&mut self, divisor: f64) {
        self.sum.divide(divisor);
        self.each_compensation(|number| *number /= divisor);
    }

    fn each_compensation(&mut self, change: impl Fn(&mut f64)) {
        if let Some(compensation) = &mut self.compensation {
            change(&mut compensation.count);
            change(&mut compensation.sum);
            change(&mut compensation.zero_count);
            for term in &mut compensation.positive {
                change(term);
            }
            for term in &mut compensation.negative {
                change(term);
            }
        }
    }

    pub(super) fn has_overflow(&self) -> bool {
        self.sum.has_overflow()
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Compensation>() + 2 * self.sum.size()
    }
}

fn add_to(sum: &mut f64, compensation: &mut f64, value: f64) {
    let total = KahanSum {
        sum: *sum,
        compensation: *compensation,
    }
    .plus(value);
    *sum = total.sum;
    *compensation = total.compensation;
}

/// Adds the buckets of a histogram with an exponential schema.
fn add_exponential(
    sum: &mut FloatHistogram,
    compensation: &mut Compensation,
    other: &FloatHistogram,
) {
    if other.schema < sum.schema {
        (sum.positive, compensation.positive) = sum.positive.reduce_resolution_compensated(
            &compensation.positive,
            sum.schema,
            other.schema,
        );
        (sum.negative, compensation.negative) = sum.negative.reduce_resolution_compensated(
            &compensation.negative,
            sum.schema,
            other.schema,
        );
        sum.schema = other.schema;
    }
    let sides = [
        (&mut compensation.positive, &other.positive, true),
        (&mut compensation.negative, &other.negative, false),
    ];
    for (compensation, buckets, is_positive) in sides {
        let reduced = if other.schema > sum.schema {
            let zeros = vec![0.0; buckets.len()];
            Some(buckets.reduce_resolution_compensated(&zeros, other.schema, sum.schema))
        } else {
            None
        };
        let (buckets, buckets_compensation) = match &reduced {
            Some((buckets, compensation)) => (buckets, Some(&compensation[..])),
            None => (buckets, None),
        };
        let from = sum.n_in_zero_bucket(buckets);
        let side = if is_positive {
            &mut sum.positive
        } else {
            &mut sum.negative
        };
        side.add_compensated(compensation, buckets, buckets_compensation, from);
    }
}

/// Adds compensation terms to counts, from the bucket `from` on.
fn add_terms(counts: &mut [f64], terms: &[f64], from: usize) {
    for (count, term) in counts.iter_mut().zip(terms).skip(from) {
        *count += term;
    }
}
