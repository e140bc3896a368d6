//! The type [`Evaluator`]: what the operators of a query share, and the dispatch to them.

use std::sync::{Arc, OnceLock};

use varve_context::Charge;
use varve_promql::Features;
use varve_promql::ast::{Span, ValueType};
use varve_tsdb::Db;
use varve_tsdb::select::LabelHint;

use super::columns::{Column, Limits, Series, Vector, without_name};
use super::profile::Profile;
use super::sample_stats::StepSampleStats;
use super::select::shared_scans::SharedScans;
use super::shared_results::SharedResults;
use super::sort::sort_by;
use super::workers::Workers;
use crate::annotations::Annotations;
use crate::error::{Error, Result};
use crate::plan::{CommonSubexpressions, Plan, PlanKind, Subquery};
use crate::steps::Steps;

/// Settings of an evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Lookback delta: a step uses samples younger than this.
    pub(crate) lookback_ms: i64,
    /// Default step of subqueries.
    pub(crate) subquery_step_ms: i64,
    pub(crate) features: Features,
}

/// Callback that receives series one at a time.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(Series) -> Result<()>;

/// Evaluates the plan of one query.
#[derive(Debug)]
pub(crate) struct Evaluator<'a> {
    pub(crate) db: &'a Db,
    /// Labels that all series have in addition to their own.
    pub(crate) external_labels: Arc<[(String, String)]>,
    /// Scans that this query shares with others.
    pub(crate) scans: Option<&'a SharedScans>,
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) workers: Workers,
    pub(crate) annotations: Annotations,
    pub(crate) subexpressions: CommonSubexpressions<'a>,
    pub(crate) shared: SharedResults,
    /// Whether the store has labels that are removed with the metric name.
    pub(crate) name_labels: OnceLock<bool>,
    /// Sample statistics of the steps that are being evaluated.
    pub(crate) sample_stats: StepSampleStats,
    pub(crate) profile: Profile,
    /// `false` if a value may depend on the order of series, and if that order may depend on which
    /// steps are evaluated. See [`Plan::order`].
    pub(crate) is_order_fixed: bool,
    /// The query is a range query, whose steps may be cached and joined to others.
    pub(crate) is_range_query: bool,
    /// The span of the whole query. A range query sorts the series of its result by labels, so
    /// their order does not matter there.
    pub(crate) query_span: Span,
    /// Charge for the memory of `sample_stats` and `profile`.
    pub(crate) stats_charge: Charge,
}

