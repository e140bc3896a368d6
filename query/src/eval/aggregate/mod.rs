//! Aggregations across series.
//!
//! `sum`, `avg`, `count`, `min`, `max`, `group`, `stddev`, `stdvar` and `count_values` fold one
//! series at a time into their groups and hold only the groups. `topk`, `bottomk`, `limitk` and
//! `limit_ratio` hold the series selected so far; `quantile` holds the values of each step.

mod count_values;
mod fold;
mod heap;
mod histograms;
mod quantile;
mod top_k;

use varve_context::Charge;
use varve_model::Labels;
use varve_model::labels::METRIC_NAME;
use varve_promql::ast::AggregateOp;
use varve_tsdb::select::LabelHint;

use crate::annotations::{AnnotationEntry, AnnotationList};
use crate::error::{Error, Result};
use crate::eval::columns::{
    GroupingKeys, HINT_NAMES_MAX, Limits, Scalars, Series, SharedSets, Vector,
};
use crate::eval::evaluator::Evaluator;
use crate::plan::{Aggregate, Order, Plan, PlanKind, contains_name, is_name_label};
use crate::steps::Steps;
use fold::Fold;

/// The groups of an aggregation, in order of appearance.
struct Groups<'a> {
    aggregate: &'a Aggregate,
    keys: GroupingKeys,
    /// The groups of label sets that series share.
    known: SharedSets<usize>,
}

impl<'a> Groups<'a> {
    fn new(aggregate: &'a Aggregate) -> Self {
        Self {
            aggregate,
            keys: GroupingKeys::default(),
            known: SharedSets::default(),
        }
    }

    /// Returns the index of the group of a series, and `true` if the group is new.
    fn intern(&mut self, labels: &Labels, limits: &Limits) -> Result<(usize, bool)> {
        // Fast path: if only the grouping labels were read, series of a group often share one label
        // set.
        if let Some(group) = self.known.get(labels) {
            return Ok((group, false));
        }
        let aggregate = self.aggregate;
        let (group, is_new) = self
            .keys
            .intern(labels, limits, |name| is_grouping(aggregate, name))?;
        self.known.insert(labels, group);
        Ok((group, is_new))
    }

    /// Returns the labels of a group.
    fn labels(&self, group: usize) -> &Labels {
        &self.keys.labels()[group]
    }
}

/// Returns `true` if a label is part of the grouping key.
fn is_grouping(aggregate: &Aggregate, name: &str) -> bool {
    let named = contains_name(&aggregate.grouping, name);
    if aggregate.without {
        !is_name_label(name) && !named
    } else {
        named
    }
}

/// Returns the labels that aggregations need: the grouping labels, and the metric name, which
/// functions use. Counting all series needs none.
fn labels_for(aggregates: &[&Aggregate]) -> LabelHint {
    if aggregates
        .iter()
        .map(|aggregate| aggregate.grouping.len())
        .sum::<usize>()
        > HINT_NAMES_MAX
    {
        return LabelHint::All;
    }
    match aggregates {
        all if all.iter().all(|aggregate| counts_all(aggregate)) => LabelHint::None,
        [alone] if alone.without => LabelHint::Without(
            alone
                .grouping
                .iter()
                .filter(|name| *name != METRIC_NAME)
                .cloned()
                .collect(),
        ),
        all if all.iter().any(|aggregate| aggregate.without) => LabelHint::All,
        all => {
            let names = all
                .iter()
                .flat_map(|aggregate| &aggregate.grouping)
                .cloned();
            LabelHint::With(names.chain([METRIC_NAME.to_owned()]).collect())
        }
    }
}

/// Returns `true` if an aggregation has one group, and its result depends neither on the order nor
/// on the values of the series.
fn counts_all(aggregate: &Aggregate) -> bool {
    let is_count = matches!(aggregate.op, AggregateOp::Count | AggregateOp::Group);
    is_count && aggregate.grouping.is_empty() && !aggregate.without
}

