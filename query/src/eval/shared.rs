//! Values that are used more than once in a query are kept until their last use.
//!
//! Invariants
//! 1. What is kept is charged, once for each copy.
//! 2. Statistics and annotations are those of an evaluation for each use, as Prometheus makes them.

use super::Evaluator;
use super::series::Vector;
use super::tally::Tally;
use crate::annotations::Note;
use crate::error::Result;
use crate::plan::Plan;
use crate::promql::ast::Span;

/// A value that will be used again.
#[derive(Debug)]
pub(super) struct Kept {
    vector: Vector,
    n_left: usize,
    /// What was said and looked at while it was evaluated.
    aside: Aside,
    /// The places of the expression that was evaluated, and of all inside of it.
    places: Vec<Span>,
}

/// What an evaluation does besides its value.
#[derive(Debug, Clone, Default)]
pub(super) struct Aside {
    notes: Vec<(Note, Span)>,
    tally: Tally,
}

/// How things were before an evaluation.
pub(super) struct Before {
    n_recorded: usize,
    tally: Tally,
}

impl Aside {
    pub(super) fn new(notes: Vec<(Note, Span)>, tally: Tally) -> Self {
        Self { notes, tally }
    }

    /// Returns what the same expression does that stands at other places; `own` are added to it.
    pub(super) fn moved(&self, from: &Plan, to: &Plan, own: &[(Note, Span)]) -> Self {
        let (from, to) = (places(from), places(to));
        let moved = self.notes.iter().map(|(note, span)| (note.clone(), move_span(*span, &from, &to)));
        Self { notes: moved.chain(own.iter().cloned()).collect(), tally: self.tally.clone() }
    }
}

impl Evaluator<'_> {
    /// Notes how things are.
    pub(super) fn before(&self) -> Before {
        Before { n_recorded: self.annotations.n_recorded(), tally: self.tally.clone() }
    }

    /// Returns what was done besides since then.
    pub(super) fn aside(&self, before: &Before) -> Aside {
        let notes = self.annotations.recorded_since(before.n_recorded).collect();
        Aside { notes, tally: self.tally.since(&before.tally) }
    }

    /// Keeps a value for as many uses.
    pub(super) fn keep(&mut self, class: usize, n_left: usize, plan: &Plan, vector: Vector, aside: Aside) {
        self.kept.insert(class, Kept { vector, n_left, aside, places: places(plan) });
    }

    /// Tells whether the value of an expression is kept.
    pub(super) fn is_kept(&self, plan: &Plan) -> bool {
        // Fast path: nothing is.
        !self.kept.is_empty() && self.kept.contains_key(&self.sharing.uses(plan).0)
    }

    /// Returns the value of a class if it is kept: a copy, the last time itself.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if the query holds too much.
    pub(super) fn take_kept(&mut self, class: usize, plan: &Plan) -> Result<Option<Vector>> {
        let Some(mut kept) = self.kept.remove(&class) else { return Ok(None) };
        self.tally.absorb(&kept.aside.tally);
        if !kept.aside.notes.is_empty() {
            let to = places(plan);
            for (note, span) in &kept.aside.notes {
                self.annotations.add(note.clone(), move_span(*span, &kept.places, &to));
            }
        }
        kept.n_left -= 1;
        if kept.n_left == 0 {
            return Ok(Some(kept.vector));
        }
        let copy = kept.vector.copy(&self.bounds)?;
        self.kept.insert(class, kept);
        Ok(Some(copy))
    }
}

/// Returns the places of an expression and of all inside of it, in the same order for all that are the same.
fn places(plan: &Plan) -> Vec<Span> {
    let mut places = vec![plan.span];
    plan.links().iter().for_each(|link| places.push(link.span));
    plan.children().into_iter().for_each(|child| places.extend(self::places(child)));
    places
}

/// Moves a place in one expression to the same in another; what is not inside of it stays.
fn move_span(span: Span, from: &[Span], to: &[Span]) -> Span {
    let at = from.iter().position(|known| *known == span);
    at.and_then(|at| to.get(at)).copied().unwrap_or(span)
}
