//! `rate`, `increase`, `delta`, `irate`, `idelta` of ranges with histograms.

use std::sync::Arc;

use varve_tsdb::histogram::ResetHint;

use super::super::rate::{DELTA, INCREASE, Kind, RATE, extrapolation, factor_from_start, instant_change};
use super::super::window::{HistogramSample, SampleValue, Window};
use super::Remarks;
use crate::annotations::HistogramOperation::{Addition, Subtraction};
use crate::annotations::Remark;
use crate::histogram::{FloatHistogram, MixedSchemas};

type Value = Option<SampleValue>;

pub(in super::super) fn rate(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extrapolated(window, RATE, remarks)
}

pub(in super::super) fn increase(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extrapolated(window, INCREASE, remarks)
}

pub(in super::super) fn delta(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extrapolated(window, DELTA, remarks)
}

pub(in super::super) fn rate_anchored(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extended(window, RATE, false, remarks)
}

pub(in super::super) fn increase_anchored(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extended(window, INCREASE, false, remarks)
}

pub(in super::super) fn delta_anchored(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extended(window, DELTA, false, remarks)
}

pub(in super::super) fn rate_smoothed(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extended(window, RATE, true, remarks)
}

pub(in super::super) fn increase_smoothed(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extended(window, INCREASE, true, remarks)
}

pub(in super::super) fn delta_smoothed(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    extended(window, DELTA, true, remarks)
}

pub(in super::super) fn irate(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    last_change(window, true, remarks)
}

pub(in super::super) fn idelta(window: &Window<'_>, remarks: &mut Remarks) -> Value {
    last_change(window, false, remarks)
}

/// The change from the first to the last histogram, extrapolated to the ends of the range as that of floats is; the count
/// tells where a counter was 0.
fn extrapolated(window: &Window<'_>, kind: Kind, remarks: &mut Remarks) -> Value {
    if !window.values.is_empty() {
        remarks.add(Remark::Mixed);
        return None;
    }
    match extrapolated_change(window, kind, remarks) {
        Ok(change) => change.map(|change| SampleValue::Histogram(Arc::new(change))),
        Err(MixedSchemas) => {
            remarks.add(Remark::MixedSchemas);
            None
        }
    }
}

fn extrapolated_change(
    window: &Window<'_>,
    kind: Kind,
    remarks: &mut Remarks,
) -> Result<Option<FloatHistogram>, MixedSchemas> {
    let [first, rest @ ..] = window.histograms else { return Ok(None) };
    let last = rest.last().unwrap_or(first);
    let mut between = None;
    if !rest.is_empty() {
        let mut own = Remarks::default();
        let change = change(window.histograms, kind.is_counter, &mut own);
        remarks.merge(own);
        between = Some(change?);
    }
    if kind.is_counter
        && let Some(factor) = factor_from_start(window, kind, first.times(), last.timestamp_ms, rest.len())
    {
        let mut since_start = match between {
            None => FloatHistogram::clone(&first.histogram),
            Some(mut between) => {
                remarks.reconciled(between.plus(&first.histogram)?, Addition);
                between
            }
        };
        since_start.multiply(factor);
        return Ok(Some(since_start));
    }
    let Some(mut change) = between else { return Ok(None) };
    let times_ms = (first.timestamp_ms, last.timestamp_ms);
    let factor = extrapolation(window, kind, times_ms, rest.len(), (first.histogram.count, change.count));
    change.multiply(factor);
    Ok(Some(change))
}

