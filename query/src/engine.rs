//! The engine: from the text of a query to its value.

use std::sync::Arc;

use varve_tsdb::{Db, QueryContext};

use crate::annotations::Annotations;
use crate::error::{Error, Result};
use crate::eval::grid::Grid;
use crate::eval::series::{Bounds, SampleCount, Series, Vector};
use crate::eval::workers::Workers;
use crate::eval::{Evaluator, Settings};
use crate::histogram::FloatHistogram;
use crate::plan::{self, Plan, PlanKind, QueryTimes, Sharing};
use crate::promql::ast::{Expr, ValueType};
use crate::promql::{self, Features};
use crate::stats::{QueryStats, Timings};
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
    /// `--query.parallelism`: threads that all queries share for their work on series; 1 is none beside a query's own.
    pub parallelism: usize,
    /// The optional parts of the language that are on.
    pub features: Features,
}

impl Default for EngineOptions {
    /// Prometheus' defaults: 5 minutes, 50,000,000 samples, 1 minute, no optional features. No threads.
    fn default() -> Self {
        Self {
            lookback_delta_ms: 300_000,
            samples_max: 50_000_000,
            subquery_step_ms: 60_000,
            parallelism: 1,
            features: Features::default(),
        }
    }
}

/// Evaluates queries. Holds its options and the threads that all queries share; clones share them too.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    options: EngineOptions,
    workers: Workers,
}

/// A query and how it is to be evaluated.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Its text.
    pub query: &'a str,
    /// When.
    pub times: Times,
    /// How old a sample may be to stand for a step; where it is absent or not positive that of the engine.
    pub lookback_delta_ms: Option<i64>,
    /// Which statistics the result is to have.
    pub stats: Asked,
}

/// A query that has been parsed.
#[derive(Debug, Clone)]
pub struct Parsed {
    expr: Expr,
    timings: Timings,
}

impl Parsed {
    /// Returns its syntax tree.
    #[must_use]
    pub fn expr(&self) -> &Expr {
        &self.expr
    }
}

/// Which statistics are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// None.
    Nothing,
    /// Those of the query as it is written: no selector is narrowed by others.
    OfQuery,
    /// Those of the plan, as it is evaluated where nobody asks.
    OfPlan,
}

/// When a query is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// At one time; any type of value may come.
    Instant(i64),
    /// From a start to an end, both included, at distances of a step; the value is a matrix.
    Range {
        /// The first time.
        start_ms: i64,
        /// No time lies behind it.
        end_ms: i64,
        /// Distance of the times.
        step_ms: i64,
    },
}

/// What a query gives.
#[derive(Debug, Clone)]
pub struct QueryResult {
    /// Its value. Vectors come in the order of their expression; the series of a matrix ascend by labels.
    pub value: Value,
    /// Warnings and infos about it.
    pub annotations: Annotations,
    /// Statistics, if they were asked for.
    pub stats: Option<Box<QueryStats>>,
}

impl Engine {
    /// Makes an engine, and starts its threads. Without them, if the system gives none, a query works on its own thread.
    #[must_use]
    pub fn new(options: EngineOptions) -> Self {
        let workers = Workers::new(options.parallelism);
        Self { options, workers }
    }

