//! Sharing the results of common subexpressions between their uses.

use super::columns::Vector;
use super::evaluator::Evaluator;
use super::shared_results::{
    SharedResult, SideEffects, SideEffectsSnapshot, moved_spans, relocated, spans,
};
use crate::error::Result;
use crate::plan::Plan;

impl Evaluator<'_> {
    pub(super) fn side_effects_snapshot(&self) -> SideEffectsSnapshot {
        SideEffectsSnapshot {
            n_annotations: self.annotations.n_added(),
            sample_stats: self.sample_stats.clone(),
        }
    }

    pub(super) fn side_effects_since(&self, snapshot: &SideEffectsSnapshot) -> SideEffects {
        let annotations = self.annotations.added_since(snapshot.n_annotations);
        SideEffects {
            annotations: annotations.to_vec(),
            sample_stats: self.sample_stats.since(&snapshot.sample_stats),
        }
    }

    /// Stores a result for further `uses_left` uses.
    pub(super) fn share(
        &mut self,
        class: usize,
        uses_left: usize,
        plan: &Plan,
        vector: Vector,
        side_effects: SideEffects,
    ) {
        let spans = if side_effects.annotations.is_empty() {
            Vec::new()
        } else {
            spans(plan)
        };
        self.shared.results.insert(
            class,
            SharedResult {
                vector,
                uses_left,
                side_effects,
                spans,
            },
        );
    }

    /// Returns `true` if there is a shared result for an expression.
    pub(super) fn is_shared(&self, plan: &Plan) -> bool {
        // Fast path: there are no shared results.
        !self.shared.results.is_empty() && self.shared.contains(self.subexpressions.uses(plan).0)
    }

    /// Returns the shared result of a class, if there is one. Returns a copy, or the result itself
    /// at its last use.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if the query holds too much.
    pub(super) fn take_shared(&mut self, class: usize, plan: &Plan) -> Result<Option<Vector>> {
        let Some(mut shared) = self.shared.results.remove(&class) else {
            return Ok(None);
        };
        self.sample_stats.add_all(&shared.side_effects.sample_stats);
        if !shared.side_effects.annotations.is_empty() {
            let moved = moved_spans(&shared.spans, plan);
            for entry in &shared.side_effects.annotations {
                self.annotations.add_entry(relocated(entry, &moved));
            }
        }
        shared.uses_left -= 1;
        if shared.uses_left == 0 {
            return Ok(Some(shared.vector));
        }
        let copy = shared.vector.copy(&self.limits)?;
        self.shared.results.insert(class, shared);
        Ok(Some(copy))
    }
}
