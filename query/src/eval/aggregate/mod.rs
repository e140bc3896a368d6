//! Aggregations across series.
//!
//! `sum`, `avg`, `count`, `min`, `max`, `group`, `stddev` and `stdvar` fold one series after the other into their groups
//! and hold nothing else; `topk` and its kin, `quantile` and `count_values` need all series at once.

mod count_values;
mod fold;
mod histograms;
mod pick;

use hashbrown::HashMap;
use varve_tsdb::{Labels, METRIC_NAME};

use super::Evaluator;
use super::grid::Grid;
use super::scalar::Scalars;
use super::series::{Series, Vector};
use crate::annotations::Note;
use crate::error::{Error, Result};
use crate::functions::over_time::quantile_of;
use crate::plan::Aggregate;
use crate::promql::ast::{AggregateOp, Span};
use fold::Fold;

/// The groups of an aggregation, numbered as they appear.
struct Groups<'a> {
    aggregate: &'a Aggregate,
    number_of: HashMap<Labels, usize>,
    labels: Vec<Labels>,
}

impl<'a> Groups<'a> {
    fn new(aggregate: &'a Aggregate) -> Self {
        Self { aggregate, number_of: HashMap::new(), labels: Vec::new() }
    }

    /// Returns the number of the group of a series, and whether it is new.
    fn number(&mut self, labels: &Labels) -> (usize, bool) {
        let labels = grouped(self.aggregate, labels);
        if let Some(&number) = self.number_of.get(&labels) {
            return (number, false);
        }
        let number = self.labels.len();
        self.labels.push(labels.clone());
        self.number_of.insert(labels, number);
        (number, true)
    }
}

/// Returns the labels of the group of a series.
fn grouped(aggregate: &Aggregate, labels: &Labels) -> Labels {
    let named = |name: &str| aggregate.grouping.iter().any(|label| label == name);
    match (aggregate.without, aggregate.grouping.is_empty()) {
        (true, _) => labels.filter(|name| name != METRIC_NAME && !named(name)),
        // Fast path: all series are one group.
        (false, true) => Labels::empty(),
        (false, false) => labels.filter(named),
    }
}

impl Evaluator<'_> {
    /// Evaluates an aggregation, which stands at `span`.
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate, span: Span, grid: Grid) -> Result<Vector> {
        match aggregate.op {
            AggregateOp::CountValues => self.count_values(aggregate, grid),
            AggregateOp::Quantile => self.quantile(aggregate, grid),
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk => self.pick(aggregate, span, grid),
            AggregateOp::LimitRatio => self.limit_ratio(aggregate, grid),
            _ => self.fold(aggregate, grid),
        }
    }

    /// Folds the series into their groups as they come.
    fn fold(&mut self, aggregate: &Aggregate, grid: Grid) -> Result<Vector> {
        let mut groups = Groups::new(aggregate);
        let mut folds: Vec<(Fold, bool)> = Vec::new();
        let mut notes = Vec::new();
        let bounds = self.bounds.clone();
        let (mut charge, mut hold) = (bounds.ctx.charge(), bounds.samples.hold());
        self.each_series(&aggregate.expr, grid, &mut |series| {
            let (number, new) = groups.number(&series.labels);
            if new {
                charge.grow(Fold::size(aggregate.op, grid.n_steps) + 2 * groups.labels[number].size())?;
                folds.push((Fold::new(aggregate.op, grid.n_steps)?, false));
            }
            // As in Prometheus samples count until the aggregation is done, though they are not kept.
            hold.grow(series.column.n_samples())?;
            let (fold, drop_name) = &mut folds[number];
            charge.grow(fold.add(&series, &mut notes))?;
            *drop_name |= series.drop_name;
            Ok(())
        })?;
        drop(hold);
        let mut vector = bounds.vector();
        for (labels, (fold, drop_name)) in groups.labels.into_iter().zip(folds) {
            vector.push(Series { labels, drop_name, column: fold.finish(&mut notes) })?;
        }
        notes.into_iter().for_each(|note| self.annotations.add(note, aggregate.expr.span));
        Ok(vector)
    }

    /// `quantile(q, v)`
    fn quantile(&mut self, aggregate: &Aggregate, grid: Grid) -> Result<Vector> {
        let (quantiles, range) = self.param(aggregate, grid)?;
        let mut input = self.vector(&aggregate.expr, grid)?;
        self.ignore_histograms(aggregate.op, &mut input, aggregate.expr.span, |_| true);
        for q in range.outside(0.0, 1.0) {
            self.annotations
                .add(Note::InvalidQuantile(q), aggregate.param.as_ref().map_or_else(Default::default, |p| p.span));
        }
        let (groups, members) = members(aggregate, &input);
        let mut vector = self.bounds.vector();
        let mut values = Vec::new();
        for (labels, members) in groups.into_iter().zip(members) {
            let mut column = self.bounds.column(grid.n_steps)?;
            for (step, &q) in quantiles.iter().enumerate() {
                self.bounds.check()?;
                values.clear();
                values.extend(members.iter().filter_map(|&at| input.series[at].column.get(step)));
                if !values.is_empty() {
                    column.set(step, quantile_of(q, &mut values));
                }
            }
            let drop_name = members.iter().any(|&at| input.series[at].drop_name);
            vector.push(Series { labels, drop_name, column })?;
        }
        Ok(vector)
    }

    /// Removes the histograms of a vector, and says so if there are any at a step that `counts`.
    fn ignore_histograms(&mut self, op: AggregateOp, input: &mut Vector, span: Span, counts: impl Fn(usize) -> bool) {
        let any = |series: &Series| series.column.histograms().any(|(step, _)| counts(step));
        if input.series.iter().any(any) {
            self.annotations.add(Note::HistogramIgnored(op.as_str()), span);
        }
        input.keep_floats();
    }

    /// Evaluates the parameter of an aggregation.
    fn param(&mut self, aggregate: &Aggregate, grid: Grid) -> Result<(Scalars, ParamRange)> {
        let param =
            aggregate.param.as_ref().ok_or_else(|| Error::Execution("the aggregation has no parameter".into()))?;
        let values = self.scalar(param, grid)?;
        let range = ParamRange::of(&values);
        Ok((values, range))
    }
}

/// The extremes of a parameter over all steps.
#[derive(Debug, Clone, Copy)]
struct ParamRange {
    min: f64,
    max: f64,
    any_nan: bool,
}

impl ParamRange {
    fn of(values: &[f64]) -> Self {
        let any_nan = values.iter().any(|value| value.is_nan());
        // NaN spreads, as with Go's extrema.
        let max = values.iter().copied().fold(f64::MIN, crate::float::max);
        let min = values.iter().copied().fold(f64::MAX, crate::float::min);
        Self { min, max, any_nan }
    }

    /// Returns NaN and the extremes that lie outside of bounds.
    fn outside(self, low: f64, high: f64) -> impl Iterator<Item = f64> {
        let nan = self.any_nan.then_some(f64::NAN);
        let above = (self.max > high).then_some(self.max);
        let below = (self.min < low).then_some(self.min);
        [nan, above, below].into_iter().flatten()
    }
}

/// Returns the labels of the groups and the indexes of their series, both as they appear.
fn members(aggregate: &Aggregate, input: &Vector) -> (Vec<Labels>, Vec<Vec<usize>>) {
    let mut groups = Groups::new(aggregate);
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (at, series) in input.series.iter().enumerate() {
        let (number, new) = groups.number(&series.labels);
        if new {
            members.push(Vec::new());
        }
        members[number].push(at);
    }
    (groups.labels, members)
}
