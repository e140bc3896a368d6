//! Binary operators between two values, each a float or a histogram.
//!
//! Nearly all columns have only floats and are combined by [`super::arithmetic`], column by column.
//! The functions here combine one pair of values at a time.

use std::sync::Arc;

use varve_model::histogram::ResetHint;
use varve_promql::ast::BinaryOp;

use super::arithmetic;
use super::window::SampleValue;
use crate::annotations::{Annotation, HistogramOperation};
use crate::error::{Error, Result};
use crate::histogram::{Combined, FloatHistogram, Keep, MixedSchemas};

/// An operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Element<'a> {
    Float(f64),
    Histogram(&'a Arc<FloatHistogram>),
}

impl Element<'_> {
    fn type_name(self) -> &'static str {
        match self {
            Self::Float(_) => "float",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// The outcome of an operator applied to two values.
pub(crate) struct Outcome {
    /// The result; for comparisons, the left operand. `None` if the operator does not support the
    /// operands.
    pub(crate) value: Option<SampleValue>,
    /// The result of a comparison; `true` for all other operators.
    pub(crate) holds: bool,
    pub(crate) annotation: Option<Annotation>,
}

impl Outcome {
    fn of(value: SampleValue) -> Self {
        Self {
            value: Some(value),
            holds: true,
            annotation: None,
        }
    }

    fn histogram(mut histogram: FloatHistogram) -> Self {
        histogram.compact();
        Self::of(SampleValue::Histogram(Arc::new(histogram)))
    }

    fn none(annotation: Annotation) -> Self {
        Self {
            value: None,
            holds: false,
            annotation: Some(annotation),
        }
    }
}

/// Applies an operator to two values.
pub(crate) fn combine(op: BinaryOp, lhs: Element<'_>, rhs: Element<'_>) -> Outcome {
    match (lhs, op, rhs) {
        (Element::Float(lhs), _, Element::Float(rhs)) if !is_trim(op) => floats(op, lhs, rhs),
        (Element::Float(factor), BinaryOp::Mul, Element::Histogram(histogram))
        | (Element::Histogram(histogram), BinaryOp::Mul, Element::Float(factor)) => {
            let mut product = FloatHistogram::clone(histogram);
            product.multiply(factor);
            Outcome::histogram(product)
        }
        (Element::Histogram(histogram), BinaryOp::Div, Element::Float(divisor)) => {
            let mut quotient = FloatHistogram::clone(histogram);
            quotient.divide(divisor);
            Outcome::histogram(quotient)
        }
        (
            Element::Histogram(histogram),
            BinaryOp::TrimUpper | BinaryOp::TrimLower,
            Element::Float(value),
        ) => {
            let keep = if op == BinaryOp::TrimUpper {
                Keep::Below
            } else {
                Keep::Above
            };
            let mut trimmed = FloatHistogram::clone(histogram);
            trimmed.trim(value, keep);
            Outcome::of(SampleValue::Histogram(Arc::new(trimmed)))
        }
        (Element::Histogram(lhs), BinaryOp::Add | BinaryOp::Sub, Element::Histogram(rhs)) => {
            sum(op, lhs, rhs)
        }
        (Element::Histogram(lhs), BinaryOp::Eq | BinaryOp::Ne, Element::Histogram(rhs)) => {
            let holds = lhs.equals(rhs) == (op == BinaryOp::Eq);
            Outcome {
                holds,
                ..Outcome::of(SampleValue::Histogram(Arc::clone(lhs)))
            }
        }
        _ => {
            let lhs = lhs.type_name();
            let rhs = rhs.type_name();
            Outcome::none(Annotation::IncompatibleTypes {
                lhs,
                op: op.as_str(),
                rhs,
            })
        }
    }
}

/// Returns `true` if an operator trims histograms.
pub(crate) fn is_trim(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower)
}

/// Checks that an operator applies to two scalars. The type checker accepts all operators, as in
/// Prometheus.
///
/// # Errors
/// [`Error::Execution`] if the operator trims histograms.
pub(crate) fn check_scalars(op: BinaryOp) -> Result<()> {
    if is_trim(op) {
        return Err(Error::Execution(format!(
            "operator \"{}\" not allowed for Scalar operations",
            op.as_str()
        )));
    }
    Ok(())
}

fn floats(op: BinaryOp, lhs: f64, rhs: f64) -> Outcome {
    match arithmetic::comparison(op) {
        Some(compare) => Outcome {
            holds: compare(lhs, rhs),
            ..Outcome::of(SampleValue::Float(lhs))
        },
        None => {
            let mut result = [lhs];
            arithmetic::apply(op, &mut result, &[rhs], false);
            Outcome::of(SampleValue::Float(result[0]))
        }
    }
}

/// Adds or subtracts histograms. Has no result if the bucket schemas are incompatible or the
/// counter reset hints conflict.
fn sum(op: BinaryOp, lhs: &FloatHistogram, rhs: &FloatHistogram) -> Outcome {
    let mut result = lhs.clone();
    let (added, operation) = match op {
        BinaryOp::Add => (result.add(rhs), HistogramOperation::Addition),
        _ => (result.subtract(rhs), HistogramOperation::Subtraction),
    };
    let Combined {
        counter_reset_collision,
        custom_bounds_reconciled,
    } = match added {
        Ok(added) => added,
        Err(MixedSchemas) => return Outcome::none(Annotation::IncompatibleBuckets(op.as_str())),
    };
    if counter_reset_collision {
        return Outcome::none(Annotation::CounterResetCollision(operation));
    }
    if op == BinaryOp::Sub {
        result.reset_hint = ResetHint::Gauge;
    }
    let annotation =
        custom_bounds_reconciled.then_some(Annotation::CustomBoundsReconciled(operation));
    Outcome {
        annotation,
        ..Outcome::histogram(result)
    }
}
