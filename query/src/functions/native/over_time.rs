//! `*_over_time`, `changes`, `resets` for windows with histograms.

use std::sync::Arc;

use varve_model::histogram::ResetHint;

use super::super::window::{HistogramSample, SampleTimes, SampleValue, Window};
use crate::annotations::{HistogramOperation, SeriesAnnotation, SeriesAnnotations};
use crate::histogram::{Combined, FloatHistogram, HistogramMean, HistogramSum, MixedSchemas};

type Value = Option<SampleValue>;

/// A sample with its timestamp and start timestamp.
type Timed = (SampleTimes, SampleValue);

fn float(value: f64) -> Value {
    Some(SampleValue::Float(value))
}

pub(in super::super) fn count(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    float((window.values.len() + window.histograms.len()) as f64)
}

pub(in super::super) fn first(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    window.merged().next().map(|(_, value)| value)
}

pub(in super::super) fn last(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    let histogram = window.histograms.last()?;
    match window.timestamps_ms.last() {
        Some(&time_ms) if time_ms > histogram.timestamp_ms => float(window.end_values().1),
        _ => Some(SampleValue::Histogram(Arc::clone(&histogram.histogram))),
    }
}

pub(in super::super) fn ts_of_first(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    window
        .merged()
        .next()
        .and_then(|(times, _)| float(times.timestamp_ms as f64 / 1000.0))
}

pub(in super::super) fn ts_of_last(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    let last_histogram_ms = window.histograms.last().map(|sample| sample.timestamp_ms);
    float(
        window
            .timestamps_ms
            .last()
            .copied()
            .max(last_histogram_ms)? as f64
            / 1000.0,
    )
}

pub(in super::super) fn sum(window: &Window<'_>, annotations: &mut SeriesAnnotations) -> Value {
    combined(
        window,
        annotations,
        |first| HistogramSum::new(first.clone()),
        HistogramSum::add,
        HistogramSum::finish,
    )
}

pub(in super::super) fn avg(window: &Window<'_>, annotations: &mut SeriesAnnotations) -> Value {
    combined(
        window,
        annotations,
        |first| HistogramMean::new(first.clone()),
        HistogramMean::add,
        HistogramMean::finish,
    )
}

/// Combines all histograms of a window. Returns `None` for a mix of floats and histograms.
fn combined<S>(
    window: &Window<'_>,
    annotations: &mut SeriesAnnotations,
    start: impl Fn(&FloatHistogram) -> S,
    add: impl Fn(&mut S, &FloatHistogram) -> Result<Combined, MixedSchemas>,
    finish: impl Fn(S) -> FloatHistogram,
) -> Value {
    if !window.values.is_empty() {
        annotations.add(SeriesAnnotation::MixedFloatsHistograms);
        return None;
    }
    let (first, rest) = window.histograms.split_first()?;
    let mut own = SeriesAnnotations::default();
    let mut state = start(&first.histogram);
    for HistogramSample { histogram, .. } in rest {
        match add(&mut state, histogram) {
            Ok(combined) => own.add_combined(combined, HistogramOperation::Aggregation),
            Err(MixedSchemas) => {
                annotations.add(SeriesAnnotation::MixedSchemas);
                return None;
            }
        }
    }
    if has_hint(window, ResetHint::Reset) && has_hint(window, ResetHint::NoReset) {
        own.add(SeriesAnnotation::CounterResetCollision(
            HistogramOperation::Aggregation,
        ));
    }
    annotations.extend(own);
    Some(SampleValue::Histogram(Arc::new(finish(state))))
}

/// Returns `true` if a histogram of the window has a counter reset hint.
fn has_hint(window: &Window<'_>, hint: ResetHint) -> bool {
    window
        .histograms
        .iter()
        .any(|sample| sample.histogram.reset_hint == hint)
}

pub(in super::super) fn changes(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    float(count_pairs(window, i64::MIN, |(_, before), (_, value)| {
        differ(before, value)
    })?)
}

pub(in super::super) fn changes_anchored(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    float(count_pairs(
        window,
        window.start_ms,
        |(_, before), (_, value)| differ(before, value),
    )?)
}

pub(in super::super) fn resets(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    float(count_pairs(window, i64::MIN, is_reset)?)
}

pub(in super::super) fn resets_anchored(window: &Window<'_>, _: &mut SeriesAnnotations) -> Value {
    float(count_pairs(window, window.start_ms, is_reset)?)
}

/// Returns `true` if two values differ. Ignores empty buckets: Prometheus adds some because all
/// histograms of a chunk have the same buckets.
fn differ(before: &SampleValue, value: &SampleValue) -> bool {
    match (before, value) {
        (SampleValue::Float(before), SampleValue::Float(value)) => {
            value != before && !(value.is_nan() && before.is_nan())
        }
        (SampleValue::Histogram(before), SampleValue::Histogram(value)) => {
            !value.eq_compacted(before)
        }
        _ => true,
    }
}

fn is_reset(before: &Timed, value: &Timed) -> bool {
    let is_value_reset = match (&before.1, &value.1) {
        (SampleValue::Float(before), SampleValue::Float(value)) => value < before,
        (SampleValue::Histogram(before), SampleValue::Histogram(value)) => {
            value.detect_reset(before)
        }
        _ => true,
    };
    is_value_reset || before.0.is_reset_before(value.0)
}

/// Counts the pairs of adjacent samples for which `counts` returns `true`, from the last sample at
/// or before `start_ms` on. Returns `None` if there is no later sample.
fn count_pairs(
    window: &Window<'_>,
    start_ms: i64,
    counts: impl Fn(&Timed, &Timed) -> bool,
) -> Option<f64> {
    let mut before = None;
    let mut n_pairs = 0.0;
    let mut any = false;
    for value in window.merged() {
        if value.0.timestamp_ms > start_ms {
            any = true;
            if before.as_ref().is_some_and(|before| counts(before, &value)) {
                n_pairs += 1.0;
            }
        }
        before = Some(value);
    }
    any.then_some(n_pairs)
}
