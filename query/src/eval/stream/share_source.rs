//! Copies the series of a source for its other uses: `sum(x) + max(abs(x))` reads `x` once.
//!
//! The first use stores the series of the source while it streams them. If no use needs all series
//! at once, the stored size is limited: queries that aggregate many series read them again instead
//! of holding them.
//!
//! Invariants
//! 1. A copy that fails or exceeds its limit is dropped, and the expression is evaluated again at
//!    its next use. Errors, annotations and statistics are always those of a separate
//!    evaluation.
//! 2. Each source is copied at most once, even if that fails.

use crate::annotations::AnnotationList;
use crate::eval::columns::{Limits, Series, Vector};
use crate::eval::evaluator::Evaluator;
use crate::eval::sample_stats::StepSampleStats;
use crate::eval::shared_results::SideEffects;
use crate::plan::Plan;

/// Maximum size in bytes of a result that is stored only to avoid reading its series again.
pub(in crate::eval) const OPTIONAL_RESULT_SIZE_MAX: usize = 16 << 20;

/// An expression whose result is copied, and the number of its remaining uses.
#[derive(Debug, Clone, Copy)]
pub(in crate::eval) struct CopyTarget<'p> {
    class: usize,
    uses_left: usize,
    plan: &'p Plan,
    size_max: usize,
}

/// A copy of a result, in progress.
pub(in crate::eval) struct CopyCollector<'p> {
    target: CopyTarget<'p>,
    /// `None` after a failure or above the size limit.
    result: Option<(Vector, AnnotationList, StepSampleStats)>,
}

impl<'p> CopyCollector<'p> {
    fn new(target: CopyTarget<'p>, limits: &Limits, sample_stats: StepSampleStats) -> Self {
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
    /// Claims the copy of the series of a source, of whose uses the stream serves `n_served`.
    /// Returns `None` if no use is left, if the result is shared already, or if the copy was
    /// claimed before.
    pub(super) fn copy_target<'p>(
        &mut self,
        source: &'p Plan,
        n_served: usize,
    ) -> Option<CopyTarget<'p>> {
        let (class, n_uses) = self.subexpressions.uses(source);
        let uses_left = n_uses.saturating_sub(n_served);
        let is_new =
            uses_left > 0 && !self.shared.contains(class) && self.shared.copied.insert(class);
        is_new.then_some(CopyTarget {
            class,
            uses_left,
            plan: source,
            size_max: OPTIONAL_RESULT_SIZE_MAX,
        })
    }

    /// Starts to copy the result of an expression for all of its uses.
    pub(in crate::eval) fn copy_collector_of<'p>(
        &self,
        plan: &'p Plan,
        size_max: usize,
        n_steps: usize,
    ) -> CopyCollector<'p> {
        let (class, uses_left) = self.subexpressions.uses(plan);
        self.copy_collector(
            CopyTarget {
                class,
                uses_left,
                plan,
                size_max,
            },
            n_steps,
        )
    }

    pub(super) fn copy_collector<'p>(
        &self,
        target: CopyTarget<'p>,
        n_steps: usize,
    ) -> CopyCollector<'p> {
        CopyCollector::new(target, &self.limits, self.sample_stats.empty(n_steps))
    }

    /// Makes a copy available to the other uses, unless it failed.
    pub(in crate::eval) fn share_copy(&mut self, copy_collector: CopyCollector<'_>) {
        let CopyTarget {
            class,
            uses_left,
            plan,
            ..
        } = copy_collector.target;
        if let Some((vector, annotations, sample_stats)) = copy_collector.result {
            self.share(
                class,
                uses_left,
                plan,
                vector,
                SideEffects::new(annotations.into_entries(), sample_stats),
            );
        }
    }
}
