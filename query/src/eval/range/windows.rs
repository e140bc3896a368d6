//! Windows that slide along the samples of a series, one per step.

use std::ops::Range;

use varve_promql::duration::seconds;

use crate::error::Result;
use crate::eval::sample_stats::StepSampleStats;
use crate::eval::select::RangeSamples;
use crate::eval::time_cursor::TimeCursor;
use crate::functions::window::Window;
use crate::plan::Shift;
use crate::steps::Steps;

/// Number of values that are searched for a decrease at once.
const DECREASE_CHUNK: usize = 256;

/// Windows that slide along one series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) steps: Steps,
    pub(super) shift: Shift,
    pub(super) range_ms: i64,
    /// Milliseconds before the start and after the end of a window in which samples are used too.
    pub(super) margins_ms: (i64, i64),
}

impl Windows {
    /// Calls `visit` with each step whose window has samples, in order of time. Also passes the
    /// number of floats and histograms shared with the window of the previous step, or `None` if
    /// the windows are equal.
    #[inline]
    pub(super) fn slide(
        &self,
        samples: &RangeSamples,
        mut visit: impl FnMut(usize, &Window<'_>, Option<(usize, usize)>) -> Result<()>,
    ) -> Result<()> {
        let timestamps_ms = &samples.floats.timestamps_ms;
        let values = &samples.floats.values;
        let range_seconds = seconds(self.range_ms);
        let has_decrease = has_decrease(values);
        // `decrease` is the index of the last float before `to` that is less than its predecessor,
        // or 0.
        let mut from = TimeCursor::default();
        let mut to = TimeCursor::default();
        let mut decrease = 0;
        let mut from_histogram = 0;
        let mut to_histogram = 0;
        for (step, eval_ms) in self.steps.times_ms().enumerate() {
            let end_ms = self.shift.apply(eval_ms);
            let start_ms = end_ms.saturating_sub(self.range_ms);
            let first_ms = start_ms.saturating_sub(self.margins_ms.0);
            let last_ms = end_ms.saturating_add(self.margins_ms.1);
            let to_before = to.n_before();
            let to_histogram_before = to_histogram;
            to.move_after(last_ms, timestamps_ms);
            from.move_after(first_ms, timestamps_ms);
            let from = from.n_before();
            let to = to.n_before();
            if has_decrease {
                decrease = last_decrease(values, to_before..to).unwrap_or(decrease);
            }
            while samples
                .histograms
                .get(to_histogram)
                .is_some_and(|sample| sample.timestamp_ms <= last_ms)
            {
                to_histogram += 1;
            }
            while from_histogram < to_histogram
                && samples.histograms[from_histogram].timestamp_ms <= first_ms
            {
                from_histogram += 1;
            }
            if from < to || from_histogram < to_histogram {
                let known = (
                    to_before.saturating_sub(from),
                    to_histogram_before.saturating_sub(from_histogram),
                );
                let n_before = (step == 0 || self.shift.at_ms.is_none()).then_some(known);
                let window = Window {
                    timestamps_ms: &timestamps_ms[from..to],
                    values: &values[from..to],
                    histograms: &samples.histograms[from_histogram..to_histogram],
                    starts_ms: samples.starts_ms.get(from..to).unwrap_or(&[]),
                    first_ms,
                    start_ms,
                    end_ms,
                    eval_ms,
                    range_seconds,
                    may_decrease: decrease > from,
                };
                visit(step, &window, n_before)?;
            }
        }
        Ok(())
    }
}

/// Returns `true` if a value is less than its predecessor.
fn has_decrease(values: &[f64]) -> bool {
    let next = values.get(1..).unwrap_or(&[]);
    // A chunk without a branch compiles to vector instructions.
    values
        .chunks(DECREASE_CHUNK)
        .zip(next.chunks(DECREASE_CHUNK))
        .any(|(values, next)| {
            let pairs = values.iter().zip(next);
            pairs.fold(false, |any, (value, next)| any | (next < value))
        })
}

/// Returns the index of the last value, of those in a range, that is less than its predecessor.
fn last_decrease(values: &[f64], mut range: Range<usize>) -> Option<usize> {
    range.rfind(|&idx| idx > 0 && values[idx] < values[idx - 1])
}

/// Returns the number of samples in a window. A histogram counts by its size.
pub(super) fn n_samples_of(window: &Window<'_>) -> usize {
    let n_histogram_samples: usize = window
        .histograms
        .iter()
        .map(|sample| sample.histogram.n_samples())
        .sum();
    window.values.len() + n_histogram_samples
}

/// Counts the samples of a window for a step. All samples count as queryable. Samples count as read
/// unless they are among the first `n_before` floats and histograms, which the previous window has
/// too; if `n_before` is `None`, no sample counts as read.
pub(super) fn count_window(
    window: &Window<'_>,
    step: usize,
    n_before: Option<(usize, usize)>,
    sample_stats: &mut StepSampleStats,
) {
    if sample_stats.is_on() {
        let n_new = n_before.map_or(0, |(floats, histograms)| {
            let n_histogram_samples = window.histograms[histograms..]
                .iter()
                .map(|sample| sample.histogram.n_samples());
            window.values.len() - floats + n_histogram_samples.sum::<usize>()
        });
        sample_stats.add_window(step, n_samples_of(window), n_new);
    }
}
