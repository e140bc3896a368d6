//! Functions over ranges: `rate(x[5m])`, `max_over_time(rate(x[1m])[1h:])`.
//!
//! Each series is decoded once; its floats are two columns over which the windows of the steps slide, histograms stand
//! beside them. The kernels are in [`crate::functions`].

use std::sync::Arc;

use hashbrown::HashSet;
use varve_tsdb::{Charge, Labels, SelectHints, SeriesSet};
use xxhash_rust::xxh3::xxh3_128;

use super::column::{Bits, Column};
use super::grid::Grid;
use super::profile::Passed;
use super::samples::RangeSamples;
use super::scalar::Scalars;
use super::series::{Bounds, Series, is_name_label};
use super::stream::{Made, Said, Way, batch_len, batches, one_name};
use super::tally::Tally;
use super::{Evaluator, mistyped};
use crate::annotations::{Note, Remark};
use crate::error::{Error, Result};
use crate::functions::mixed::Remarks;
use crate::functions::window::{SampleValue, Window};
use crate::functions::{Implementation, Kernels, Params, RangeFunction, Steady, starts_overlap};
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

/// A function over ranges, the same for all series and on all threads.
pub(super) struct OverRange<'p> {
    function: RangeFunction,
    kernels: Kernels,
    /// The other arguments: one column each.
    params: Vec<Scalars>,
    /// Start timestamps are looked at.
    takes_starts: bool,
    /// What start timestamps contradict is said.
    warns_of_starts: bool,
    delayed: bool,
    /// Counters are known by their label `__type__`.
    by_label: bool,
    /// The metric name of all series, which may then lack the label.
    one_name: Option<&'p str>,
    /// Series have all their labels, so that two with the same without their names are told.
    tells_apart: bool,
    windows: Windows,
    bounds: Bounds,
    places: Places,
}

/// Where annotations point to.
struct Places {
    /// The range.
    range: Span,
    /// The first argument, which for some functions is not the range.
    first: Span,
    /// The second, where it is a quantile.
    quantile: Span,
}

