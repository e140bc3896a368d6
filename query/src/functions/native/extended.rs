//! `rate`, `increase`, `delta` of `anchored` and `smoothed` ranges with histograms.

use varve_model::histogram::ResetHint;

use super::super::rate::RateKind;
use super::super::window::{HistogramSample, Window};
use super::rate::{Value, unmixed};
use crate::annotations::HistogramOperation::{Addition, Subtraction};
use crate::annotations::{SeriesAnnotation, SeriesAnnotations};
use crate::histogram::{FloatHistogram, MixedSchemas};

/// Returns the change between the ends of an `anchored` or `smoothed` range. The values at the ends
/// are derived from the samples around them.
pub(in super::super) fn extended(
    window: &Window<'_>,
    kind: RateKind,
    smoothed: bool,
    annotations: &mut SeriesAnnotations,
) -> Value {
    unmixed(window, annotations, |annotations| {
        extended_change(window, kind, smoothed, annotations)
    })
}

fn extended_change(
    window: &Window<'_>,
    kind: RateKind,
    smoothed: bool,
    annotations: &mut SeriesAnnotations,
) -> Result<Option<FloatHistogram>, MixedSchemas> {
    let Window {
        histograms: samples,
        start_ms,
        end_ms,
        ..
    } = *window;
    let last = samples.len() - 1;
    let first = samples[..last]
        .partition_point(|sample| sample.timestamp_ms <= start_ms)
        .saturating_sub(1);
    let last = if smoothed {
        samples[..last].partition_point(|sample| sample.timestamp_ms < end_ms)
    } else {
        last
    };
    if samples[last].timestamp_ms <= start_ms || (smoothed && samples[first].timestamp_ms > end_ms)
    {
        return Ok(None);
    }
    check_schemas(&samples[first..=last], kind.is_counter, annotations)?;
    let (left, right) = ends(window, first, last, smoothed, kind.is_counter, annotations)?;
    if !kind.is_counter
        && [&left, &right]
            .iter()
            .any(|end| end.reset_hint != ResetHint::Gauge)
    {
        annotations.add(SeriesAnnotation::NotGauge);
    }
    let mut change = right.clone();
    annotations.add_combined(change.subtract(&left)?, Subtraction);
    if kind.is_counter
        && let Some(lost) =
            lost_in_resets(window, first, last, &left, &right, smoothed, annotations)?
    {
        annotations.add_combined(change.add(&lost)?, Addition);
    }
    if kind.is_rate {
        change.divide(window.range_seconds);
    }
    change.reset_hint = ResetHint::Gauge;
    change.compact();
    Ok(Some(change))
}

/// Returns the values at the ends of a window: those of the samples `first` and `last`, or, if
/// `smoothed`, between these and their neighbors.
fn ends(
    window: &Window<'_>,
    first: usize,
    last: usize,
    smoothed: bool,
    is_counter: bool,
    annotations: &mut SeriesAnnotations,
) -> Result<(FloatHistogram, FloatHistogram), MixedSchemas> {
    let Window {
        histograms: samples,
        start_ms,
        end_ms,
        ..
    } = *window;
    let left = if smoothed && samples[first].timestamp_ms < start_ms {
        interpolate(
            &samples[first],
            &samples[first + 1],
            start_ms,
            is_counter,
            annotations,
        )?
    } else {
        FloatHistogram::clone(&samples[first].histogram)
    };
    let right = if smoothed && last > 0 && samples[last].timestamp_ms > end_ms {
        interpolate(
            &samples[last - 1],
            &samples[last],
            end_ms,
            is_counter,
            annotations,
        )?
    } else {
        FloatHistogram::clone(&samples[last].histogram)
    };
    Ok((left, right))
}

fn check_schemas(
    samples: &[HistogramSample],
    is_counter: bool,
    annotations: &mut SeriesAnnotations,
) -> Result<(), MixedSchemas> {
    for HistogramSample { histogram, .. } in samples {
        if histogram.is_custom() != samples[0].histogram.is_custom() {
            return Err(MixedSchemas);
        }
        if is_counter && histogram.reset_hint == ResetHint::Gauge {
            annotations.add(SeriesAnnotation::NotCounter);
        }
    }
    Ok(())
}

/// Returns the interpolated histogram at a time between two samples. If a counter was reset between
/// the samples, it starts at 0.
pub(crate) fn interpolate(
    from: &HistogramSample,
    to: &HistogramSample,
    time_ms: i64,
    is_counter: bool,
    annotations: &mut SeriesAnnotations,
) -> Result<FloatHistogram, MixedSchemas> {
    let mut result = FloatHistogram::clone(&to.histogram);
    if time_ms == from.timestamp_ms {
        return Ok(FloatHistogram::clone(&from.histogram));
    }
    if time_ms == to.timestamp_ms {
        return Ok(result);
    }
    let fraction =
        (time_ms - from.timestamp_ms) as f64 / (to.timestamp_ms - from.timestamp_ms) as f64;
    if is_counter && to.histogram.detect_reset(&from.histogram) {
        result.multiply(fraction);
        return Ok(result);
    }
    annotations.add_combined(result.subtract(&from.histogram)?, Subtraction);
    result.multiply(fraction);
    annotations.add_combined(result.add(&from.histogram)?, Addition);
    Ok(result)
}

/// Returns the values before each reset between the ends of the range. `left` and `right` are the
/// values at the ends; they replace the samples `first` and `last`.
fn lost_in_resets(
    window: &Window<'_>,
    first: usize,
    last: usize,
    left: &FloatHistogram,
    right: &FloatHistogram,
    smoothed: bool,
    annotations: &mut SeriesAnnotations,
) -> Result<Option<FloatHistogram>, MixedSchemas> {
    let samples = window.histograms;
    let mut from = first + 1;
    let mut before = left;
    // The interpolation at the left end accounts for a reset right after it.
    if smoothed
        && samples[first].timestamp_ms < window.start_ms
        && samples[first + 1]
            .histogram
            .detect_reset(&samples[first].histogram)
    {
        before = &samples[first + 1].histogram;
        from += 1;
    }
    // The right end has the counter reset hint of the last sample.
    if from > last {
        return Ok(None);
    }
    let mut lost: Option<FloatHistogram> = None;
    let inner = samples[from..last].iter().map(|sample| &*sample.histogram);
    for histogram in inner.chain([right]) {
        if histogram.detect_reset(before) {
            match &mut lost {
                Some(lost) => annotations.add_combined(lost.add(before)?, Addition),
                None => lost = Some(before.clone()),
            }
        }
        before = histogram;
    }
    Ok(lost)
}
