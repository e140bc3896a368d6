//! Binary operators between columns of floats and histograms.

use std::collections::BTreeMap;

use varve_promql::ast::{BinaryOp, Span};

use super::column::{Column, HISTOGRAM_ENTRY_SIZE};
use super::limits::Limits;
use crate::annotations::{Annotation, Annotations, Occurrence};
use crate::error::Result;
use crate::functions::arithmetic;
use crate::functions::operators::{self, Element, Outcome, is_trim};
use crate::functions::window::SampleValue;
use crate::plan::Link;
use crate::step_set::StepSet;

/// Returns the value of a column at a step that has one.
pub(crate) fn element(column: &Column, step: usize) -> Element<'_> {
    column
        .histogram(step)
        .map_or_else(|| Element::Float(column.values[step]), Element::Histogram)
}

/// The annotations of an operator. As in Prometheus, only the last annotation of each step is
/// reported.
#[derive(Debug, Default)]
pub(crate) struct OperatorAnnotations {
    /// The last annotation of each step, and the position of its series in Prometheus' order of
    /// evaluation.
    last: BTreeMap<usize, (usize, Annotation)>,
    /// A step has different annotations, so the order of series decides which one is the last.
    depends_on_order: bool,
}

impl OperatorAnnotations {
    /// Adds an annotation about the series at position `order`, unless the step has one of a later
    /// series.
    pub(crate) fn add(&mut self, step: usize, order: usize, annotation: Annotation) {
        let known = self.last.get(&step);
        self.depends_on_order |= known.is_some_and(|(_, known)| *known != annotation);
        if known.is_none_or(|(last, _)| *last <= order) {
            self.last.insert(step, (order, annotation));
        }
    }

    /// Adds the annotations of series that come after all previous ones.
    pub(crate) fn extend(&mut self, later: Self) {
        self.depends_on_order |= later.depends_on_order;
        for (step, (order, annotation)) in later.last {
            if let Some((_, earlier)) = self.last.get(&step) {
                self.depends_on_order |= *earlier != annotation;
            }
            self.last.insert(step, (order, annotation));
        }
    }

    /// Adds the distinct annotations to those of the query. Returns `true` if they depend on the
    /// order of the series.
    pub(crate) fn add_to(self, annotations: &mut Annotations, span: Span) -> bool {
        let mut distinct: Vec<(Annotation, StepSet)> = Vec::new();
        for (step, (_, annotation)) in self.last {
            match distinct.iter_mut().find(|(known, _)| *known == annotation) {
                Some((_, steps)) => {
                    steps.extend_to(step + 1);
                    steps.insert(step);
                }
                None => distinct.push((annotation, StepSet::only(step))),
            }
        }
        for (annotation, steps) in distinct {
            annotations.add(annotation, span, Occurrence::Steps(steps));
        }
        self.depends_on_order
    }
}

/// Combines two values at each of `steps`. With `return_bool` the result is 0 or 1. Returns the
/// steps that have a result, also those that a comparison filters out. Histograms are charged only
/// until it returns: the caller charges `out` if it stores it.
pub(crate) fn combine_steps(
    steps: &StepSet,
    return_bool: bool,
    outcome: impl Fn(usize) -> Outcome,
    mut annotate: impl FnMut(usize, Annotation),
    limits: &Limits,
    out: &mut Column,
) -> Result<StepSet> {
    let mut charge = limits.ctx.charge();
    let mut combined = steps.clone();
    for step in steps.iter() {
        limits.check()?;
        let Outcome {
            value,
            holds,
            annotation,
        } = outcome(step);
        if let Some(annotation) = annotation {
            annotate(step, annotation);
        }
        match value {
            None => combined.remove(step),
            Some(_) if return_bool => out.set(step, f64::from(u8::from(holds))),
            Some(_) if !holds => {}
            Some(SampleValue::Float(value)) => out.set(step, value),
            Some(SampleValue::Histogram(histogram)) => {
                charge.grow(histogram.size() + HISTOGRAM_ENTRY_SIZE)?;
                out.push_histogram(step, histogram);
            }
        }
    }
    Ok(combined)
}

/// Returns `true` if the metric name does not describe the result of an operator, so that it is
/// dropped.
pub(crate) fn drops_metric_name(link: &Link) -> bool {
    arithmetic::drops_metric_name(link.op) || link.return_bool
}

/// Applies an operator to the column of the `order`-th series and a scalar. The scalar is the left
/// operand if `swapped`.
pub(crate) fn with_scalar(
    link: &Link,
    column: &mut Column,
    scalar: &[f64],
    swapped: bool,
    order: usize,
    annotations: &mut OperatorAnnotations,
    limits: &Limits,
) -> Result<()> {
    // Fast path: floats only.
    if column.histograms.is_empty() && !is_trim(link.op) {
        column_and_scalar(link, column, scalar, swapped);
        return Ok(());
    }
    let mut result = limits.column(scalar.len())?;
    combine_steps(
        &column.present,
        link.return_bool,
        |step| element_and_scalar(link.op, column, step, scalar[step], swapped),
        |step, annotation| annotations.add(step, order, annotation),
        limits,
        &mut result,
    )?;
    *column = result;
    Ok(())
}

/// Applies an operator to the floats of a column and a scalar.
fn column_and_scalar(link: &Link, column: &mut Column, scalar: &[f64], swapped: bool) {
    let Column {
        values, present, ..
    } = column;
    let Some(compare) = arithmetic::comparison(link.op) else {
        return arithmetic::apply(link.op, values, scalar, swapped);
    };
    let holds = |value: f64, step: usize| {
        if swapped {
            compare(scalar[step], value)
        } else {
            compare(value, scalar[step])
        }
    };
    if link.return_bool {
        let values = values.iter_mut().enumerate();
        for (step, value) in values {
            *value = f64::from(u8::from(holds(*value, step)));
        }
    } else {
        present.retain(|step| holds(values[step], step));
    }
}

/// Applies an operator to a value and a scalar. A comparison returns the value on either side.
fn element_and_scalar(
    op: BinaryOp,
    column: &Column,
    step: usize,
    scalar: f64,
    swapped: bool,
) -> Outcome {
    let value = element(column, step);
    let scalar = Element::Float(scalar);
    if !swapped {
        return operators::combine(op, value, scalar);
    }
    let mut outcome = operators::combine(op, scalar, value);
    if arithmetic::comparison(op).is_some() && outcome.value.is_some() {
        outcome.value = Some(SampleValue::Float(column.values[step]));
    }
    outcome
}

/// Combines the floats of two columns at `steps`.
pub(in crate::eval) fn combine_floats(
    op: BinaryOp,
    return_bool: bool,
    lhs: &Column,
    rhs: &Column,
    steps: StepSet,
) -> Column {
    let mut column = Column {
        values: lhs.copied_values(),
        present: steps,
        histograms: Vec::new(),
    };
    if let Some(compare) = arithmetic::comparison(op) {
        if return_bool {
            arithmetic::apply_to_scalars(op, &mut column.values, &rhs.values);
        } else {
            let values = &column.values;
            column
                .present
                .retain(|step| compare(values[step], rhs.values[step]));
        }
    } else {
        arithmetic::apply(op, &mut column.values, &rhs.values, false);
    }
    column
}