/// Returns the difference of the last and the first of at least two histograms; of counters that were reset in between,
/// with what they had reached before.
fn change(
    samples: &[HistogramSample],
    is_counter: bool,
    remarks: &mut Remarks,
) -> Result<FloatHistogram, MixedSchemas> {
    let (first, last) = (&samples[0].histogram, &samples[samples.len() - 1].histogram);
    let mut hints = samples.iter().map(|sample| sample.histogram.reset_hint);
    if is_counter && hints.any(|hint| hint == ResetHint::Gauge) {
        remarks.add(Remark::NotCounter);
    }
    // Behind a reset it does not matter what the first one was, nor what its buckets were.
    let second = &samples[1].histogram;
    let reset_at_once = is_counter && is_reset(&samples[0], &samples[1], first);
    let start = if reset_at_once { Arc::new(second.without_observations()) } else { Arc::clone(first) };
    let inner = &samples[1..samples.len() - 1];
    let others = inner.iter().map(|sample| &sample.histogram).filter(|_| is_counter);
    if last.is_custom() != start.is_custom() {
        return Err(MixedSchemas);
    }
    if others.clone().any(|other| other.is_custom() != start.is_custom()) {
        // As in Prometheus this is all that is said then.
        remarks.list.clear();
        return Err(MixedSchemas);
    }
    let schema = others.map(|other| other.schema()).fold(last.schema().min(start.schema()), i8::min);
    let mut change = FloatHistogram::clone(last).in_schema(schema);
    remarks.reconciled(change.minus(&start)?, Subtraction);
    if is_counter {
        let mut before = &start;
        let mut overlap = false;
        for pair in samples.windows(2) {
            // Once for each window.
            if !overlap && pair[0].times().overlaps(pair[1].times()) {
                remarks.add(Remark::StartsOverlap(1));
                overlap = true;
            }
            if is_reset(&pair[0], &pair[1], before) {
                remarks.reconciled(change.plus(before)?, Addition);
            }
            before = &pair[1].histogram;
        }
    } else if [first, last].iter().any(|histogram| histogram.reset_hint != ResetHint::Gauge) {
        remarks.add(Remark::NotGauge);
    }
    change.reset_hint = ResetHint::Gauge;
    change.compact();
    Ok(change)
}

/// Tells whether a counter began anew between two samples; `before` stands for the first of them.
fn is_reset(first: &HistogramSample, second: &HistogramSample, before: &FloatHistogram) -> bool {
    first.times().is_reset_before(second.times()) || second.histogram.detect_reset(before)
}

/// The change between the last two samples; `irate` takes counters and gives the change per second.
fn last_change(window: &Window<'_>, is_rate: bool, remarks: &mut Remarks) -> Value {
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
    let [.., (before_at, before), (last_at, last)] = &merged[..] else { return None };
    let seconds = (last_at.timestamp_ms - before_at.timestamp_ms) as f64 / 1000.0;
    let reset = is_rate && before_at.is_reset_before(*last_at);
    match (before, last) {
        (SampleValue::Float(before), SampleValue::Float(last)) => {
            let change = if reset { *last } else { instant_change(*before, *last, is_rate) };
            Some(SampleValue::Float(if is_rate { change / seconds } else { change }))
        }
        (SampleValue::Histogram(before), SampleValue::Histogram(last)) => {
            let mut change = last_change_of_histograms(before, last, is_rate, reset, remarks)?;
            if is_rate {
                change.divide(seconds);
            }
            Some(SampleValue::Histogram(Arc::new(change)))
        }
        _ => {
            remarks.add(Remark::Mixed);
            None
        }
    }
}

fn last_change_of_histograms(
    before: &FloatHistogram,
    last: &FloatHistogram,
    is_rate: bool,
    reset: bool,
    remarks: &mut Remarks,
) -> Option<FloatHistogram> {
    let n_gauges = [before, last].iter().filter(|histogram| histogram.reset_hint == ResetHint::Gauge).count();
    if is_rate && n_gauges > 0 {
        remarks.add(Remark::NotCounter);
    }
    if !is_rate && n_gauges < 2 {
        remarks.add(Remark::NotGauge);
    }
    let mut change = last.clone();
    if !is_rate || !(reset || last.detect_reset(before)) {
        match change.minus(before) {
            Ok(added) => remarks.reconciled(added, Subtraction),
            Err(MixedSchemas) => {
                remarks.add(Remark::MixedSchemas);
                return None;
            }
        }
    }
    change.reset_hint = ResetHint::Gauge;
    change.compact();
    Some(change)
}

/// The change between the ends of the range, whose histograms come from samples around it.
fn extended(window: &Window<'_>, kind: Kind, smoothed: bool, remarks: &mut Remarks) -> Value {
    if !window.values.is_empty() {
        remarks.add(Remark::Mixed);
        return None;
    }
    match extended_change(window, kind, smoothed, remarks) {
        Ok(change) => change.map(|change| SampleValue::Histogram(Arc::new(change))),
        Err(MixedSchemas) => {
            remarks.add(Remark::MixedSchemas);
            None
        }
    }
}

