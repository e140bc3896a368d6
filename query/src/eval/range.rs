//! Functions over ranges: `rate(x[5m])`, `max_over_time(rate(x[1m])[1h:])`.
//!
//! Each series is decoded once; its floats are two columns over which the windows of the steps slide, histograms stand
//! beside them. The kernels are in [`crate::functions`].

use std::sync::Arc;

use hashbrown::HashSet;
use varve_tsdb::{Charge, Labels};

use super::column::Bits;
use super::grid::Grid;
use super::samples::RangeSamples;
use super::scalar::Scalars;
use super::series::{Bounds, Series, is_name_label};
use super::{Evaluator, mistyped};
use crate::annotations::{Note, Remark};
use crate::error::{Error, Result};
use crate::functions::mixed::Remarks;
use crate::functions::window::{SampleValue, Window};
use crate::functions::{Implementation, Kernels, Params, RangeFunction};
use crate::plan::{Call, Plan, PlanKind, RangeSelector, Shift, seconds};
use crate::promql::ast::{RangeExtension, Span, ValueType};
use crate::value::{HistogramPoint, MatrixSeries, Point};

/// Functions that take `anchored` ranges, as Prometheus lists them.
const ANCHORED: &str = "changes, delta, increase, rate, resets";
/// Functions that take `smoothed` ranges.
const SMOOTHED: &str = "delta, increase, rate";

