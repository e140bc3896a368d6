//! Histograms with custom buckets as classic ones, which both formats write.

use std::collections::BTreeMap;

use varve_model::histogram::{Histogram, HistogramCounts};

/// A classic histogram.
pub(super) struct ClassicHistogram {
    pub(super) count: f64,
    /// Upper bounds and cumulative counts.
    pub(super) buckets: Vec<(f64, f64)>,
}

/// Converts a histogram with custom buckets.
pub(super) fn to_classic(histogram: &Histogram) -> ClassicHistogram {
    let floats = Floats::of(histogram);
    let mut counts = floats.positive.iter();
    let mut by_index = BTreeMap::new();
    let mut index = 0i64;
    for span in &histogram.positive_spans {
        index += i64::from(span.offset);
        for count in counts.by_ref().take(span.length as usize) {
            by_index.insert(index, *count);
            index += 1;
        }
    }
    let mut sum = 0.0;
    let mut buckets = Vec::with_capacity(histogram.custom_bounds.len());
    for (index, &bound) in (0..).zip(&*histogram.custom_bounds) {
        sum += by_index.get(&index).unwrap_or(&0.0);
        buckets.push((bound, sum));
    }
    ClassicHistogram {
        count: floats.count,
        buckets,
    }
}

/// The counts of a histogram as floats.
pub(super) struct Floats {
    pub(super) count: f64,
    pub(super) zero_count: f64,
    pub(super) positive: Vec<f64>,
    pub(super) negative: Vec<f64>,
}

impl Floats {
    pub(super) fn of(histogram: &Histogram) -> Self {
        match &histogram.counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => Self {
                count: *count as f64,
                zero_count: *zero_count as f64,
                positive: to_floats(positive),
                negative: to_floats(negative),
            },
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => Self {
                count: *count,
                zero_count: *zero_count,
                positive: positive.clone(),
                negative: negative.clone(),
            },
        }
    }
}

fn to_floats(counts: &[u64]) -> Vec<f64> {
    counts.iter().map(|&count| count as f64).collect()
}
