//! Streaming: passes series from a source through a pipeline of stages to the operator that
//! consumes them.
//!
//! A source (a selector or range function) produces series in batches, on all threads. Operators
//! that compute each series independently, such as `abs` or `* 8`, are stages of the same pipeline
//! and run on the same threads. For an operator that consumes one series at a time, such as an
//! aggregation, the query holds only a few batches and the operator's state. Operators that need
//! all series at once (joins, sorts) are pipeline breakers: they materialize the stream into a
//! vector.
//!
//! Invariants
//! 1. Series leave the pipeline in ascending order of their labels in the store, unless
//!    [`LabelHint::None`] is requested.
//! 2. A batch is charged until its series have been consumed.

mod pipeline;
mod share_source;
mod stage;

pub(super) use pipeline::{Batch, LATEST_BATCH_SERIES, Pipeline, batch_len, batches};
pub(super) use share_source::{CopyCollector, OPTIONAL_RESULT_SIZE_MAX};
pub(super) use stage::{Stage, StageKind};
use varve_promql::ast::{UnaryOp, ValueType};

use varve_model::labels::METRIC_NAME;
use varve_tsdb::select::LabelHint;

use crate::annotations::AnnotationList;
use crate::error::{Error, Result};
use crate::eval::columns::Vector;
use crate::eval::columns::combine::OperatorAnnotations;
use crate::eval::evaluator::{Evaluator, Sink};
use crate::eval::profile::OutputCount;
use crate::plan::{Plan, PlanKind};
use crate::steps::Steps;

