//! Functions over ranges: `rate(x[5m])`, `max_over_time(rate(x[1m])[1h:])`.
//!
//! Each series is decoded once; its floats are two columns over which the windows of the steps slide, histograms stand
//! beside them. The kernels are in [`crate::functions`].

mod over;
mod windows;

use std::sync::Arc;

use varve_tsdb::Labels;
use varve_tsdb::select::{SelectHints, SeriesSet};

use super::column::Bits;
use super::grid::Grid;
use super::names::Names;
use super::profile::Passed;
use super::samples::RangeSamples;
use super::series::Series;
use super::stream::{Made, Way, batch_len, batches, one_name};
use super::{Evaluator, mistyped};
use crate::error::{Error, Result};
use crate::functions::window::Window;
use crate::functions::{Implementation, Kernels, RangeFunction};
use crate::plan::{Call, Plan, PlanKind, RangeSelector, Shift};
use crate::promql::ast::{RangeExtension, Span, ValueType};
use crate::value::{HistogramPoint, MatrixSeries, Point};
pub(super) use over::OverRange;
use over::Places;
use windows::{Windows, n_samples_of, tally_window};

/// Functions that take `anchored` ranges, as Prometheus lists them.
const ANCHORED: &str = "changes, delta, increase, rate, resets";
/// Functions that take `smoothed` ranges.
const SMOOTHED: &str = "delta, increase, rate";

/// The samples of one series that windows slide along.
struct Input<'a> {
    labels: &'a Labels,
    drop_name: bool,
    samples: &'a RangeSamples,
}

