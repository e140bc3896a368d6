//! Results of common subexpressions, stored from first to last use.
//!
//! Invariants
//! 1. Every shared result and every copy of it is charged.
//! 2. Statistics and annotations are the same as if each use evaluated the expression, as in
//!    Prometheus.

use hashbrown::{HashMap, HashSet};
use varve_promql::ast::Span;

use super::columns::Vector;
use super::sample_stats::StepSampleStats;
use crate::annotations::AnnotationEntry;
use crate::plan::Plan;

/// The shared results of a query, by the class of their expression.
#[derive(Debug, Default)]
pub(crate) struct SharedResults {
    pub(super) results: HashMap<usize, SharedResult>,
    /// Classes of range functions that were computed in one scan with their siblings.
    pub(super) scanned: HashSet<usize>,
    /// Classes of sources that were copied while streaming, or that exceeded the size limit
    /// for this.
    pub(super) copied: HashSet<usize>,
}

/// A result that will be used again.
#[derive(Debug)]
pub(super) struct SharedResult {
    pub(super) vector: Vector,
    pub(super) uses_left: usize,
    pub(super) side_effects: SideEffects,
    /// Spans of the evaluated expression and all its descendants, if there are annotations.
    pub(super) spans: Vec<Span>,
}

/// Side effects of an evaluation: annotations and sample statistics.
#[derive(Debug, Clone, Default)]
pub(super) struct SideEffects {
    pub(super) annotations: Vec<AnnotationEntry>,
    pub(super) sample_stats: StepSampleStats,
}

/// The state before an evaluation, used to find its side effects.
pub(super) struct SideEffectsSnapshot {
    pub(super) n_annotations: usize,
    pub(super) sample_stats: StepSampleStats,
}

impl SharedResults {
    /// Returns `true` if there is a result for a class.
    pub(super) fn contains(&self, class: usize) -> bool {
        self.results.contains_key(&class)
    }
}

impl SideEffects {
    pub(super) fn new(annotations: Vec<AnnotationEntry>, sample_stats: StepSampleStats) -> Self {
        Self {
            annotations,
            sample_stats,
        }
    }

    /// Returns the side effects of the equal expression `to`, with the annotations `own` of its
    /// parent added.
    pub(super) fn relocated(&self, from: &Plan, to: &Plan, own: &[AnnotationEntry]) -> Self {
        if self.annotations.is_empty() && own.is_empty() {
            return Self {
                annotations: Vec::new(),
                sample_stats: self.sample_stats.clone(),
            };
        }
        let moved = moved_spans(&spans(from), to);
        let mut annotations = Vec::new();
        for entry in &self.annotations {
            annotations.push(relocated(entry, &moved));
        }
        annotations.extend_from_slice(own);
        Self {
            annotations,
            sample_stats: self.sample_stats.clone(),
        }
    }
}

/// Returns an annotation at the position to which its expression moved.
pub(super) fn relocated(entry: &AnnotationEntry, moved: &HashMap<Span, Span>) -> AnnotationEntry {
    let span = entry.span();
    entry.moved_to(*moved.get(&span).unwrap_or(&span))
}

/// Returns the spans of an expression and all its descendants. Equal expressions have the same
/// order of spans.
pub(super) fn spans(plan: &Plan) -> Vec<Span> {
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
pub(super) fn moved_spans(from: &[Span], to: &Plan) -> HashMap<Span, Span> {
    let mut moved = HashMap::new();
    // Of equal spans, the first one counts.
    for (from, to) in from.iter().zip(spans(to)) {
        _ = moved.entry(*from).or_insert(to);
    }
    moved
}
