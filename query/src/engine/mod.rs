//! The query engine: parses, plans and evaluates a query.

use std::sync::Arc;

use varve_context::{Charge, QueryContext};
use varve_promql::Features;
use varve_promql::ast::{Expr, ValueType};
use varve_promql::deep_stack;
use varve_tsdb::{Db, ReadContext};

use crate::annotations::Annotations;
use crate::cache::{CacheStats, CachedQuery, Found, ResultCache};
use crate::error::{Error, Result};
use crate::eval::columns::{Limits, SampleLimit, Series, Vector, series_size};
use crate::eval::select::{ScanPlan, SharedScans};
use crate::eval::sort::sort_by;
use crate::eval::workers::Workers;
use crate::eval::{Evaluator, Settings};
use crate::histogram::FloatHistogram;
use crate::plan::{self, CommonSubexpressions, Plan, PlanKind};
use crate::stats::{QueryStats, StatsMode, Timings};
use crate::steps::Steps;
use crate::value::{HistogramPoint, MatrixSeries, Point, Value, VectorSample};

mod small;

/// Maximum number of steps of a range query. The HTTP API has a lower limit: 11,000, as in
/// Prometheus.
pub const STEPS_MAX: usize = 1 << 20;

/// The options of an [`Engine`].
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// `--query.lookback-delta`: a step uses samples younger than this, in milliseconds.
    pub lookback_delta_ms: i64,
    /// `--query.max-samples`: maximum number of samples that a query holds at once.
    pub samples_max: usize,
    /// Default step of subqueries (`global.evaluation_interval`), in milliseconds.
    pub subquery_step_ms: i64,
    /// `--query.parallelism`: number of worker threads that all queries share. With 1, each query
    /// runs on its own thread.
    pub parallelism: usize,
    /// `--query.cache-size`: maximum size of the result cache in bytes. 0 disables it.
    pub cache_size: usize,
    /// The optional parts of the language.
    pub features: Features,
}

impl Default for EngineOptions {
    /// Prometheus' defaults: 5 minutes, 50,000,000 samples, 1 minute, no optional features. No
    /// worker threads, no result cache.
    fn default() -> Self {
        Self {
            lookback_delta_ms: 300_000,
            samples_max: 50_000_000,
            subquery_step_ms: 60_000,
            parallelism: 1,
            cache_size: 0,
            features: Features::default(),
        }
    }
}

/// Evaluates queries. Owns the options, and the worker threads and the result cache that all
/// queries share. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    options: EngineOptions,
    workers: Workers,
    cache: Arc<ResultCache>,
}

/// A query and the settings of its evaluation.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The query text.
    pub query: &'a str,
    /// The evaluation times.
    pub steps: Steps,
    /// Lookback delta in milliseconds; overrides that of the engine if positive.
    pub lookback_delta_ms: Option<i64>,
    /// The statistics to collect.
    pub stats: StatsMode,
    /// Overrides the feature `use-start-timestamps` of the engine.
    pub use_start_timestamps: Option<bool>,
    /// Labels that all series have in addition to their own, for matchers and results. They replace
    /// labels of the same name.
    pub external_labels: Arc<[(String, String)]>,
    /// Scans that the query shares with others at the same time.
    pub scans: Option<&'a SharedScans>,
    /// Uses the result cache, unless the request has external labels, shared scans, or limits of
    /// the samples that it reads. All such requests to an engine must be to one store.
    pub use_cache: bool,
}

impl<'a> Request<'a> {
    /// Creates a request without statistics and cache, with the lookback delta of the engine.
    #[must_use]
    pub fn new(query: &'a str, steps: Steps) -> Self {
        Self {
            query,
            steps,
            lookback_delta_ms: None,
            stats: StatsMode::Off,
            use_start_timestamps: None,
            external_labels: Arc::default(),
            scans: None,
            use_cache: false,
        }
    }
}

/// A parsed query.
#[derive(Debug)]
pub struct ParsedQuery {
    expr: Expr,
    /// Charge for the memory of the tree and of the plan.
    charge: Charge,
    timings: Timings,
}

impl ParsedQuery {
    /// Returns the syntax tree.
    #[must_use]
    pub fn expr(&self) -> &Expr {
        &self.expr
    }
}

