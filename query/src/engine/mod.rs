//! The query engine: parses, plans and evaluates a query.

mod planned;
mod request;
mod small;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use varve_context::QueryContext;
use varve_promql::Features;
use varve_promql::ast::Expr;
use varve_promql::deep_stack;
use varve_tsdb::{Db, ReadContext};

use crate::cache::{CacheStats, CachedQuery, Dependencies, QueryKey, ResultCache};
use crate::error::{Error, Result};
use crate::eval::Settings;
use crate::eval::select::{ScanPlan, SharedScans};
use crate::eval::workers::Workers;
use crate::plan::{self, Plan};
use crate::stats::{StatsMode, Timings};
use planned::PlannedQuery;
use request::check_steps;
pub use request::{ParsedQuery, QueryResult, Request, STEPS_MAX};

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

/// Evaluates queries. Owns the options, and the worker threads and the result cache that all
/// queries share. Clones share them.
#[derive(Debug, Clone)]
pub struct Engine {
    options: EngineOptions,
    workers: Workers,
    cache: Arc<ResultCache>,
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
        check_steps(&expr, request.steps)?;
        let mut plan = plan::build(&expr, request.steps).map_err(Error::Invalid)?;
        let settings = self.settings(request);
        let cached = self.cached_query(db, ctx, request, &expr, &plan, &settings);
        drop(expr);

        // `StatsMode::AsWritten` counts samples without matcher propagation.
        if request.stats != StatsMode::AsWritten {
            plan::propagate_matchers(&mut plan);
        }
        ctx.check()?;
        timings.prepared();

        let query = PlannedQuery {
            db,
            ctx,
            request,
            plan: &plan,
            settings,
            samples_max: self.options.samples_max,
            workers: &self.workers,
        };
        match cached {
            Some(cached) => query.evaluate_cached(&cached, timings),
            None => Ok(query.evaluate(request.steps, timings)?.0),
        }
    }

    /// Returns the query with its key in the result cache, or `None` if its result cannot be cached.
    fn cached_query<'a>(
        &'a self,
        db: &'a Db,
        ctx: &ReadContext,
        request: &Request<'a>,
        expr: &Expr,
        plan: &Plan,
        settings: &Settings,
    ) -> Option<CachedQuery<'a>> {
        let collects_steps = request.stats != StatsMode::Off && settings.features.per_step_stats;
        if !request.use_cache
            || !request.external_labels.is_empty()
            || request.scans.is_some()
            || ctx.has_read_limits()
            || request.stats == StatsMode::AsPlanned
            || collects_steps
            || !self.cache.is_enabled()
            || request.steps.n_steps == 0
        {
            return None;
        }
        let dependencies = Dependencies::of(expr, plan, settings, request.steps.step_ms)?;
        Some(CachedQuery {
            cache: &self.cache,
            db,
            query: request.query,
            key: QueryKey::new(expr, settings, request.steps, ctx.restriction()),
            steps: request.steps,
            dependencies,
        })
    }

    /// Returns `true` if a query is short and shallow, and has no string from which a large regular
    /// expression could be compiled.
    #[must_use]
    pub fn is_small_text(query: &str) -> bool {
        small::is_small_text(query)
    }

    /// Returns `true` if the evaluation of a query takes about as long as waking another thread: it
    /// has few expressions and steps, and no subquery, and its selectors read few series and
    /// samples, and only from the heads. Looks up the number of series of each selector.
    #[must_use]
    pub fn is_small(
        &self,
        db: &Db,
        ctx: &ReadContext,
        parsed: &ParsedQuery,
        request: &Request<'_>,
    ) -> bool {
        let lookback_ms = self.settings(request).lookback_ms;
        check_steps(&parsed.expr, request.steps).is_ok()
            && small::is_small(db, ctx, &parsed.expr, request.steps, lookback_ms)
    }

    fn settings(&self, request: &Request<'_>) -> Settings {
        let mut features = self.options.features;
        if let Some(use_start_timestamps) = request.use_start_timestamps {
            features.use_start_timestamps = use_start_timestamps;
        }
        let lookback_ms = match request.lookback_delta_ms {
            Some(lookback_ms) if lookback_ms > 0 => lookback_ms,
            _ => self.options.lookback_delta_ms,
        };
        Settings {
            lookback_ms,
            subquery_step_ms: self.options.subquery_step_ms,
            features,
        }
    }
}

/// Options of engines in tests: Prometheus' defaults, no optional features, no worker threads, no
/// result cache.
#[cfg(test)]
pub(crate) fn test_options() -> EngineOptions {
    EngineOptions {
        lookback_delta_ms: 300_000,
        samples_max: 50_000_000,
        subquery_step_ms: 60_000,
        parallelism: 1,
        cache_size: 0,
        features: Features::default(),
    }
}
