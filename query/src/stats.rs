//! Statistics of a query: timings, samples, and a profile of the operators of its plan.
//!
//! Timings and samples are those of Prometheus' `stats=all`; the profile of operators is Varve's own.

use std::time::{Duration, Instant};

use crate::eval::Evaluator;
use crate::eval::grid::Grid;
use crate::eval::sample_stats::SampleCount;
use crate::plan::{Plan, describe};

/// Which statistics to collect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsMode {
    /// None.
    Off,
    /// Those of the query as it is written: without matcher propagation.
    AsWritten,
    /// Those of the plan that is evaluated without statistics.
    AsPlanned,
}

/// The statistics of a query.
#[derive(Debug, Clone)]
pub struct QueryStats {
    /// Timings.
    pub timings: Timings,
    /// Samples.
    pub samples: SampleStats,
    /// The operators of the plan, in pre-order.
    pub operators: Vec<Operator>,
}

/// Timings of a query. Parsing is part of the preparation.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    started: Instant,
    evaluation: Option<Instant>,
    /// From the text to the plan.
    pub preparation: Duration,
    /// From the plan to the value, sorting included.
    pub evaluation_time: Duration,
    /// Sorting the series of a matrix.
    pub sort: Duration,
}

/// Number of samples that a query read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleStats {
    /// Sum of the samples that each step needs; a histogram counts by its size.
    pub queryable: u64,
    /// Those of them that no earlier step needs.
    pub read: u64,
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
    /// Its depth in the plan; the root is 0.
    pub depth: usize,
    /// Its description.
    pub text: String,
    /// Number of evaluations; 0 if the result of an equal operator was used, or its parent evaluates it.
    pub runs: usize,
    /// Number of series it returned.
    pub series: usize,
    /// Number of values it returned; a histogram counts by its size.
    pub samples: usize,
    /// Size of its result in bytes, if it was materialized; 0 if series were streamed.
    pub bytes: usize,
    /// Time it took, including its children.
    pub time: Duration,
}

impl Timings {
    pub(crate) fn start() -> Self {
        let none = Duration::ZERO;
        Self { started: Instant::now(), evaluation: None, preparation: none, evaluation_time: none, sort: none }
    }

    /// Ends the preparation.
    pub(crate) fn prepared(&mut self) {
        self.preparation = self.started.elapsed();
        self.evaluation = Some(Instant::now());
    }

    /// Runs `sort`, and adds its time.
    pub(crate) fn sorting<T>(&mut self, sort: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let sorted = sort();
        self.sort += started.elapsed();
        sorted
    }

    /// Ends the evaluation.
    fn evaluated(&mut self) {
        self.evaluation_time = self.evaluation.map_or(Duration::ZERO, |started| started.elapsed());
    }

    /// Returns the total time.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.preparation + self.evaluation_time
    }
}

impl QueryStats {
    /// Collects the statistics of an evaluation.
    pub(crate) fn of(evaluator: &Evaluator<'_>, plan: &Plan, grid: Grid, mut timings: Timings, per_step: bool) -> Self {
        timings.evaluated();
        let (counts, total) = (&evaluator.sample_stats, evaluator.sample_stats.total());
        let of_step = |(step, count): (usize, &SampleCount)| StepSamples {
            timestamp_ms: grid.time_ms(step),
            queryable: count.queryable,
            read: count.read,
        };
        let steps = counts.steps().iter().enumerate().map(of_step);
        let samples = SampleStats {
            queryable: total.queryable,
            read: total.read,
            peak: evaluator.peak_samples(),
            steps: steps.take_while(|_| per_step).collect(),
        };
        let mut operators = Vec::new();
        add_operators(plan, 0, evaluator, &mut operators);
        Self { timings, samples, operators }
    }
}

fn add_operators(plan: &Plan, depth: usize, evaluator: &Evaluator<'_>, operators: &mut Vec<Operator>) {
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
    plan.children().into_iter().for_each(|child| add_operators(child, depth + 1, evaluator, operators));
}
