//! Materializes a stream for its other uses: `sum(x) + max(abs(x))` reads `x` once.
//!
//! The first use stores the series of the source while it streams them. If no use needs all series
//! at once, the stored size is limited: queries that aggregate many series read them again instead
//! of holding them.
//!
//! Invariants
//! 1. A materialization that fails or exceeds its limit is dropped, and the expression is evaluated
//!    again at its next use. Errors, annotations and statistics are always those of a separate
//!    evaluation.
//! 2. Each source is materialized at most once, even if that fails.

use crate::annotations::AnnotationList;
use crate::eval::columns::{Limits, Series, Vector};
use crate::eval::evaluator::Evaluator;
use crate::eval::sample_stats::StepSampleStats;
use crate::eval::shared_results::SideEffects;
use crate::plan::Plan;

/// Maximum size in bytes of a result that is stored only to avoid reading its series again.
pub(in crate::eval) const OPTIONAL_RESULT_SIZE_MAX: usize = 16 << 20;

/// An expression to materialize, and the number of remaining uses.
#[derive(Debug, Clone, Copy)]
pub(in crate::eval) struct Materialization<'p> {
    class: usize,
    uses_left: usize,
    plan: &'p Plan,
    size_max: usize,
}

/// A result that is being materialized.
pub(in crate::eval) struct Materializer<'p> {
    target: Materialization<'p>,
    /// `None` after a failure or above the size limit.
    result: Option<(Vector, AnnotationList, StepSampleStats)>,
}

impl<'p> Materializer<'p> {
    fn new(target: Materialization<'p>, limits: &Limits, sample_stats: StepSampleStats) -> Self {
        Self {
            target,
            result: Some((limits.vector(), AnnotationList::default(), sample_stats)),
        }
    }

    /// Adds the output of a batch; `None` if the batch failed.
    pub(in crate::eval) fn add(
        &mut self,
        batch: Option<(Vec<Series>, AnnotationList, StepSampleStats)>,
    ) {
        let Some((vector, all_annotations, all_stats)) = &mut self.result else {
            return;
        };
        let is_added = batch.is_some_and(|(series, annotations, sample_stats)| {
            all_annotations.merge(annotations);
            all_stats.add_all(&sample_stats);
            series
                .into_iter()
                .try_for_each(|series| vector.push(series))
                .is_ok()
        });
        if !is_added || vector.size() > self.target.size_max {
            self.result = None;
        }
    }
}

impl Evaluator<'_> {
    /// Returns how to materialize the series of a source; the stream serves `n_served` of its uses.
    /// Returns `None` if no use is left, or if it was tried before.
    pub(super) fn materialization<'p>(
        &mut self,
        source: &'p Plan,
        n_served: usize,
    ) -> Option<Materialization<'p>> {
        let (class, n_uses) = self.subexpressions.uses(source);
        let uses_left = n_uses.saturating_sub(n_served);
        let is_new =
            uses_left > 0 && !self.shared.contains(class) && self.shared.materialized.insert(class);
        is_new.then_some(Materialization {
            class,
            uses_left,
            plan: source,
            size_max: OPTIONAL_RESULT_SIZE_MAX,
        })
    }

    /// Starts to materialize the result of an expression for all of its uses.
    pub(in crate::eval) fn materializer_of<'p>(
        &self,
        plan: &'p Plan,
        size_max: usize,
        n_steps: usize,
    ) -> Materializer<'p> {
        let (class, uses_left) = self.subexpressions.uses(plan);
        self.materializer(
            Materialization {
                class,
                uses_left,
                plan,
                size_max,
            },
            n_steps,
        )
    }

    pub(super) fn materializer<'p>(
        &self,
        target: Materialization<'p>,
        n_steps: usize,
    ) -> Materializer<'p> {
        Materializer::new(target, &self.limits, self.sample_stats.empty(n_steps))
    }

    /// Makes a materialized result available to the other uses, unless the materialization failed.
    pub(in crate::eval) fn share_materialized(&mut self, materializer: Materializer<'_>) {
        let Materialization {
            class,
            uses_left,
            plan,
            ..
        } = materializer.target;
        if let Some((vector, annotations, sample_stats)) = materializer.result {
            self.share(
                class,
                uses_left,
                plan,
                vector,
                SideEffects::new(annotations.into_list(), sample_stats),
            );
        }
    }
}