/// The result of a query.
#[derive(Debug)]
pub struct QueryResult {
    /// The value. The order of a vector depends on the expression. The series of a matrix ascend by
    /// labels.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Annotations,
    /// Statistics, if they were requested.
    pub stats: Option<Box<QueryStats>>,
    /// Charge for the memory of the value. Drop it after the value.
    pub charge: Charge,
}

impl Engine {
    /// Creates an engine and starts its worker threads. If the system cannot start them, each query
    /// runs on its own thread.
    #[must_use]
    pub fn new(options: EngineOptions) -> Self {
        let workers = Workers::new(options.parallelism);
        let cache = Arc::new(ResultCache::new(options.cache_size));
        Self {
            options,
            workers,
            cache,
        }
    }

    /// Returns an engine that runs each query only on the thread of its caller. It shares the
    /// result cache.
    #[must_use]
    pub fn without_workers(&self) -> Self {
        Self {
            workers: Workers::default(),
            ..self.clone()
        }
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Returns the scans that queries at `time_ms` share; see [`SharedScans`].
    #[must_use]
    pub fn shared_scans(&self, plan: Arc<ScanPlan>, ctx: ReadContext, time_ms: i64) -> SharedScans {
        SharedScans::new(plan, ctx, time_ms, self.options.lookback_delta_ms)
    }

    /// Removes all results from the cache.
    pub fn clear_cache(&self) {
        self.cache.clear();
    }

    /// Returns statistics of the result cache.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Parses a query without evaluating it, for callers that inspect it first.
    ///
    /// # Errors
    /// [`Error::Parse`], [`Error::Limit`], and the interrupts of the request.
    pub fn parse(&self, ctx: &QueryContext, query: &str) -> Result<ParsedQuery, Error> {
        let timings = Timings::start();
        let (expr, charge) = varve_promql::parse_within(ctx, query, &self.options.features)?;
        Ok(ParsedQuery {
            expr,
            charge,
            timings,
        })
    }

    /// Evaluates a query.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::Invalid`] if the step is invalid, or if there are more than
    /// [`STEPS_MAX`] steps.
    pub fn run(
        &self,
        db: &Db,
        ctx: &ReadContext,
        request: &Request<'_>,
    ) -> Result<QueryResult, Error> {
        self.run_parsed(db, ctx, self.parse(ctx, request.query)?, request)
    }

    /// Evaluates a query parsed by [`Engine::parse`].
    ///
    /// # Errors
    /// The errors of [`Engine::run`], except [`Error::Parse`].
    pub fn run_parsed(
        &self,
        db: &Db,
        ctx: &ReadContext,
        parsed: ParsedQuery,
        request: &Request<'_>,
    ) -> Result<QueryResult, Error> {
        let is_deep = deep_stack::is_deep(&parsed.expr);
        deep_stack::run(ctx, is_deep, || {
            self.run_on_this_stack(db, ctx, parsed, request)
        })?
    }

    fn run_on_this_stack(
        &self,
        db: &Db,
        ctx: &ReadContext,
        parsed: ParsedQuery,
        request: &Request<'_>,
    ) -> Result<QueryResult> {
        let ParsedQuery {
            expr,
            charge: _plan_charge,
            mut timings,
        } = parsed;
        let steps = request.steps;
        check_steps(&expr, steps)?;
        let mut plan = plan::build(&expr, steps).map_err(Error::Invalid)?;
        let settings = self.settings(request);
        let collects_steps = request.stats != StatsMode::Off && settings.features.per_step_stats;
        let may_use_cache = request.use_cache
            && request.external_labels.is_empty()
            && request.scans.is_none()
            && !ctx.has_read_limits()
            && request.stats != StatsMode::AsPlanned
            && !collects_steps;
        let cached = may_use_cache
            .then(|| {
                CachedQuery::new(
                    &self.cache,
                    db,
                    ctx,
                    request.query,
                    (&expr, &plan),
                    &settings,
                    steps,
                )
            })
            .flatten();
        drop(expr);
        // `StatsMode::AsWritten` counts samples without matcher propagation.
        if request.stats != StatsMode::AsWritten {
            plan::propagate_matchers(&mut plan);
        }
        ctx.check()?;
        timings.prepared();
        let evaluation = Evaluation {
            engine: self,
            db,
            ctx,
            request,
            plan: &plan,
            settings,
        };
        match cached {
            Some(cached) => evaluation.run_cached(&cached, steps, timings),
            None => evaluation.run(steps, timings).map(|(result, _)| result),
        }
    }

    fn settings(&self, request: &Request<'_>) -> Settings {
        let EngineOptions {
            lookback_delta_ms,
            subquery_step_ms,
            mut features,
            ..
        } = self.options;
        features.use_start_timestamps = request
            .use_start_timestamps
            .unwrap_or(features.use_start_timestamps);
        let lookback_ms = request
            .lookback_delta_ms
            .filter(|&lookback_ms| lookback_ms > 0);
        Settings {
            lookback_ms: lookback_ms.unwrap_or(lookback_delta_ms),
            subquery_step_ms,
            features,
        }
    }
}

/// A query that is ready to be evaluated.
struct Evaluation<'a> {
    engine: &'a Engine,
    db: &'a Db,
    ctx: &'a ReadContext,
    request: &'a Request<'a>,
    plan: &'a Plan,
    settings: Settings,
}

