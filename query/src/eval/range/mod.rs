//! Functions over ranges: `rate(x[5m])`, `max_over_time(rate(x[1m])[1h:])`.
//!
//! Each series is decoded once. The windows of the steps slide along its floats, which are two
//! columns, and its histograms, which are in a separate list. The kernels are in
//! [`crate::functions`].

mod function;
mod siblings;
mod windows;

use std::sync::Arc;

use varve_context::Charge;
use varve_promql::ast::{RangeExtension, Span, ValueType};
use varve_tsdb::select::SelectHints;

use function::{Input, RangeEvaluation, Spans};
use windows::{Windows, count_window, n_samples_of};

use crate::error::{Error, Result};
use crate::eval::columns::StepSet;
use crate::eval::evaluator::{Evaluator, Sink};
use crate::eval::profile::OutputCount;
use crate::eval::select::{RangeSamples, Selected};
use crate::eval::stream::{Batch, Pipeline, batch_len, batches};
use crate::functions::window::Window;
use crate::functions::{Boundaries, Implementation, Kernels, RangeFunction, boundaries};
use crate::plan::{Call, Plan, PlanKind, RangeSelector, Shift};
use crate::steps::Steps;
use crate::value::{HistogramPoint, MatrixSeries, Point};

/// Functions that support `anchored` ranges, as Prometheus lists them.
const ANCHORED: &str = "changes, delta, increase, rate, resets";
/// Functions that support `smoothed` ranges.
const SMOOTHED: &str = "delta, increase, rate";