fn extended_change(
    window: &Window<'_>,
    kind: Kind,
    smoothed: bool,
    remarks: &mut Remarks,
) -> Result<Option<FloatHistogram>, MixedSchemas> {
    let Window { histograms: samples, start_ms, end_ms, .. } = *window;
    let last = samples.len() - 1;
    let first = samples[..last].partition_point(|sample| sample.timestamp_ms <= start_ms).saturating_sub(1);
    let last = if smoothed { samples[..last].partition_point(|sample| sample.timestamp_ms < end_ms) } else { last };
    if samples[last].timestamp_ms <= start_ms || (smoothed && samples[first].timestamp_ms > end_ms) {
        return Ok(None);
    }
    check_schemas(&samples[first..=last], kind.is_counter, remarks)?;
    let left = match smoothed && samples[first].timestamp_ms < start_ms {
        true => interpolate(&samples[first], &samples[first + 1], start_ms, kind.is_counter, remarks)?,
        false => FloatHistogram::clone(&samples[first].histogram),
    };
    let right = match smoothed && last > 0 && samples[last].timestamp_ms > end_ms {
        true => interpolate(&samples[last - 1], &samples[last], end_ms, kind.is_counter, remarks)?,
        false => FloatHistogram::clone(&samples[last].histogram),
    };
    if !kind.is_counter && [&left, &right].iter().any(|end| end.reset_hint != ResetHint::Gauge) {
        remarks.add(Remark::NotGauge);
    }
    let mut change = right.clone();
    remarks.reconciled(change.minus(&left)?, Subtraction);
    if kind.is_counter
        && let Some(lost) = lost_in_resets(window, (first, last), (&left, &right), smoothed, remarks)?
    {
        remarks.reconciled(change.plus(&lost)?, Addition);
    }
    if kind.is_rate {
        change.divide(window.range_seconds);
    }
    change.reset_hint = ResetHint::Gauge;
    change.compact();
    Ok(Some(change))
}

fn check_schemas(samples: &[HistogramSample], is_counter: bool, remarks: &mut Remarks) -> Result<(), MixedSchemas> {
    for HistogramSample { histogram, .. } in samples {
        if histogram.is_custom() != samples[0].histogram.is_custom() {
            return Err(MixedSchemas);
        }
        if is_counter && histogram.reset_hint == ResetHint::Gauge {
            remarks.add(Remark::NotCounter);
        }
    }
    Ok(())
}

/// Returns the histogram at a time between two samples. Counters that were reset in between begin at 0.
pub(crate) fn interpolate(
    from: &HistogramSample,
    to: &HistogramSample,
    time_ms: i64,
    is_counter: bool,
    remarks: &mut Remarks,
) -> Result<FloatHistogram, MixedSchemas> {
    let mut result = FloatHistogram::clone(&to.histogram);
    if time_ms == from.timestamp_ms {
        return Ok(FloatHistogram::clone(&from.histogram));
    }
    if time_ms == to.timestamp_ms {
        return Ok(result);
    }
    let fraction = (time_ms - from.timestamp_ms) as f64 / (to.timestamp_ms - from.timestamp_ms) as f64;
    if is_counter && to.histogram.detect_reset(&from.histogram) {
        result.multiply(fraction);
        return Ok(result);
    }
    remarks.reconciled(result.minus(&from.histogram)?, Subtraction);
    result.multiply(fraction);
    remarks.reconciled(result.plus(&from.histogram)?, Addition);
    Ok(result)
}

/// Returns what counters had reached before each reset between the ends `left` and `right`, which stand for the samples at
/// `ends`.
fn lost_in_resets(
    window: &Window<'_>,
    (first, last): (usize, usize),
    (left, right): (&FloatHistogram, &FloatHistogram),
    smoothed: bool,
    remarks: &mut Remarks,
) -> Result<Option<FloatHistogram>, MixedSchemas> {
    let samples = window.histograms;
    let (mut from, mut before) = (first + 1, left);
    // The interpolation at the left end has dealt with a reset right behind it.
    if smoothed
        && samples[first].timestamp_ms < window.start_ms
        && samples[first + 1].histogram.detect_reset(&samples[first].histogram)
    {
        before = &samples[first + 1].histogram;
        from += 1;
    }
    // The right end stands for the last sample, whose hint it has.
    if from > last {
        return Ok(None);
    }
    let mut lost: Option<FloatHistogram> = None;
    let inner = samples[from..last].iter().map(|sample| &*sample.histogram);
    for histogram in inner.chain([right]) {
        if histogram.detect_reset(before) {
            match &mut lost {
                Some(lost) => remarks.reconciled(lost.plus(before)?, Addition),
                None => lost = Some(before.clone()),
            }
        }
        before = histogram;
    }
    Ok(lost)
}
