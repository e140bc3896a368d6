//! Expressions of type scalar: one number per step.

use std::ops::{Deref, DerefMut};

use varve_tsdb::context::Charge;

use super::binary::arithmetic;
use super::column::Bits;
use super::grid::Grid;
use super::{Evaluator, mistyped};
use crate::error::{Error, Result};
use crate::functions::Implementation;
use crate::plan::{Call, Plan, PlanKind};
use crate::promql::ast::{UnaryOp, ValueType};

/// One number per step, charged to the request's memory for as long as it is held.
#[derive(Debug)]
pub(crate) struct Scalars {
    values: Vec<f64>,
    _charge: Charge,
}

impl Scalars {
    /// Gives the numbers away; charging them is the caller's from here on.
    pub(super) fn into_values(self) -> Vec<f64> {
        self.values
    }
}

impl Deref for Scalars {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values
    }
}

impl DerefMut for Scalars {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }
}

impl Evaluator<'_> {
    /// Returns the same number for every step.
    pub(super) fn constant(&self, value: f64, grid: Grid) -> Result<Scalars> {
        let charge = self.bounds.charge_column(grid.n_steps)?;
        Ok(Scalars { values: vec![value; grid.n_steps], _charge: charge })
    }

    /// Evaluates an expression of type scalar; the result has one value per step.
    pub(crate) fn scalar(&mut self, plan: &Plan, grid: Grid) -> Result<Scalars> {
        self.bounds.check()?;
        match &plan.kind {
            PlanKind::Number(value) => self.constant(*value, grid),
            PlanKind::StepInvariant(inner) => {
                let once = self.once(grid, |evaluator, at_start| Ok(evaluator.scalar(inner, at_start)?[0]))?;
                self.constant(once, grid)
            }
            PlanKind::Call(call) => self.scalar_call(call, grid),
            PlanKind::Chain(chain) => {
                let mut values = self.scalar(&chain.first, grid)?;
                for link in &chain.links {
                    let rhs = self.scalar(&link.rhs, grid)?;
                    arithmetic::scalars(link.op, &mut values, &rhs);
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
            _ => Err(mistyped(ValueType::Scalar)),
        }
    }

    fn scalar_call(&mut self, call: &Call, grid: Grid) -> Result<Scalars> {
        match call.implementation {
            Implementation::Time => {
                let mut values = self.constant(0.0, grid)?;
                values.iter_mut().zip(grid.times_ms()).for_each(|(value, time_ms)| *value = time_ms as f64 / 1000.0);
                Ok(values)
            }
            Implementation::Pi => self.constant(std::f64::consts::PI, grid),
            Implementation::Extremum(of) => {
                let mut values = self.scalar(&call.args[0], grid)?;
                let others = self.scalar(&call.args[1], grid)?;
                values.iter_mut().zip(&*others).for_each(|(value, &other)| *value = of(*value, other));
                Ok(values)
            }
            Implementation::Scalar => self.only_value(&call.args[0], grid),
            _ => Err(Error::Unsupported(format!("function {} is not supported yet", call.function.name))),
        }
    }

    /// The value of the only series of floats at each step; NaN where there are none or more.
    fn only_value(&mut self, arg: &Plan, grid: Grid) -> Result<Scalars> {
        let mut values = self.constant(f64::NAN, grid)?;
        let mut seen = Bits::none(grid.n_steps);
        self.each_series(arg, grid, &mut |series| {
            let steps = series.column.float_steps();
            for step in steps.iter() {
                values[step] = if seen.contains(step) { f64::NAN } else { series.column.values[step] };
            }
            seen.unite(&steps);
            Ok(())
        })?;
        Ok(values)
    }
}
