//! Evaluation: from a plan and a grid of steps to series of columns.
//!
//! ```text
//! selector, range  ->  one series after the other  ->  fold (sum, avg, ...)  ->  groups
//!                                              '-> Vector -> functions, operators, topk, ... -> Vector
//! ```
//!
//! Every expression is evaluated once for all steps. Series of selectors and range functions come one at a time, in
//! ascending order of labels ([`Evaluator::each_series`]), so that an aggregation over them holds groups only.
//!
//! Invariants
//! 1. Each stored series is decoded once per selector, however many steps there are.
//! 2. The order of every computation across series is that of their labels: answers do not depend on how data lies.

mod aggregate;
mod binary;
mod call;
pub(crate) mod column;
pub(crate) mod grid;
mod histogram;
mod info;
mod label;
mod range;
mod samples;
mod scalar;
mod selector;
pub(crate) mod series;
mod sort;

use varve_tsdb::Db;

use column::Column;
use grid::Grid;
use series::{Bounds, Series, Vector};

use crate::annotations::Annotations;
use crate::error::{Error, Result};
use crate::plan::{Plan, PlanKind, Subquery};
use crate::promql::Features;
use crate::promql::ast::{UnaryOp, ValueType};

/// What decides an evaluation besides plan and data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// How old a sample may be to stand for a step; an exactly so old one may not.
    pub(crate) lookback_ms: i64,
    /// Distance of the steps of a subquery that names none.
    pub(crate) subquery_step_ms: i64,
    pub(crate) features: Features,
}

/// Evaluates the plan of one query.
#[derive(Debug)]
pub(crate) struct Evaluator<'a> {
    db: &'a Db,
    settings: Settings,
    bounds: Bounds,
    /// What was found to say about the answer.
    pub(crate) annotations: Annotations,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(db: &'a Db, settings: Settings, bounds: Bounds, annotations: Annotations) -> Self {
        Self { db, settings, bounds, annotations }
    }

    /// Evaluates an expression of type vector.
    pub(crate) fn vector(&mut self, plan: &Plan, grid: Grid) -> Result<Vector> {
        self.bounds.check()?;
        if grid.n_steps == 0 {
            return Ok(self.bounds.vector());
        }
        match &plan.kind {
            PlanKind::Selector(_) => self.collect(plan, grid),
            PlanKind::StepInvariant(inner) => self.step_invariant(inner, grid),
            PlanKind::Call(call) => self.call(plan, call, grid),
            PlanKind::Aggregate(aggregate) => self.aggregate(aggregate, plan.span, grid),
            PlanKind::Chain(chain) => self.chain_of_vectors(chain, grid),
            PlanKind::Sign(op, inner) => self.signed(*op, inner, grid),
            PlanKind::Number(_) | PlanKind::String(_) | PlanKind::Range(_) | PlanKind::Subquery(_) => {
                Err(mistyped(ValueType::Vector))
            }
        }
    }

    /// Evaluates an expression of type vector, handing out its series one after the other. Those of selectors and range
    /// functions are made one at a time, and come in ascending order of labels.
    pub(crate) fn each_series(
        &mut self,
        plan: &Plan,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        self.bounds.check()?;
        match &plan.kind {
            _ if grid.n_steps == 0 => Ok(()),
            PlanKind::Selector(selector) => self.each_selected(selector, plan.span, grid, sink),
            PlanKind::Call(call) if call::is_over_range(call) => self.each_over_range(plan, call, grid, sink),
            _ => self.vector(plan, grid)?.series.into_iter().try_for_each(sink),
        }
    }

    fn collect(&mut self, plan: &Plan, grid: Grid) -> Result<Vector> {
        let mut vector = self.bounds.vector();
        self.each_series(plan, grid, &mut |series| vector.push(series))?;
        Ok(vector)
    }

    /// Evaluates at the first step, and repeats the values at all others.
    fn step_invariant(&mut self, inner: &Plan, grid: Grid) -> Result<Vector> {
        let once = self.vector(inner, Grid::instant(grid.start_ms))?;
        let mut vector = self.bounds.vector();
        for Series { labels, drop_name, column } in once.series {
            self.bounds.check()?;
            let charge = self.bounds.charge_column(grid.n_steps)?;
            let column = Column::repeated(&column, grid.n_steps);
            drop(charge);
            vector.push(Series { labels, drop_name, column })?;
        }
        Ok(vector)
    }

    fn signed(&mut self, op: UnaryOp, inner: &Plan, grid: Grid) -> Result<Vector> {
        let mut vector = self.vector(inner, grid)?;
        if op == UnaryOp::Minus {
            for series in &mut vector.series {
                self.bounds.check()?;
                series.drop_name(self.settings.features.delayed_name_removal);
                series.column.values.iter_mut().for_each(|value| *value = -*value);
                series.column.map_histograms(|histogram| {
                    let mut negated = histogram.clone();
                    negated.multiply(-1.0);
                    negated
                });
            }
            if !self.settings.features.delayed_name_removal {
                vector.merge_same_labels()?;
            }
        }
        Ok(vector)
    }

    /// Evaluates the expression of a subquery at the steps that the steps of `grid` look at.
    pub(crate) fn subquery(&mut self, subquery: &Subquery, grid: Grid) -> Result<(Grid, Vector)> {
        let (first_ms, last_ms) = match subquery.shift.at_ms {
            Some(_) => (subquery.shift.apply(0), subquery.shift.apply(0)),
            None => (subquery.shift.apply(grid.start_ms), subquery.shift.apply(grid.end_ms)),
        };
        let step_ms = subquery.step_ms.unwrap_or(self.settings.subquery_step_ms);
        let inner = grid.subquery(subquery.range_ms, step_ms, first_ms, last_ms);
        Ok((inner, self.vector(&subquery.expr, inner)?))
    }

    /// Ends an evaluation: takes off the metric names that were kept until now.
    pub(crate) fn finish(&self, vector: &mut Vector) -> Result<()> {
        if !self.settings.features.delayed_name_removal {
            return Ok(());
        }
        for series in vector.series.iter_mut().filter(|series| series.drop_name) {
            series.labels = series::without_name(&series.labels);
        }
        vector.merge_same_labels()
    }
}

/// The checker of types lets no such plan through.
fn mistyped(expected: ValueType) -> Error {
    Error::Execution(format!("the plan has no value of type {expected:?}"))
}
