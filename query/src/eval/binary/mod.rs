//! Binary operators.

pub(super) mod arithmetic;
mod matching;
mod set;

use super::Evaluator;
use super::column::Column;
use super::grid::Grid;
use super::scalar::Scalars;
use super::series::Vector;
use crate::annotations::Note;
use crate::error::Result;
use crate::plan::{Chain, Link, Plan};
use crate::promql::ast::{BinaryOp, Cardinality, ValueType};

/// What an operator works on.
enum Operand {
    /// One number per step.
    Scalar(Scalars),
    Vector(Vector),
}

impl Evaluator<'_> {
    /// Evaluates a chain of operators that gives a vector, from left to right.
    pub(super) fn chain_of_vectors(&mut self, chain: &Chain, grid: Grid) -> Result<Vector> {
        let mut lhs = self.operand(&chain.first, grid)?;
        for link in &chain.links {
            let rhs = self.operand(&link.rhs, grid)?;
            lhs = match (lhs, rhs) {
                (Operand::Scalar(mut lhs), Operand::Scalar(rhs)) => {
                    arithmetic::scalars(link.op, &mut lhs, &rhs);
                    Operand::Scalar(lhs)
                }
                (Operand::Vector(lhs), Operand::Scalar(rhs)) => {
                    Operand::Vector(self.vector_and_scalar(link, lhs, &rhs, false)?)
                }
                (Operand::Scalar(lhs), Operand::Vector(rhs)) => {
                    Operand::Vector(self.vector_and_scalar(link, rhs, &lhs, true)?)
                }
                (Operand::Vector(lhs), Operand::Vector(rhs)) => Operand::Vector(self.vectors(link, lhs, rhs, grid)?),
            };
        }
        match lhs {
            Operand::Vector(vector) => Ok(vector),
            Operand::Scalar(_) => Err(super::mistyped(ValueType::Vector)),
        }
    }

    fn operand(&mut self, plan: &Plan, grid: Grid) -> Result<Operand> {
        match plan.value_type {
            ValueType::Scalar => self.scalar(plan, grid).map(Operand::Scalar),
            _ => self.vector(plan, grid).map(Operand::Vector),
        }
    }

    /// Applies an operator to every value of a vector; `swapped` if the scalar stands on the left.
    fn vector_and_scalar(&mut self, link: &Link, mut vector: Vector, scalar: &[f64], swapped: bool) -> Result<Vector> {
        if is_trim(link.op) {
            self.note_trim(link, &vector);
            return Ok(self.bounds.vector());
        }
        let renamed = arithmetic::changes_meaning(link.op) || link.return_bool;
        let delayed = self.settings.features.delayed_name_removal;
        for series in &mut vector.series {
            self.bounds.check()?;
            let Column { values, present } = &mut series.column;
            if let Some(compare) = arithmetic::comparison(link.op) {
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
            } else {
                arithmetic::columns(link.op, values, scalar, swapped);
            }
            if renamed {
                series.drop_name(delayed);
            }
        }
        vector.drop_empty();
        vector.merge_same_labels()?;
        Ok(vector)
    }

    fn vectors(&mut self, link: &Link, lhs: Vector, rhs: Vector, grid: Grid) -> Result<Vector> {
        let Some(matching) = &link.matching else { return Err(super::mistyped(ValueType::Vector)) };
        if matching.cardinality == Cardinality::ManyToMany {
            return set::combine(link.op, lhs, rhs, matching, grid.n_steps, &self.bounds);
        }
        let matched = matching::combine(link, matching, lhs, rhs, grid.n_steps, self)?;
        if is_trim(link.op) {
            self.note_trim(link, &matched);
            return Ok(self.bounds.vector());
        }
        Ok(matched)
    }

    /// Trimming is for histograms; of floats nothing is left.
    fn note_trim(&mut self, link: &Link, operands: &Vector) {
        if !operands.series.is_empty() {
            let note = Note::IncompatibleTypes { lhs: "float", op: link.op.as_str(), rhs: "float" };
            self.annotations.add(note, link.span);
        }
    }
}

fn is_trim(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower)
}