impl Evaluator<'_> {
    /// Returns the source of an expression, or `None` if its series cannot be streamed. They can be
    /// streamed if all operators between source and expression compute each series independently,
    /// and cannot give the same labels to two series.
    pub(super) fn source<'p>(&self, plan: &'p Plan) -> Option<&'p Plan> {
        let mut source = plan;
        while let Some(input) = source.streamed_input() {
            source = input;
            // Results that are kept whole are not streamed.
            if self.subexpressions.is_kept_whole(source) {
                return None;
            }
        }
        if self.is_shared(source) {
            return None;
        }
        // Series that may get the same labels are merged first.
        if !std::ptr::eq(source, plan) && self.merges_series(source) {
            return None;
        }
        let untouched = std::ptr::eq(source, plan) || self.settings.features.delayed_name_removal;
        let is_source = match &source.kind {
            PlanKind::Selector(selector) => {
                untouched || selector.metric_name().is_some() && !self.has_name_labels()
            }
            PlanKind::Call(call) => call.is_over_range() && (untouched || !call.keeps_name()),
            _ => false,
        };
        is_source.then_some(source)
    }

    /// Returns `true` if a range function reads several metrics, whose series may get the same
    /// labels without their names. As in Prometheus, these are merged if they have no values at the
    /// same step.
    pub(super) fn merges_series(&self, source: &Plan) -> bool {
        let PlanKind::Call(call) = &source.kind else {
            return false;
        };
        let is_delayed = self.settings.features.delayed_name_removal;
        let drops_name = call.is_over_range() && !call.keeps_name() && !is_delayed;
        drops_name && (!source.reads_one_metric() || self.has_name_labels())
    }

    /// Streams the series of an expression that has a source.
    pub(super) fn stream(
        &mut self,
        plan: &Plan,
        steps: Steps,
        hint: &LabelHint,
        n_uses: usize,
        sink: Sink<'_>,
    ) -> Result<()> {
        let source = self
            .source(plan)
            .ok_or_else(|| Error::mistyped(ValueType::Vector))?;
        let stages = self.stages(plan, source, steps)?;
        let copy_target = self.copy_target(
            source,
            if std::ptr::eq(source, plan) {
                n_uses
            } else {
                1
            },
        );
        let labels = match copy_target {
            None => self.source_labels(source, &stages, hint),
            Some(_) => LabelHint::All,
        };
        let pipeline = Pipeline {
            labels,
            copy_target,
            ..self.pipeline(stages, steps)
        };
        match &source.kind {
            PlanKind::Selector(selector) => {
                self.each_selected(source, selector, &pipeline, steps, sink)
            }
            PlanKind::Call(call) => self.each_over_range(source, call, pipeline, steps, sink),
            _ => Err(Error::mistyped(ValueType::Vector)),
        }
    }

    /// Collects all series of an expression that has a source.
    pub(super) fn materialize(&mut self, plan: &Plan, steps: Steps) -> Result<Vector> {
        self.materialize_with_labels(plan, steps, &LabelHint::All)
    }

    fn materialize_with_labels(
        &mut self,
        plan: &Plan,
        steps: Steps,
        hint: &LabelHint,
    ) -> Result<Vector> {
        let mut vector = self.limits.vector();
        self.stream(plan, steps, hint, usize::MAX, &mut |series| {
            vector.push(series)
        })?;
        if self.merges_series(plan) {
            vector.merge_same_labels()?;
        }
        Ok(vector)
    }

    /// Collects the series of an expression that has a source, with only the labels in `hint`.
    pub(super) fn narrow_vector(
        &mut self,
        plan: &Plan,
        steps: Steps,
        hint: &LabelHint,
    ) -> Result<Vector> {
        self.limits.check()?;
        self.profiled(plan, |evaluator| match steps.n_steps {
            0 => Ok(evaluator.limits.vector()),
            _ => evaluator.materialize_with_labels(plan, steps, hint),
        })
    }

    /// Evaluates an expression that is one or more stages.
    pub(super) fn staged(&mut self, plan: &Plan, steps: Steps) -> Result<Vector> {
        if self.source(plan).is_some() {
            return self.materialize(plan, steps);
        }
        let input = plan
            .streamed_input()
            .ok_or_else(|| Error::mistyped(ValueType::Vector))?;
        // Operands are evaluated from left to right, because the last position of equal annotations
        // is reported.
        let (vector, stages) = if begins_with_scalar(plan) {
            let stages = self.own_stages(plan, steps)?;
            (self.vector(input, steps)?, stages)
        } else {
            let vector = self.vector(input, steps)?;
            (vector, self.own_stages(plan, steps)?)
        };
        stages
            .iter()
            .try_fold(vector, |vector, stage| self.apply_stage(vector, stage))
    }

    /// Applies a stage to all series of a vector, and merges series whose labels become equal.
    pub(super) fn apply_stage(&mut self, mut vector: Vector, stage: &Stage<'_>) -> Result<Vector> {
        let delayed = self.settings.features.delayed_name_removal;
        let mut annotations = OperatorAnnotations::default();
        for (order, series) in vector.series.iter_mut().enumerate() {
            self.limits.check_series(order)?;
            stage.apply(series, order, &mut annotations, &self.limits, delayed)?;
        }
        let depends_on_order = stage.annotate(annotations, &mut self.annotations);
        self.is_order_fixed &= !depends_on_order;
        vector.drop_empty();
        let mut vector = self.recharged(vector)?;
        vector.merge_same_labels()?;
        Ok(vector)
    }

    /// Charges a vector again if it has histograms, because their size may have changed.
    fn recharged(&self, vector: Vector) -> Result<Vector> {
        // Fast path: the size of floats is unchanged.
        if vector
            .series
            .iter()
            .all(|series| series.column.histograms.is_empty())
        {
            return Ok(vector);
        }
        let mut out = self.limits.vector();
        vector
            .series
            .into_iter()
            .try_for_each(|series| out.push(series))?;
        Ok(out)
    }

    /// Returns the stages from a source to an expression, in order of application.
    fn stages<'p>(
        &mut self,
        plan: &'p Plan,
        source: &Plan,
        steps: Steps,
    ) -> Result<Vec<Stage<'p>>> {
        let mut stages = Vec::new();
        let mut at = plan;
        while !std::ptr::eq(at, source) {
            let Some(input) = at.streamed_input() else {
                break;
            };
            let mut own = self.own_stages(at, steps)?;
            own.append(&mut stages);
            stages = own;
            at = input;
        }
        Ok(stages)
    }

    /// Returns the stages of a single expression.
    fn own_stages<'p>(&mut self, plan: &'p Plan, steps: Steps) -> Result<Vec<Stage<'p>>> {
        let id = plan.id;
        match &plan.kind {
            PlanKind::Sign(UnaryOp::Minus, _) => Ok(vec![Stage {
                id,
                kind: StageKind::Negate,
            }]),
            PlanKind::Call(call) => Ok(self
                .call_stage(call, steps)?
                .map(|kind| Stage { id, kind })
                .into_iter()
                .collect()),
            PlanKind::Chain(chain) => {
                let swapped = chain.first.value_type == ValueType::Scalar;
                let mut stages = Vec::with_capacity(chain.links.len());
                for (at, link) in chain.links.iter().enumerate() {
                    let swapped = swapped && at == 0;
                    let scalar =
                        self.scalar(if swapped { &chain.first } else { &link.rhs }, steps)?;
                    stages.push(Stage {
                        id,
                        kind: StageKind::WithScalar {
                            link,
                            scalar,
                            swapped,
                        },
                    });
                }
                Ok(stages)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns a pipeline of `stages` that reads all labels and has no siblings.
    pub(super) fn pipeline<'p>(&self, stages: Vec<Stage<'p>>, steps: Steps) -> Pipeline<'p> {
        Pipeline {
            stages,
            limits: self.limits.clone(),
            delayed: self.settings.features.delayed_name_removal,
            sample_stats: self.sample_stats.empty(steps.n_steps),
            n_steps: steps.n_steps,
            labels: LabelHint::All,
            copy_target: None,
            siblings: Vec::new(),
        }
    }

    /// Returns the labels that a source must read if its consumer needs the labels in `hint`: all
    /// labels, if series may be distinct only by other labels.
    fn source_labels(&self, source: &Plan, stages: &[Stage<'_>], hint: &LabelHint) -> LabelHint {
        let has_one_name =
            !self.settings.features.delayed_name_removal && source.reads_one_metric();
        let drops_name = stages.iter().any(Stage::drops_name);
        let is_plain = stages.is_empty()
            && matches!(&source.kind, PlanKind::Selector(selector) if selector.extension.is_none());
        let (keeps_names, needs_name) = match &source.kind {
            PlanKind::Selector(selector) => {
                (!drops_name, !drops_name || selector.extension.is_some())
            }
            PlanKind::Call(call) => (false, call.keeps_name() && !drops_name),
            _ => (false, true),
        };
        match hint {
            _ if !(keeps_names || has_one_name) || self.has_name_labels() => LabelHint::All,
            // Annotations are in the order of the series.
            LabelHint::None if !is_plain && needs_name => {
                LabelHint::With(vec![METRIC_NAME.to_owned()])
            }
            LabelHint::None if !is_plain => LabelHint::With(Vec::new()),
            hint if needs_name => hint.clone(),
            hint => without_metric_name(hint),
        }
    }

    /// Returns `true` if the series of `plan` are distinct even if only some labels are read: no
    /// other expression shares its result, and all its series have the same metric name.
    pub(super) fn are_distinct_by_any_label(&self, plan: &Plan) -> bool {
        let is_plain =
            !self.settings.features.delayed_name_removal && self.subexpressions.uses(plan).1 <= 1;
        is_plain && self.source(plan).is_some_and(Plan::reads_one_metric) && !self.has_name_labels()
    }

    /// Runs a pipeline: computes the series of batches on all threads, and passes them to `sink` in
    /// order. `source` is the id of the expression that `produce` evaluates. `visit` is called with
    /// each batch before its series are consumed.
    pub(super) fn run<B: Send>(
        &mut self,
        source: usize,
        pipeline: &Pipeline<'_>,
        next: impl FnMut() -> Result<Option<B>>,
        produce: impl for<'m> Fn(B, &mut Batch<'m>) -> Result<()> + Sync,
        mut visit: impl FnMut(&mut Batch<'_>),
        sink: Sink<'_>,
    ) -> Result<()> {
        let workers = self.workers.clone();
        let mut annotations = AnnotationList::default();
        let mut stage_annotations: Vec<_> = pipeline
            .stages
            .iter()
            .map(|_| OperatorAnnotations::default())
            .collect();
        let mut outputs = vec![OutputCount::default(); pipeline.stages.len() + 1];
        let mut copy_collector = pipeline
            .copy_target
            .map(|target| self.copy_collector(target, pipeline.n_steps));
        workers.in_order(
            next,
            |input| {
                pipeline.limits.check()?;
                let mut batch = Batch::new(pipeline)?;
                produce(input, &mut batch)?;
                batch.charge_rest()?;
                Ok(batch)
            },
            |mut batch: Batch<'_>| {
                pipeline.limits.check()?;
                visit(&mut batch);
                if let Some(copy_collector) = &mut copy_collector {
                    copy_collector.add(Some(batch.source_output()));
                }
                annotations.merge(std::mem::take(&mut batch.annotations));
                self.sample_stats.add_all(&batch.sample_stats);
                for (all, added) in stage_annotations.iter_mut().zip(batch.stage_annotations) {
                    all.extend(added);
                }
                for (all, added) in outputs.iter_mut().zip(&batch.outputs) {
                    all.add(*added);
                }
                batch.series.into_iter().try_for_each(&mut *sink)
            },
        )?;
        if let Some(copy_collector) = copy_collector {
            self.share_copy(copy_collector);
        }
        annotations.add_to(&mut self.annotations);
        self.record_stages(source, pipeline, outputs, stage_annotations);
        Ok(())
    }

    /// Records how much the source and each stage produced, and the annotations of the stages.
    fn record_stages(
        &mut self,
        source: usize,
        pipeline: &Pipeline<'_>,
        outputs: Vec<OutputCount>,
        stage_annotations: Vec<OperatorAnnotations>,
    ) {
        let ids = [source]
            .into_iter()
            .chain(pipeline.stages.iter().map(|stage| stage.id));
        for (id, output) in ids.zip(outputs) {
            self.profile.record_output(id, output);
        }
        for (stage, annotations) in pipeline.stages.iter().zip(stage_annotations) {
            // The series of a source have the same order at any steps.
            stage.annotate(annotations, &mut self.annotations);
        }
    }
}

/// Returns `true` if the first operand of a chain of operators is a scalar.
fn begins_with_scalar(plan: &Plan) -> bool {
    matches!(&plan.kind, PlanKind::Chain(chain) if chain.first.value_type == ValueType::Scalar)
}

/// Removes the metric name from the labels in `hint`.
fn without_metric_name(hint: &LabelHint) -> LabelHint {
    match hint {
        LabelHint::All => LabelHint::All,
        LabelHint::None => LabelHint::None,
        LabelHint::With(names) => LabelHint::With(
            names
                .iter()
                .filter(|name| *name != METRIC_NAME)
                .cloned()
                .collect(),
        ),
        LabelHint::Without(names) => LabelHint::Without(
            names
                .iter()
                .cloned()
                .chain([METRIC_NAME.to_owned()])
                .collect(),
        ),
    }
}
