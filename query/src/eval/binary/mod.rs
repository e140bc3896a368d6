//! Binary operators.

mod matched_steps;
mod matching;
mod set;

use varve_promql::ast::{Cardinality, ValueType};
use varve_tsdb::select::LabelHint;

use crate::error::{Error, Result};
use crate::eval::columns::{Scalars, Vector};
use crate::eval::evaluator::Evaluator;
use crate::eval::stream::{Stage, StageKind};
use crate::functions::{arithmetic, operators};
use crate::plan::{Chain, Link, Plan};
use crate::steps::Steps;

/// An operand.
enum Operand {
    /// One number per step.
    Scalar(Scalars),
    Vector(Vector),
}

impl Evaluator<'_> {
    /// Evaluates a chain of operators that returns a vector, from left to right. The result may
    /// lack labels that are not in `hint`; the labels of its series are then not necessarily
    /// unique.
    pub(super) fn chain_of_vectors(
        &mut self,
        chain: &Chain,
        steps: Steps,
        hint: &LabelHint,
    ) -> Result<Vector> {
        if let [link] = &chain.links[..]
            && let Some(vector) = self.narrow_join(&chain.first, link, steps, hint)?
        {
            return Ok(vector);
        }
        let mut lhs = self.operand(&chain.first, steps)?;
        for link in &chain.links {
            let rhs = self.operand(&link.rhs, steps)?;
            lhs = match (lhs, rhs) {
                (Operand::Scalar(mut lhs), Operand::Scalar(rhs)) => {
                    operators::check_scalars(link.op)?;
                    arithmetic::apply_to_scalars(link.op, &mut lhs, &rhs);
                    Operand::Scalar(lhs)
                }
                (Operand::Vector(lhs), Operand::Scalar(rhs)) => {
                    Operand::Vector(self.vector_and_scalar(link, lhs, rhs, false)?)
                }
                (Operand::Scalar(lhs), Operand::Vector(rhs)) => {
                    Operand::Vector(self.vector_and_scalar(link, rhs, lhs, true)?)
                }
                (Operand::Vector(lhs), Operand::Vector(rhs)) => {
                    Operand::Vector(self.vectors(link, lhs, rhs, steps)?)
                }
            };
        }
        match lhs {
            Operand::Vector(vector) => Ok(vector),
            Operand::Scalar(_) => Err(Error::mistyped(ValueType::Vector)),
        }
    }

    /// Joins two vectors if all series of the "many" side have one metric name. Reads only the
    /// signature labels of that side and the labels in `hint`. Returns `None` if the join may need
    /// other labels.
    fn narrow_join(
        &mut self,
        first: &Plan,
        link: &Link,
        steps: Steps,
        hint: &LabelHint,
    ) -> Result<Option<Vector>> {
        let Some((matching, hint)) = matching::labels_of_many(link, hint) else {
            return Ok(None);
        };
        let swapped = matching.cardinality == Cardinality::OneToMany;
        let many = if swapped { &link.rhs } else { first };
        let are_vectors =
            first.value_type == ValueType::Vector && link.rhs.value_type == ValueType::Vector;
        if !are_vectors || !self.are_distinct_by_any_label(many) {
            return Ok(None);
        }
        // The left side is always evaluated first.
        let lhs;
        let rhs;
        if swapped {
            lhs = self.vector(first, steps)?;
            rhs = self.narrow_vector(many, steps, &hint)?;
        } else {
            lhs = self.narrow_vector(many, steps, &hint)?;
            rhs = self.vector(&link.rhs, steps)?;
        }
        matching::combine(link, matching, lhs, rhs, steps.n_steps, true, self).map(Some)
    }

    fn operand(&mut self, plan: &Plan, steps: Steps) -> Result<Operand> {
        match plan.value_type {
            ValueType::Scalar => self.scalar(plan, steps).map(Operand::Scalar),
            _ => self.vector(plan, steps).map(Operand::Vector),
        }
    }

    /// Applies an operator to a vector and a scalar. The scalar is the left operand if `swapped`.
    fn vector_and_scalar(
        &mut self,
        link: &Link,
        vector: Vector,
        scalar: Scalars,
        swapped: bool,
    ) -> Result<Vector> {
        let kind = StageKind::WithScalar {
            link,
            scalar,
            swapped,
        };
        self.apply_stage(
            vector,
            &Stage {
                id: usize::MAX,
                kind,
            },
        )
    }

    fn vectors(&mut self, link: &Link, lhs: Vector, rhs: Vector, steps: Steps) -> Result<Vector> {
        let Some(matching) = &link.matching else {
            return Err(Error::mistyped(ValueType::Vector));
        };
        if matching.cardinality == Cardinality::ManyToMany {
            return set::combine(link.op, lhs, rhs, matching, steps.n_steps, &self.limits);
        }
        matching::combine(link, matching, lhs, rhs, steps.n_steps, false, self)
    }
}