impl Evaluator<'_> {
    /// Returns `true` if series of one metric may have the same labels after their metric name is
    /// removed, because type and unit are removed with it.
    pub(super) fn has_name_labels(&self) -> bool {
        self.settings.features.type_and_unit_labels
            || *self.name_labels.get_or_init(|| self.db.has_name_labels())
    }

    /// Enables sample counts per step, and profiling of `n_nodes` expressions.
    ///
    /// # Errors
    /// [`Error::Limit`] if the statistics exceed the memory limit of the query.
    pub(crate) fn collect_stats(&mut self, n_steps: usize, n_nodes: usize) -> Result<()> {
        self.stats_charge
            .grow(StepSampleStats::size(n_steps) + Profile::size(n_nodes))?;
        self.sample_stats = StepSampleStats::new(true, n_steps);
        self.profile = Profile::new(true, n_nodes);
        Ok(())
    }

    /// Returns the peak number of samples held at once.
    pub(crate) fn peak_samples(&self) -> usize {
        self.limits.samples.peak()
    }

    /// Evaluates an expression of type vector.
    pub(crate) fn vector(&mut self, plan: &Plan, steps: Steps) -> Result<Vector> {
        self.limits.check()?;
        if steps.n_steps == 0 {
            return Ok(self.limits.vector());
        }
        let (class, n_uses) = self.subexpressions.uses(plan);
        if let Some(vector) = self.take_shared(class, plan)? {
            self.profile.record_vector(plan.id, &vector);
            return Ok(vector);
        }
        if n_uses <= 1 {
            return self.evaluate_vector(plan, steps);
        }
        let snapshot = self.side_effects_snapshot();
        let vector = self.evaluate_vector(plan, steps)?;
        let side_effects = self.side_effects_since(&snapshot);
        self.share(
            class,
            n_uses - 1,
            plan,
            vector.copy(&self.limits)?,
            side_effects,
        );
        Ok(vector)
    }

    pub(super) fn evaluate_vector(&mut self, plan: &Plan, steps: Steps) -> Result<Vector> {
        self.profiled(plan, |evaluator| match &plan.kind {
            PlanKind::Selector(_) => evaluator.materialize(plan, steps),
            PlanKind::StepInvariant(inner) => evaluator.step_invariant(inner, steps),
            PlanKind::Call(call) => evaluator.call(plan, call, steps),
            PlanKind::Aggregate(aggregate) => evaluator.aggregate(plan, aggregate, steps),
            PlanKind::Chain(_) | PlanKind::Sign(..) if plan.streamed_input().is_some() => {
                evaluator.staged(plan, steps)
            }
            PlanKind::Chain(chain) => evaluator.chain_of_vectors(chain, steps, &LabelHint::All),
            PlanKind::Sign(..)
            | PlanKind::Number(_)
            | PlanKind::String(_)
            | PlanKind::Range(_)
            | PlanKind::Subquery(_) => Err(Error::mistyped(ValueType::Vector)),
        })
    }

    /// Evaluates an expression with `evaluate`, and records its time and output in the profile.
    pub(super) fn profiled(
        &mut self,
        plan: &Plan,
        evaluate: impl FnOnce(&mut Self) -> Result<Vector>,
    ) -> Result<Vector> {
        let started = self.profile.now();
        let vector = evaluate(self)?;
        self.profile.record_time(plan.id, started);
        self.profile.record_vector(plan.id, &vector);
        Ok(vector)
    }

    /// Evaluates an expression of type vector and passes its series to `sink`. Series of selectors
    /// and range functions are computed one at a time, in ascending order of labels.
    pub(crate) fn each_series(&mut self, plan: &Plan, steps: Steps, sink: Sink<'_>) -> Result<()> {
        self.each_with_labels(plan, steps, &LabelHint::All, 1, sink)
    }

    /// Like [`Evaluator::each_with_labels`], for the input of aggregations. As in Prometheus, all
    /// samples of the input count as held until the aggregations end, even if they do not hold
    /// them. With `must_sort`, passes the series in ascending order of labels.
    pub(super) fn each_input(
        &mut self,
        plan: &Plan,
        steps: Steps,
        hint: &LabelHint,
        must_sort: bool,
        n_uses: usize,
        sink: Sink<'_>,
    ) -> Result<()> {
        if must_sort && steps.n_steps > 0 {
            let mut vector = self.vector_with_labels(plan, steps, hint)?;
            sort_by(&mut vector.series, &self.limits, |a, b| {
                a.labels.cmp(&b.labels)
            })?;
            return vector.series.into_iter().try_for_each(sink);
        }
        let mut held = self.limits.samples.guard();
        self.each_with_labels(plan, steps, hint, n_uses, &mut |series| {
            held.grow(series.column.n_samples())?;
            sink(series)
        })
    }

    /// Like [`Evaluator::each_series`], but the series may lack labels that are not in `hint`.
    /// `sink` serves `n_uses` of the uses of the expression.
    pub(super) fn each_with_labels(
        &mut self,
        plan: &Plan,
        steps: Steps,
        hint: &LabelHint,
        n_uses: usize,
        sink: Sink<'_>,
    ) -> Result<()> {
        self.limits.check()?;
        if steps.n_steps == 0 {
            return Ok(());
        }
        if self.subexpressions.is_kept_whole(plan)
            || self.merges_series(plan)
            || self.source(plan).is_none()
        {
            return self
                .vector_with_labels(plan, steps, hint)?
                .series
                .into_iter()
                .try_for_each(sink);
        }
        let started = self.profile.now();
        self.stream(plan, steps, hint, n_uses, sink)?;
        self.profile.record_time(plan.id, started);
        Ok(())
    }

    /// Evaluates an expression for an operator that reads only the labels in `hint`. The result may
    /// lack other labels, so its label sets are not necessarily unique.
    pub(super) fn vector_with_labels(
        &mut self,
        plan: &Plan,
        steps: Steps,
        hint: &LabelHint,
    ) -> Result<Vector> {
        match &plan.kind {
            PlanKind::Chain(chain)
                if self.subexpressions.uses(plan).1 <= 1 && plan.streamed_input().is_none() =>
            {
                self.profiled(plan, |evaluator| {
                    evaluator.chain_of_vectors(chain, steps, hint)
                })
            }
            _ => self.vector(plan, steps),
        }
    }

    /// Evaluates a step-invariant expression at the first step, and repeats its values at all
    /// steps.
    pub(super) fn step_invariant(&mut self, inner: &Plan, steps: Steps) -> Result<Vector> {
        let once = self.once(steps, |evaluator, at_start| {
            evaluator.vector(inner, at_start)
        })?;
        let mut vector = self.limits.vector();
        for Series {
            labels,
            drop_name,
            column,
        } in once.series
        {
            self.limits.check()?;
            let charge = self.limits.charge_column(steps.n_steps)?;
            let column = Column::repeated(&column, steps.n_steps);
            drop(charge);
            vector.push(Series {
                labels,
                drop_name,
                column,
            })?;
        }
        Ok(vector)
    }

    /// Evaluates a step-invariant expression at the first step.
    pub(super) fn once<T>(
        &mut self,
        steps: Steps,
        evaluate: impl FnOnce(&mut Self, Steps) -> Result<T>,
    ) -> Result<T> {
        let (value, once) = self.with_own_sample_stats(1, |evaluator| {
            evaluate(evaluator, Steps::instant(steps.start_ms))
        })?;
        self.sample_stats.add_invariant(&once);
        Ok(value)
    }

    /// Evaluates an expression at `n_steps` other steps. Returns the value and the sample statistics of
    /// these steps.
    pub(super) fn with_own_sample_stats<T>(
        &mut self,
        n_steps: usize,
        evaluate: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, StepSampleStats)> {
        let mut charge = self.limits.ctx.charge();
        if self.sample_stats.is_on() {
            charge.grow(StepSampleStats::size(n_steps))?;
        }
        let inner = self.sample_stats.empty(n_steps);
        let outer = std::mem::replace(&mut self.sample_stats, inner);
        let was_at_query_steps = self.annotations.set_at_query_steps(false);
        let value = evaluate(self);
        self.annotations.set_at_query_steps(was_at_query_steps);
        let inner = std::mem::replace(&mut self.sample_stats, outer);
        Ok((value?, inner))
    }

    /// Evaluates the expression of a subquery at all inner steps that `steps` need.
    /// Returns the inner steps, the value and its sample statistics.
    pub(super) fn evaluate_subquery(
        &mut self,
        subquery: &Subquery,
        steps: Steps,
    ) -> Result<(Steps, Vector, StepSampleStats)> {
        let first_ms = subquery.shift.apply(steps.start_ms);
        let last_ms = subquery.shift.apply(steps.last_ms());
        let step_ms = subquery.step_ms.unwrap_or(self.settings.subquery_step_ms);
        let inner = Steps::of_subquery(subquery.range_ms, step_ms, first_ms, last_ms);
        let mut step_sets = self.limits.ctx.charge();
        step_sets.grow(inner.n_steps / 8 * STEP_SETS_MAX)?;
        let (vector, stats) = self.with_own_sample_stats(inner.n_steps, |evaluator| {
            evaluator.vector(&subquery.expr, inner)
        })?;
        Ok((inner, vector, stats))
    }

    /// Evaluates a subquery for a range function.
    pub(super) fn subquery(
        &mut self,
        subquery: &Subquery,
        steps: Steps,
    ) -> Result<(Steps, Vector)> {
        let (inner, vector, stats) = self.evaluate_subquery(subquery, steps)?;
        self.sample_stats
            .add_subquery(&stats, inner, steps, subquery.shift, subquery.range_ms);
        Ok((inner, vector))
    }

    /// Evaluates a subquery that is the root of the query.
    pub(crate) fn whole_subquery(
        &mut self,
        subquery: &Subquery,
        steps: Steps,
    ) -> Result<(Steps, Vector)> {
        let (inner, vector, stats) = self.evaluate_subquery(subquery, steps)?;
        self.sample_stats.add_whole(&stats);
        Ok((inner, vector))
    }

    /// Removes the metric names of a vector whose values they no longer describe, or marks them for
    /// delayed removal.
    pub(super) fn without_names(&self, mut vector: Vector) -> Result<Vector> {
        let delayed = self.settings.features.delayed_name_removal;
        vector.update_labels(|series| {
            series.drop_name(delayed);
            Ok(())
        })?;
        vector.merge_same_labels()?;
        Ok(vector)
    }

    /// Performs the delayed name removal at the end of an evaluation.
    pub(crate) fn finish(&self, vector: &mut Vector) -> Result<()> {
        if !self.settings.features.delayed_name_removal {
            return Ok(());
        }
        vector.update_labels(|series| {
            if series.drop_name {
                series.labels = without_name(&series.labels);
            }
            Ok(())
        })?;
        vector.merge_same_labels()
    }
}

/// Maximum number of step sets that operators hold at a time, besides those of columns. They are
/// charged, because a subquery may have any number of steps.
const STEP_SETS_MAX: usize = 4;