impl Evaluation<'_> {
    /// Evaluates steps. Returns the result, and `true` unless a value may depend on
    /// the other steps, see [`Evaluator::is_order_fixed`].
    fn run(&self, steps: Steps, mut timings: Timings) -> Result<(QueryResult, bool)> {
        let Self {
            ctx, request, plan, ..
        } = self;
        let mut evaluator = self.evaluator();
        if request.stats != StatsMode::Off {
            evaluator.collect_stats(steps.n_steps, plan.n_nodes())?;
        }
        let mut charge = ctx.charge();
        let value = if request.steps.is_instant() {
            let time_ms = request.steps.start_ms;
            instant_value(&mut evaluator, plan, time_ms, &mut timings, &mut charge)?
        } else {
            range_value(&mut evaluator, plan, steps, &mut timings, &mut charge)?
        };
        let per_step = self.settings.features.per_step_stats;
        let stats = || Box::new(QueryStats::of(&evaluator, plan, steps, timings, per_step));
        let stats = (request.stats != StatsMode::Off).then(stats);
        let is_order_fixed = evaluator.is_order_fixed;
        Ok((
            QueryResult {
                value,
                annotations: evaluator.annotations,
                stats,
                charge,
            },
            is_order_fixed,
        ))
    }

    /// Evaluates the steps that are not cached, and caches the result.
    fn run_cached(
        &self,
        cached: &CachedQuery<'_>,
        steps: Steps,
        timings: Timings,
    ) -> Result<QueryResult> {
        match cached.find() {
            Some(found) if found.n_steps == steps.n_steps => {
                return self.cached_result(cached, &found, timings);
            }
            Some(found) => {
                if let Some(result) = self.joined_result(cached, &found, steps, timings)? {
                    return Ok(result);
                }
            }
            None => {}
        }
        // Before the evaluation: it sees all changes before this version.
        let version = self.db.read_version();
        let (result, is_order_fixed) = self.run(steps, timings)?;
        if let Some(version) = version {
            cached.store(
                self.ctx,
                version,
                &result.value,
                &result.annotations,
                is_order_fixed,
            );
        }
        Ok(result)
    }

    /// Returns a result whose steps are all cached.
    fn cached_result(
        &self,
        cached: &CachedQuery<'_>,
        found: &Found,
        timings: Timings,
    ) -> Result<QueryResult> {
        let mut charge = self.ctx.charge();
        let (value, annotations) = cached.whole(self.ctx, found, &mut charge)?;
        let no_steps = Steps {
            n_steps: 0,
            ..Steps::instant(0)
        };
        let stats = || QueryStats::of(&self.evaluator(), self.plan, no_steps, timings, false);
        let stats = (self.request.stats != StatsMode::Off).then(stats);
        let stats = stats.map(|stats| {
            Box::new(QueryStats {
                n_cached_steps: found.n_steps,
                ..stats
            })
        });
        Ok(QueryResult {
            value,
            annotations,
            stats,
            charge,
        })
    }

    /// Evaluates the steps after the cached ones and joins them. Returns `None` if all steps must
    /// be evaluated together: for errors and other annotations, which depend on all steps, or
    /// because a cached step has changed.
    fn joined_result(
        &self,
        cached: &CachedQuery<'_>,
        found: &Found,
        steps: Steps,
        timings: Timings,
    ) -> Result<Option<QueryResult>> {
        let Some(version) = self.db.read_version() else {
            return Ok(None);
        };
        let (start_ms, n_steps) = (steps.time_ms(found.n_steps), steps.n_steps - found.n_steps);
        let Ok((mut fresh, true)) = self.run(
            Steps {
                start_ms,
                n_steps,
                ..steps
            },
            timings,
        ) else {
            return Ok(None);
        };
        if self.ctx.partial().is_some() {
            return Ok(None);
        }
        let mut charge = self.ctx.charge();
        // The two parts may need more memory than one evaluation.
        let joined = cached.join(
            self.ctx,
            found,
            version,
            (fresh.value, &fresh.annotations),
            &mut charge,
        );
        let Ok(Some(value)) = joined else {
            return Ok(None);
        };
        if let Value::Matrix(matrix) = &value
            && matrix.iter().map(|series| n_samples(series)).sum::<usize>()
                > self.engine.options.samples_max
        {
            return Ok(None);
        }
        if let Some(stats) = &mut fresh.stats {
            stats.n_cached_steps = found.n_steps;
        }
        Ok(Some(QueryResult {
            value,
            charge,
            ..fresh
        }))
    }

    fn evaluator(&self) -> Evaluator<'_> {
        let Self {
            engine,
            ctx,
            plan,
            settings,
            ..
        } = *self;
        let samples = SampleLimit::new(engine.options.samples_max);
        let limits = Limits {
            ctx: ctx.clone(),
            samples,
        };
        let annotations = Annotations::new(self.request.query);
        let subexpressions = CommonSubexpressions::of(plan);
        let workers = engine.workers.clone();
        let mut evaluator = Evaluator::new(
            self.db,
            settings,
            limits,
            workers,
            subexpressions,
            annotations,
        );
        evaluator.external_labels = Arc::clone(&self.request.external_labels);
        evaluator.scans = self.request.scans;
        evaluator.query_span = plan.span;
        evaluator.is_range_query = !self.request.steps.is_instant();
        evaluator
    }
}

