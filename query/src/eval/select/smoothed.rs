//! `smoothed` selectors: interpolate between the samples around each step.

use std::sync::Arc;

use varve_model::SampleColumns;
use varve_model::histogram::ResetHint;

use super::RangeSamples;
use crate::annotations::{Occurrence, SeriesAnnotation, SeriesAnnotations};
use crate::error::Result;
use crate::eval::columns::{HISTOGRAM_ENTRY_SIZE, Series};
use crate::eval::evaluator::{Evaluator, Sink};
use crate::eval::stream::{Pipeline, batch_len, batches};
use crate::functions::native::interpolate;
use crate::functions::window::{HistogramSample, SampleValue};
use crate::histogram::{FloatHistogram, MixedSchemas};
use crate::plan::{Plan, Selector};
use crate::steps::Steps;

impl Evaluator<'_> {
    /// Streams for every series and step the value interpolated between the samples around it.
    pub(super) fn each_smoothed(
        &mut self,
        plan: &Plan,
        selector: &Selector,
        pipeline: &Pipeline<'_>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let lookback_ms = self.settings.lookback_ms;
        let set = self.select(selector, steps, lookback_ms, lookback_ms, pipeline.hints())?;
        self.run(
            plan.id,
            pipeline,
            batches(set, batch_len(steps.n_steps)),
            |batch, out| {
                let mut samples = RangeSamples::new(pipeline.limits.ctx.charge(), false);
                for series in batch {
                    pipeline.limits.check()?;
                    samples.read(&series, selector.skip_buckets)?;
                    let mut column = pipeline.limits.column(steps.n_steps)?;
                    let mut charge = pipeline.limits.ctx.charge();
                    if !samples.histograms.is_empty() {
                        charge.grow(steps.n_steps * HISTOGRAM_ENTRY_SIZE)?;
                    }
                    let mut annotations = SeriesAnnotations::default();
                    for (step, time_ms) in steps.times_ms().enumerate() {
                        match value_at(
                            &samples,
                            selector.shift.apply(time_ms),
                            lookback_ms,
                            &mut annotations,
                        ) {
                            Some(SampleValue::Float(value)) => column.set(step, value),
                            Some(SampleValue::Histogram(histogram)) => {
                                charge.grow(histogram.size())?;
                                column.push_histogram(step, histogram);
                            }
                            None => {}
                        }
                    }
                    let name = series.labels().metric_name();
                    for (note, steps) in annotations.list {
                        let occurrence = Occurrence::Steps(steps);
                        out.annotations
                            .add(note.of_metric(name), plan.span, occurrence);
                    }
                    // As in Prometheus, the samples of smoothed selectors are not counted.
                    out.sample_stats.add_series();
                    out.push(Series {
                        labels: series.labels().clone(),
                        drop_name: false,
                        column,
                    })?;
                }
                Ok(())
            },
            |_| {},
            sink,
        )
    }
}

/// Returns the value at a time; `None` if there are both floats and histograms around the time.
fn value_at(
    samples: &RangeSamples,
    time_ms: i64,
    lookback_ms: i64,
    annotations: &mut SeriesAnnotations,
) -> Option<SampleValue> {
    // Fast path: a series of floats.
    if samples.histograms.is_empty() {
        return float_at(&samples.floats, time_ms, lookback_ms).map(SampleValue::Float);
    }
    let earliest_ms = time_ms.saturating_sub(lookback_ms);
    let latest_ms = time_ms.saturating_add(lookback_ms);
    let from = samples
        .histograms
        .partition_point(|sample| sample.timestamp_ms <= earliest_ms);
    let to = samples
        .histograms
        .partition_point(|sample| sample.timestamp_ms <= latest_ms);
    if from == to {
        return float_at(&samples.floats, time_ms, lookback_ms).map(SampleValue::Float);
    }
    let floats = &samples.floats.timestamps_ms;
    if floats.partition_point(|&t| t <= earliest_ms) != floats.partition_point(|&t| t <= latest_ms)
    {
        annotations.add(SeriesAnnotation::MixedFloatsHistograms);
        return None;
    }
    let histogram = histogram_at(&samples.histograms[from..to], time_ms, annotations)?;
    Some(SampleValue::Histogram(histogram))
}

/// Returns the histogram at a time: an exact sample, an interpolation between two samples, or the
/// last sample before the time.
fn histogram_at(
    samples: &[HistogramSample],
    time_ms: i64,
    annotations: &mut SeriesAnnotations,
) -> Option<Arc<FloatHistogram>> {
    let n_before = samples.partition_point(|sample| sample.timestamp_ms < time_ms);
    let after = samples.get(n_before);
    if let Some(exact) = after
        && exact.timestamp_ms == time_ms
    {
        return Some(Arc::clone(&exact.histogram));
    }
    let before = &samples[n_before.checked_sub(1)?];
    let Some(after) = after else {
        // The counter reset hint describes the sample itself, not its repetition.
        let mut carried = FloatHistogram::clone(&before.histogram);
        carried.reset_hint = ResetHint::Unknown;
        return Some(Arc::new(carried));
    };
    if before.histogram.is_custom() != after.histogram.is_custom() {
        annotations.add(SeriesAnnotation::MixedSchemas);
        return None;
    }
    let is_counter = [before, after]
        .iter()
        .any(|sample| sample.histogram.reset_hint != ResetHint::Gauge);
    match interpolate(before, after, time_ms, is_counter, annotations) {
        Ok(histogram) => Some(Arc::new(histogram)),
        Err(MixedSchemas) => {
            annotations.add(SeriesAnnotation::MixedSchemas);
            None
        }
    }
}

/// Returns the float at a time: an exact sample, an interpolation between two samples, or the last
/// sample before the time.
fn float_at(samples: &SampleColumns, time_ms: i64, lookback_ms: i64) -> Option<f64> {
    let earliest_ms = time_ms.saturating_sub(lookback_ms);
    let latest_ms = time_ms.saturating_add(lookback_ms);
    let from = samples.timestamps_ms.partition_point(|&t| t <= earliest_ms);
    let to = samples.timestamps_ms.partition_point(|&t| t <= latest_ms);
    let timestamps_ms = &samples.timestamps_ms[from..to];
    let values = &samples.values[from..to];
    let after = timestamps_ms.partition_point(|&t| t < time_ms);
    if timestamps_ms.get(after) == Some(&time_ms) {
        return Some(values[after]);
    }
    let before = after.checked_sub(1)?;
    if after == values.len() {
        return Some(values[before]);
    }
    let y1 = values[before];
    let y2 = values[after];
    let t1 = timestamps_ms[before];
    let t2 = timestamps_ms[after];
    Some(y1 + (y2 - y1) * (time_ms - t1) as f64 / (t2 - t1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::Sample;

    #[test]
    fn smoothed_values_lie_between_samples() {
        let mut list = SampleColumns::default();
        list.push(Sample {
            timestamp_ms: 0,
            value: 0.0,
        });
        list.push(Sample {
            timestamp_ms: 10,
            value: 10.0,
        });
        let at = |time_ms| float_at(&list, time_ms, 20);
        assert_eq!(
            [at(-1), at(0), at(4), at(10), at(15), at(30)],
            [None, Some(0.0), Some(4.0), Some(10.0), Some(10.0), None]
        );
    }
}
