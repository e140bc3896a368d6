//! The type [`FloatHistogram`]: its buckets, comparison, and conversion from and to storage.

use std::sync::Arc;

use varve_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};

use super::bounds;
use super::buckets::Buckets;

/// A native histogram with float counts.
#[derive(Debug, Clone, Default)]
pub struct FloatHistogram {
    pub(crate) reset_hint: ResetHint,
    pub(super) schema: i8,
    pub(super) zero_threshold: f64,
    pub(super) zero_count: f64,
    pub(crate) count: f64,
    pub(crate) sum: f64,
    pub(super) positive: Buckets,
    pub(super) negative: Buckets,
    /// Upper bounds of custom buckets, without infinity. Most histograms of a series have the same
    /// bounds and share them.
    pub(super) custom_bounds: Option<Arc<[f64]>>,
}

/// A bucket and its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bucket {
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
    /// Whether the bucket includes `lower`.
    pub lower_inclusive: bool,
    /// Whether the bucket includes `upper`.
    pub upper_inclusive: bool,
    /// Number of observations in the bucket.
    pub count: f64,
}

impl FloatHistogram {
    /// Returns the number of observations.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Returns the sum of all observations.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns `true` if the buckets are custom.
    pub(crate) fn is_custom(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    pub(crate) fn schema(&self) -> i8 {
        self.schema
    }

    /// Returns an empty histogram of the same schema and bounds.
    pub(crate) fn without_observations(&self) -> Self {
        Self {
            schema: self.schema,
            custom_bounds: self.custom_bounds.clone(),
            ..Self::default()
        }
    }

    /// Sets the bounds of custom buckets, beside which there are no others.
    fn with_custom_bounds(self, custom_bounds: &[f64]) -> Self {
        Self {
            zero_threshold: 0.0,
            zero_count: 0.0,
            negative: Buckets::default(),
            custom_bounds: Some(Arc::from(custom_bounds)),
            ..self
        }
    }

    /// Returns the custom bounds; none for exponential schemas.
    pub(super) fn custom_bounds(&self) -> &[f64] {
        self.custom_bounds.as_deref().unwrap_or(&[])
    }

    /// Returns the size in bytes that Prometheus assigns to a histogram. It determines the number
    /// of samples that the histogram counts as.
    pub(super) fn nominal_size(&self) -> usize {
        let n_buckets = self.positive.len() + self.negative.len();
        let n_spans = self.positive.n_spans() + self.negative.n_spans();
        168 + 8 * (n_buckets + n_spans + self.custom_bounds().len())
    }

    /// Returns the number of samples that the histogram counts as.
    pub(crate) fn n_samples(&self) -> usize {
        (self.nominal_size() + 8) / 16
    }

    /// Returns the size in memory in bytes, without shared bounds.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.positive.size() + self.negative.size()
    }