fn n_samples(series: &MatrixSeries) -> usize {
    series.points.len()
        + series
            .histograms
            .iter()
            .map(|point| point.histogram.n_samples())
            .sum::<usize>()
}

/// Checks the steps of a query, and that its expression may be evaluated at several steps.
fn check_steps(expr: &Expr, steps: Steps) -> Result<()> {
    if steps.is_instant() {
        return Ok(());
    }
    check_range_type(expr)?;
    if steps.step_ms <= 0 {
        return Err(Error::Invalid(format!(
            "step of {} ms is not positive",
            steps.step_ms
        )));
    }
    if steps.end_ms < steps.start_ms {
        return Err(Error::Invalid(
            "end timestamp must not be before start time".into(),
        ));
    }
    if steps.n_steps > STEPS_MAX {
        return Err(Error::Invalid(format!(
            "{} steps exceed the limit of {STEPS_MAX}",
            steps.n_steps
        )));
    }
    Ok(())
}

/// Fails unless the expression is a scalar or an instant vector.
fn check_range_type(expr: &Expr) -> Result<()> {
    let value_type = expr.value_type();
    if matches!(value_type, ValueType::Scalar | ValueType::Vector) {
        return Ok(());
    }
    let documented = value_type.documented();
    Err(Error::Invalid(format!(
        "invalid expression type {documented:?} for range query, must be Scalar or instant Vector"
    )))
}