impl Evaluator<'_> {
    /// Hands out the series that a function over a range makes.
    pub(super) fn each_over_range(
        &mut self,
        plan: &Plan,
        call: &Call,
        way: &Way<'_>,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let arg = range_arg(call)?;
        let mut over = self.over_range(call, grid)?;
        let mut names = Names::new(self.bounds.ctx.charge());
        match &arg.kind {
            PlanKind::Range(range) => {
                let (others, mut beside) = self.accompany(plan, grid);
                let set = self.select_range(range, over.windows, grid, way.hints())?;
                over.tells_apart = set.has_all_labels();
                let only_totals = range.selector.only_totals;
                let make = |batch: Vec<_>, made: &mut Made<'_>| over.of_stored(&batch, only_totals, &others, made);
                let check = |made: &mut Made<'_>| {
                    let of_batch = made.beside.drain(..);
                    beside.iter_mut().zip(of_batch).for_each(|(companion, made)| companion.take(made));
                    names.check(&made.unnamed)
                };
                self.run(plan.id, way, batches(set, batch_len(grid.n_steps)), make, check, sink)?;
                self.keep_companions(beside);
                Ok(())
            }
            PlanKind::Subquery(subquery) => {
                let (inner, vector) = self.subquery(subquery, grid)?;
                let mut batches = vector.series.chunks(batch_len(grid.n_steps));
                let make = |batch: &[Series], made: &mut Made<'_>| over.of_columns(batch, inner, made);
                let check = |made: &mut Made<'_>| names.check(&made.unnamed);
                self.run(plan.id, way, || Ok(batches.next()), make, check, sink)
            }
            _ => Err(mistyped(ValueType::Matrix)),
        }
    }

    /// Returns how a function of a range is evaluated on series that have all their labels.
    pub(super) fn over_range<'p>(&mut self, call: &'p Call, grid: Grid) -> Result<OverRange<'p>> {
        let Implementation::OverRange(function) = call.implementation else {
            return Err(mistyped(ValueType::Vector));
        };
        let arg = range_arg(call)?;
        let others: Vec<_> = call.args.iter().filter(|other| other.value_type != ValueType::Matrix).collect();
        let features = self.settings.features;
        Ok(OverRange {
            function,
            kernels: kernels_for(&function, arg, call.function.name)?,
            params: others.iter().map(|other| self.scalar(other, grid)).collect::<Result<_>>()?,
            takes_starts: features.use_start_timestamps && takes_starts(call.function.name),
            warns_of_starts: function.of_counters && extension_of(arg).is_none(),
            delayed: features.delayed_name_removal,
            by_label: features.type_and_unit_labels,
            one_name: name_of_range(arg),
            tells_apart: true,
            windows: self.windows(arg, grid),
            bounds: self.bounds.clone(),
            places: Places {
                range: span_of_range(arg),
                first: span_of_range(&call.args[0]),
                quantile: others.first().map_or_else(Span::default, |other| other.span),
            },
        })
    }

    /// Selects the samples that windows of `grid` may cover.
    fn select_range(
        &self,
        range: &RangeSelector,
        windows: Windows,
        grid: Grid,
        hints: SelectHints,
    ) -> Result<SeriesSet> {
        let (before_ms, after_ms) = windows.margins_ms;
        self.select(&range.selector, grid, (range.range_ms.saturating_add(before_ms), after_ms), hints)
    }

    /// Returns the steps at which any series has a sample in its window.
    pub(super) fn present_over_range(&mut self, call: &Call, grid: Grid) -> Result<Bits> {
        let arg = &call.args[0];
        refuse_extension(arg, call.function.name)?;
        let windows = self.windows(arg, grid);
        let mut present = Bits::none(grid.n_steps);
        let mut tally = self.tally.empty(grid.n_steps);
        let counts = matches!(arg.kind, PlanKind::Range(_));
        self.each_range_input(arg, grid, &mut |input| {
            windows.slide(input.samples, |step, window, n_before| {
                present.insert(step);
                tally_window(window, step, n_before.filter(|_| counts), &mut tally);
                Ok(())
            })
        })?;
        self.tally.absorb(&tally);
        Ok(present)
    }

    fn windows(&self, arg: &Plan, grid: Grid) -> Windows {
        let lookback_ms = self.settings.lookback_ms;
        let (shift, range_ms, extension) = match &arg.kind {
            PlanKind::Range(range) => (range.selector.shift, range.range_ms, range.selector.extension),
            PlanKind::Subquery(subquery) => (subquery.shift, subquery.range_ms, None),
            _ => (Shift { offset_ms: 0, at_ms: None }, 0, None),
        };
        let margins_ms = match extension {
            None => (0, 0),
            Some(RangeExtension::Anchored) => (lookback_ms, 0),
            Some(RangeExtension::Smoothed) => (lookback_ms, lookback_ms),
        };
        Windows { grid, shift, range_ms, margins_ms }
    }

    /// Hands out the samples of each series that windows of `grid` may cover.
    fn each_range_input(
        &mut self,
        arg: &Plan,
        grid: Grid,
        sink: &mut dyn FnMut(Input<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut samples = RangeSamples::new(self.bounds.ctx.charge(), false);
        match &arg.kind {
            PlanKind::Range(range) => {
                for series in self.select_range(range, self.windows(arg, grid), grid, SelectHints::default())? {
                    let series = series?;
                    self.bounds.check()?;
                    samples.read(&series, range.selector.only_totals)?;
                    sink(Input { labels: series.labels(), drop_name: false, samples: &samples })?;
                }
                Ok(())
            }
            PlanKind::Subquery(subquery) => {
                let (inner, vector) = self.subquery(subquery, grid)?;
                for series in &vector.series {
                    self.bounds.check()?;
                    samples.take_column(&series.column, inner)?;
                    sink(Input { labels: &series.labels, drop_name: series.drop_name, samples: &samples })?;
                }
                Ok(())
            }
            _ => Err(mistyped(ValueType::Matrix)),
        }
    }

    /// Returns the samples of each series in a range at one time, in ascending order of labels.
    pub(crate) fn range_vector(&mut self, plan: &Plan, time_ms: i64) -> Result<Vec<MatrixSeries>> {
        let grid = Grid::instant(time_ms);
        let (extension, started) = (extension_of(plan), self.profile.now());
        let (windows, mut n_samples) = (self.windows(plan, grid), 0);
        let (mut charge, mut hold) = (self.bounds.ctx.charge(), self.bounds.samples.hold());
        let mut result = Vec::new();
        self.each_range_input(plan, grid, &mut |input| {
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
                hold.grow(n_points)?;
                let histograms_size: usize = histograms.iter().map(|point| point.histogram.size()).sum();
                charge.grow(points.len() * size_of::<Point>() + histograms_size + input.labels.size())?;
                if !(points.is_empty() && histograms.is_empty()) {
                    result.push(MatrixSeries { labels: input.labels.clone(), points, histograms });
                }
                Ok(())
            })
        })?;
        self.tally.add(0, n_samples);
        self.profile.took(plan.id, started);
        self.profile.streamed(plan.id, Passed { n_series: result.len(), n_samples });
        Ok(result)
    }
}

