//! Aggregations across series.
//!
//! `sum`, `avg`, `count`, `min`, `max`, `group`, `stddev`, `stdvar` and `count_values` fold one series after the other into
//! their groups and hold nothing else; `topk`, `bottomk` and `limitk` hold what they have picked so far; `quantile` and
//! `limit_ratio` need all values at once.

mod count_values;
mod fold;
mod histograms;
mod pick;

use varve_tsdb::{Charge, Labels, METRIC_NAME};

use super::Evaluator;
use super::grid::Grid;
use super::keys::Keys;
use super::scalar::Scalars;
use super::series::{Bounds, Series, Vector};
use crate::annotations::Note;
use crate::error::{Error, Result};
use crate::functions::over_time::quantile_of;
use crate::plan::{Aggregate, Plan, PlanKind};
use crate::promql::ast::{AggregateOp, Span};
use fold::Fold;

/// The groups of an aggregation, numbered as they appear.
struct Groups<'a> {
    aggregate: &'a Aggregate,
    keys: Keys,
}

impl<'a> Groups<'a> {
    fn new(aggregate: &'a Aggregate) -> Self {
        Self { aggregate, keys: Keys::default() }
    }

    /// Returns the number of the group of a series, and whether it is new.
    fn number(&mut self, labels: &Labels) -> (usize, bool) {
        let aggregate = self.aggregate;
        self.keys.number(labels, |name| is_grouping(aggregate, name))
    }

    /// Returns the labels of a group.
    fn labels(&self, number: usize) -> &Labels {
        &self.keys.labels()[number]
    }
}

/// Tells whether a label is one of those that make the groups.
fn is_grouping(aggregate: &Aggregate, name: &str) -> bool {
    let named = aggregate.grouping.iter().any(|label| label == name);
    if aggregate.without { name != METRIC_NAME && !named } else { named }
}

impl Evaluator<'_> {
    /// Evaluates an aggregation, which `plan` is.
    pub(super) fn aggregate(&mut self, plan: &Plan, aggregate: &Aggregate, grid: Grid) -> Result<Vector> {
        match aggregate.op {
            AggregateOp::CountValues => self.count_values(aggregate, grid),
            AggregateOp::Quantile => self.quantile(aggregate, grid),
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk => self.pick(aggregate, plan.span, grid),
            AggregateOp::LimitRatio => self.limit_ratio(aggregate, grid),
            _ => self.fold(plan, aggregate, grid),
        }
    }

    /// Folds the series into their groups as they come. What else folds the same series is folded with it, and kept.
    fn fold(&mut self, plan: &Plan, aggregate: &Aggregate, grid: Grid) -> Result<Vector> {
        let mut together = self.sharing.folds_with(plan, aggregate);
        together.retain(|(class, ..)| !self.kept.contains_key(class));
        let aggregates = together.iter().map(|(.., plan)| aggregate_of(plan));
        let mut folds: Vec<_> = aggregates.flatten().map(|aggregate| Folds::new(aggregate, grid)).collect();
        let (bounds, before) = (self.bounds.clone(), self.before());
        let (mut charge, mut hold) = (bounds.ctx.charge(), bounds.samples.hold());
        self.each_series(&aggregate.expr, grid, &mut |series| {
            // As in Prometheus samples count until the aggregation is done, though they are not kept.
            hold.grow(series.column.n_samples())?;
            folds.iter_mut().try_for_each(|folds| folds.add(&series, &mut charge))
        })?;
        drop(hold);
        let mut own = None;
        let of_series = self.aside(&before);
        for (folds, (class, n_uses, other)) in folds.into_iter().zip(together) {
            let (vector, notes) = folds.finish(&bounds)?;
            if std::ptr::eq(other, plan) {
                notes.into_iter().for_each(|(note, span)| self.annotations.add(note, span));
                own = Some(vector);
            } else if let Some(of_other) = aggregate_of(other) {
                let aside = of_series.moved(&aggregate.expr, &of_other.expr, &notes);
                self.keep(class, n_uses, other, vector, aside);
            }
        }
        Ok(own.unwrap_or_else(|| self.bounds.vector()))
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

fn aggregate_of(plan: &Plan) -> Option<&Aggregate> {
    if let PlanKind::Aggregate(aggregate) = &plan.kind { Some(aggregate) } else { None }
}

/// The groups of an aggregation that folds.
struct Folds<'a> {
    groups: Groups<'a>,
    grid: Grid,
    /// By number of the group; and whether its name is to go.
    folds: Vec<(Fold, bool)>,
    notes: Vec<Note>,
}

impl<'a> Folds<'a> {
    fn new(aggregate: &'a Aggregate, grid: Grid) -> Self {
        Self { groups: Groups::new(aggregate), grid, folds: Vec::new(), notes: Vec::new() }
    }

    fn add(&mut self, series: &Series, charge: &mut Charge) -> Result<()> {
        let (number, new) = self.groups.number(&series.labels);
        if new {
            let (op, n_steps) = (self.groups.aggregate.op, self.grid.n_steps);
            charge.grow(Fold::size(op, n_steps) + Keys::size(self.groups.labels(number)))?;
            self.folds.push((Fold::new(op, n_steps)?, false));
        }
        let (fold, drop_name) = &mut self.folds[number];
        charge.grow(fold.add(series, &mut self.notes))?;
        *drop_name |= series.drop_name;
        Ok(())
    }

    /// Returns the groups, and what there is to say about the series that they are of.
    fn finish(mut self, bounds: &Bounds) -> Result<(Vector, Vec<(Note, Span)>)> {
        let span = self.groups.aggregate.expr.span;
        let mut vector = bounds.vector();
        for (labels, (fold, drop_name)) in self.groups.keys.into_labels().into_iter().zip(self.folds) {
            vector.push(Series { labels, drop_name, column: fold.finish(&mut self.notes) })?;
        }
        Ok((vector, self.notes.into_iter().map(|note| (note, span)).collect()))
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
    (groups.keys.into_labels(), members)
}