fn instant_value(
    evaluator: &mut Evaluator<'_>,
    plan: &Plan,
    time_ms: i64,
    timings: &mut Timings,
    charge: &mut Charge,
) -> Result<Value> {
    let steps = Steps::instant(time_ms);
    match (plan.value_type, &plan.kind) {
        (ValueType::String, PlanKind::String(text)) => Ok(Value::String {
            timestamp_ms: time_ms,
            value: text.clone(),
        }),
        (ValueType::Scalar, _) => {
            let value = evaluator.scalar(plan, steps)?[0];
            Ok(Value::Scalar(Point {
                timestamp_ms: time_ms,
                value,
            }))
        }
        (_, PlanKind::Range(_)) => Ok(Value::Matrix(
            evaluator.range_vector(plan, time_ms, charge)?,
        )),
        (_, PlanKind::Subquery(subquery)) => {
            let (inner, mut vector) = evaluator.whole_subquery(subquery, steps)?;
            evaluator.finish(&mut vector)?;
            Ok(Value::Matrix(timings.sorting(|| {
                matrix(vector, inner, evaluator.limits(), charge)
            })?))
        }
        _ => {
            let mut vector = evaluator.vector(plan, steps)?;
            evaluator.finish(&mut vector)?;
            // The charge of the vector covers the samples, which are smaller than its series.
            const { assert!(size_of::<VectorSample>() <= size_of::<Series>()) };
            let (series, vector_charge) = vector.into_parts();
            charge.absorb(vector_charge);
            let sample = |Series { labels, column, .. }: Series| VectorSample {
                labels,
                point: Point {
                    timestamp_ms: time_ms,
                    value: column.values[0],
                },
                histogram: column.histogram(0).cloned(),
            };
            Ok(Value::Vector(series.into_iter().map(sample).collect()))
        }
    }
}

fn range_value(
    evaluator: &mut Evaluator<'_>,
    plan: &Plan,
    steps: Steps,
    timings: &mut Timings,
    charge: &mut Charge,
) -> Result<Value> {
    if plan.value_type == ValueType::Scalar {
        let values = evaluator.scalar(plan, steps)?;
        let point = |(timestamp_ms, value)| Point {
            timestamp_ms,
            value,
        };
        let points = steps
            .times_ms()
            .zip(values.iter().copied())
            .map(point)
            .collect();
        let (labels, histograms) = (varve_model::Labels::empty(), Vec::new());
        return Ok(Value::Matrix(vec![Arc::new(MatrixSeries {
            labels,
            points,
            histograms,
        })]));
    }
    let mut vector = evaluator.vector(plan, steps)?;
    evaluator.finish(&mut vector)?;
    Ok(Value::Matrix(timings.sorting(|| {
        matrix(vector, steps, evaluator.limits(), charge)
    })?))
}

/// Converts columns to points and sorts the series by labels. Charges the points, and releases each
/// column after its conversion.
fn matrix(
    vector: Vector,
    steps: Steps,
    limits: &Limits,
    charge: &mut Charge,
) -> Result<Vec<Arc<MatrixSeries>>> {
    let (columns, mut columns_charge) = vector.into_parts();
    charge.grow(columns.len() * MatrixSeries::FIXED_SIZE)?;
    let mut series = Vec::with_capacity(columns.len());
    for column in columns {
        limits.check()?;
        let column_size = series_size(&column);
        let converted = matrix_series(column, steps, charge)?;
        series.push(Arc::new(converted));
        columns_charge.shrink(column_size);
    }
    sort_by(&mut series, limits, |a, b| a.labels.cmp(&b.labels))?;
    Ok(series)
}

fn matrix_series(
    Series { labels, column, .. }: Series,
    steps: Steps,
    charge: &mut Charge,
) -> Result<MatrixSeries> {
    let n_floats = column.float_steps().count();
    charge.grow(labels.size() + n_floats * size_of::<Point>() + column.histograms_size())?;
    let mut points = Vec::with_capacity(n_floats);
    points.extend(column.float_steps().iter().map(|step| Point {
        timestamp_ms: steps.time_ms(step),
        value: column.values[step],
    }));
    let histogram = |(step, histogram): (usize, &Arc<FloatHistogram>)| HistogramPoint {
        timestamp_ms: steps.time_ms(step),
        histogram: Arc::clone(histogram),
    };
    let mut histograms = Vec::with_capacity(column.histograms.len());
    histograms.extend(column.histograms().map(histogram));
    Ok(MatrixSeries {
        labels,
        points,
        histograms,
    })
}

#[cfg(test)]
mod tests;