impl Evaluator<'_> {
    /// Streams the series that a range function computes.
    pub(super) fn each_over_range(
        &mut self,
        plan: &Plan,
        call: &Call,
        mut pipeline: Pipeline<'_>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let arg = range_arg(call)?;
        let function = self.range_evaluation(call, steps)?;
        match &arg.kind {
            PlanKind::Range(range) => {
                let (others, mut siblings) = self.start_siblings(plan, steps);
                pipeline.add_siblings(others.iter().map(|_| self.pipeline(Vec::new(), steps)));
                let set = self.select_range(range, function.windows, steps, pipeline.hints())?;
                let skip_buckets = range.selector.skip_buckets;
                self.run(
                    plan.id,
                    &pipeline,
                    batches(set, batch_len(steps.n_steps)),
                    |batch, out| function.evaluate_stored(&batch, skip_buckets, &others, out),
                    |batch| {
                        let sibling_batches = batch.siblings.drain(..);
                        for (sibling, batch) in siblings.iter_mut().zip(sibling_batches) {
                            sibling.add(batch.map(Batch::into_parts));
                        }
                    },
                    sink,
                )?;
                for sibling in siblings {
                    self.share_copy(sibling);
                }
                Ok(())
            }
            PlanKind::Subquery(subquery) => {
                let (inner, vector) = self.subquery(subquery, steps)?;
                let mut batches = vector.series.chunks(batch_len(steps.n_steps));
                self.run(
                    plan.id,
                    &pipeline,
                    || Ok(batches.next()),
                    |batch, out| function.evaluate_columns(batch, inner, out),
                    |_| {},
                    sink,
                )
            }
            _ => Err(Error::mistyped(ValueType::Matrix)),
        }
    }

    /// Returns the evaluation of a range function on series that have all labels.
    fn range_evaluation<'p>(
        &mut self,
        call: &'p Call,
        steps: Steps,
    ) -> Result<RangeEvaluation<'p>> {
        let Implementation::OverRange(function) = call.implementation else {
            return Err(Error::mistyped(ValueType::Vector));
        };
        let arg = range_arg(call)?;
        let params: Vec<_> = call
            .args
            .iter()
            .filter(|param| param.value_type != ValueType::Matrix)
            .collect();
        let features = self.settings.features;
        Ok(RangeEvaluation {
            function,
            kernels: kernels_for(&function, arg, call.function.name)?,
            params: params
                .iter()
                .map(|param| self.scalar(param, steps))
                .collect::<Result<_>>()?,
            reads_starts: features.use_start_timestamps && uses_starts(call.function.name),
            checks_starts: function.needs_counter && extension_of(arg).is_none(),
            delayed: features.delayed_name_removal,
            by_type_label: features.type_and_unit_labels,
            metric_name: arg
                .range_selector()
                .and_then(|range| range.selector.metric_name()),
            windows: self.windows(arg, steps),
            limits: self.limits.clone(),
            spans: Spans {
                range: span_of_range(arg),
                first: span_of_range(&call.args[0]),
                first_param: params
                    .first()
                    .map_or_else(Span::default, |param| param.span),
            },
        })
    }

    /// Selects all samples that the windows of `steps` may contain.
    fn select_range(
        &self,
        range: &RangeSelector,
        windows: Windows,
        steps: Steps,
        hints: SelectHints,
    ) -> Result<Selected> {
        let (before_ms, after_ms) = windows.margins_ms;
        let hints = SelectHints {
            skip_values: range.selector.skip_values,
            ..hints
        };
        self.select(
            &range.selector,
            steps,
            range.range_ms.saturating_add(before_ms),
            after_ms,
            hints,
        )
    }

    /// Returns the steps at which any series has a sample in its window.
    pub(super) fn present_over_range(&mut self, call: &Call, steps: Steps) -> Result<StepSet> {
        let arg = &call.args[0];
        reject_extension(arg, call.function.name)?;
        let windows = self.windows(arg, steps);
        let mut present = StepSet::empty(steps.n_steps);
        let mut sample_stats = self.sample_stats.empty(steps.n_steps);
        let is_stored = arg.range_selector().is_some();
        self.each_range_input(arg, steps, &mut |input| {
            windows.slide(input.samples, |step, window, n_before| {
                present.insert(step);
                if is_stored {
                    count_window(window, step, n_before, &mut sample_stats);
                }
                Ok(())
            })?;
            if is_stored {
                sample_stats.add_series();
            }
            Ok(())
        })?;
        self.sample_stats.add_all(&sample_stats);
        Ok(present)
    }

    fn windows(&self, arg: &Plan, steps: Steps) -> Windows {
        let lookback_ms = self.settings.lookback_ms;
        let (shift, range_ms, extension) = match &arg.kind {
            PlanKind::Range(range) => (
                range.selector.shift,
                range.range_ms,
                range.selector.extension,
            ),
            PlanKind::Subquery(subquery) => (subquery.shift, subquery.range_ms, None),
            _ => (
                Shift {
                    offset_ms: 0,
                    at_ms: None,
                },
                0,
                None,
            ),
        };
        let margins_ms = match extension {
            None => (0, 0),
            Some(RangeExtension::Anchored) => (lookback_ms, 0),
            Some(RangeExtension::Smoothed) => (lookback_ms, lookback_ms),
        };
        Windows {
            steps,
            shift,
            range_ms,
            margins_ms,
        }
    }

    /// Passes to `sink`, for each series, the samples that the windows of `steps` may contain.
    fn each_range_input(
        &mut self,
        arg: &Plan,
        steps: Steps,
        sink: &mut dyn FnMut(Input<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut samples = RangeSamples::new(self.limits.ctx.charge(), false);
        match &arg.kind {
            PlanKind::Range(range) => {
                for series in self.select_range(
                    range,
                    self.windows(arg, steps),
                    steps,
                    SelectHints::default(),
                )? {
                    let series = series?;
                    self.limits.check()?;
                    samples.read(&series, range.selector.skip_buckets)?;
                    sink(Input {
                        labels: series.labels(),
                        drop_name: false,
                        samples: &samples,
                    })?;
                }
                Ok(())
            }
            PlanKind::Subquery(subquery) => {
                let (inner, vector) = self.subquery(subquery, steps)?;
                for series in &vector.series {
                    self.limits.check()?;
                    samples.read_column(&series.column, inner)?;
                    sink(Input {
                        labels: &series.labels,
                        drop_name: series.drop_name,
                        samples: &samples,
                    })?;
                }
                Ok(())
            }
            _ => Err(Error::mistyped(ValueType::Matrix)),
        }
    }

    /// Returns the samples of each series in a range at one time, in ascending order of labels.
    pub(crate) fn range_vector(
        &mut self,
        plan: &Plan,
        time_ms: i64,
        charge: &mut Charge,
    ) -> Result<Vec<Arc<MatrixSeries>>> {
        let steps = Steps::instant(time_ms);
        let extension = extension_of(plan);
        let started = self.profile.now();
        let windows = self.windows(plan, steps);
        let mut n_samples = 0;
        let mut held = self.limits.samples.guard();
        let mut result = Vec::new();
        let mut sample_stats = self.sample_stats.empty(1);
        self.each_range_input(plan, steps, &mut |input| {
            sample_stats.add_series();
            windows.slide(input.samples, |_, window, _| {
                let points = match extension {
                    None => points_of(window.timestamps_ms, window.values),
                    Some(extension) => extended_points(window, extension)?,
                };
                let histograms = window.histograms.iter().map(|sample| HistogramPoint {
                    timestamp_ms: sample.timestamp_ms,
                    histogram: Arc::clone(&sample.histogram),
                });
                let histograms: Vec<_> = histograms.collect();
                let n_points = points.len() + n_samples_of(window) - window.values.len();
                n_samples += n_points;
                held.grow(n_points)?;
                let histograms_size: usize =
                    histograms.iter().map(|point| point.histogram.size()).sum();
                let size = points.len() * size_of::<Point>()
                    + histograms.len() * size_of::<HistogramPoint>();
                // The capacity of the result may be twice its length.
                let series_size = MatrixSeries::FIXED_SIZE + size_of::<Arc<MatrixSeries>>();
                charge.grow(size + histograms_size + input.labels.size() + series_size)?;
                if !(points.is_empty() && histograms.is_empty()) {
                    result.push(Arc::new(MatrixSeries {
                        labels: input.labels.clone(),
                        points,
                        histograms,
                    }));
                }
                Ok(())
            })
        })?;
        self.sample_stats.add_all(&sample_stats);
        self.sample_stats.add(0, n_samples);
        self.profile.record_time(plan.id, started);
        self.profile.record_output(
            plan.id,
            OutputCount {
                n_series: result.len(),
                n_samples,
            },
        );
        Ok(result)
    }
}

