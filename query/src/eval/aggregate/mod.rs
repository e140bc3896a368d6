//! Aggregations across series.
//!
//! `sum`, `avg`, `count`, `min`, `max`, `group`, `stddev`, `stdvar` and `count_values` fold one series after the other into
//! their groups and hold nothing else; `topk`, `bottomk`, `limitk` and `limit_ratio` hold what they have picked so far;
//! `quantile` holds the values of each step.

mod count_values;
mod fold;
mod histograms;
mod pick;
mod quantile;

use varve_tsdb::Labels;
use varve_tsdb::context::Charge;
use varve_tsdb::labels::{LabelHint, METRIC_NAME};

use super::Evaluator;
use super::grid::Grid;
use super::keys::Keys;
use super::scalar::Scalars;
use super::series::{Bounds, Series, Vector};
use crate::annotations::Note;
use crate::error::{Error, Result};
use crate::plan::{Aggregate, Plan, PlanKind};
use crate::promql::ast::{AggregateOp, Span};
use fold::Fold;

/// The groups of an aggregation, numbered as they appear.
struct Groups<'a> {
    aggregate: &'a Aggregate,
    keys: Keys,
    /// The labels that came last, and the number of their group.
    last: Option<(Labels, usize)>,
}

impl<'a> Groups<'a> {
    fn new(aggregate: &'a Aggregate) -> Self {
        Self { aggregate, keys: Keys::default(), last: None }
    }

    /// Returns the number of the group of a series, and whether it is new.
    fn number(&mut self, labels: &Labels) -> (usize, bool) {
        // Fast path: series of which no more labels were read than make the groups.
        if let Some((last, number)) = &self.last
            && last.is_shared_with(labels)
        {
            return (*number, false);
        }
        let aggregate = self.aggregate;
        let (number, is_new) = self.keys.number(labels, |name| is_grouping(aggregate, name));
        self.last = Some((labels.clone(), number));
        (number, is_new)
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

/// Returns the labels that make the groups of some aggregations, and the metric name, which functions look at.
fn labels_for(aggregates: &[&Aggregate]) -> LabelHint {
    match aggregates {
        [alone] if alone.without => {
            LabelHint::Without(alone.grouping.iter().filter(|name| *name != METRIC_NAME).cloned().collect())
        }
        all if all.iter().any(|aggregate| aggregate.without) => LabelHint::All,
        all => {
            let names = all.iter().flat_map(|aggregate| &aggregate.grouping).cloned();
            LabelHint::With(names.chain([METRIC_NAME.to_owned()]).collect())
        }
    }
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
        let aggregates: Vec<_> = aggregates.flatten().collect();
        let asked = labels_for(&aggregates);
        let mut folds: Vec<_> = aggregates.into_iter().map(|aggregate| Folds::new(aggregate, grid)).collect();
        let (bounds, before) = (self.bounds.clone(), self.before());
        let (mut charge, mut hold) = (bounds.ctx.charge(), bounds.samples.hold());
        let n_uses = folds.len();
        self.each_with_labels(&aggregate.expr, grid, &asked, n_uses, &mut |series| {
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
