//! Statistics of a query: timings, samples, and a profile of the operators of its plan.
//!
//! Timings and samples are those of Prometheus' `stats=all`. The operator profile exists only in
//! Varve.

use std::time::{Duration, Instant};

use crate::eval::Evaluator;
use crate::plan::{Plan, describe};
use crate::steps::Steps;

/// Which statistics to collect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsMode {
    /// No statistics.
    Off,
    /// Statistics of the query as written, evaluated without matcher propagation.
    AsWritten,
    /// Statistics of the plan that is also evaluated if statistics are off: with matcher
    /// propagation.
    AsPlanned,
}

/// The statistics of a query.
#[derive(Debug, Clone)]
pub struct QueryStats {
    /// Timings.
    pub timings: Timings,
    /// Samples. Steps from the result cache read none.
    pub samples: SampleStats,
    /// Number of steps that came from the result cache.
    pub n_cached_steps: usize,
    /// The operators of the plan, in pre-order.
    pub operators: Vec<Operator>,
}

/// Timings of a query.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    started: Instant,
    evaluation: Option<Instant>,
    /// Time to parse and plan the query.
    pub preparation: Duration,
    /// Time to evaluate the plan, including sorting.
    pub evaluation_time: Duration,
    /// Time to sort the series of a matrix.
    pub sort: Duration,
}

/// Numbers of samples of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleStats {
    /// Sum over all steps of the samples that a step needs. A histogram counts by its size.
    pub queryable: u64,
    /// Like `queryable`, but without samples that an earlier step needs too.
    pub read: u64,
    /// Number of series that selectors read. A series that several selectors read counts several
    /// times.
    pub series: u64,
    /// Peak number of samples held at once.
    pub peak: usize,
    /// Counts by step; empty without the feature `promql-per-step-stats`.
    pub steps: Vec<StepSamples>,
}

/// Number of samples at one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSamples {
    /// The time of the step.
    pub timestamp_ms: i64,
    /// See [`SampleStats::queryable`].
    pub queryable: u64,
    /// See [`SampleStats::read`].
    pub read: u64,
}

/// The profile of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Depth in the plan; the root has depth 0.
    pub depth: usize,
    /// Description of the operator, without its children.
    pub text: String,
    /// Number of evaluations; 0 if the operator reused the result of an equal one, or if its parent
    /// evaluates it.
    pub runs: usize,
    /// Number of returned series.
    pub series: usize,
    /// Number of returned values. A histogram counts by its size.
    pub samples: usize,
    /// Size of the materialized result in bytes; 0 if the series were streamed.
    pub bytes: usize,
    /// Evaluation time, including the children.
    pub time: Duration,
}

impl Timings {
    pub(crate) fn start() -> Self {
        let none = Duration::ZERO;
        Self {
            started: Instant::now(),
            evaluation: None,
            preparation: none,
            evaluation_time: none,
            sort: none,
        }
    }

    /// Ends the preparation.
    pub(crate) fn prepared(&mut self) {
        self.preparation = self.started.elapsed();
        self.evaluation = Some(Instant::now());
    }

    /// Runs `sort` and adds its duration to the sort time.
    pub(crate) fn sorting<T>(&mut self, sort: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let sorted = sort();
        self.sort += started.elapsed();
        sorted
    }

    /// Ends the evaluation.
    fn evaluated(&mut self) {
        self.evaluation_time = self
            .evaluation
            .map_or(Duration::ZERO, |started| started.elapsed());
    }

    /// Returns the total time.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.preparation + self.evaluation_time
    }
}

impl QueryStats {
    /// Collects the statistics of an evaluation.
    pub(crate) fn of(
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        steps: Steps,
        mut timings: Timings,
        per_step: bool,
    ) -> Self {
        timings.evaluated();
        let counts = &evaluator.sample_stats;
        let total = evaluator.sample_stats.total();
        let mut step_samples = Vec::new();
        if per_step {
            for (step, count) in counts.steps().iter().enumerate() {
                step_samples.push(StepSamples {
                    timestamp_ms: steps.time_ms(step),
                    queryable: count.queryable,
                    read: count.read,
                });
            }
        }
        let samples = SampleStats {
            queryable: total.queryable,
            read: total.read,
            series: counts.n_series(),
            peak: evaluator.peak_samples(),
            steps: step_samples,
        };
        let mut operators = Vec::new();
        add_operators(plan, 0, evaluator, &mut operators);
        Self {
            timings,
            samples,
            n_cached_steps: 0,
            operators,
        }
    }
}

fn add_operators(
    plan: &Plan,
    depth: usize,
    evaluator: &Evaluator<'_>,
    operators: &mut Vec<Operator>,
) {
    let profile = evaluator.profile.operator(plan.id);
    operators.push(Operator {
        depth,
        text: describe(plan),
        runs: profile.n_runs,
        series: profile.n_series,
        samples: profile.n_samples,
        bytes: profile.size,
        time: profile.time,
    });
    for child in plan.children() {
        add_operators(child, depth + 1, evaluator, operators);
    }
}
