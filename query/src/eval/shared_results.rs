//! Results of common subexpressions, stored from first to last use.
//!
//! Invariants
//! 1. Every shared result and every copy of it is charged.
//! 2. Statistics and annotations are the same as if each use evaluated the expression, as in
//!    Prometheus.

use hashbrown::{HashMap, HashSet};
use varve_promql::ast::Span;

use super::Evaluator;
use super::columns::Vector;
use super::sample_stats::StepSampleStats;
use crate::annotations::Annotation;
use crate::error::Result;
use crate::plan::Plan;

/// The shared results of a query, by the class of their expression.
#[derive(Debug, Default)]
pub(crate) struct SharedResults {
    results: HashMap<usize, SharedResult>,
    /// Classes of range functions that were computed in one scan with their siblings.
    pub(super) scanned: HashSet<usize>,
    /// Classes of sources that were materialized while streaming, or that exceeded the size limit
    /// for this.
    pub(super) materialized: HashSet<usize>,
}

/// A result that will be used again.
#[derive(Debug)]
struct SharedResult {
    vector: Vector,
    uses_left: usize,
    side_effects: SideEffects,
    /// Spans of the evaluated expression and all its descendants, if there are annotations.
    spans: Vec<Span>,
}

/// Side effects of an evaluation: annotations and sample statistics.
#[derive(Debug, Clone, Default)]
pub(super) struct SideEffects {
    annotations: Vec<(Annotation, Span)>,
    sample_stats: StepSampleStats,
}

/// The state before an evaluation, used to find its side effects.
pub(super) struct SideEffectsSnapshot {
    n_annotations: usize,
    sample_stats: StepSampleStats,
}

impl SharedResults {
    /// Returns `true` if there is a result for a class.
    pub(super) fn contains(&self, class: usize) -> bool {
        self.results.contains_key(&class)
    }
}

impl SideEffects {
    pub(super) fn new(annotations: Vec<(Annotation, Span)>, sample_stats: StepSampleStats) -> Self {
        Self {
            annotations,
            sample_stats,
        }
    }

    /// Returns the side effects of the equal expression `to`, with the annotations `own` of its
    /// parent added.
    pub(super) fn relocated(&self, from: &Plan, to: &Plan, own: &[(Annotation, Span)]) -> Self {
        if self.annotations.is_empty() && own.is_empty() {
            return Self {
                annotations: Vec::new(),
                sample_stats: self.sample_stats.clone(),
            };
        }
        let moved = moved_spans(&spans(from), to);
        let relocated = self
            .annotations
            .iter()
            .map(|(note, span)| (note.clone(), *moved.get(span).unwrap_or(span)));
        Self {
            annotations: relocated.chain(own.iter().cloned()).collect(),
            sample_stats: self.sample_stats.clone(),
        }
    }
}

impl Evaluator<'_> {
    pub(super) fn side_effects_snapshot(&self) -> SideEffectsSnapshot {
        SideEffectsSnapshot {
            n_annotations: self.annotations.n_recorded(),
            sample_stats: self.sample_stats.clone(),
        }
    }

    pub(super) fn side_effects_since(&self, snapshot: &SideEffectsSnapshot) -> SideEffects {
        let annotations = self
            .annotations
            .recorded_since(snapshot.n_annotations)
            .collect();
        SideEffects {
            annotations,
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
            for (annotation, span) in &shared.side_effects.annotations {
                self.annotations
                    .add(annotation.clone(), *moved.get(span).unwrap_or(span));
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

/// Returns the spans of an expression and all its descendants. Equal expressions have the same
/// order of spans.
fn spans(plan: &Plan) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut pending = vec![plan];
    while let Some(plan) = pending.pop() {
        spans.push(plan.span);
        spans.extend(plan.links().iter().map(|link| link.span));
        pending.extend(plan.children());
    }
    spans
}

/// Returns for each span in the expression with spans `from` the span in the equal expression `to`.
fn moved_spans(from: &[Span], to: &Plan) -> HashMap<Span, Span> {
    let mut moved = HashMap::new();
    // Of equal spans, the first one counts.
    for (from, to) in from.iter().zip(spans(to)) {
        _ = moved.entry(*from).or_insert(to);
    }
    moved
}
