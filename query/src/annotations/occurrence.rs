//! The steps at which an annotation was added.

use std::cmp::Ordering;
use std::ops::Range;

use super::annotation::RaisedExtent;
use crate::step_set::StepSet;

/// Where an annotation was added. Steps are those of the query.
#[derive(Debug, Clone)]
pub(crate) enum Occurrence {
    /// At unknown steps: the annotation is about all steps together, or about an expression that is
    /// evaluated at other times, as in a subquery.
    Unknown,
    Steps(StepSet),
    /// Raised counts of buckets, by step in ascending order.
    Raised(Vec<(usize, RaisedExtent)>),
}

impl Occurrence {
    /// Returns the occurrence at one step.
    pub(crate) fn at(step: usize) -> Self {
        Self::Steps(StepSet::only(step))
    }

    /// Returns the size in bytes of what is stored on the heap.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Steps(steps) => steps.size_bytes(),
            Self::Raised(extents) => size_of_val(&extents[..]),
        }
    }

    /// Adds another occurrence of the same annotation.
    pub(super) fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Steps(steps), Self::Steps(other)) => steps.extend_with(&other),
            (Self::Raised(extents), Self::Raised(other)) => {
                *extents = merged(extents, &other);
            }
            _ => *self = Self::Unknown,
        }
    }

    /// Returns the occurrence at a range of steps, counted from its start, or `None` if there is
    /// none.
    pub(super) fn cut(&self, range: &Range<usize>) -> Option<Self> {
        match self {
            Self::Unknown => Some(Self::Unknown),
            Self::Steps(steps) => {
                let mut cut = StepSet::empty(range.len());
                for step in steps.iter().filter(|step| range.contains(step)) {
                    cut.insert(step - range.start);
                }
                (!cut.is_empty()).then_some(Self::Steps(cut))
            }
            Self::Raised(extents) => {
                let mut cut = Vec::new();
                for (step, extent) in extents.iter().filter(|(step, _)| range.contains(step)) {
                    cut.push((step - range.start, *extent));
                }
                (!cut.is_empty()).then_some(Self::Raised(cut))
            }
        }
    }

    /// Returns the occurrence `n` steps later.
    pub(super) fn later_by(&self, n: usize) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Steps(steps) => {
                let mut later = StepSet::empty(n);
                for step in steps.iter() {
                    later.extend_to(n + step + 1);
                    later.insert(n + step);
                }
                Self::Steps(later)
            }
            Self::Raised(extents) => Self::Raised(
                extents
                    .iter()
                    .map(|(step, extent)| (n + step, *extent))
                    .collect(),
            ),
        }
    }
}

/// Merges extents by step.
fn merged(a: &[(usize, RaisedExtent)], b: &[(usize, RaisedExtent)]) -> Vec<(usize, RaisedExtent)> {
    let mut merged = Vec::with_capacity(a.len().max(b.len()));
    let mut a = a.iter().peekable();
    let mut b = b.iter().peekable();
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return merged,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a_step, _)), Some((b_step, _))) => a_step.cmp(b_step),
        };
        let from_a = if order.is_le() { a.next() } else { None };
        let from_b = if order.is_ge() { b.next() } else { None };
        match (from_a, from_b) {
            (Some((step, extent)), Some((_, other))) => {
                let mut both = *extent;
                both.merge(other);
                merged.push((*step, both));
            }
            (Some(one), None) | (None, Some(one)) => merged.push(*one),
            (None, None) => {}
        }
    }
}