impl Evaluator<'_> {
    /// Evaluates the aggregation of `plan`.
    pub(super) fn aggregate(
        &mut self,
        plan: &Plan,
        aggregate: &Aggregate,
        steps: Steps,
    ) -> Result<Vector> {
        match aggregate.op {
            AggregateOp::CountValues => self.count_values(aggregate, steps),
            AggregateOp::Quantile => self.quantile(aggregate, steps),
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk => {
                self.top_k(aggregate, plan.span, steps)
            }
            AggregateOp::LimitRatio => self.limit_ratio(aggregate, steps),
            _ => self.fold(plan, aggregate, steps),
        }
    }

    /// Folds a stream of series into groups. Computes other folds of the same input in the same
    /// pass and shares their results.
    fn fold(&mut self, plan: &Plan, aggregate: &Aggregate, steps: Steps) -> Result<Vector> {
        let mut together = self.subexpressions.folds_of_same_input(plan, aggregate);
        together.retain(|(class, ..)| !self.shared.contains(*class));
        let aggregates = together.iter().map(|(.., plan)| aggregate_of(plan));
        let aggregates: Vec<_> = aggregates.flatten().collect();
        let hint = labels_for(&aggregates);
        let must_sort = self.sorts_input_of(&aggregates);
        let mut grouped: Vec<_> = aggregates
            .into_iter()
            .map(|aggregate| GroupedFold::new(aggregate, steps))
            .collect();
        let limits = self.limits.clone();
        let snapshot = self.side_effects_snapshot();
        let mut charge = limits.ctx.charge();
        let n_served = grouped.len();
        self.each_input(
            &aggregate.expr,
            steps,
            &hint,
            must_sort,
            n_served,
            &mut |series| {
                grouped
                    .iter_mut()
                    .try_for_each(|fold| fold.add(&series, &mut charge, &limits))
            },
        )?;
        let mut own = None;
        let side_effects_of_input = self.side_effects_since(&snapshot);
        for (fold, (class, n_uses, other)) in grouped.into_iter().zip(together) {
            let (vector, annotations) = fold.finish(&limits)?;
            if std::ptr::eq(other, plan) {
                for entry in annotations {
                    self.annotations.add_entry(entry);
                }
                own = Some(vector);
            } else if let Some(other_aggregate) = aggregate_of(other) {
                let side_effects = side_effects_of_input.relocated(
                    &aggregate.expr,
                    &other_aggregate.expr,
                    &annotations,
                );
                self.share(class, n_uses, other, vector, side_effects);
            }
        }
        Ok(own.unwrap_or_else(|| self.limits.vector()))
    }

    /// Returns `true` if the common input of `aggregates` must be sorted, because a result depends
    /// on its order. Otherwise the value of a step would depend on which other steps are evaluated
    /// with it, and the result cache could not join steps. Instant queries have one step.
    fn sorts_input_of(&self, aggregates: &[&Aggregate]) -> bool {
        let step_ms = self.settings.subquery_step_ms;
        let depends = aggregates
            .iter()
            .find(|aggregate| aggregate.depends_on_order());
        self.is_range_query
            && depends.is_some_and(|aggregate| aggregate.expr.order(step_ms) == Some(Order::Any))
    }

    /// Evaluates the parameter of an aggregation.
    fn param(&mut self, aggregate: &Aggregate, steps: Steps) -> Result<(Scalars, ParamRange)> {
        let param = aggregate
            .param
            .as_ref()
            .ok_or_else(|| Error::Execution("the aggregation has no parameter".into()))?;
        let values = self.scalar(param, steps)?;
        let range = ParamRange::of(&values);
        Ok((values, range))
    }
}

fn aggregate_of(plan: &Plan) -> Option<&Aggregate> {
    if let PlanKind::Aggregate(aggregate) = &plan.kind {
        Some(aggregate)
    } else {
        None
    }
}

/// A fold with its groups.
struct GroupedFold<'a> {
    groups: Groups<'a>,
    steps: Steps,
    /// The state of each group, and its flag for delayed name removal.
    states: Vec<(Fold, bool)>,
    annotations: AnnotationList,
}

impl<'a> GroupedFold<'a> {
    fn new(aggregate: &'a Aggregate, steps: Steps) -> Self {
        Self {
            groups: Groups::new(aggregate),
            steps,
            states: Vec::new(),
            annotations: AnnotationList::default(),
        }
    }

    fn add(&mut self, series: &Series, charge: &mut Charge, limits: &Limits) -> Result<()> {
        let (group, is_new) = self.groups.intern(&series.labels, limits)?;
        if is_new {
            let op = self.groups.aggregate.op;
            let n_steps = self.steps.n_steps;
            charge.grow(Fold::size(op, n_steps) + GroupingKeys::size(self.groups.labels(group)))?;
            self.states.push((Fold::new(op, n_steps)?, false));
        }
        let (fold, drop_name) = &mut self.states[group];
        fold.add(series, &mut self.annotations, limits)?;
        *drop_name |= series.drop_name;
        Ok(())
    }

    /// Returns the result, and the annotations, all at the span of the input.
    fn finish(mut self, limits: &Limits) -> Result<(Vector, Vec<AnnotationEntry>)> {
        let span = self.groups.aggregate.expr.span;
        let mut vector = limits.vector();
        let groups = self.groups.keys.into_labels().into_iter().zip(self.states);
        for (group, (labels, (fold, drop_name))) in groups.enumerate() {
            limits.check_series(group)?;
            vector.push(Series {
                labels,
                drop_name,
                column: fold.finish(&mut self.annotations),
            })?;
        }
        let mut annotations = Vec::new();
        for entry in self.annotations.into_entries() {
            annotations.push(entry.moved_to(span));
        }
        Ok((vector, annotations))
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
        // NaN propagates, as in Go's `math.Max` and `math.Min`.
        let max = values
            .iter()
            .copied()
            .fold(f64::MIN, crate::math::float::max);
        let min = values
            .iter()
            .copied()
            .fold(f64::MAX, crate::math::float::min);
        Self { min, max, any_nan }
    }

    /// Returns the extremes that are NaN or outside of `low..=high`.
    fn outside(self, low: f64, high: f64) -> impl Iterator<Item = f64> {
        let nan = self.any_nan.then_some(f64::NAN);
        let above = (self.max > high).then_some(self.max);
        let below = (self.min < low).then_some(self.min);
        [nan, above, below].into_iter().flatten()
    }
}
