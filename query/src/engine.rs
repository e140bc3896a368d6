//! The engine: from the text of a query to its value.

use std::sync::Arc;

use varve_tsdb::{Db, QueryContext};

use crate::annotations::Annotations;
use crate::error::{Error, Result};
use crate::eval::grid::Grid;
use crate::eval::series::{Bounds, SampleCount, Series, Vector};
use crate::eval::{Evaluator, Settings};
use crate::histogram::FloatHistogram;
use crate::plan::{self, Plan, PlanKind, QueryTimes};
use crate::promql::ast::{Expr, ValueType};
use crate::promql::{self, Features};
use crate::value::{HistogramPoint, MatrixSeries, Point, Value, VectorSample};

/// Steps that a range query may have. The HTTP API stops at 11,000 already, as Prometheus does.
pub const STEPS_MAX: usize = 1 << 20;

/// What an [`Engine`] is made with.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// `--query.lookback-delta`: how old a sample may be to stand for a step, in milliseconds.
    pub lookback_delta_ms: i64,
    /// `--query.max-samples`: samples that a query may hold at once.
    pub samples_max: usize,
    /// Distance of the steps of a subquery that names none (`global.evaluation_interval`), in milliseconds.
    pub subquery_step_ms: i64,
    /// The optional parts of the language that are on.
    pub features: Features,
}

impl Default for EngineOptions {
    /// Prometheus' defaults: 5 minutes, 50,000,000 samples, 1 minute, no optional features.
    fn default() -> Self {
        Self {
            lookback_delta_ms: 300_000,
            samples_max: 50_000_000,
            subquery_step_ms: 60_000,
            features: Features::default(),
        }
    }
}

/// Evaluates queries. Holds nothing but its options.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    options: EngineOptions,
}

/// What a query gives.
#[derive(Debug, Clone)]
pub struct QueryResult {
    /// Its value. Vectors come in the order of their expression; the series of a matrix ascend by labels.
    pub value: Value,
    /// Warnings and infos about it.
    pub annotations: Annotations,
}

impl Engine {
    /// Makes an engine.
    #[must_use]
    pub fn new(options: EngineOptions) -> Self {
        Self { options }
    }

    /// Returns what the engine was made with.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Evaluates a query at one time; any type of value may come.
    ///
    /// A `lookback_delta_ms` that is absent or not positive is that of the engine.
    ///
    /// # Errors
    /// See [`Error`]; nothing is held after one.
    pub fn instant(
        &self,
        db: &Db,
        ctx: &QueryContext,
        query: &str,
        time_ms: i64,
        lookback_delta_ms: Option<i64>,
    ) -> Result<QueryResult, Error> {
        let expr = promql::parse(query, &self.options.features)?;
        let times = QueryTimes { start_ms: time_ms, end_ms: time_ms, step_ms: 0 };
        let plan = plan::build(&expr, &times).map_err(Error::Invalid)?;
        drop(expr);
        let mut evaluator = self.evaluator(db, ctx, query, lookback_delta_ms);
        let value = instant_value(&mut evaluator, &plan, time_ms)?;
        Ok(QueryResult { value, annotations: evaluator.annotations })
    }

    /// Evaluates a query at the times from `start_ms` to `end_ms`, both included, at distances of `step_ms`; the value
    /// is a matrix.
    ///
    /// A `lookback_delta_ms` that is absent or not positive is that of the engine.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Invalid`] for steps that are no such, or more than [`STEPS_MAX`].
    #[expect(clippy::too_many_arguments, reason = "the parameters of the API's call, each once")]
    pub fn range(
        &self,
        db: &Db,
        ctx: &QueryContext,
        query: &str,
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
        lookback_delta_ms: Option<i64>,
    ) -> Result<QueryResult, Error> {
        let expr = promql::parse(query, &self.options.features)?;
        check_range_type(&expr)?;
        let grid = steps(start_ms, end_ms, step_ms)?;
        let plan = plan::build(&expr, &QueryTimes { start_ms, end_ms, step_ms }).map_err(Error::Invalid)?;
        drop(expr);
        let mut evaluator = self.evaluator(db, ctx, query, lookback_delta_ms);
        let value = range_value(&mut evaluator, &plan, grid)?;
        Ok(QueryResult { value, annotations: evaluator.annotations })
    }

