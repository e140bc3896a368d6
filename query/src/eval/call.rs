//! Function calls that give vectors.

use std::cmp::Ordering;

use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{Labels, MatchOp, Matcher};

use super::Evaluator;
use super::column::{Bits, Column};
use super::grid::Grid;
use super::selector::Take;
use super::series::{Series, Vector};
use super::stream::{Stage, Work};
use crate::error::{Error, Result};
use crate::float;
use crate::functions::date::Civil;
use crate::functions::{Implementation, RangeFunction};
use crate::plan::{Call, Plan, PlanKind, Selector};

/// Returns the argument whose series a function takes one by one.
pub(super) fn inner(call: &Call) -> Option<&Plan> {
    use Implementation::{Calendar, Clamp, ClampMax, ClampMin, Map, OfHistograms, Round};
    match call.implementation {
        Map(_) | Calendar(_) | Round | Clamp | ClampMin | ClampMax | OfHistograms(_) => call.args.first(),
        _ => None,
    }
}

/// Tells whether a function over ranges gives samples of its series, which keep their name.
pub(super) fn keeps_name(call: &Call) -> bool {
    matches!(call.implementation, Implementation::OverRange(RangeFunction { keeps_name: true, .. }))
}

/// Returns the change of each number to another.
fn floats<'p>(of: impl Fn(usize, f64) -> f64 + Send + Sync + 'p) -> Work<'p> {
    Work::Floats(Box::new(move |column| map(column, &of)))
}

fn map(column: &mut Column, of: impl Fn(usize, f64) -> f64) {
    let Column { values, present, .. } = column;
    present.iter().for_each(|step| values[step] = of(step, values[step]));
}

/// Tells whether a function takes the samples of a range and gives a series for each.
pub(super) fn is_over_range(call: &Call) -> bool {
    matches!(call.implementation, Implementation::OverRange(_))
}

