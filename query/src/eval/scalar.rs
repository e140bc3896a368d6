//! Expressions of type scalar: one number per step.

use varve_promql::ast::{UnaryOp, ValueType};

use crate::error::{Error, Result};
use crate::eval::columns::{Scalars, StepSet};
use crate::eval::evaluator::Evaluator;
use crate::functions::{Implementation, arithmetic, operators};
use crate::plan::{Call, Plan, PlanKind};
use crate::steps::Steps;

impl Evaluator<'_> {
    /// Returns the same number at every step.
    pub(super) fn constant(&self, value: f64, steps: Steps) -> Result<Scalars> {
        Scalars::constant(value, steps.n_steps, &self.limits)
    }

    /// Evaluates an expression of type scalar.
    pub(crate) fn scalar(&mut self, plan: &Plan, steps: Steps) -> Result<Scalars> {
        self.limits.check()?;
        match &plan.kind {
            PlanKind::Number(value) => self.constant(*value, steps),
            PlanKind::StepInvariant(inner) => {
                let once = self.once(steps, |evaluator, at_start| {
                    Ok(evaluator.scalar(inner, at_start)?[0])
                })?;
                self.constant(once, steps)
            }
            PlanKind::Call(call) => self.scalar_call(call, steps),
            PlanKind::Chain(chain) => {
                let mut values = self.scalar(&chain.first, steps)?;
                for link in &chain.links {
                    let rhs = self.scalar(&link.rhs, steps)?;
                    operators::check_scalars(link.op)?;
                    arithmetic::apply_to_scalars(link.op, &mut values, &rhs);
                }
                Ok(values)
            }
            PlanKind::Sign(op, inner) => {
                let mut values = self.scalar(inner, steps)?;
                if *op == UnaryOp::Minus {
                    for value in values.iter_mut() {
                        *value = -*value;
                    }
                }
                Ok(values)
            }
            _ => Err(Error::mistyped(ValueType::Scalar)),
        }
    }

    fn scalar_call(&mut self, call: &Call, steps: Steps) -> Result<Scalars> {
        match call.implementation {
            Implementation::Time => {
                let mut values = self.constant(0.0, steps)?;
                for (value, time_ms) in values.iter_mut().zip(steps.times_ms()) {
                    *value = time_ms as f64 / 1000.0;
                }
                Ok(values)
            }
            Implementation::Pi => self.constant(std::f64::consts::PI, steps),
            Implementation::Extremum(extremum) => {
                let mut values = self.scalar(&call.args[0], steps)?;
                let others = self.scalar(&call.args[1], steps)?;
                for (value, &other) in values.iter_mut().zip(&*others) {
                    *value = extremum(*value, other);
                }
                Ok(values)
            }
            Implementation::Scalar => self.only_value(&call.args[0], steps),
            _ => Err(Error::mistyped(ValueType::Scalar)),
        }
    }

    /// Returns at each step the float of the only series that has one; NaN if no series or several
    /// have one.
    fn only_value(&mut self, arg: &Plan, steps: Steps) -> Result<Scalars> {
        let mut values = self.constant(f64::NAN, steps)?;
        let mut seen = StepSet::empty(steps.n_steps);
        self.each_series(arg, steps, &mut |series| {
            let float_steps = series.column.float_steps();
            for step in float_steps.iter() {
                values[step] = if seen.contains(step) {
                    f64::NAN
                } else {
                    series.column.values[step]
                };
            }
            seen.union_with(&float_steps);
            Ok(())
        })?;
        Ok(values)
    }
}
