//! Operators between two values of which either may be a histogram.
//!
//! Nearly all columns have numbers only, and are combined column by column in [`super::arithmetic`]; what is here works
//! value by value.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_tsdb::histogram::ResetHint;

use super::super::column::{Bits, Column};
use super::super::series::Bounds;
use super::arithmetic;
use crate::annotations::{Annotations, HistogramOperation, Note};
use crate::error::Result;
use crate::functions::window::SampleValue;
use crate::histogram::{Added, FloatHistogram, Keep, MixedSchemas};
use crate::promql::ast::{BinaryOp, Span};

/// One of two values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Element<'a> {
    Float(f64),
    Histogram(&'a Arc<FloatHistogram>),
}

impl<'a> Element<'a> {
    /// Returns the value of a column at a step that has one.
    pub(super) fn of(column: &'a Column, step: usize) -> Self {
        column.histogram(step).map_or_else(|| Self::Float(column.values[step]), Self::Histogram)
    }

    fn type_name(self) -> &'static str {
        match self {
            Self::Float(_) => "float",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// What is to be said about two values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Complaint {
    /// The operator does not take values of these types.
    Types(&'static str, &'static str),
    /// One has exponential buckets, the other bounds of its own.
    Buckets,
    /// They contradict each other about resets.
    ResetsCollide(HistogramOperation),
    /// Their bounds were reduced to the common ones.
    BoundsReconciled(HistogramOperation),
}

/// What comes of two values.
pub(super) struct Outcome {
    /// The result; of comparisons the left value. `None` if there is none.
    pub(super) value: Option<SampleValue>,
    /// Whether a comparison holds; true for all else.
    pub(super) holds: bool,
    pub(super) complaint: Option<Complaint>,
}

impl Outcome {
    fn of(value: SampleValue) -> Self {
        Self { value: Some(value), holds: true, complaint: None }
    }

    fn histogram(mut histogram: FloatHistogram) -> Self {
        histogram.compact();
        Self::of(SampleValue::Histogram(Arc::new(histogram)))
    }

    fn none(complaint: Complaint) -> Self {
        Self { value: None, holds: false, complaint: Some(complaint) }
    }
}

/// Applies an operator to two values.
pub(super) fn combine(op: BinaryOp, lhs: Element<'_>, rhs: Element<'_>) -> Outcome {
    let changed = |histogram: &FloatHistogram, change: &dyn Fn(&mut FloatHistogram)| {
        let mut histogram = histogram.clone();
        change(&mut histogram);
        histogram
    };
    match (lhs, op, rhs) {
        (Element::Float(lhs), _, Element::Float(rhs)) if !is_trim(op) => floats(op, lhs, rhs),
        (Element::Float(factor), BinaryOp::Mul, Element::Histogram(histogram))
        | (Element::Histogram(histogram), BinaryOp::Mul, Element::Float(factor)) => {
            Outcome::histogram(changed(histogram, &|histogram| histogram.multiply(factor)))
        }
        (Element::Histogram(histogram), BinaryOp::Div, Element::Float(divisor)) => {
            Outcome::histogram(changed(histogram, &|histogram| histogram.divide(divisor)))
        }
        (Element::Histogram(histogram), BinaryOp::TrimUpper | BinaryOp::TrimLower, Element::Float(value)) => {
            let keep = if op == BinaryOp::TrimUpper { Keep::Below } else { Keep::Above };
            let trimmed = changed(histogram, &|histogram| histogram.trim(value, keep));
            Outcome::of(SampleValue::Histogram(Arc::new(trimmed)))
        }
        (Element::Histogram(lhs), BinaryOp::Add | BinaryOp::Sub, Element::Histogram(rhs)) => sum(op, lhs, rhs),
        (Element::Histogram(lhs), BinaryOp::Eq | BinaryOp::Ne, Element::Histogram(rhs)) => {
            let holds = lhs.is_same(rhs) == (op == BinaryOp::Eq);
            Outcome { holds, ..Outcome::of(SampleValue::Histogram(Arc::clone(lhs))) }
        }
        _ => Outcome::none(Complaint::Types(lhs.type_name(), rhs.type_name())),
    }
}

/// Tells whether an operator trims histograms.
pub(super) fn is_trim(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower)
}

