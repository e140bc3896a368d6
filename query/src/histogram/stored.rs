//! From the store's histograms to those that queries compute with.
//!
//! What is known of resets is told anew on reading, as Prometheus' store tells it: a histogram that could have been
//! appended to the chunk of the one before it was not reset, of any other nothing is known. Of the first that is read the
//! one before is not at hand; what its sender said of it is believed if that is that it was not reset.

use std::sync::Arc;

use varve_tsdb::SampleColumns;
use varve_tsdb::histogram::{Histogram, HistogramCounts, ResetHint};

use super::FloatHistogram;

/// Converts the histograms among the samples of a series; places are those in the columns. Where only counts and sums are
/// needed the rest is left out.
pub(crate) fn read(samples: &SampleColumns, only_totals: bool) -> Vec<(u32, Arc<FloatHistogram>)> {
    let mut read: Vec<(u32, Arc<FloatHistogram>)> = Vec::with_capacity(samples.histograms.len());
    let mut before: Option<(u32, &Histogram, Arc<FloatHistogram>)> = None;
    let mut totals = Totals::default();
    for (place, stored) in &samples.histograms {
        let neighbour = before.as_ref().filter(|(at, ..)| at + 1 == *place).map(|(_, stored, read)| (*stored, &**read));
        let mut histogram = FloatHistogram::from(&**stored);
        if let Some((_, _, before)) = &before
            && before.custom_bounds() == histogram.custom_bounds()
        {
            histogram.custom_bounds.clone_from(&before.custom_bounds);
        }
        histogram.reset_hint = hint(&histogram, *place == 0, stored, neighbour);
        let histogram = Arc::new(histogram);
        read.push((*place, if only_totals { totals.of(&histogram) } else { Arc::clone(&histogram) }));
        before = Some((*place, stored, histogram));
    }
    read
}

/// Tells what is known of resets between a histogram and its neighbour; `stored` carries what the sender said.
fn hint(
    histogram: &FloatHistogram,
    is_first: bool,
    stored: &Histogram,
    before: Option<(&Histogram, &FloatHistogram)>,
) -> ResetHint {
    let is_integer = |of: &Histogram| matches!(of.counts, HistogramCounts::Integer { .. });
    let continues = match before {
        None => is_first && stored.reset_hint == ResetHint::NoReset,
        Some((stored_before, before)) => {
            stored.reset_hint != ResetHint::Reset
                && stored_before.reset_hint != ResetHint::Gauge
                && is_integer(stored) == is_integer(stored_before)
                && histogram.continues(before)
        }
    };
    match stored.reset_hint {
        ResetHint::Gauge => ResetHint::Gauge,
        _ if continues => ResetHint::NoReset,
        _ => ResetHint::Unknown,
    }
}

impl FloatHistogram {
    /// Tells whether counters went on from `before` to this histogram without a reset, in one layout.
    #[must_use]
    pub fn continues(&self, before: &Self) -> bool {
        !varve_tsdb::staleness::is_stale_nan(before.sum)
            && self.schema == before.schema
            && self.zero_threshold == before.zero_threshold
            && self.custom_bounds() == before.custom_bounds()
            && !self.detects_reset_of_counts(before)
    }
}

/// Histograms without buckets, whose hints tell of all resets: without buckets nobody could find them later.
#[derive(Default)]
struct Totals {
    last: Option<Arc<FloatHistogram>>,
}

impl Totals {
    fn of(&mut self, histogram: &Arc<FloatHistogram>) -> Arc<FloatHistogram> {
        let FloatHistogram { mut reset_hint, schema, count, sum, .. } = **histogram;
        if !varve_tsdb::staleness::is_stale_nan(sum) {
            if reset_hint == ResetHint::Unknown
                && let Some(last) = &self.last
            {
                reset_hint = if histogram.detect_reset(last) { ResetHint::Reset } else { ResetHint::NoReset };
            }
            self.last = Some(Arc::clone(histogram));
        }
        Arc::new(FloatHistogram { reset_hint, schema, count, sum, ..FloatHistogram::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_tsdb::Sample;
    use varve_tsdb::histogram::BucketSpan;

    /// A histogram with positive buckets from index 0 on.
    fn histogram(reset_hint: ResetHint, schema: i8, counts: &[f64]) -> Arc<Histogram> {
        let count = counts.iter().sum();
        let counts = counts.to_vec();
        let positive_spans = vec![BucketSpan { offset: 0, length: counts.len() as u32 }];
        let counts = HistogramCounts::Float { count, zero_count: 0.0, positive: counts, negative: Vec::new() };
        Arc::new(Histogram { reset_hint, schema, counts, positive_spans, ..Histogram::default() })
    }

    #[test]
    fn hints_tell_whether_a_histogram_continues_the_one_before() {
        use ResetHint::{Gauge, NoReset, Reset, Unknown};
        let mut samples = SampleColumns::default();
        let mut expected = Vec::new();
        let mut push = |histogram, expect| {
            samples.push_histogram(samples.len() as i64, histogram);
            expected.push(expect);
        };
        push(histogram(NoReset, 0, &[1.0]), NoReset);
        push(histogram(Unknown, 0, &[1.0, 1.0]), NoReset);
        push(histogram(NoReset, 0, &[2.0, 0.0]), Unknown);
        push(histogram(Reset, 0, &[3.0]), Unknown);
        push(histogram(Unknown, 0, &[3.0]), NoReset);
        push(histogram(Unknown, 1, &[3.0]), Unknown);
        push(histogram(Gauge, 1, &[4.0]), Gauge);
        push(histogram(Unknown, 1, &[5.0]), Unknown);
        samples.push(Sample { timestamp_ms: 100, value: 1.0 });
        samples.push_histogram(101, histogram(Unknown, 1, &[6.0]));
        expected.push(Unknown);
        let hints: Vec<_> = read(&samples, false).iter().map(|(_, histogram)| histogram.reset_hint).collect();
        assert_eq!(hints, expected);
    }

    #[test]
    fn totals_tell_of_resets_that_only_buckets_show() {
        let mut samples = SampleColumns::default();
        for (timestamp_ms, counts) in [(0, [2.0, 0.0]), (1, [1.0, 2.0]), (2, [1.0, 3.0])] {
            samples.push_histogram(timestamp_ms, histogram(ResetHint::Unknown, 0, &counts));
        }
        let read = read(&samples, true);
        let hints: Vec<_> = read.iter().map(|(_, histogram)| histogram.reset_hint).collect();
        assert_eq!(hints, [ResetHint::Unknown, ResetHint::Reset, ResetHint::NoReset]);
        assert!(read.iter().all(|(_, histogram)| histogram.buckets().count() == 0));
    }
}