impl Evaluator<'_> {
    /// Evaluates a call that gives a vector.
    pub(super) fn call(&mut self, plan: &Plan, call: &Call, grid: Grid) -> Result<Vector> {
        let args = &call.args;
        match call.implementation {
            Implementation::OverRange(_) => self.collect(plan, grid),
            Implementation::Calendar(of) if args.is_empty() => {
                let values = grid.times_ms().map(|time_ms| of(&Civil::of_seconds(time_ms / 1000))).collect();
                self.single(Labels::empty(), Column::full(values))
            }
            Implementation::Map(_)
            | Implementation::Calendar(_)
            | Implementation::Round
            | Implementation::Clamp
            | Implementation::ClampMin
            | Implementation::ClampMax
            | Implementation::OfHistograms(_) => self.staged(plan, grid),
            Implementation::Vector => {
                let column = Column::full(self.scalar(&args[0], grid)?.into_values());
                self.single(Labels::empty(), column)
            }
            Implementation::Timestamp => self.timestamp(&args[0], grid),
            Implementation::StartTimestamp => self.start_timestamp(&args[0], grid),
            Implementation::Absent => self.absent(&args[0], grid),
            Implementation::AbsentOverTime => {
                let present = self.present_over_range(call, grid)?;
                self.ones_except(present, absent_labels(&args[0]), grid)
            }
            Implementation::Sort(direction) => self.sort(plan, &args[0], direction, grid),
            Implementation::SortByLabel(direction) => self.sort_by_label(plan, args, direction, grid),
            Implementation::LabelReplace => self.label_replace(args, grid),
            Implementation::LabelJoin => self.label_join(args, grid),
            Implementation::HistogramQuantile => self.histogram_quantile(args, grid),
            Implementation::HistogramQuantiles => self.histogram_quantiles(args, grid),
            Implementation::HistogramFraction => self.histogram_fraction(args, grid),
            Implementation::Info => self.info(args, grid),
            Implementation::NotYet
            | Implementation::Time
            | Implementation::Pi
            | Implementation::Scalar
            | Implementation::Extremum(_) => {
                Err(Error::Unsupported(format!("function {} is not supported yet", call.function.name)))
            }
        }
    }

    /// Returns what a function does to each series of its argument by itself; `None` if it is no such function.
    pub(super) fn call_stage<'p>(&mut self, call: &'p Call, grid: Grid) -> Result<Option<Work<'p>>> {
        let args = &call.args;
        Ok(Some(match call.implementation {
            Implementation::Map(of) => floats(move |_, value| of(value)),
            Implementation::Calendar(of) => floats(move |_, value| of(&Civil::of_seconds(float::to_i64(value)))),
            Implementation::Round => {
                let nearest = args.get(1).map(|nearest| self.scalar(nearest, grid)).transpose()?;
                floats(move |step, value| {
                    // The inverse makes fewer rounding errors: 1/0.1 is exact.
                    let inverse = 1.0 / nearest.as_ref().map_or(1.0, |nearest| nearest[step]);
                    (value * inverse + 0.5).floor() / inverse
                })
            }
            Implementation::Clamp => self.clamp(Some(&args[1]), Some(&args[2]), grid)?,
            Implementation::ClampMin => self.clamp(Some(&args[1]), None, grid)?,
            Implementation::ClampMax => self.clamp(None, Some(&args[1]), grid)?,
            Implementation::OfHistograms(of) => Work::Histograms(of),
            _ => return Ok(None),
        }))
    }

    fn clamp<'p>(&mut self, low: Option<&Plan>, high: Option<&Plan>, grid: Grid) -> Result<Work<'p>> {
        let mut bound = |plan: Option<&Plan>, otherwise: f64| match plan {
            Some(plan) => self.scalar(plan, grid),
            None => self.constant(otherwise, grid),
        };
        let low = bound(low, f64::NEG_INFINITY)?;
        let high = bound(high, f64::INFINITY)?;
        Ok(Work::Floats(Box::new(move |column| {
            // Bounds the wrong way round leave nothing; NaN is no such.
            column.present.retain(|step| high[step].partial_cmp(&low[step]) != Some(Ordering::Less));
            map(column, |step, value| float::max(low[step], float::min(high[step], value)));
        })))
    }

    /// Takes off the metric names, as functions do that change the meaning of a value.
    fn without_names(&self, mut vector: Vector) -> Result<Vector> {
        let delayed = self.settings.features.delayed_name_removal;
        vector.series.iter_mut().for_each(|series| series.drop_name(delayed));
        vector.merge_same_labels()?;
        Ok(vector)
    }

    /// Returns a vector of one series.
    fn single(&self, labels: Labels, column: Column) -> Result<Vector> {
        let mut vector = self.bounds.vector();
        vector.push(Series { labels, drop_name: false, column })?;
        Ok(vector)
    }

    /// The times of the samples of a selector; for anything else the times of the steps.
    fn timestamp(&mut self, arg: &Plan, grid: Grid) -> Result<Vector> {
        let PlanKind::Selector(selector) = &arg.unmarked().kind else {
            let mut vector = self.vector(arg, grid)?;
            // A histogram has a time as a float has.
            vector.series.iter_mut().for_each(|series| series.column.histograms.clear());
            let work = floats(|step, _| grid.time_ms(step) as f64 / 1000.0);
            return self.at_once(vector, &Stage { id: usize::MAX, work });
        };
        let mut vector = self.bounds.vector();
        let mut keep = |series| vector.push(series);
        match selector.extension {
            None => self.each_timestamp(arg.id, selector, Take::Timestamp, grid, &mut keep)?,
            Some(_) => self.each_series(arg, grid, &mut keep)?,
        }
        self.without_names(vector)
    }

    /// Without the feature, and for anything but a plain selector, there are no start timestamps.
    fn start_timestamp(&mut self, arg: &Plan, grid: Grid) -> Result<Vector> {
        let is_on = self.settings.features.use_start_timestamps;
        let PlanKind::Selector(selector @ Selector { extension: None, .. }) = &arg.unmarked().kind else {
            return self.vector(arg, grid).map(|_| self.bounds.vector());
        };
        let mut vector = self.bounds.vector();
        let mut keep = |series| if is_on { vector.push(series) } else { Ok(()) };
        self.each_timestamp(arg.id, selector, Take::StartTimestamp, grid, &mut keep)?;
        self.without_names(vector)
    }

    fn absent(&mut self, arg: &Plan, grid: Grid) -> Result<Vector> {
        let mut present = Bits::none(grid.n_steps);
        self.each_series(arg, grid, &mut |series| {
            present.unite(&series.column.present);
            Ok(())
        })?;
        self.ones_except(present, absent_labels(arg), grid)
    }

    /// Returns one series with the value 1 at all steps but those given.
    fn ones_except(&self, steps: Bits, labels: Labels, grid: Grid) -> Result<Vector> {
        let mut column = Column::full(vec![1.0; grid.n_steps]);
        column.present.subtract(&steps);
        self.single(labels, column)
    }
}

/// Returns the labels that every series of a selector must have; none for anything else.
///
/// As in Prometheus a label with several matchers is left out. They are looked at in the order into which Prometheus'
/// index sorts them: those that only exclude series come last.
fn absent_labels(arg: &Plan) -> Labels {
    let matchers = match &arg.unmarked().kind {
        PlanKind::Selector(selector) => &selector.matchers,
        PlanKind::Range(range) => &range.selector.matchers,
        _ => return Labels::empty(),
    };
    let required: Vec<_> = matchers.iter().filter(|matcher| !matcher.matches_empty()).map(Matcher::name).collect();
    let excludes = |matcher: &&Matcher| {
        let negative = matches!(matcher.op(), MatchOp::NotEqual | MatchOp::NotRegexp);
        !required.contains(&matcher.name()) || (negative && matcher.matches_empty())
    };
    let mut labels = Labels::empty();
    let mut seen: Vec<&str> = Vec::new();
    let (last, first): (Vec<_>, Vec<_>) = matchers.iter().partition(excludes);
    for matcher in first.into_iter().chain(last).filter(|matcher| matcher.name() != METRIC_NAME) {
        let first_equal = matcher.op() == MatchOp::Equal && !seen.contains(&matcher.name());
        labels = labels.with(matcher.name(), if first_equal { matcher.value() } else { "" });
        if first_equal {
            seen.push(matcher.name());
        }
    }
    labels
}