/// Returns the range among the arguments of a function.
fn range_arg(call: &Call) -> Result<&Plan> {
    call.args.iter().find(|arg| arg.value_type == ValueType::Matrix).ok_or_else(|| mistyped(ValueType::Matrix))
}

/// Tells whether a function looks at start timestamps.
fn takes_starts(function: &str) -> bool {
    matches!(function, "increase" | "irate" | "rate" | "resets")
}

/// Returns the kernels for the kind of range that the argument is.
fn kernels_for(function: &RangeFunction, arg: &Plan, name: &str) -> Result<Kernels> {
    let kernels = match extension_of(arg) {
        None => Some(function.plain),
        Some(RangeExtension::Anchored) => function.anchored,
        Some(RangeExtension::Smoothed) => function.smoothed,
    };
    match kernels {
        Some(kernels) => Ok(kernels),
        None => refuse_extension(arg, name).map(|()| function.plain),
    }
}

/// Fails if the range is anchored or smoothed.
fn refuse_extension(arg: &Plan, name: &str) -> Result<()> {
    let (modifier, functions) = match extension_of(arg) {
        None => return Ok(()),
        Some(RangeExtension::Anchored) => ("anchored", ANCHORED),
        Some(RangeExtension::Smoothed) => ("smoothed", SMOOTHED),
    };
    Err(Error::Execution(format!("{modifier} modifier can only be used with: {functions} - not with {name}")))
}

fn extension_of(arg: &Plan) -> Option<RangeExtension> {
    match &arg.kind {
        PlanKind::Range(range) => range.selector.extension,
        _ => None,
    }
}

/// Where annotations about a range point to. For subqueries that is the start of the query, as in Prometheus, which
/// puts their samples in the place of the expression.
fn span_of_range(arg: &Plan) -> Span {
    match arg.kind {
        PlanKind::Subquery(_) => Span::default(),
        _ => arg.span,
    }
}

/// Returns the metric name that all series of a range have in the store.
fn name_of_range(arg: &Plan) -> Option<&str> {
    match &arg.kind {
        PlanKind::Range(range) => one_name(&range.selector),
        _ => None,
    }
}

fn points_of(timestamps_ms: &[i64], values: &[f64]) -> Vec<Point> {
    let point = |(&timestamp_ms, &value)| Point { timestamp_ms, value };
    timestamps_ms.iter().zip(values).map(point).collect()
}

/// Returns the points at both ends of the range, and those inside in between.
fn extended_points(window: &Window<'_>, extension: RangeExtension) -> Result<Vec<Point>> {
    let is_smoothed = extension == RangeExtension::Smoothed;
    if !window.histograms.is_empty() {
        let modifier = if is_smoothed { "smoothed" } else { "anchored" };
        return Err(Error::Execution(format!("{modifier} modifier is not supported with histograms")));
    }
    let Some((left, inner, right)) = crate::functions::boundaries(window, is_smoothed, false) else {
        return Ok(Vec::new());
    };
    let inner_first = window.timestamps_ms.partition_point(|&t| t <= window.start_ms);
    let mut points = vec![Point { timestamp_ms: window.start_ms, value: left }];
    points.extend(points_of(&window.timestamps_ms[inner_first..inner_first + inner.len()], inner));
    points.push(Point { timestamp_ms: window.end_ms, value: right });
    Ok(points)
}
