//! Windows: the samples of one series in the range of a step.

use std::sync::Arc;

use crate::histogram::FloatHistogram;

/// The samples of one series in a range, and the bounds of the range. Floats are in two columns.
/// Histograms, which few series have, are in a separate list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    /// Timestamps of the floats, ascending. For `anchored` and `smoothed` ranges, some are outside
    /// of the range.
    pub(crate) timestamps_ms: &'a [i64],
    /// Values of the floats.
    pub(crate) values: &'a [f64],
    /// Start timestamps of the floats, 0 if unknown. Empty if start timestamps are not read, or if
    /// none is known.
    pub(crate) starts_ms: &'a [i64],
    /// Histograms, ascending by time. A window has at least one float or histogram.
    pub(crate) histograms: &'a [HistogramSample],
    /// Start of the time of the samples, excluded. Earlier than the range for `anchored` and
    /// `smoothed` ranges.
    pub(crate) first_ms: i64,
    /// Start of the range, excluded.
    pub(crate) start_ms: i64,
    /// End of the range, included.
    pub(crate) end_ms: i64,
    /// Time of the step.
    pub(crate) eval_ms: i64,
    /// Length of the range in seconds.
    pub(crate) range_seconds: f64,
    /// `false` only if no float is less than its predecessor.
    pub(crate) may_decrease: bool,
}

/// A histogram sample.
#[derive(Debug, Clone)]
pub(crate) struct HistogramSample {
    pub(crate) timestamp_ms: i64,
    /// Start timestamp; 0 if unknown or not read.
    pub(crate) start_ms: i64,
    pub(crate) histogram: Arc<FloatHistogram>,
}

/// The timestamp and start timestamp of a sample. The start timestamp is 0 if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleTimes {
    pub(crate) timestamp_ms: i64,
    pub(crate) start_ms: i64,
}

impl SampleTimes {
    /// Returns `true` if the start timestamps show a counter reset between this sample and the
    /// next.
    ///
    /// A start timestamp that is not before its own sample, or that equals the previous one, is
    /// ignored. If the start timestamp of `next` equals the timestamp of this sample, `next` is a
    /// delta, which is a reset, unless the start timestamp of this sample is unknown. Then this
    /// sample is the first one of a counter of unknown age.
    pub(crate) fn is_reset_before(self, next: Self) -> bool {
        let is_invalid = next.start_ms == 0 || next.start_ms >= next.timestamp_ms;
        if is_invalid || next.start_ms == self.start_ms || next.start_ms < self.timestamp_ms {
            return false;
        }
        next.start_ms > self.timestamp_ms
            || (self.start_ms != 0 && self.start_ms < self.timestamp_ms)
    }

    /// Returns `true` if the series starts after a time, before this sample.
    pub(super) fn starts_after(self, time_ms: i64) -> bool {
        self.start_ms != 0 && self.start_ms > time_ms && self.start_ms < self.timestamp_ms
    }

    /// Returns `true` if the start timestamp of the next sample is before this sample and differs
    /// from its start timestamp.
    pub(crate) fn overlaps(self, next: Self) -> bool {
        next.start_ms != 0 && next.start_ms < self.timestamp_ms && next.start_ms != self.start_ms
    }
}

impl HistogramSample {
    pub(super) fn times(&self) -> SampleTimes {
        SampleTimes {
            timestamp_ms: self.timestamp_ms,
            start_ms: self.start_ms,
        }
    }
}

/// A value of a series.
#[derive(Debug, Clone)]
pub(crate) enum SampleValue {
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

impl Window<'_> {
    /// Returns the first and the last timestamp of the floats. There must be floats.
    pub(super) fn ends_ms(&self) -> (i64, i64) {
        let last = self.timestamps_ms.len() - 1;
        (self.timestamps_ms[0], self.timestamps_ms[last])
    }

    /// Returns the first and the last float. There must be floats.
    pub(super) fn end_values(&self) -> (f64, f64) {
        (self.values[0], self.values[self.values.len() - 1])
    }

    /// Returns the times of a float.
    pub(super) fn times(&self, at: usize) -> SampleTimes {
        let start_ms = self.starts_ms.get(at).copied().unwrap_or(0);
        SampleTimes {
            timestamp_ms: self.timestamps_ms[at],
            start_ms,
        }
    }

    /// Iterates over all floats and histograms in order of time.
    pub(super) fn merged(&self) -> impl Iterator<Item = (SampleTimes, SampleValue)> + '_ {
        let mut float = 0;
        let mut histogram = 0;
        std::iter::from_fn(move || {
            let next_float = self.timestamps_ms.get(float);
            match self.histograms.get(histogram) {
                Some(next) if next_float.is_none_or(|&time_ms| next.timestamp_ms <= time_ms) => {
                    histogram += 1;
                    Some((
                        next.times(),
                        SampleValue::Histogram(Arc::clone(&next.histogram)),
                    ))
                }
                _ => {
                    next_float?;
                    float += 1;
                    Some((
                        self.times(float - 1),
                        SampleValue::Float(self.values[float - 1]),
                    ))
                }
            }
        })
    }
}

/// Calls `test` with a window: one sample per value, every `step_ms` from `step_ms` on, in the
/// range `(0, n * step_ms]`.
#[cfg(test)]
pub(super) fn on_window<R>(step_ms: i64, values: &[f64], test: impl FnOnce(&Window<'_>) -> R) -> R {
    let timestamps_ms: Vec<_> = (1..=values.len() as i64).map(|i| i * step_ms).collect();
    let end_ms = step_ms * values.len() as i64;
    let range_seconds = end_ms as f64 / 1000.0;
    let start_ms = 0;
    let eval_ms = end_ms;
    let histograms = &[];
    let starts_ms = &[];
    let timestamps_ms = &timestamps_ms;
    let may_decrease = values.windows(2).any(|pair| pair[1] < pair[0]);
    test(&Window {
        timestamps_ms,
        values,
        starts_ms,
        histograms,
        first_ms: start_ms,
        start_ms,
        end_ms,
        eval_ms,
        range_seconds,
        may_decrease,
    })
}