/// Returns the range argument of a function.
fn range_arg(call: &Call) -> Result<&Plan> {
    call.args
        .iter()
        .find(|arg| arg.value_type == ValueType::Matrix)
        .ok_or_else(|| Error::mistyped(ValueType::Matrix))
}

/// Returns `true` if a function uses start timestamps.
fn uses_starts(function: &str) -> bool {
    matches!(function, "increase" | "irate" | "rate" | "resets")
}

/// Returns the kernels for a plain, anchored or smoothed range.
fn kernels_for(function: &RangeFunction, arg: &Plan, name: &str) -> Result<Kernels> {
    let kernels = match extension_of(arg) {
        None => Some(function.plain),
        Some(RangeExtension::Anchored) => function.anchored,
        Some(RangeExtension::Smoothed) => function.smoothed,
    };
    match kernels {
        Some(kernels) => Ok(kernels),
        None => reject_extension(arg, name).map(|()| function.plain),
    }
}

/// Fails if a range is anchored or smoothed.
fn reject_extension(arg: &Plan, name: &str) -> Result<()> {
    let (modifier, functions) = match extension_of(arg) {
        None => return Ok(()),
        Some(RangeExtension::Anchored) => ("anchored", ANCHORED),
        Some(RangeExtension::Smoothed) => ("smoothed", SMOOTHED),
    };
    Err(Error::Execution(format!(
        "{modifier} modifier can only be used with: {functions} - not with {name}"
    )))
}

fn extension_of(arg: &Plan) -> Option<RangeExtension> {
    arg.range_selector()
        .and_then(|range| range.selector.extension)
}

/// Returns the position for annotations about a range. For a subquery it is the start of the query:
/// Prometheus loses the position because it replaces the subquery by its samples.
fn span_of_range(arg: &Plan) -> Span {
    match arg.kind {
        PlanKind::Subquery(_) => Span::default(),
        _ => arg.span,
    }
}

fn points_of(timestamps_ms: &[i64], values: &[f64]) -> Vec<Point> {
    timestamps_ms
        .iter()
        .zip(values)
        .map(|(&timestamp_ms, &value)| Point {
            timestamp_ms,
            value,
        })
        .collect()
}

/// Returns the points at both ends of the range and all points between them.
fn extended_points(window: &Window<'_>, extension: RangeExtension) -> Result<Vec<Point>> {
    let is_smoothed = extension == RangeExtension::Smoothed;
    if !window.histograms.is_empty() {
        let modifier = if is_smoothed { "smoothed" } else { "anchored" };
        return Err(Error::Execution(format!(
            "{modifier} modifier is not supported with histograms"
        )));
    }
    let Some(Boundaries { left, inner, right }) = boundaries(window, is_smoothed, false) else {
        return Ok(Vec::new());
    };
    let mut points = vec![Point {
        timestamp_ms: window.start_ms,
        value: left.value,
    }];
    points.extend(points_of(
        &window.timestamps_ms[inner.clone()],
        &window.values[inner],
    ));
    points.push(Point {
        timestamp_ms: window.end_ms,
        value: right.value,
    });
    Ok(points)
}
