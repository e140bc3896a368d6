//! [`Histogram`]: schema, counts, spans and bounds.

use crate::staleness::is_stale_nan;

/// Maximum number of positive and negative buckets together, of spans, and of custom bounds.
pub const HISTOGRAM_BUCKETS_MAX: usize = 1 << 16;
/// The schema of histograms with custom bounds.
pub const CUSTOM_BUCKETS_SCHEMA: i8 = -53;

/// A native histogram.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Whether the counters were reset before this histogram.
    pub reset_hint: ResetHint,
    /// -4 to 8: bounds are powers of 2^(2^-schema); [`CUSTOM_BUCKETS_SCHEMA`]: they are
    /// `custom_bounds`.
    pub schema: i8,
    /// Upper bound of the absolute values in the zero bucket.
    pub zero_threshold: f64,
    /// Sum of all observations, any double. A staleness marker as the sum ends the series.
    pub sum: f64,
    /// The numbers of observations.
    pub counts: HistogramCounts,
    /// The positive buckets.
    pub positive_spans: Vec<BucketSpan>,
    /// The negative buckets.
    pub negative_spans: Vec<BucketSpan>,
    /// Upper bounds, ascending, without +Inf. Empty unless the schema is [`CUSTOM_BUCKETS_SCHEMA`].
    pub custom_bounds: Vec<f64>,
}

/// Numbers of observations.
#[derive(Debug, Clone)]
pub enum HistogramCounts {
    /// Integers.
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
        Self::Integer {
            count: 0,
            zero_count: 0,
            positive: Vec::new(),
            negative: Vec::new(),
        }
    }
}

/// A run of consecutive buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSpan {
    /// Gap to the previous span; in the first span, the index of its first bucket.
    pub offset: i32,
    /// Number of buckets.
    pub length: u32,
}

/// Whether counters were reset between a histogram and its predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResetHint {
    /// Unknown: the reader must compare the histograms.
    #[default]
    Unknown,
    /// The counters were reset.
    Reset,
    /// The counters were not reset.
    NoReset,
    /// The histogram is a gauge.
    Gauge,
}

impl Histogram {
    /// Returns `true` if the histogram is a staleness marker.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        is_stale_nan(self.sum)
    }

    /// Returns the number of buckets without the zero bucket.
    #[must_use]
    pub fn n_buckets(&self) -> usize {
        let (n_positive, n_negative) = self.counts.n_buckets();
        n_positive + n_negative
    }

    /// Returns `true` if the histogram is within the limits of the store: at most
    /// [`HISTOGRAM_BUCKETS_MAX`] buckets, spans and bounds.
    #[must_use]
    pub fn fits(&self) -> bool {
        let n_spans = self.positive_spans.len() + self.negative_spans.len();
        [self.n_buckets(), n_spans, self.custom_bounds.len()]
            .iter()
            .all(|&n| n <= HISTOGRAM_BUCKETS_MAX)
    }

    /// Returns the number of values in the histogram, at least four. Less than 2^18 if
    /// [`Histogram::fits`].
    pub fn n_cells(&self) -> usize {
        4 + self.n_buckets()
            + self.positive_spans.len()
            + self.negative_spans.len()
            + self.custom_bounds.len()
    }

    /// Returns `true` if two histograms are equal bit for bit, apart from their reset hints.
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

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>()
            + self.n_buckets() * size_of::<u64>()
            + (self.positive_spans.len() + self.negative_spans.len()) * size_of::<BucketSpan>()
            + self.custom_bounds.len() * size_of::<f64>()
    }
}

impl ResetHint {
    /// Returns the hint that is valid if the predecessor changes.
    pub fn after_another(self) -> Self {
        match self {
            Self::Gauge => Self::Gauge,
            Self::Unknown | Self::Reset | Self::NoReset => Self::Unknown,
        }
    }

    /// Returns the code of the hint in logs and blocks, which is the same as in the protocol.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Reset => 1,
            Self::NoReset => 2,
            Self::Gauge => 3,
        }
    }

    /// Returns the hint with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Unknown, Self::Reset, Self::NoReset, Self::Gauge]
            .get(usize::from(code))
            .copied()
    }
}

impl HistogramCounts {
    /// Returns the numbers of positive and of negative buckets.
    #[must_use]
    pub fn n_buckets(&self) -> (usize, usize) {
        match self {
            Self::Integer {
                positive, negative, ..
            } => (positive.len(), negative.len()),
            Self::Float {
                positive, negative, ..
            } => (positive.len(), negative.len()),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Integer {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                Self::Integer {
                    count: c,
                    zero_count: z,
                    positive: p,
                    negative: n,
                },
            ) => count == c && zero_count == z && positive == p && negative == n,
            (
                Self::Float {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                Self::Float {
                    count: c,
                    zero_count: z,
                    positive: p,
                    negative: n,
                },
            ) => {
                same(*count, *c)
                    && same(*zero_count, *z)
                    && all_same(positive, p)
                    && all_same(negative, n)
            }
            _ => false,
        }
    }
}

/// Returns `true` if two floats have equal bits.
#[must_use]
pub fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

/// Returns `true` if the floats of two lists have equal bits.
#[must_use]
pub fn all_same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(*a, *b))
}