/// Windows that slide along one series.
#[derive(Debug, Clone, Copy)]
struct Windows {
    grid: Grid,
    shift: Shift,
    range_ms: i64,
    /// How far samples are taken into account before the start of a window, and behind its end.
    margins_ms: (i64, i64),
}

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
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let Implementation::OverRange(function) = call.implementation else { return Err(mistyped(plan.value_type)) };
        let (arg, others): (Vec<_>, Vec<_>) = call.args.iter().partition(|arg| arg.value_type == ValueType::Matrix);
        let arg = arg.first().ok_or_else(|| mistyped(ValueType::Matrix))?;
        let kernels = kernels_for(&function, arg, call.function.name)?;
        let params = others.iter().map(|other| self.scalar(other, grid)).collect::<Result<Vec<_>>>()?;
        let mut over = OverRange {
            function,
            kernels,
            params: &params,
            delayed: self.settings.features.delayed_name_removal,
            windows: self.windows(arg, grid),
            bounds: self.bounds.clone(),
            names: Names::new(self.bounds.ctx.charge()),
            bad_quantiles: Vec::new(),
            remarks: Remarks::default(),
        };
        let (by_label, span) = (self.settings.features.type_and_unit_labels, span_of_range(arg));
        let (mut suspects, mut notes) = (Vec::new(), Vec::new());
        self.each_range_input(arg, grid, &mut |input| {
            let series = over.run(&input)?;
            for remark in over.remarks.list.drain(..) {
                let note = remark.about(input.labels.metric_name());
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            let Some(series) = series else { return Ok(()) };
            if function.of_counters
                && !series.column.float_steps().is_empty()
                && let Some(note) = doubt_counter(input.labels, by_label)
                && !suspects.contains(&note)
            {
                suspects.push(note);
            }
            sink(series)
        })?;
        let first_span = span_of_range(&call.args[0]);
        notes.into_iter().for_each(|note| self.annotations.add(note, first_span));
        suspects.into_iter().for_each(|note| self.annotations.add(note, span));
        for q in over.bad_quantiles {
            self.annotations.add(Note::InvalidQuantile(q), others[0].span);
        }
        Ok(())
    }

    /// Returns the steps at which any series has a sample in its window.
    pub(super) fn present_over_range(&mut self, call: &Call, grid: Grid) -> Result<Bits> {
        let arg = &call.args[0];
        refuse_extension(arg, call.function.name)?;
        let windows = self.windows(arg, grid);
        let mut present = Bits::none(grid.n_steps);
        self.each_range_input(arg, grid, &mut |input| {
            windows.slide(input.samples, |step, _| {
                present.insert(step);
                Ok(())
            })?;
            Ok(())
        })?;
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
        let mut samples = RangeSamples::new(self.bounds.ctx.charge());
        match &arg.kind {
            PlanKind::Range(RangeSelector { selector, range_ms }) => {
                let (before_ms, after_ms) = self.windows(arg, grid).margins_ms;
                for series in self.select(selector, grid, range_ms.saturating_add(before_ms), after_ms)? {
                    let series = series?;
                    self.bounds.check()?;
                    samples.read(&series, selector.only_totals)?;
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
    pub(crate) fn range_vector(&mut self, range: &RangeSelector, time_ms: i64) -> Result<Vec<MatrixSeries>> {
        let grid = Grid::instant(time_ms);
        let extension = range.selector.extension;
        let arg = Plan { kind: PlanKind::Range(range.clone()), value_type: ValueType::Matrix, span: Span::default() };
        let windows = self.windows(&arg, grid);
        let (mut charge, mut hold) = (self.bounds.ctx.charge(), self.bounds.samples.hold());
        let mut result = Vec::new();
        self.each_range_input(&arg, grid, &mut |input| {
            windows.slide(input.samples, |_, window| {
                let points = match extension {
                    None => points_of(window.timestamps_ms, window.values),
                    Some(extension) => extended_points(window, extension)?,
                };
                let histograms = window.histograms.iter().map(|sample| HistogramPoint {
                    timestamp_ms: sample.timestamp_ms,
                    histogram: Arc::clone(&sample.histogram),
                });
                let histograms: Vec<_> = histograms.collect();
                hold.grow(points.len() + n_samples(window) - window.values.len())?;
                let histograms_size: usize = histograms.iter().map(|point| point.histogram.size()).sum();
                charge.grow(points.len() * size_of::<Point>() + histograms_size + input.labels.size())?;
                if !(points.is_empty() && histograms.is_empty()) {
                    result.push(MatrixSeries { labels: input.labels.clone(), points, histograms });
                }
                Ok(())
            })?;
            Ok(())
        })?;
        Ok(result)
    }
}

/// A function on its way along the series of a range.
struct OverRange<'a> {
    function: RangeFunction,
    kernels: Kernels,
    /// The other arguments: one column each.
    params: &'a [Scalars],
    delayed: bool,
    windows: Windows,
    bounds: Bounds,
    names: Names,
    /// Quantiles outside of [0, 1] that were asked for.
    bad_quantiles: Vec<f64>,
    /// What there is to say about the histograms of a series.
    remarks: Remarks,
}

impl OverRange<'_> {
    /// Makes one series of another; `None` if it has no value.
    fn run(&mut self, input: &Input<'_>) -> Result<Option<Series>> {
        let mut column = self.bounds.column(self.windows.grid.n_steps)?;
        let mut charge = self.bounds.ctx.charge();
        let mut window_len_max = 0;
        let mut params = [0.0; 2];
        self.windows.slide(input.samples, |step, window| {
            for (param, values) in params.iter_mut().zip(self.params) {
                *param = values[step];
            }
            match self.function.params {
                Params::Any => {}
                Params::Quantile if window.values.is_empty() => {}
                Params::Quantile => note_bad_quantile(params[0], &mut self.bad_quantiles),
                Params::SmoothingFactors => check_factors(params)?,
            }
            let window_len = n_samples(window);
            if window_len > window_len_max {
                window_len_max = window_len;
                self.bounds.samples.check(window_len_max)?;
            }
            let Kernels { floats, mixed } = self.kernels;
            // Fast path: only floats.
            if window.histograms.is_empty() {
                if let Some(value) = floats(window, &params[..self.params.len()]) {
                    column.set(step, value);
                }
                return Ok(());
            }
            // A window of histograms may take as long as a series of floats.
            self.bounds.check()?;
            match mixed {
                Some(mixed) => match mixed(window, &mut self.remarks) {
                    Some(SampleValue::Float(value)) => column.set(step, value),
                    Some(SampleValue::Histogram(histogram)) => {
                        charge.grow(histogram.size())?;
                        column.push_histogram(step, histogram);
                    }
                    None => {}
                },
                None if window.values.is_empty() => {}
                None => {
                    self.remarks.add(Remark::Ignored);
                    if let Some(value) = floats(window, &params[..self.params.len()]) {
                        column.set(step, value);
                    }
                }
            }
            Ok(())
        })?;
        if column.present.is_empty() {
            return Ok(None);
        }
        let mut series = Series { labels: input.labels.clone(), drop_name: input.drop_name, column };
        if input.drop_name || !self.function.keeps_name {
            series.drop_name(self.delayed);
        }
        if !self.delayed {
            self.names.check(input.labels, &series.labels)?;
        }
        Ok(Some(series))
    }
}

/// The label sets that a function has made so far by taking names off.
struct Names {
    /// The labels that were taken off, as long as they are the same for all series: then what is left must differ.
    removed: Option<Labels>,
    made: HashSet<Labels>,
    mixed: bool,
    waiting: Vec<Labels>,
    charge: Charge,
}

impl Names {
    /// Starts without label sets; `charge` takes those that come.
    fn new(charge: Charge) -> Self {
        Self { removed: None, made: HashSet::new(), mixed: false, waiting: Vec::new(), charge }
    }

    /// Fails if two series come to have the same labels.
    fn check(&mut self, before: &Labels, after: &Labels) -> Result<()> {
        self.charge.grow(size_of::<Labels>() + after.size())?;
        let removed = before.filter(is_name_label);
        if !self.mixed && *self.removed.get_or_insert_with(|| removed.clone()) == removed {
            // Fast path: series that differ before differ after; what was made is kept in case another name comes.
            self.waiting.push(after.clone());
            return Ok(());
        }
        self.mixed = true;
        self.made.extend(self.waiting.drain(..));
        if self.made.insert(after.clone()) { Ok(()) } else { Err(Error::same_labels()) }
    }
}

impl Windows {
    /// Calls `visit` with each step whose window has samples, in order of time.
    fn slide(&self, samples: &RangeSamples, mut visit: impl FnMut(usize, &Window<'_>) -> Result<()>) -> Result<()> {
        let (timestamps_ms, values) = (&samples.floats.timestamps_ms, &samples.floats.values);
        let range_seconds = seconds(self.range_ms);
        let (mut from, mut to) = (0, 0);
        let (mut from_histogram, mut to_histogram) = (0, 0);
        for (step, eval_ms) in self.grid.times_ms().enumerate() {
            let end_ms = self.shift.apply(eval_ms);
            let start_ms = end_ms.saturating_sub(self.range_ms);
            let first_ms = start_ms.saturating_sub(self.margins_ms.0);
            let last_ms = end_ms.saturating_add(self.margins_ms.1);
            while timestamps_ms.get(to).is_some_and(|&t| t <= last_ms) {
                to += 1;
            }
            while from < to && timestamps_ms[from] <= first_ms {
                from += 1;
            }
            while samples.histograms.get(to_histogram).is_some_and(|sample| sample.timestamp_ms <= last_ms) {
                to_histogram += 1;
            }
            while from_histogram < to_histogram && samples.histograms[from_histogram].timestamp_ms <= first_ms {
                from_histogram += 1;
            }
            if from < to || from_histogram < to_histogram {
                let (timestamps_ms, values) = (&timestamps_ms[from..to], &values[from..to]);
                let histograms = &samples.histograms[from_histogram..to_histogram];
                visit(step, &Window { timestamps_ms, values, histograms, start_ms, end_ms, eval_ms, range_seconds })?;
            }
        }
        Ok(())
    }
}

/// Counts the samples of a window, histograms by their size.
fn n_samples(window: &Window<'_>) -> usize {
    let of_histograms: usize = window.histograms.iter().map(|sample| sample.histogram.n_samples()).sum();
    window.values.len() + of_histograms
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

/// Returns what to say about a rate of a series that may not be a counter.
fn doubt_counter(labels: &Labels, by_label: bool) -> Option<Note> {
    let name = labels.metric_name();
    if name.is_empty() {
        return None;
    }
    if by_label {
        let type_label = labels.get("__type__").unwrap_or("");
        let note = || Note::PossibleNonCounterLabel { metric_name: name.into(), type_label: type_label.into() };
        return (!matches!(type_label, "counter" | "histogram")).then(note);
    }
    let counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix));
    (!counter).then(|| Note::PossibleNonCounter(name.into()))
}

fn note_bad_quantile(q: f64, bad: &mut Vec<f64>) {
    if !(0.0..=1.0).contains(&q) && !bad.iter().any(|known| known.to_bits() == q.to_bits()) {
        bad.push(q);
    }
}

/// The factors of double exponential smoothing lie between 0 and 1, both excluded.
fn check_factors([smoothing, trend]: [f64; 2]) -> Result<()> {
    for (name, factor, symbol) in [("smoothing", smoothing, "sf"), ("trend", trend, "tf")] {
        if factor <= 0.0 || factor >= 1.0 {
            let bounds = format!("0 < {symbol} < 1");
            return Err(Error::Execution(format!("invalid {name} factor. Expected: {bounds}, got: {factor:.6}")));
        }
    }
    Ok(())
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
