//! Native histograms, as senders write them and readers get them.
//!
//! What the fields mean is said by Prometheus' `prompb/types.proto` and `model/histogram`; here they are kept, not interpreted.

mod codec;
mod layout;

pub(crate) use codec::{decode_counts, encode_counts};
pub(crate) use layout::Layout;

use crate::sample::is_stale_nan;

/// Most buckets, positive and negative ones together; also most spans, and most custom bounds.
pub const HISTOGRAM_BUCKETS_MAX: usize = 1 << 16;
/// The schema of histograms with bounds of their own.
pub const CUSTOM_BUCKETS_SCHEMA: i8 = -53;

/// A native histogram.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// What the sender knows of a reset of the counters before it.
    pub reset_hint: ResetHint,
    /// -4 to 8: bounds are powers of 2^(2^-schema); [`CUSTOM_BUCKETS_SCHEMA`]: they are `custom_bounds`.
    pub schema: i8,
    /// Observations at most so far from zero are in the zero bucket.
    pub zero_threshold: f64,
    /// The sum of all observations, any double. The staleness marker: the series has ended.
    pub sum: f64,
    /// How often what was observed.
    pub counts: HistogramCounts,
    /// Which buckets `positive` has.
    pub positive_spans: Vec<BucketSpan>,
    /// Which buckets `negative` has.
    pub negative_spans: Vec<BucketSpan>,
    /// Upper bounds, ascending; without +Inf. Empty but for [`CUSTOM_BUCKETS_SCHEMA`].
    pub custom_bounds: Vec<f64>,
}

/// Counts of observations.
#[derive(Debug, Clone)]
pub enum HistogramCounts {
    /// Whole numbers.
    Integer {
        /// Of all observations.
        count: u64,
        /// In the zero bucket.
        zero_count: u64,
        /// In each bucket of the positive spans.
        positive: Vec<u64>,
        /// In each bucket of the negative spans.
        negative: Vec<u64>,
    },
    /// Any doubles: results of rules, and gauges.
    Float {
        /// Of all observations.
        count: f64,
        /// In the zero bucket.
        zero_count: f64,
        /// In each bucket of the positive spans.
        positive: Vec<f64>,
        /// In each bucket of the negative spans.
        negative: Vec<f64>,
    },
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self::Integer { count: 0, zero_count: 0, positive: Vec::new(), negative: Vec::new() }
    }
}

/// Some buckets that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSpan {
    /// Buckets left out since the span before; of the first span, the index of its first bucket.
    pub offset: i32,
    /// Buckets.
    pub length: u32,
}

/// What is known of a reset of counters between a histogram and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResetHint {
    /// Nothing: whoever wants to know compares.
    #[default]
    Unknown,
    /// There was one.
    Reset,
    /// There was none.
    NoReset,
    /// These are no counters.
    Gauge,
}

impl Histogram {
    /// Tells whether this says that the series has ended, and nothing else.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        is_stale_nan(self.sum)
    }

    /// Counts the buckets, the zero bucket left out.
    #[must_use]
    pub fn n_buckets(&self) -> usize {
        match &self.counts {
            HistogramCounts::Integer { positive, negative, .. } => positive.len() + negative.len(),
            HistogramCounts::Float { positive, negative, .. } => positive.len() + negative.len(),
        }
    }

    /// Tells whether the store takes it: no more than [`HISTOGRAM_BUCKETS_MAX`] of anything.
    #[must_use]
    pub fn fits(&self) -> bool {
        let n_spans = self.positive_spans.len() + self.negative_spans.len();
        [self.n_buckets(), n_spans, self.custom_bounds.len()].iter().all(|&n| n <= HISTOGRAM_BUCKETS_MAX)
    }

    /// Counts the numbers that it consists of, four for those that all have. Less than 2^18 if it fits.
    pub(crate) fn n_cells(&self) -> usize {
        4 + self.n_buckets() + self.positive_spans.len() + self.negative_spans.len() + self.custom_bounds.len()
    }

    /// Tells whether two histograms are the same, bit for bit; what is known of resets does not count.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.schema == other.schema
            && same(self.zero_threshold, other.zero_threshold)
            && same(self.sum, other.sum)
            && self.positive_spans == other.positive_spans
            && self.negative_spans == other.negative_spans
            && all_same(&self.custom_bounds, &other.custom_bounds)
            && self.counts.is_same(&other.counts)
    }

    /// Returns the bytes that it takes in memory.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>()
            + self.n_buckets() * size_of::<u64>()
            + (self.positive_spans.len() + self.negative_spans.len()) * size_of::<BucketSpan>()
            + self.custom_bounds.len() * size_of::<f64>()
    }
}

impl ResetHint {
    /// Returns what still holds where the histogram before is another one.
    pub(crate) fn after_another(self) -> Self {
        match self {
            Self::Gauge => Self::Gauge,
            Self::Unknown | Self::Reset | Self::NoReset => Self::Unknown,
        }
    }

    /// Returns the hint as the log and blocks number it, which is as the protocol does.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Reset => 1,
            Self::NoReset => 2,
            Self::Gauge => 3,
        }
    }

    /// Returns the hint of a code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Unknown, Self::Reset, Self::NoReset, Self::Gauge].get(usize::from(code)).copied()
    }
}

impl HistogramCounts {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Integer { count, zero_count, positive, negative },
                Self::Integer { count: c, zero_count: z, positive: p, negative: n },
            ) => count == c && zero_count == z && positive == p && negative == n,
            (
                Self::Float { count, zero_count, positive, negative },
                Self::Float { count: c, zero_count: z, positive: p, negative: n },
            ) => same(*count, *c) && same(*zero_count, *z) && all_same(positive, p) && all_same(negative, n),
            _ => false,
        }
    }
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

fn all_same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(*a, *b))
}

#[cfg(test)]
pub(crate) mod tests;
