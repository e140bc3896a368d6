//! Siblings: functions over the same range in one query, which one pass over its series computes.
//!
//! Example: `max_over_time(x[1h]) - min_over_time(x[1h])`. The first function reads the series, and
//! computes the second function, its sibling, from the same samples. The result of the sibling is
//! stored until its use. Scans that several queries share are in `eval/select/shared_scans.rs`.
//!
//! Invariants
//! 1. A sibling that fails or exceeds its limit is dropped, and evaluated separately at its use.
//!    Errors, annotations and statistics are always those of a separate evaluation.
//! 2. A function takes part in a scan of siblings at most once.

use super::function::RangeEvaluation;
use crate::error::Result;
use crate::eval::evaluator::Evaluator;
use crate::eval::stream::{CopyCollector, OPTIONAL_RESULT_SIZE_MAX};
use crate::plan::{Call, Plan, PlanKind};
use crate::steps::Steps;

impl<'a> Evaluator<'a> {
    /// Returns the other functions over the range of `source` that are computed in its scan.
    fn scan_siblings(&self, source: &Plan) -> Vec<(usize, &'a Plan)> {
        let PlanKind::Call(call) = &source.kind else {
            return Vec::new();
        };
        // Only some functions need start timestamps, so their samples are read differently.
        if self.settings.features.use_start_timestamps {
            return Vec::new();
        }
        let (own, _) = self.subexpressions.uses(source);
        if self.shared.scanned.contains(&own) {
            return Vec::new();
        }
        let mut siblings = Vec::new();
        for &(class, plan) in self.subexpressions.functions_of_same_range(call) {
            let is_pending = class != own
                && !self.shared.contains(class)
                && !self.shared.scanned.contains(&class);
            if is_pending && has_constant_params(plan) && !self.merges_series(plan) {
                siblings.push((class, plan));
            }
        }
        siblings
    }

    /// Starts the siblings of a function. Returns their evaluations and the receivers of their
    /// results.
    pub(super) fn start_siblings(
        &mut self,
        source: &Plan,
        steps: Steps,
    ) -> (Vec<RangeEvaluation<'a>>, Vec<CopyCollector<'a>>) {
        let plans = self.scan_siblings(source);
        self.shared
            .scanned
            .extend(plans.iter().map(|(class, _)| class));
        if !plans.is_empty() {
            self.shared
                .scanned
                .insert(self.subexpressions.uses(source).0);
        }
        // A sibling that cannot be started is evaluated, and fails, at its use.
        plans
            .into_iter()
            .filter_map(|(_, plan)| self.start_sibling(plan, steps).transpose()?.ok())
            .unzip()
    }

    fn start_sibling(
        &mut self,
        plan: &'a Plan,
        steps: Steps,
    ) -> Result<Option<(RangeEvaluation<'a>, CopyCollector<'a>)>> {
        let PlanKind::Call(call) = &plan.kind else {
            return Ok(None);
        };
        let size_max = if self.subexpressions.needs_all_series(plan) {
            usize::MAX
        } else {
            OPTIONAL_RESULT_SIZE_MAX
        };
        let evaluation = self.range_evaluation(call, steps)?;
        let copy_collector = self.copy_collector_of(plan, size_max, steps.n_steps);
        Ok(Some((evaluation, copy_collector)))
    }
}

/// Returns `true` if all arguments except the range are constants, so that evaluating them early
/// has no side effects.
fn has_constant_params(plan: &Plan) -> bool {
    let PlanKind::Call(Call { args, .. }) = &plan.kind else {
        return false;
    };
    args.iter()
        .all(|arg| matches!(arg.kind, PlanKind::Number(_) | PlanKind::Range(_)))
}