fn floats(op: BinaryOp, lhs: f64, rhs: f64) -> Outcome {
    match arithmetic::comparison(op) {
        Some(compare) => Outcome { holds: compare(lhs, rhs), ..Outcome::of(SampleValue::Float(lhs)) },
        None => {
            let mut result = [lhs];
            arithmetic::columns(op, &mut result, &[rhs], false);
            Outcome::of(SampleValue::Float(result[0]))
        }
    }
}

/// Adds or subtracts histograms. Where they contradict each other about resets there is no result.
fn sum(op: BinaryOp, lhs: &FloatHistogram, rhs: &FloatHistogram) -> Outcome {
    let mut result = lhs.clone();
    let (added, operation) = match op {
        BinaryOp::Add => (result.plus(rhs), HistogramOperation::Addition),
        _ => (result.minus(rhs), HistogramOperation::Subtraction),
    };
    let Added { resets_collide, bounds_reconciled } = match added {
        Ok(added) => added,
        Err(MixedSchemas) => return Outcome::none(Complaint::Buckets),
    };
    if resets_collide {
        return Outcome::none(Complaint::ResetsCollide(operation));
    }
    if op == BinaryOp::Sub {
        result.reset_hint = ResetHint::Gauge;
    }
    let complaint = bounds_reconciled.then_some(Complaint::BoundsReconciled(operation));
    Outcome { complaint, ..Outcome::histogram(result) }
}

/// What is to be said about an operator. As in Prometheus it is, for each step, the last that comes up there.
#[derive(Debug, Default)]
pub(in crate::eval) struct Complaints {
    /// By step; with the place of the series in the order in which Prometheus would go through them.
    last: BTreeMap<usize, (usize, Complaint)>,
}

impl Complaints {
    /// Adds what is to be said about the series at place `order`.
    pub(super) fn add(&mut self, step: usize, order: usize, complaint: Complaint) {
        let last = self.last.entry(step).or_insert((order, complaint));
        if last.0 <= order {
            *last = (order, complaint);
        }
    }

    /// Takes over what is to be said about series that come behind all of these.
    pub(in crate::eval) fn absorb(&mut self, later: Self) {
        self.last.extend(later.last);
    }

    /// Says all, about an operator at `span`.
    pub(in crate::eval) fn annotate(self, op: BinaryOp, span: Span, annotations: &mut Annotations) {
        let mut said: Vec<Complaint> = Vec::new();
        for (_, complaint) in self.last.into_values() {
            if said.contains(&complaint) {
                continue;
            }
            said.push(complaint);
            let note = match complaint {
                Complaint::Types(lhs, rhs) => Note::IncompatibleTypes { lhs, op: op.as_str(), rhs },
                Complaint::Buckets => Note::IncompatibleBuckets(op.as_str()),
                Complaint::ResetsCollide(operation) => Note::ResetsCollide(operation),
                Complaint::BoundsReconciled(operation) => Note::BoundsReconciled(operation),
            };
            annotations.add(note, span);
        }
    }
}

/// Sets what comes of two values at each of `steps`, with `return_bool` whether a comparison holds; returns the steps at
/// which there was anything to combine. The caller charges `out` when it keeps it.
pub(super) fn combine_steps(
    steps: &Bits,
    return_bool: bool,
    outcome: impl Fn(usize) -> Outcome,
    mut complain: impl FnMut(usize, Complaint),
    bounds: &Bounds,
    out: &mut Column,
) -> Result<Bits> {
    let mut charge = bounds.ctx.charge();
    let mut combined = steps.clone();
    for step in steps.iter() {
        bounds.check()?;
        let Outcome { value, holds, complaint } = outcome(step);
        if let Some(complaint) = complaint {
            complain(step, complaint);
        }
        match value {
            None => combined.remove(step),
            Some(_) if return_bool => out.set(step, f64::from(u8::from(holds))),
            Some(_) if !holds => {}
            Some(SampleValue::Float(value)) => out.set(step, value),
            Some(SampleValue::Histogram(histogram)) => {
                charge.grow(histogram.size())?;
                out.push_histogram(step, histogram);
            }
        }
    }
    Ok(combined)
}