    fn evaluator<'a>(&self, db: &'a Db, ctx: &QueryContext, query: &str, lookback_ms: Option<i64>) -> Evaluator<'a> {
        let EngineOptions { lookback_delta_ms, samples_max, subquery_step_ms, features } = self.options;
        let lookback_ms = lookback_ms.filter(|&lookback_ms| lookback_ms > 0).unwrap_or(lookback_delta_ms);
        let bounds = Bounds { ctx: ctx.clone(), samples: SampleCount::new(samples_max) };
        let settings = Settings { lookback_ms, subquery_step_ms, features };
        Evaluator::new(db, settings, bounds, Annotations::new(query))
    }
}

/// Only scalars and vectors have a value at every step.
fn check_range_type(expr: &Expr) -> Result<()> {
    let documented = match expr.value_type() {
        ValueType::Scalar | ValueType::Vector => return Ok(()),
        ValueType::Matrix => "range vector",
        ValueType::String => "string",
    };
    Err(Error::Invalid(format!(
        "invalid expression type {documented:?} for range query, must be Scalar or instant Vector"
    )))
}

fn steps(start_ms: i64, end_ms: i64, step_ms: i64) -> Result<Grid> {
    if step_ms <= 0 {
        return Err(Error::Invalid(format!("step of {step_ms} ms is not positive")));
    }
    if end_ms < start_ms {
        return Err(Error::Invalid("end timestamp must not be before start time".into()));
    }
    let grid = Grid::new(start_ms, end_ms, step_ms);
    if grid.n_steps > STEPS_MAX {
        return Err(Error::Invalid(format!("{} steps exceed the limit of {STEPS_MAX}", grid.n_steps)));
    }
    Ok(grid)
}

fn instant_value(evaluator: &mut Evaluator<'_>, plan: &Plan, time_ms: i64) -> Result<Value> {
    let grid = Grid::instant(time_ms);
    match (plan.value_type, &plan.kind) {
        (ValueType::String, PlanKind::String(text)) => Ok(Value::String { timestamp_ms: time_ms, value: text.clone() }),
        (ValueType::Scalar, _) => {
            let value = evaluator.scalar(plan, grid)?[0];
            Ok(Value::Scalar(Point { timestamp_ms: time_ms, value }))
        }
        (_, PlanKind::Range(range)) => Ok(Value::Matrix(evaluator.range_vector(range, time_ms)?)),
        (_, PlanKind::Subquery(subquery)) => {
            let (inner, mut vector) = evaluator.subquery(subquery, grid)?;
            evaluator.finish(&mut vector)?;
            Ok(Value::Matrix(matrix(vector, inner)))
        }
        _ => {
            let mut vector = evaluator.vector(plan, grid)?;
            evaluator.finish(&mut vector)?;
            let sample = |Series { labels, column, .. }: Series| VectorSample {
                labels,
                point: Point { timestamp_ms: time_ms, value: column.values[0] },
                histogram: column.histogram(0).cloned(),
            };
            Ok(Value::Vector(vector.series.into_iter().map(sample).collect()))
        }
    }
}

fn range_value(evaluator: &mut Evaluator<'_>, plan: &Plan, grid: Grid) -> Result<Value> {
    if plan.value_type == ValueType::Scalar {
        let values = evaluator.scalar(plan, grid)?;
        let point = |(timestamp_ms, value)| Point { timestamp_ms, value };
        let points = grid.times_ms().zip(values.iter().copied()).map(point).collect();
        let (labels, histograms) = (varve_tsdb::Labels::empty(), Vec::new());
        return Ok(Value::Matrix(vec![MatrixSeries { labels, points, histograms }]));
    }
    let mut vector = evaluator.vector(plan, grid)?;
    evaluator.finish(&mut vector)?;
    Ok(Value::Matrix(matrix(vector, grid)))
}

/// Turns columns into points, and sorts the series by labels.
fn matrix(vector: Vector, grid: Grid) -> Vec<MatrixSeries> {
    let to_points = |Series { labels, column, .. }: Series| {
        let point = |step| Point { timestamp_ms: grid.time_ms(step), value: column.values[step] };
        let points = column.float_steps().iter().map(point).collect();
        let histogram = |(step, histogram): (usize, &Arc<FloatHistogram>)| HistogramPoint {
            timestamp_ms: grid.time_ms(step),
            histogram: Arc::clone(histogram),
        };
        MatrixSeries { labels, points, histograms: column.histograms().map(histogram).collect() }
    };
    let mut series: Vec<_> = vector.series.into_iter().map(to_points).collect();
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    series
}

#[cfg(test)]
mod tests;
