//! A planned query: its steps are evaluated, or come from the result cache.

use std::sync::{Arc, OnceLock};

use varve_tsdb::{Db, ReadContext};

use super::request::{QueryResult, Request};
use super::values::{instant_value, range_value};
use crate::annotations::Annotations;
use crate::cache::{CachedPart, CachedQuery};
use crate::error::Result;
use crate::eval::columns::{Limits, SampleLimit};
use crate::eval::profile::Profile;
use crate::eval::sample_stats::StepSampleStats;
use crate::eval::shared_results::SharedResults;
use crate::eval::workers::Workers;
use crate::eval::{Evaluator, Settings};
use crate::plan::{CommonSubexpressions, Plan};
use crate::stats::{QueryStats, StatsMode, Timings};
use crate::steps::Steps;
use crate::value::{MatrixSeries, Value};

/// A query that is ready to be evaluated.
pub(super) struct PlannedQuery<'a> {
    pub(super) db: &'a Db,
    pub(super) ctx: &'a ReadContext,
    pub(super) request: &'a Request<'a>,
    pub(super) plan: &'a Plan,
    pub(super) settings: Settings,
    /// Maximum number of samples held at once.
    pub(super) samples_max: usize,
    pub(super) workers: &'a Workers,
}

impl PlannedQuery<'_> {
    /// Evaluates steps. Returns the result, and `true` unless a value may depend on the other
    /// steps, see [`Evaluator::is_order_fixed`].
    pub(super) fn evaluate(
        &self,
        steps: Steps,
        mut timings: Timings,
    ) -> Result<(QueryResult, bool)> {
        let mut evaluator = self.evaluator();
        let has_stats = self.request.stats != StatsMode::Off;
        if has_stats {
            evaluator.collect_stats(steps.n_steps, self.plan.n_nodes())?;
        }

        let mut charge = self.ctx.charge();
        // An instant query is cached as a whole or not at all, so `steps` are its own.
        let value = if self.request.steps.is_instant() {
            let time_ms = steps.start_ms;
            instant_value(
                &mut evaluator,
                self.plan,
                time_ms,
                &mut timings,
                &mut charge,
            )?
        } else {
            range_value(&mut evaluator, self.plan, steps, &mut timings, &mut charge)?
        };

        let stats = if has_stats {
            let per_step = self.settings.features.per_step_stats;
            Some(Box::new(QueryStats::of(
                &evaluator, self.plan, steps, timings, per_step,
            )))
        } else {
            None
        };
        let is_order_fixed = evaluator.is_order_fixed;
        let result = QueryResult {
            value,
            annotations: evaluator.annotations,
            stats,
            charge,
        };
        Ok((result, is_order_fixed))
    }

    /// Evaluates the steps that are not cached, and caches the result.
    pub(super) fn evaluate_cached(
        &self,
        cached: &CachedQuery<'_>,
        timings: Timings,
    ) -> Result<QueryResult> {
        let steps = self.request.steps;
        if let Some(found) = cached.find() {
            if found.n_steps == steps.n_steps {
                return self.cached_result(cached, &found, timings);
            }
            if let Some(result) = self.joined_result(cached, &found, timings)? {
                return Ok(result);
            }
        }

        // Before the evaluation: it sees all changes before this version.
        let version = self.db.read_version();
        let (result, is_order_fixed) = self.evaluate(steps, timings)?;
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
        found: &CachedPart,
        timings: Timings,
    ) -> Result<QueryResult> {
        let mut charge = self.ctx.charge();
        let (value, annotations) = cached.whole(self.ctx, found, &mut charge)?;
        let stats = if self.request.stats == StatsMode::Off {
            None
        } else {
            let no_steps = Steps {
                n_steps: 0,
                ..Steps::instant(0)
            };
            let mut stats = QueryStats::of(&self.evaluator(), self.plan, no_steps, timings, false);
            stats.n_cached_steps = found.n_steps;
            Some(Box::new(stats))
        };
        Ok(QueryResult {
            value,
            annotations,
            stats,
            charge,
        })
    }

    /// Evaluates the steps after the cached ones and joins them. Returns `None` if all steps must
    /// be evaluated together: for errors and some annotations, which depend on all steps, or
    /// because a cached step has changed.
    fn joined_result(
        &self,
        cached: &CachedQuery<'_>,
        found: &CachedPart,
        timings: Timings,
    ) -> Result<Option<QueryResult>> {
        let Some(version) = self.db.read_version() else {
            return Ok(None);
        };
        let steps = self.request.steps;
        let left = Steps {
            start_ms: steps.time_ms(found.n_steps),
            n_steps: steps.n_steps - found.n_steps,
            ..steps
        };
        let Ok((mut fresh, true)) = self.evaluate(left, timings) else {
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
            fresh.value,
            &fresh.annotations,
            &mut charge,
        );
        let Ok(Some((value, annotations))) = joined else {
            return Ok(None);
        };
        if let Value::Matrix(matrix) = &value
            && matrix.iter().map(|series| n_samples(series)).sum::<usize>() > self.samples_max
        {
            return Ok(None);
        }
        if let Some(stats) = &mut fresh.stats {
            stats.n_cached_steps = found.n_steps;
        }
        Ok(Some(QueryResult {
            value,
            annotations,
            charge,
            ..fresh
        }))
    }

    fn evaluator(&self) -> Evaluator<'_> {
        let subexpressions = CommonSubexpressions::of(self.plan);
        Evaluator {
            db: self.db,
            external_labels: Arc::clone(&self.request.external_labels),
            scans: self.request.scans,
            settings: self.settings,
            limits: Limits {
                ctx: self.ctx.clone(),
                samples: SampleLimit::new(self.samples_max),
            },
            workers: self.workers.clone(),
            annotations: Annotations::new(self.request.query),
            subexpressions,
            shared: SharedResults::default(),
            name_labels: OnceLock::new(),
            sample_stats: StepSampleStats::default(),
            profile: Profile::default(),
            is_order_fixed: true,
            is_range_query: !self.request.steps.is_instant(),
            query_span: self.plan.span,
            stats_charge: self.ctx.charge(),
        }
    }
}

fn n_samples(series: &MatrixSeries) -> usize {
    let in_histograms: usize = series
        .histograms
        .iter()
        .map(|point| point.histogram.n_samples())
        .sum();
    series.points.len() + in_histograms
}