    /// Returns what the engine was made with.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Evaluates a query at one time, as [`Engine::run`] does.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn instant(
        &self,
        db: &Db,
        ctx: &QueryContext,
        query: &str,
        time_ms: i64,
        lookback_delta_ms: Option<i64>,
    ) -> Result<QueryResult, Error> {
        self.run(db, ctx, &Request { query, times: Times::Instant(time_ms), lookback_delta_ms, stats: Asked::Nothing })
    }

    /// Evaluates a query over a range of times, as [`Engine::run`] does.
    ///
    /// # Errors
    /// As [`Engine::run`].
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
        let times = Times::Range { start_ms, end_ms, step_ms };
        self.run(db, ctx, &Request { query, times, lookback_delta_ms, stats: Asked::Nothing })
    }

    /// Parses a query, for callers that want to look at it before it is evaluated.
    ///
    /// # Errors
    /// [`Error::Parse`].
    pub fn parse(&self, query: &str) -> Result<Parsed, Error> {
        let timings = Timings::start();
        Ok(Parsed { expr: promql::parse(query, &self.options.features)?, timings })
    }

    /// Evaluates a query.
    ///
    /// # Errors
    /// See [`Error`]; nothing is held after one. [`Error::Invalid`] for steps that are no such, or more than [`STEPS_MAX`].
    pub fn run(&self, db: &Db, ctx: &QueryContext, request: &Request<'_>) -> Result<QueryResult, Error> {
        self.run_parsed(db, ctx, self.parse(request.query)?, request)
    }

    /// Evaluates a query of which [`Engine::parse`] has made `parsed`.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_parsed(
        &self,
        db: &Db,
        ctx: &QueryContext,
        parsed: Parsed,
        request: &Request<'_>,
    ) -> Result<QueryResult, Error> {
        let Parsed { expr, mut timings } = parsed;
        let grid = grid(&expr, request.times)?;
        let step_ms = if matches!(request.times, Times::Instant(_)) { 0 } else { grid.step_ms };
        let times = QueryTimes { start_ms: grid.start_ms, end_ms: grid.end_ms, step_ms };
        let mut plan = plan::build(&expr, &times).map_err(Error::Invalid)?;
        drop(expr);
        // Statistics tell what the query as it is written looks at.
        if request.stats != Asked::OfQuery {
            plan::propagate(&mut plan);
        }
        let mut evaluator = self.evaluator(db, ctx, request, &plan);
        if request.stats != Asked::Nothing {
            evaluator.count(grid.n_steps, plan.n_inside())?;
        }
        timings.prepared();
        let value = match request.times {
            Times::Instant(time_ms) => instant_value(&mut evaluator, &plan, time_ms, &mut timings)?,
            Times::Range { .. } => range_value(&mut evaluator, &plan, grid, &mut timings)?,
        };
        let per_step = self.options.features.per_step_stats;
        let stats = || Box::new(QueryStats::of(&evaluator, &plan, grid, timings, per_step));
        let stats = (request.stats != Asked::Nothing).then(stats);
        Ok(QueryResult { value, annotations: evaluator.annotations, stats })
    }

    fn evaluator<'a>(&self, db: &'a Db, ctx: &QueryContext, request: &Request<'_>, plan: &'a Plan) -> Evaluator<'a> {
        let EngineOptions { lookback_delta_ms, samples_max, subquery_step_ms, features, .. } = self.options;
        let lookback_ms = request.lookback_delta_ms.filter(|&lookback_ms| lookback_ms > 0);
        let lookback_ms = lookback_ms.unwrap_or(lookback_delta_ms);
        let bounds = Bounds { ctx: ctx.clone(), samples: SampleCount::new(samples_max) };
        let settings = Settings { lookback_ms, subquery_step_ms, features };
        let annotations = Annotations::new(request.query);
        Evaluator::new(db, settings, bounds, self.workers.clone(), Sharing::of(plan), annotations)
    }
}

/// Returns the steps of a query.
fn grid(expr: &Expr, times: Times) -> Result<Grid> {
    match times {
        Times::Instant(time_ms) => Ok(Grid::instant(time_ms)),
        Times::Range { start_ms, end_ms, step_ms } => {
            check_range_type(expr)?;
            steps(start_ms, end_ms, step_ms)
        }
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

fn instant_value(evaluator: &mut Evaluator<'_>, plan: &Plan, time_ms: i64, timings: &mut Timings) -> Result<Value> {
    let grid = Grid::instant(time_ms);
    match (plan.value_type, &plan.kind) {
        (ValueType::String, PlanKind::String(text)) => Ok(Value::String { timestamp_ms: time_ms, value: text.clone() }),
        (ValueType::Scalar, _) => {
            let value = evaluator.scalar(plan, grid)?[0];
            Ok(Value::Scalar(Point { timestamp_ms: time_ms, value }))
        }
        (_, PlanKind::Range(_)) => Ok(Value::Matrix(evaluator.range_vector(plan, time_ms)?)),
        (_, PlanKind::Subquery(subquery)) => {
            let (inner, mut vector) = evaluator.whole_subquery(subquery, grid)?;
            evaluator.finish(&mut vector)?;
            Ok(Value::Matrix(timings.sorting(|| matrix(vector, inner))))
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

fn range_value(evaluator: &mut Evaluator<'_>, plan: &Plan, grid: Grid, timings: &mut Timings) -> Result<Value> {
    if plan.value_type == ValueType::Scalar {
        let values = evaluator.scalar(plan, grid)?;
        let point = |(timestamp_ms, value)| Point { timestamp_ms, value };
        let points = grid.times_ms().zip(values.iter().copied()).map(point).collect();
        let (labels, histograms) = (varve_tsdb::Labels::empty(), Vec::new());
        return Ok(Value::Matrix(vec![MatrixSeries { labels, points, histograms }]));
    }
    let mut vector = evaluator.vector(plan, grid)?;
    evaluator.finish(&mut vector)?;
    Ok(Value::Matrix(timings.sorting(|| matrix(vector, grid))))
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