    /// Returns the buckets that have observations, from the lowest to the highest.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.ascending().filter(|bucket| bucket.count != 0.0)
    }

    /// Returns all buckets from the lowest to the highest. Buckets that overlap the zero bucket are
    /// cut off at its bounds.
    pub(super) fn ascending(&self) -> impl Iterator<Item = Bucket> + '_ {
        let negative = self
            .negative
            .iter()
            .rev()
            .map(|(index, count)| self.negative_bucket(index, count));
        let positive = self
            .positive
            .iter()
            .map(|(index, count)| self.positive_bucket(index, count));
        negative
            .map(|bucket| self.clipped_at_zero_bucket(bucket))
            .chain(self.zero_bucket())
            .chain(positive.map(|bucket| self.clipped_at_zero_bucket(bucket)))
    }

    /// Returns all buckets from the highest to the lowest.
    pub(super) fn descending(&self) -> impl Iterator<Item = Bucket> + '_ {
        let positive = self
            .positive
            .iter()
            .rev()
            .map(|(index, count)| self.positive_bucket(index, count));
        let negative = self
            .negative
            .iter()
            .map(|(index, count)| self.negative_bucket(index, count));
        positive
            .map(|bucket| self.clipped_at_zero_bucket(bucket))
            .chain(self.zero_bucket())
            .chain(negative.map(|bucket| self.clipped_at_zero_bucket(bucket)))
    }

    /// Returns the zero bucket if it has observations.
    pub(super) fn zero_bucket(&self) -> Option<Bucket> {
        let lower = -self.zero_threshold;
        let upper = self.zero_threshold;
        let count = self.zero_count;
        (count > 0.0).then_some(Bucket {
            lower,
            upper,
            lower_inclusive: true,
            upper_inclusive: true,
            count,
        })
    }

    pub(super) fn upper_bound(&self, index: i32) -> f64 {
        if self.is_custom() {
            bounds::custom(index, self.custom_bounds())
        } else {
            bounds::exponential(index, self.schema)
        }
    }

    pub(super) fn positive_bucket(&self, index: i32, count: f64) -> Bucket {
        let lower = self.upper_bound(index.saturating_sub(1));
        let upper = self.upper_bound(index);
        self.with_inclusion(
            Bucket {
                lower,
                upper,
                count,
                ..Bucket::default()
            },
            index,
        )
    }

    pub(super) fn negative_bucket(&self, index: i32, count: f64) -> Bucket {
        let lower = -self.upper_bound(index);
        let upper = -self.upper_bound(index.saturating_sub(1));
        self.with_inclusion(
            Bucket {
                lower,
                upper,
                count,
                ..Bucket::default()
            },
            index,
        )
    }

    pub(super) fn with_inclusion(&self, bucket: Bucket, index: i32) -> Bucket {
        let (lower_inclusive, upper_inclusive) = if self.is_custom() {
            (index == 0, true)
        } else {
            (bucket.lower < 0.0, bucket.upper > 0.0)
        };
        Bucket {
            lower_inclusive,
            upper_inclusive,
            ..bucket
        }
    }

    /// Returns a bucket without the part that lies in the zero bucket.
    pub(super) fn clipped_at_zero_bucket(&self, mut bucket: Bucket) -> Bucket {
        if bucket.upper < 0.0 && bucket.upper > -self.zero_threshold {
            bucket.upper = -self.zero_threshold;
        } else if bucket.lower > 0.0 && bucket.lower < self.zero_threshold {
            bucket.lower = self.zero_threshold;
        }
        bucket
    }

    /// Removes empty buckets.
    pub fn compact(&mut self) {
        self.positive.compact(None);
        self.negative.compact(None);
    }

    /// Returns `true` if two histograms are equal, ignoring counter reset hints. Counts and sums
    /// are compared bit for bit, bounds and zero threshold as numbers, as in `Equals` of Go.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.schema == other.schema
            && self.count.to_bits() == other.count.to_bits()
            && self.sum.to_bits() == other.sum.to_bits()
            && self.custom_bounds() == other.custom_bounds()
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.to_bits() == other.zero_count.to_bits()
            && self.negative.bits_eq(&other.negative)
            && self.positive.bits_eq(&other.positive)
    }

    /// Returns `true` if two histograms are equal, ignoring empty buckets.
    pub(crate) fn eq_compacted(&self, other: &Self) -> bool {
        // Fast path: the histograms are equal without compaction.
        if self.equals(other) {
            return true;
        }
        let mut ours = self.clone();
        let mut theirs = other.clone();
        ours.compact();
        theirs.compact();
        ours.equals(&theirs)
    }

    /// Returns the size of [`FloatHistogram::to_stored`] in bytes.
    #[must_use]
    pub fn stored_size(&self) -> usize {
        let n_buckets = self.positive.len() + self.negative.len();
        let n_spans = self.positive.n_spans() + self.negative.n_spans();
        // A growing list of spans may have twice the capacity that it needs.
        size_of::<Histogram>()
            + n_buckets * size_of::<f64>()
            + 2 * n_spans * size_of::<BucketSpan>()
            + size_of_val(self.custom_bounds())
    }

    /// Converts the histogram to the type used for storage.
    #[must_use]
    pub fn to_stored(&self) -> Histogram {
        Histogram {
            reset_hint: self.reset_hint,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            sum: self.sum,
            counts: HistogramCounts::Float {
                count: self.count,
                zero_count: self.zero_count,
                positive: self.positive.counts().to_vec(),
                negative: self.negative.counts().to_vec(),
            },
            positive_spans: self.positive.spans(),
            negative_spans: self.negative.spans(),
            custom_bounds: self.custom_bounds().to_vec(),
        }
    }
}

impl From<&Histogram> for FloatHistogram {
    fn from(stored: &Histogram) -> Self {
        let Histogram {
            reset_hint,
            schema,
            zero_threshold,
            sum,
            ref counts,
            ..
        } = *stored;
        let (count, zero_count, positive, negative) = match counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => (
                *count as f64,
                *zero_count as f64,
                Buckets::from_spans(
                    &stored.positive_spans,
                    positive.iter().map(|&count| count as f64),
                ),
                Buckets::from_spans(
                    &stored.negative_spans,
                    negative.iter().map(|&count| count as f64),
                ),
            ),
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => (
                *count,
                *zero_count,
                Buckets::from_spans(&stored.positive_spans, positive.iter().copied()),
                Buckets::from_spans(&stored.negative_spans, negative.iter().copied()),
            ),
        };
        let histogram = Self {
            reset_hint,
            schema,
            zero_threshold,
            zero_count,
            count,
            sum,
            positive,
            negative,
            custom_bounds: None,
        };
        if histogram.is_custom() {
            return histogram.with_custom_bounds(&stored.custom_bounds);
        }
        if schema > bounds::SCHEMA_MAX {
            histogram.in_schema(bounds::SCHEMA_MAX)
        } else {
            histogram
        }
    }
}

#[cfg(test)]
impl FloatHistogram {
    /// Creates an empty histogram with a sum, for tests.
    pub(crate) fn of_sum(sum: f64) -> Self {
        Self {
            sum,
            ..Self::default()
        }
    }
}

#[cfg(test)]
pub(super) fn span(offset: i32, length: u32) -> varve_model::histogram::BucketSpan {
    varve_model::histogram::BucketSpan { offset, length }
}

/// Creates a histogram from its zero bucket (threshold and count), the offsets and counts of its
/// buckets, and its custom bounds. Its sum is its count.
#[cfg(test)]
pub(super) fn literal(
    schema: i8,
    zero: (f64, f64),
    positive: (i32, &[f64]),
    negative: (i32, &[f64]),
    custom_bounds: &[f64],
) -> FloatHistogram {
    let count = zero.1 + positive.1.iter().chain(negative.1).sum::<f64>();
    FloatHistogram::from(&Histogram {
        schema,
        zero_threshold: zero.0,
        sum: count,
        counts: HistogramCounts::Float {
            count,
            zero_count: zero.1,
            positive: positive.1.to_vec(),
            negative: negative.1.to_vec(),
        },
        positive_spans: vec![span(positive.0, positive.1.len() as u32)],
        negative_spans: vec![span(negative.0, negative.1.len() as u32)],
        custom_bounds: custom_bounds.to_vec(),
        ..Histogram::default()
    })
}