impl OverRange<'_> {
    fn of_stored(
        &self,
        batch: &[varve_tsdb::Series],
        only_totals: bool,
        beside: &[Self],
        made: &mut Made<'_>,
    ) -> Result<()> {
        let mut samples = RangeSamples::new(self.bounds.ctx.charge(), self.takes_starts);
        for series in batch {
            samples.read(series, only_totals)?;
            let input = Input { labels: series.labels(), drop_name: false, samples: &samples };
            self.make(&input, true, made)?;
            for (at, other) in beside.iter().enumerate() {
                made.make_beside(at, |made| other.make(&input, true, made));
            }
        }
        Ok(())
    }

    fn of_columns(&self, batch: &[Series], inner: Grid, made: &mut Made<'_>) -> Result<()> {
        let mut samples = RangeSamples::new(self.bounds.ctx.charge(), false);
        for Series { labels, drop_name, column } in batch {
            self.bounds.check()?;
            samples.take_column(column, inner)?;
            self.make(&Input { labels, drop_name: *drop_name, samples: &samples }, false, made)?;
        }
        Ok(())
    }

    /// Makes one series of another; `reads` tells whether its samples were read for this.
    fn make(&self, input: &Input<'_>, reads: bool, made: &mut Made<'_>) -> Result<()> {
        let column = self.column(input, reads, made)?;
        if column.present.is_empty() {
            return Ok(());
        }
        if self.function.of_counters
            && !column.float_steps().is_empty()
            && let Some(note) = self.doubt_counter(input.labels)
        {
            made.said.add(note, self.places.range);
        }
        let mut series = Series { labels: input.labels.clone(), drop_name: input.drop_name, column };
        if input.drop_name || !self.function.keeps_name {
            series.drop_name(self.delayed);
            if !self.delayed && self.tells_apart {
                made.unnamed.push((input.labels.clone(), series.labels.clone()));
            }
        }
        made.push(series)
    }

    fn column(&self, input: &Input<'_>, reads: bool, made: &mut Made<'_>) -> Result<Column> {
        let mut column = self.bounds.column(self.windows.grid.n_steps)?;
        let mut charge = self.bounds.ctx.charge();
        let mut remarks = Remarks::default();
        let mut window_len_max = 0;
        let mut params = [0.0; 2];
        let Kernels { floats, mixed, steady } = self.kernels;
        let mut steady = steady.map(|kind| Steady::new(kind, seconds(self.windows.range_ms)));
        self.windows.slide(input.samples, |step, window, n_before| {
            for (param, values) in params.iter_mut().zip(&self.params) {
                *param = values[step];
            }
            self.check_params(params, window, &mut made.said)?;
            tally_window(window, step, n_before.filter(|_| reads), &mut made.tally);
            // Fast path: only floats.
            if window.histograms.is_empty() {
                window_len_max = window_len_max.max(window.values.len());
                if self.warns_of_starts && starts_overlap(window) {
                    remarks.add(Remark::StartsOverlap(1));
                }
                let value = match &mut steady {
                    Some(steady) => steady.value(window),
                    None => floats(window, &params[..self.params.len()]),
                };
                if let Some(value) = value {
                    column.set(step, value);
                }
                return Ok(());
            }
            // A window of histograms may take as long as a series of floats.
            self.bounds.check()?;
            window_len_max = window_len_max.max(n_samples_of(window));
            match mixed {
                Some(mixed) => match mixed(window, &mut remarks) {
                    Some(SampleValue::Float(value)) => column.set(step, value),
                    Some(SampleValue::Histogram(histogram)) => {
                        charge.grow(histogram.size())?;
                        column.push_histogram(step, histogram);
                    }
                    None => {}
                },
                None if window.values.is_empty() => {}
                None => {
                    remarks.add(Remark::Ignored);
                    if let Some(value) = floats(window, &params[..self.params.len()]) {
                        column.set(step, value);
                    }
                }
            }
            Ok(())
        })?;
        self.bounds.samples.check(window_len_max)?;
        for remark in remarks.list {
            made.said.add(remark.about(self.name(input.labels)), self.places.first);
        }
        Ok(column)
    }

    fn name<'a>(&'a self, labels: &'a Labels) -> &'a str {
        self.one_name.unwrap_or_else(|| labels.metric_name())
    }

    /// Returns what to say about a rate of a series that may not be a counter.
    fn doubt_counter(&self, labels: &Labels) -> Option<Note> {
        let name = self.name(labels);
        if name.is_empty() {
            return None;
        }
        if self.by_label {
            let type_label = labels.get("__type__").unwrap_or("");
            let note = || Note::PossibleNonCounterLabel { metric_name: name.into(), type_label: type_label.into() };
            return (!matches!(type_label, "counter" | "histogram")).then(note);
        }
        let counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix));
        (!counter).then(|| Note::PossibleNonCounter(name.into()))
    }

    fn check_params(&self, params: [f64; 2], window: &Window<'_>, said: &mut Said) -> Result<()> {
        match self.function.params {
            Params::Any => Ok(()),
            Params::Quantile => {
                if !window.values.is_empty() && !(0.0..=1.0).contains(&params[0]) {
                    said.add(Note::InvalidQuantile(params[0]), self.places.quantile);
                }
                Ok(())
            }
            Params::SmoothingFactors => check_factors(params),
        }
    }
}

/// Returns the range among the arguments of a function.
fn range_arg(call: &Call) -> Result<&Plan> {
    call.args.iter().find(|arg| arg.value_type == ValueType::Matrix).ok_or_else(|| mistyped(ValueType::Matrix))
}

/// Counts the samples of a window for a step: all of them as needed, as read those that are not among the `n_before` that
/// it has in common with the one before; none if that is not told.
fn tally_window(window: &Window<'_>, step: usize, n_before: Option<(usize, usize)>, tally: &mut Tally) {
    if tally.is_on() {
        let n_new = n_before.map_or(0, |(floats, histograms)| {
            let of_histograms = window.histograms[histograms..].iter().map(|sample| sample.histogram.n_samples());
            window.values.len() - floats + of_histograms.sum::<usize>()
        });
        tally.add_window(step, n_samples_of(window), n_new);
    }
}

/// Tells whether a function looks at start timestamps.
fn takes_starts(function: &str) -> bool {
    matches!(function, "increase" | "irate" | "rate" | "resets")
}

