//! `rate`, `increase`, `delta`, `irate`, `idelta` for windows with histograms.

use std::sync::Arc;

use varve_model::histogram::ResetHint;

use super::super::rate::{RateKind, extrapolation_factor, factor_from_start, instant_change};
use super::super::window::{HistogramSample, SampleValue, Window};
use crate::annotations::HistogramOperation::{Addition, Subtraction};
use crate::annotations::{SeriesAnnotation, SeriesAnnotations};
use crate::histogram::{FloatHistogram, MixedSchemas};

pub(super) type Value = Option<SampleValue>;

pub(in super::super) fn irate(window: &Window<'_>, annotations: &mut SeriesAnnotations) -> Value {
    last_change(window, true, annotations)
}

pub(in super::super) fn idelta(window: &Window<'_>, annotations: &mut SeriesAnnotations) -> Value {
    last_change(window, false, annotations)
}

/// Applies `change` to a window of histograms. Returns `None` if the window also has floats, or
/// mixes exponential and custom buckets.
pub(super) fn unmixed(
    window: &Window<'_>,
    annotations: &mut SeriesAnnotations,
    change: impl FnOnce(&mut SeriesAnnotations) -> Result<Option<FloatHistogram>, MixedSchemas>,
) -> Value {
    if !window.values.is_empty() {
        annotations.add(SeriesAnnotation::MixedFloatsHistograms);
        return None;
    }
    match change(annotations) {
        Ok(change) => change.map(|change| SampleValue::Histogram(Arc::new(change))),
        Err(MixedSchemas) => {
            annotations.add(SeriesAnnotation::MixedSchemas);
            None
        }
    }
}

/// Returns the change from the first to the last histogram, extrapolated to the ends of the range
/// as for floats. A counter is extrapolated at most back to a count of 0.
pub(in super::super) fn extrapolated(
    window: &Window<'_>,
    kind: RateKind,
    annotations: &mut SeriesAnnotations,
) -> Value {
    unmixed(window, annotations, |annotations| {
        extrapolated_change(window, kind, annotations)
    })
}

fn extrapolated_change(
    window: &Window<'_>,
    kind: RateKind,
    annotations: &mut SeriesAnnotations,
) -> Result<Option<FloatHistogram>, MixedSchemas> {
    let [first, rest @ ..] = window.histograms else {
        return Ok(None);
    };
    let last = rest.last().unwrap_or(first);
    let mut between = None;
    if !rest.is_empty() {
        let mut own = SeriesAnnotations::default();
        let change = change(window.histograms, kind.is_counter, &mut own);
        annotations.extend(own);
        between = Some(change?);
    }
    if kind.is_counter
        && let Some(factor) =
            factor_from_start(window, kind, first.times(), last.timestamp_ms, rest.len())
    {
        let mut since_start = match between {
            None => FloatHistogram::clone(&first.histogram),
            Some(mut between) => {
                annotations.add_combined(between.add(&first.histogram)?, Addition);
                between
            }
        };
        since_start.multiply(factor);
        return Ok(Some(since_start));
    }
    let Some(mut change) = between else {
        return Ok(None);
    };
    let times_ms = (first.timestamp_ms, last.timestamp_ms);
    let factor = extrapolation_factor(
        window,
        kind,
        times_ms,
        rest.len(),
        first.histogram.count,
        change.count,
    );
    change.multiply(factor);
    Ok(Some(change))
}

/// Returns the difference of the last and the first histogram. For counters, adds the value before
/// each reset between the two. There must be at least two histograms.
fn change(
    samples: &[HistogramSample],
    is_counter: bool,
    annotations: &mut SeriesAnnotations,
) -> Result<FloatHistogram, MixedSchemas> {
    let first = &samples[0].histogram;
    let last = &samples[samples.len() - 1].histogram;
    let mut hints = samples.iter().map(|sample| sample.histogram.reset_hint);
    if is_counter && hints.any(|hint| hint == ResetHint::Gauge) {
        annotations.add(SeriesAnnotation::NotCounter);
    }
    // After a reset, neither the value nor the buckets of the first histogram affect the result.
    let second = &samples[1].histogram;
    let reset_at_once = is_counter && is_reset(&samples[0], &samples[1], first);
    let start = if reset_at_once {
        Arc::new(second.without_observations())
    } else {
        Arc::clone(first)
    };
    // A gauge needs only the first and the last histogram.
    let inner = if is_counter {
        &samples[1..samples.len() - 1]
    } else {
        &[]
    };
    let others = inner.iter().map(|sample| &sample.histogram);
    if last.is_custom() != start.is_custom() {
        return Err(MixedSchemas);
    }
    if others
        .clone()
        .any(|other| other.is_custom() != start.is_custom())
    {
        // As in Prometheus, this annotation replaces all others.
        annotations.list.clear();
        return Err(MixedSchemas);
    }
    let schema = others
        .map(|other| other.schema())
        .fold(last.schema().min(start.schema()), i8::min);
    let mut change = FloatHistogram::clone(last).in_schema(schema);
    annotations.add_combined(change.subtract(&start)?, Subtraction);
    if is_counter {
        add_resets(&mut change, &start, samples, annotations)?;
    } else if [first, last]
        .iter()
        .any(|histogram| histogram.reset_hint != ResetHint::Gauge)
    {
        annotations.add(SeriesAnnotation::NotGauge);
    }
    change.reset_hint = ResetHint::Gauge;
    change.compact();
    Ok(change)
}

