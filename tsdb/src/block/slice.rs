//! Slices: how the samples of a series are split into pages of rows.

use std::ops::Range;

use varve_model::{SampleColumns, TimeRange};

use super::group::SliceKey;
use super::rows::SERIES_SAMPLES_MAX;
use super::rows::histograms::{RowSamples, n_fitting};

/// Maximum time range of a page of rows: a query for an hour reads a third of a day, not all of it.
const SLICE_MS: u64 = 8 * 3600 * 1000;

/// A page of rows and the samples of a series in it.
pub(super) type SliceSpan = (SliceKey, Range<usize>);

/// Checks what a writer assumes of the samples of a series in a block of `window`, and returns
/// their time range.
///
/// # Panics
/// If there are no samples, or if the timestamps do not ascend within the window.
pub(super) fn check(samples: &SampleColumns, window: TimeRange) -> TimeRange {
    let times_ms = &samples.timestamps_ms[..];
    assert!(
        times_ms.len() == samples.values.len(),
        "a value per timestamp"
    );
    assert!(times_ms.is_sorted_by(|a, b| a < b), "timestamps ascend");
    let range = samples.range().expect("a series has samples");
    assert!(
        window.covers(range),
        "samples are inside the window of the block"
    );
    range
}

/// Splits a series into slices of time, and each slice into runs that fit a page.
pub(super) fn slice(samples: &SampleColumns, window: TimeRange, spans: &mut Vec<SliceSpan>) {
    let times_ms = &samples.timestamps_ms[..];
    let slice_of = |time_ms: i64| time_ms.abs_diff(window.start_ms) / SLICE_MS;
    spans.clear();
    let mut first = 0;
    while first < times_ms.len() {
        let slice = slice_of(times_ms[first]);
        let end = first + times_ms[first..].partition_point(|&time_ms| slice_of(time_ms) == slice);
        let mut run = 0;
        while first < end {
            let fitting = RowSamples::of(samples, first..end.min(first + SERIES_SAMPLES_MAX));
            let run_end = first + n_fitting(fitting);
            spans.push((SliceKey { slice, run }, first..run_end));
            first = run_end;
            run += 1;
        }
    }
}
