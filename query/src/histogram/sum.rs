//! Sums of histograms that keep what rounding loses: what `sum` and `sum_over_time` compute.

use super::FloatHistogram;
use super::arithmetic::{Added, MixedSchemas};
use super::buckets::Buckets;
use crate::float::KahanSum;

/// What rounding has lost of a histogram's numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost {
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) zero_count: f64,
    /// One per bucket.
    pub(super) positive: Vec<f64>,
    pub(super) negative: Vec<f64>,
}

/// A running sum of histograms that keeps what rounding loses.
#[derive(Debug, Clone)]
pub(crate) struct HistogramSum {
    sum: FloatHistogram,
    /// Nothing until a second histogram is added.
    lost: Option<Lost>,
}

impl HistogramSum {
    /// Starts with a histogram.
    pub(crate) fn new(first: FloatHistogram) -> Self {
        Self { sum: first, lost: None }
    }

    /// Adds a histogram.
    pub(crate) fn add(&mut self, other: &FloatHistogram) -> Result<Added, MixedSchemas> {
        let Self { sum, lost } = self;
        if sum.is_custom() != other.is_custom() {
            return Err(MixedSchemas);
        }
        let resets_collide = sum.join_hint(other.reset_hint);
        let lost = lost.get_or_insert_with(|| Lost {
            positive: vec![0.0; sum.positive.len()],
            negative: vec![0.0; sum.negative.len()],
            ..Lost::default()
        });
        if !sum.is_custom() {
            let zero = sum.join_zero_buckets(other, Some(lost));
            add_to(&mut sum.zero_count, &mut lost.zero_count, zero.sum);
            add_to(&mut sum.zero_count, &mut lost.zero_count, zero.lost);
        }
        add_to(&mut sum.count, &mut lost.count, other.count);
        add_to(&mut sum.sum, &mut lost.sum, other.sum);
        let bounds_reconciled = sum.is_custom() && sum.custom_bounds() != other.custom_bounds();
        if bounds_reconciled {
            lost.positive = sum.combine_on_common_bounds(other, &lost.positive, 1.0);
        } else if sum.is_custom() {
            sum.positive.add_compensated(&mut lost.positive, &other.positive, None, 0);
        } else {
            add_exponential(sum, lost, other);
        }
        Ok(Added { resets_collide, bounds_reconciled })
    }

    /// Returns the sum with all that rounding has lost.
    pub(crate) fn finish(self) -> FloatHistogram {
        let Self { mut sum, lost } = self;
        if let Some(lost) = lost {
            let skip = |buckets: &Buckets| if sum.is_custom() { 0 } else { sum.n_in_zero_bucket(buckets) };
            let (n_positive, n_negative) = (skip(&sum.positive), skip(&sum.negative));
            sum.zero_count += lost.zero_count;
            sum.count += lost.count;
            sum.sum += lost.sum;
            let add = |counts: &mut [f64], lost: &[f64], from: usize| {
                counts.iter_mut().zip(lost).skip(from).for_each(|(count, lost)| *count += lost);
            };
            add(sum.positive.counts_mut(), &lost.positive, n_positive);
            add(sum.negative.counts_mut(), &lost.negative, n_negative);
        }
        sum
    }

    /// Multiplies the sum and what rounding has lost of it.
    pub(super) fn multiply(&mut self, factor: f64) {
        self.sum.multiply(factor);
        self.each_lost(|number| *number *= factor);
    }

    /// Divides the sum and what rounding has lost of it.
    pub(super) fn divide(&mut self, divisor: f64) {
        self.sum.divide(divisor);
        self.each_lost(|number| *number /= divisor);
    }

    fn each_lost(&mut self, change: impl Fn(&mut f64)) {
        if let Some(lost) = &mut self.lost {
            [&mut lost.count, &mut lost.sum, &mut lost.zero_count].into_iter().for_each(&change);
            lost.positive.iter_mut().chain(&mut lost.negative).for_each(&change);
        }
    }

    pub(super) fn has_overflow(&self) -> bool {
        self.sum.has_overflow()
    }

    /// Returns the bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Lost>() + 2 * self.sum.size()
    }
}

fn add_to(sum: &mut f64, lost: &mut f64, value: f64) {
    let total = KahanSum { sum: *sum, lost: *lost }.plus(value);
    (*sum, *lost) = (total.sum, total.lost);
}

/// Adds the buckets of a histogram with an exponential schema.
fn add_exponential(sum: &mut FloatHistogram, lost: &mut Lost, other: &FloatHistogram) {
    if other.schema < sum.schema {
        (sum.positive, lost.positive) = sum.positive.coarser_compensated(&lost.positive, sum.schema, other.schema);
        (sum.negative, lost.negative) = sum.negative.coarser_compensated(&lost.negative, sum.schema, other.schema);
        sum.schema = other.schema;
    }
    let sides = [(&mut lost.positive, &other.positive, true), (&mut lost.negative, &other.negative, false)];
    for (lost, buckets, is_positive) in sides {
        let zeros = || vec![0.0; buckets.len()];
        let finer = other.schema > sum.schema;
        let merged = finer.then(|| buckets.coarser_compensated(&zeros(), other.schema, sum.schema));
        let (buckets, buckets_lost) = match &merged {
            Some((buckets, lost)) => (buckets, Some(&lost[..])),
            None => (buckets, None),
        };
        let from = sum.n_in_zero_bucket(buckets);
        let side = if is_positive { &mut sum.positive } else { &mut sum.negative };
        side.add_compensated(lost, buckets, buckets_lost, from);
    }
}
