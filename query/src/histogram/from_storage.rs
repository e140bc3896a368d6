//! Conversion of stored histograms to [`FloatHistogram`]s.
//!
//! Counter reset hints are recomputed on reading, as in Prometheus' storage. The hint is `NoReset`
//! if the histogram could be appended to the chunk of the previous histogram, and `Unknown`
//! otherwise. The first histogram that is read has no previous one: its hint is `NoReset` if the
//! sender set this hint.

use std::sync::Arc;

use varve_context::Charge;
use varve_model::SampleColumns;
use varve_model::histogram::{Histogram, HistogramCounts, ResetHint};

use super::float_histogram::FloatHistogram;
use crate::error::Result;

/// Converts the histograms of a series, and returns them with their indexes in the columns. With
/// `skip_buckets`, converts only counts and sums. Charges the result.
///
/// # Errors
/// [`Error::Limit`](crate::Error::Limit) if the query exceeds its memory limit.
pub(crate) fn read(
    samples: &SampleColumns,
    skip_buckets: bool,
    charge: &mut Charge,
) -> Result<Histograms> {
    charge.grow(samples.histograms.len() * size_of::<(u32, Arc<FloatHistogram>)>())?;
    let mut read: Histograms = Vec::with_capacity(samples.histograms.len());
    let mut before: Option<(u32, &Histogram, Arc<FloatHistogram>)> = None;
    let mut totals = Totals::default();
    for (index, stored) in &samples.histograms {
        let neighbor = before
            .as_ref()
            .filter(|(at, ..)| at + 1 == *index)
            .map(|(_, stored, read)| (*stored, &**read));
        let mut histogram = FloatHistogram::from(&**stored);
        if let Some((_, _, before)) = &before
            && before.custom_bounds() == histogram.custom_bounds()
        {
            histogram.custom_bounds.clone_from(&before.custom_bounds);
        }
        histogram.reset_hint = hint(&histogram, *index == 0, stored, neighbor);
        let histogram = Arc::new(histogram);
        let converted = if skip_buckets {
            totals.convert(&histogram)
        } else {
            Arc::clone(&histogram)
        };
        charge.grow(converted.size())?;
        read.push((*index, converted));
        before = Some((*index, stored, histogram));
    }
    Ok(read)
}

/// Histograms with their indexes in the columns of a series.
pub(crate) type Histograms = Vec<(u32, Arc<FloatHistogram>)>;

/// Returns the counter reset hint of a histogram, given the previous one. `stored` has the hint set
/// by the sender.
fn hint(
    histogram: &FloatHistogram,
    is_first: bool,
    stored: &Histogram,
    before: Option<(&Histogram, &FloatHistogram)>,
) -> ResetHint {
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

fn is_integer(stored: &Histogram) -> bool {
    matches!(stored.counts, HistogramCounts::Integer { .. })
}

impl FloatHistogram {
    /// Returns `true` if there is no counter reset between `before` and this histogram, and both
    /// have the same layout.
    #[must_use]
    pub fn continues(&self, before: &Self) -> bool {
        !varve_model::staleness::is_stale_nan(before.sum)
            && self.schema == before.schema
            && self.zero_threshold == before.zero_threshold
            && self.custom_bounds() == before.custom_bounds()
            && !self.detects_reset_of_counts(before)
    }
}

/// Removes buckets from histograms. Sets hints for all resets, because they cannot be detected
/// later without buckets.
#[derive(Default)]
struct Totals {
    last: Option<Arc<FloatHistogram>>,
}

impl Totals {
    fn convert(&mut self, histogram: &Arc<FloatHistogram>) -> Arc<FloatHistogram> {
        let FloatHistogram {
            mut reset_hint,
            schema,
            count,
            sum,
            ..
        } = **histogram;
        if !varve_model::staleness::is_stale_nan(sum) {
            if reset_hint == ResetHint::Unknown
                && let Some(last) = &self.last
            {
                reset_hint = if histogram.detect_reset(last) {
                    ResetHint::Reset
                } else {
                    ResetHint::NoReset
                };
            }
            self.last = Some(Arc::clone(histogram));
        }
        Arc::new(FloatHistogram {
            reset_hint,
            schema,
            count,
            sum,
            ..FloatHistogram::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_context::QueryContext;
    use varve_model::Sample;
    use varve_model::histogram::BucketSpan;

    /// Creates a histogram with positive buckets from index 0 on.
    fn histogram(reset_hint: ResetHint, schema: i8, counts: &[f64]) -> Arc<Histogram> {
        let count = counts.iter().sum();
        let counts = counts.to_vec();
        let positive_spans = vec![BucketSpan {
            offset: 0,
            length: counts.len() as u32,
        }];
        let counts = HistogramCounts::Float {
            count,
            zero_count: 0.0,
            positive: counts,
            negative: Vec::new(),
        };
        Arc::new(Histogram {
            reset_hint,
            schema,
            counts,
            positive_spans,
            ..Histogram::default()
        })
    }

    fn all(samples: &SampleColumns, skip_buckets: bool) -> Histograms {
        read(
            samples,
            skip_buckets,
            &mut QueryContext::unbounded().charge(),
        )
        .unwrap()
    }

    #[test]
    fn hints_depend_on_the_previous_histogram() {
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
        samples.push(Sample {
            timestamp_ms: 100,
            value: 1.0,
        });
        samples.push_histogram(101, histogram(Unknown, 1, &[6.0]));
        expected.push(Unknown);
        let hints: Vec<_> = all(&samples, false)
            .iter()
            .map(|(_, histogram)| histogram.reset_hint)
            .collect();
        assert_eq!(hints, expected);
    }

    #[test]
    fn hints_without_buckets_include_resets_of_buckets() {
        let mut samples = SampleColumns::default();
        for (timestamp_ms, counts) in [(0, [2.0, 0.0]), (1, [1.0, 2.0]), (2, [1.0, 3.0])] {
            samples.push_histogram(timestamp_ms, histogram(ResetHint::Unknown, 0, &counts));
        }
        let read = all(&samples, true);
        let hints: Vec<_> = read
            .iter()
            .map(|(_, histogram)| histogram.reset_hint)
            .collect();
        assert_eq!(
            hints,
            [ResetHint::Unknown, ResetHint::Reset, ResetHint::NoReset]
        );
        assert!(
            read.iter()
                .all(|(_, histogram)| histogram.buckets().count() == 0)
        );
    }
}