/// Adds to a change of a counter what it lost in resets.
fn add_resets(
    change: &mut FloatHistogram,
    start: &FloatHistogram,
    samples: &[HistogramSample],
    annotations: &mut SeriesAnnotations,
) -> Result<(), MixedSchemas> {
    let mut before = start;
    let mut overlap = false;
    for pair in samples.windows(2) {
        // An overlap is counted once per window.
        if !overlap && pair[0].times().overlaps(pair[1].times()) {
            annotations.add(SeriesAnnotation::StartTimestampsOverlap(1));
            overlap = true;
        }
        if is_reset(&pair[0], &pair[1], before) {
            annotations.add_combined(change.add(before)?, Addition);
        }
        before = &pair[1].histogram;
    }
    Ok(())
}

/// Returns `true` if a counter was reset between two samples. `before` replaces the value of the
/// first sample.
fn is_reset(first: &HistogramSample, second: &HistogramSample, before: &FloatHistogram) -> bool {
    first.times().is_reset_before(second.times()) || second.histogram.detect_reset(before)
}

/// Returns the change between the last two samples. With `is_rate` (`irate`), the series is a
/// counter, and the result is per second.
fn last_change(window: &Window<'_>, is_rate: bool, annotations: &mut SeriesAnnotations) -> Value {
    let floats = window.timestamps_ms.len().saturating_sub(2);
    let histograms = window.histograms.len().saturating_sub(2);
    let tail = Window {
        timestamps_ms: &window.timestamps_ms[floats..],
        values: &window.values[floats..],
        histograms: &window.histograms[histograms..],
        starts_ms: window.starts_ms.get(floats..).unwrap_or(&[]),
        ..*window
    };
    let merged: Vec<_> = tail.merged().collect();
    let [.., (before_at, before), (last_at, last)] = &merged[..] else {
        return None;
    };
    let seconds = (last_at.timestamp_ms - before_at.timestamp_ms) as f64 / 1000.0;
    let reset = is_rate && before_at.is_reset_before(*last_at);
    match (before, last) {
        (SampleValue::Float(before), SampleValue::Float(last)) => {
            let change = if reset {
                *last
            } else {
                instant_change(*before, *last, is_rate)
            };
            Some(SampleValue::Float(if is_rate {
                change / seconds
            } else {
                change
            }))
        }
        (SampleValue::Histogram(before), SampleValue::Histogram(last)) => {
            let mut change = last_change_of_histograms(before, last, is_rate, reset, annotations)?;
            if is_rate {
                change.divide(seconds);
            }
            Some(SampleValue::Histogram(Arc::new(change)))
        }
        _ => {
            annotations.add(SeriesAnnotation::MixedFloatsHistograms);
            None
        }
    }
}

fn last_change_of_histograms(
    before: &FloatHistogram,
    last: &FloatHistogram,
    is_rate: bool,
    reset: bool,
    annotations: &mut SeriesAnnotations,
) -> Option<FloatHistogram> {
    let n_gauges = [before, last]
        .iter()
        .filter(|histogram| histogram.reset_hint == ResetHint::Gauge)
        .count();
    if is_rate && n_gauges > 0 {
        annotations.add(SeriesAnnotation::NotCounter);
    }
    if !is_rate && n_gauges < 2 {
        annotations.add(SeriesAnnotation::NotGauge);
    }
    let mut change = last.clone();
    if !is_rate || !(reset || last.detect_reset(before)) {
        match change.subtract(before) {
            Ok(combined) => annotations.add_combined(combined, Subtraction),
            Err(MixedSchemas) => {
                annotations.add(SeriesAnnotation::MixedSchemas);
                return None;
            }
        }
    }
    change.reset_hint = ResetHint::Gauge;
    change.compact();
    Some(change)
}
