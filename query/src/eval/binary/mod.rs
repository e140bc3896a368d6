//! Binary operators.

pub(crate) mod arithmetic;
pub(super) mod element;
mod matching;
mod set;

use varve_tsdb::labels::LabelHint;

use super::Evaluator;
use super::column::Column;
use super::grid::Grid;
use super::scalar::Scalars;
use super::series::{Bounds, Vector};
use super::stream::{Stage, Work};
use crate::error::Result;
use crate::functions::window::SampleValue;
use crate::plan::{Chain, Link, Plan};
use crate::promql::ast::{BinaryOp, Cardinality, ValueType};

use element::{Complaints, Element, Outcome, is_trim};

/// What an operator works on.
enum Operand {
    /// One number per step.
    Scalar(Scalars),
    Vector(Vector),
}

impl Evaluator<'_> {
    /// Evaluates a chain of operators that gives a vector, from left to right. The series may lack labels that are not
    /// asked for, and then need not differ.
    pub(super) fn chain_of_vectors(&mut self, chain: &Chain, grid: Grid, asked: &LabelHint) -> Result<Vector> {
        if let [link] = &chain.links[..]
            && let Some(vector) = self.narrow_join(&chain.first, link, grid, asked)?
        {
            return Ok(vector);
        }
        let mut lhs = self.operand(&chain.first, grid)?;
        for link in &chain.links {
            let rhs = self.operand(&link.rhs, grid)?;
            lhs = match (lhs, rhs) {
                (Operand::Scalar(mut lhs), Operand::Scalar(rhs)) => {
                    arithmetic::scalars(link.op, &mut lhs, &rhs);
                    Operand::Scalar(lhs)
                }
                (Operand::Vector(lhs), Operand::Scalar(rhs)) => {
                    Operand::Vector(self.vector_and_scalar(link, lhs, rhs, false)?)
                }
                (Operand::Scalar(lhs), Operand::Vector(rhs)) => {
                    Operand::Vector(self.vector_and_scalar(link, rhs, lhs, true)?)
                }
                (Operand::Vector(lhs), Operand::Vector(rhs)) => Operand::Vector(self.vectors(link, lhs, rhs, grid)?),
            };
        }
        match lhs {
            Operand::Vector(vector) => Ok(vector),
            Operand::Scalar(_) => Err(super::mistyped(ValueType::Vector)),
        }
    }

    /// Joins two vectors of which the side where many may meet one has one metric name and is read with few labels: those that
    /// decide who meets, and those asked for. `None` if that is not enough.
    fn narrow_join(&mut self, first: &Plan, link: &Link, grid: Grid, asked: &LabelHint) -> Result<Option<Vector>> {
        let Some((matching, asked)) = matching::asked_of_many(link, asked) else { return Ok(None) };
        let swapped = matching.cardinality == Cardinality::OneToMany;
        let (many, is_vector) =
            (if swapped { &link.rhs } else { first }, |plan: &Plan| plan.value_type == ValueType::Vector);
        if !is_vector(first) || !is_vector(&link.rhs) || !self.is_of_one_name(many) {
            return Ok(None);
        }
        // As ever the left side is evaluated first.
        let (lhs, rhs) = match swapped {
            false => (self.narrow(many, grid, &asked)?, self.vector(&link.rhs, grid)?),
            true => (self.vector(first, grid)?, self.narrow(many, grid, &asked)?),
        };
        matching::combine(link, matching, lhs, rhs, grid.n_steps, true, self).map(Some)
    }

    fn operand(&mut self, plan: &Plan, grid: Grid) -> Result<Operand> {
        match plan.value_type {
            ValueType::Scalar => self.scalar(plan, grid).map(Operand::Scalar),
            _ => self.vector(plan, grid).map(Operand::Vector),
        }
    }

    /// Applies an operator to every value of a vector; `swapped` if the scalar stands on the left.
    fn vector_and_scalar(&mut self, link: &Link, vector: Vector, scalar: Scalars, swapped: bool) -> Result<Vector> {
        let work = Work::Scalar { link, scalar, swapped };
        self.at_once(vector, &Stage { id: usize::MAX, work })
    }

    fn vectors(&mut self, link: &Link, lhs: Vector, rhs: Vector, grid: Grid) -> Result<Vector> {
        let Some(matching) = &link.matching else { return Err(super::mistyped(ValueType::Vector)) };
        if matching.cardinality == Cardinality::ManyToMany {
            return set::combine(link.op, lhs, rhs, matching, grid.n_steps, &self.bounds);
        }
        matching::combine(link, matching, lhs, rhs, grid.n_steps, false, self)
    }
}

/// Tells whether the result of an operator is something else than its operands, so that it does not keep their name.
pub(super) fn changes_meaning(link: &Link) -> bool {
    arithmetic::changes_meaning(link.op) || link.return_bool
}

/// Applies an operator to every value of a column, that of the `order`-th series; `swapped` if the scalar stands on the
/// left.
pub(super) fn with_scalar(
    link: &Link,
    column: &mut Column,
    scalar: &[f64],
    swapped: bool,
    order: usize,
    complaints: &mut Complaints,
    bounds: &Bounds,
) -> Result<()> {
    // Fast path: numbers only.
    if column.histograms.is_empty() && !is_trim(link.op) {
        column_and_scalar(link, column, scalar, swapped);
        return Ok(());
    }
    let mut result = bounds.column(scalar.len())?;
    let outcome = |step| element_and_scalar(link.op, column, step, scalar[step], swapped);
    let complain = |step, complaint| complaints.add(step, order, complaint);
    element::combine_steps(&column.present, link.return_bool, outcome, complain, bounds, &mut result)?;
    *column = result;
    Ok(())
}

/// Applies an operator to the numbers of a column and a scalar.
fn column_and_scalar(link: &Link, column: &mut Column, scalar: &[f64], swapped: bool) {
    let Column { values, present, .. } = column;
    let Some(compare) = arithmetic::comparison(link.op) else {
        return arithmetic::columns(link.op, values, scalar, swapped);
    };
    let holds = |value: f64, step: usize| match swapped {
        true => compare(scalar[step], value),
        false => compare(value, scalar[step]),
    };
    if link.return_bool {
        let values = values.iter_mut().enumerate();
        values.for_each(|(step, value)| *value = f64::from(u8::from(holds(*value, step))));
    } else {
        present.retain(|step| holds(values[step], step));
    }
}

/// Applies an operator to a value and a scalar; comparisons give the value, whichever side it stands on.
fn element_and_scalar(op: BinaryOp, column: &Column, step: usize, scalar: f64, swapped: bool) -> Outcome {
    let (value, scalar) = (Element::of(column, step), Element::Float(scalar));
    if !swapped {
        return element::combine(op, value, scalar);
    }
    let mut outcome = element::combine(op, scalar, value);
    if arithmetic::comparison(op).is_some() && outcome.value.is_some() {
        outcome.value = Some(SampleValue::Float(column.values[step]));
    }
    outcome
}
