//! Windows: the samples of one series in a range.

use std::sync::Arc;

use crate::histogram::FloatHistogram;

/// The samples of one series in a range, and the range. Nearly all series have only floats, two columns; histograms stand
/// apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    /// Times of the floats, ascending. Extended ranges have some outside of the bounds.
    pub(crate) timestamps_ms: &'a [i64],
    /// The values at these times.
    pub(crate) values: &'a [f64],
    /// The histograms, ascending by time; there is a float or a histogram.
    pub(crate) histograms: &'a [HistogramSample],
    /// The range begins behind this time.
    pub(crate) start_ms: i64,
    /// The range ends with this time.
    pub(crate) end_ms: i64,
    /// The time of the step that asks.
    pub(crate) eval_ms: i64,
    /// The length of the range, in seconds.
    pub(crate) range_seconds: f64,
}

/// A histogram of a series.
#[derive(Debug, Clone)]
pub(crate) struct HistogramSample {
    pub(crate) timestamp_ms: i64,
    pub(crate) histogram: Arc<FloatHistogram>,
}

/// A value of a series.
#[derive(Debug, Clone)]
pub(crate) enum SampleValue {
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

impl Window<'_> {
    /// Returns the first and the last time of the floats, of which there are some.
    pub(super) fn ends_ms(&self) -> (i64, i64) {
        let last = self.timestamps_ms.len() - 1;
        (self.timestamps_ms[0], self.timestamps_ms[last])
    }

    /// Returns the first and the last float, of which there are some.
    pub(super) fn end_values(&self) -> (f64, f64) {
        (self.values[0], self.values[self.values.len() - 1])
    }

    /// Iterates over floats and histograms in order of time.
    pub(super) fn merged(&self) -> impl Iterator<Item = (i64, SampleValue)> + '_ {
        let (mut float, mut histogram) = (0, 0);
        std::iter::from_fn(move || {
            let next_float = self.timestamps_ms.get(float);
            match self.histograms.get(histogram) {
                Some(next) if next_float.is_none_or(|&time_ms| next.timestamp_ms <= time_ms) => {
                    histogram += 1;
                    Some((next.timestamp_ms, SampleValue::Histogram(Arc::clone(&next.histogram))))
                }
                _ => {
                    let time_ms = *next_float?;
                    float += 1;
                    Some((time_ms, SampleValue::Float(self.values[float - 1])))
                }
            }
        })
    }
}

/// A window for tests of kernels: samples every `step_ms` from `step_ms` on, in the range `(0, n * step_ms]`.
#[cfg(test)]
pub(super) fn on_window<R>(step_ms: i64, values: &[f64], test: impl FnOnce(&Window<'_>) -> R) -> R {
    let timestamps_ms: Vec<_> = (1..=values.len() as i64).map(|i| i * step_ms).collect();
    let end_ms = step_ms * values.len() as i64;
    let range_seconds = end_ms as f64 / 1000.0;
    let (start_ms, eval_ms) = (0, end_ms);
    test(&Window { timestamps_ms: &timestamps_ms, values, histograms: &[], start_ms, end_ms, eval_ms, range_seconds })
}