/// Tells whether two series came to have the same labels when a function took names off.
pub(super) struct Names {
    /// The labels that were taken off, as long as they are the same for all series: then what is left must differ.
    removed: Option<Labels>,
    /// What the label sets hash to, in 128 bits: two of them have the same by chance once in 10^26 queries.
    made: HashSet<u128>,
    mixed: bool,
    waiting: Vec<u128>,
    charge: Charge,
}

impl Names {
    /// Starts without label sets; `charge` takes those that come.
    pub(super) fn new(charge: Charge) -> Self {
        Self { removed: None, made: HashSet::new(), mixed: false, waiting: Vec::new(), charge }
    }

    /// Fails if two series come to have the same labels, which are given before and after.
    pub(super) fn check(&mut self, unnamed: &[(Labels, Labels)]) -> Result<()> {
        self.charge.grow(unnamed.len() * size_of::<u128>())?;
        unnamed.iter().try_for_each(|(before, after)| self.check_one(before, after))
    }

    fn check_one(&mut self, before: &Labels, after: &Labels) -> Result<()> {
        let hash = xxh3_128(after.as_packed().as_bytes());
        let removed = self.removed.get_or_insert_with(|| before.filter(is_name_label));
        let of_names = before.iter().filter(|(name, _)| is_name_label(name));
        if !self.mixed && removed.iter().eq(of_names) {
            // Fast path: series that differ before differ after; what was made is kept in case another name comes.
            self.waiting.push(hash);
            return Ok(());
        }
        if !self.mixed {
            self.charge.grow(self.waiting.len() * 2 * size_of::<u128>())?;
        }
        self.mixed = true;
        self.made.extend(self.waiting.drain(..));
        self.charge.grow(size_of::<u128>())?;
        if self.made.insert(hash) { Ok(()) } else { Err(Error::same_labels()) }
    }
}

impl Windows {
    /// Calls `visit` with each step whose window has samples, in order of time, and with how many floats and histograms of
    /// it the window of the step before had; `None` if it is the same window.
    #[inline]
    fn slide(
        &self,
        samples: &RangeSamples,
        mut visit: impl FnMut(usize, &Window<'_>, Option<(usize, usize)>) -> Result<()>,
    ) -> Result<()> {
        let (timestamps_ms, values) = (&samples.floats.timestamps_ms, &samples.floats.values);
        let range_seconds = seconds(self.range_ms);
        // `fell` is the last float up to `to` that is less than the one before it; none can be the first.
        let (mut from, mut to, mut fell) = (0, 0, 0);
        let (mut from_histogram, mut to_histogram) = (0, 0);
        for (step, eval_ms) in self.grid.times_ms().enumerate() {
            let end_ms = self.shift.apply(eval_ms);
            let start_ms = end_ms.saturating_sub(self.range_ms);
            let first_ms = start_ms.saturating_sub(self.margins_ms.0);
            let last_ms = end_ms.saturating_add(self.margins_ms.1);
            let (to_before, to_histogram_before) = (to, to_histogram);
            while timestamps_ms.get(to).is_some_and(|&t| t <= last_ms) {
                if to > 0 && values[to] < values[to - 1] {
                    fell = to;
                }
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
                let known = (to_before.saturating_sub(from), to_histogram_before.saturating_sub(from_histogram));
                let n_before = (step == 0 || self.shift.at_ms.is_none()).then_some(known);
                let window = Window {
                    timestamps_ms: &timestamps_ms[from..to],
                    values: &values[from..to],
                    histograms: &samples.histograms[from_histogram..to_histogram],
                    starts_ms: samples.starts_ms.get(from..to).unwrap_or(&[]),
                    start_ms,
                    end_ms,
                    eval_ms,
                    range_seconds,
                    may_fall: fell > from,
                };
                visit(step, &window, n_before)?;
            }
        }
        Ok(())
    }
}

/// Counts the samples of a window, histograms by their size.
fn n_samples_of(window: &Window<'_>) -> usize {
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

/// Returns the metric name that all series of a range have in the store.
fn name_of_range(arg: &Plan) -> Option<&str> {
    match &arg.kind {
        PlanKind::Range(range) => one_name(&range.selector),
        _ => None,
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
