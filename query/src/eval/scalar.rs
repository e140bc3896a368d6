//! Expressions of type scalar: one number per step.

use varve_promql::ast::{UnaryOp, ValueType};

use crate::error::{Error, Result};
use crate::eval::Evaluator;
use crate::eval::columns::{Scalars, StepSet};
use crate::eval::grid::Grid;
use crate::functions::{Implementation, arithmetic, operators};
use crate::plan::{Call, Plan, PlanKind};

impl Evaluator<'_> {
    /// Returns the same number at every step.
    pub(super) fn constant(&self, value: f64, grid: Grid) -> Result<Scalars> {
        Scalars::constant(value, grid.n_steps, &self.limits)
    }

    /// Evaluates an expression of type scalar.
    pub(crate) fn scalar(&mut self, plan: &Plan, grid: Grid) -> Result<Scalars> {
        self.limits.check()?;
        match &plan.kind {
            PlanKind::Number(value) => self.constant(*value, grid),
            PlanKind::StepInvariant(inner) => {
                let once = self.once(grid, |evaluator, at_start| {
                    Ok(evaluator.scalar(inner, at_start)?[0])
                })?;
                self.constant(once, grid)
            }
            PlanKind::Call(call) => self.scalar_call(call, grid),
            PlanKind::Chain(chain) => {
                let mut values = self.scalar(&chain.first, grid)?;
                for link in &chain.links {
                    let rhs = self.scalar(&link.rhs, grid)?;
                    operators::check_scalars(link.op)?;
                    arithmetic::apply_to_scalars(link.op, &mut values, &rhs);
                }
                Ok(values)
            }
            PlanKind::Sign(op, inner) => {
                let mut values = self.scalar(inner, grid)?;
                if *op == UnaryOp::Minus {
                    values.iter_mut().for_each(|value| *value = -*value);
                }
                Ok(values)
            }
            _ => Err(Error::mistyped(ValueType::Scalar)),
        }
    }

    fn scalar_call(&mut self, call: &Call, grid: Grid) -> Result<Scalars> {
        match call.implementation {
            Implementation::Time => {
                let mut values = self.constant(0.0, grid)?;
                values
                    .iter_mut()
                    .zip(grid.times_ms())
                    .for_each(|(value, time_ms)| *value = time_ms as f64 / 1000.0);
                Ok(values)
            }
            Implementation::Pi => self.constant(std::f64::consts::PI, grid),
            Implementation::Extremum(extremum) => {
                let mut values = self.scalar(&call.args[0], grid)?;
                let others = self.scalar(&call.args[1], grid)?;
                values
                    .iter_mut()
                    .zip(&*others)
                    .for_each(|(value, &other)| *value = extremum(*value, other));
                Ok(values)
            }
            Implementation::Scalar => self.only_value(&call.args[0], grid),
            _ => Err(Error::mistyped(ValueType::Scalar)),
        }
    }

    /// Returns at each step the float of the only series that has one; NaN if no series or several
    /// have one.
    fn only_value(&mut self, arg: &Plan, grid: Grid) -> Result<Scalars> {
        let mut values = self.constant(f64::NAN, grid)?;
        let mut seen = StepSet::empty(grid.n_steps);
        self.each_series(arg, grid, &mut |series| {
            let steps = series.column.float_steps();
            for step in steps.iter() {
                values[step] = if seen.contains(step) {
                    f64::NAN
                } else {
                    series.column.values[step]
                };
            }
            seen.union_with(&steps);
            Ok(())
        })?;
        Ok(values)
    }
}
