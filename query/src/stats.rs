//! Statistics of a query: how long its parts took, how many samples it looked at, what each operator of its plan did.
//!
//! Timings and samples are those of Prometheus' `stats=all`, counted as there; the operators are our own.

use std::time::{Duration, Instant};

use crate::eval::Evaluator;
use crate::eval::grid::Grid;
use crate::plan::{Plan, describe};

/// What a query took.
#[derive(Debug, Clone)]
pub struct QueryStats {
    /// How long.
    pub timings: Timings,
    /// How many samples.
    pub samples: SampleStats,
    /// The operators of the plan, each before those that are inside of it, from left to right.
    pub operators: Vec<Operator>,
}

/// How long the parts of a query took. Parsing is a part of the preparation.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    started: Instant,
    evaluation: Option<Instant>,
    /// From the text to the plan.
    pub preparation: Duration,
    /// From the plan to the value, sorting included.
    pub evaluation_time: Duration,
    /// Bringing the series of a matrix in order.
    pub sort: Duration,
}

/// How many samples a query looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleStats {
    /// Those that all steps would need if each were asked for alone; histograms count by their size.
    pub queryable: u64,
    /// Those of them that no step before had needed.
    pub read: u64,
    /// The most that were held at once.
    pub peak: usize,
    /// The same by step; empty without the feature `promql-per-step-stats`.
    pub steps: Vec<StepSamples>,
}

/// Samples at one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSamples {
    /// The time of the step.
    pub timestamp_ms: i64,
    /// See [`SampleStats::queryable`].
    pub queryable: u64,
    /// See [`SampleStats::read`].
    pub read: u64,
}

/// What an operator of a plan did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// How deep it stands in the plan; that of the query is 0.
    pub depth: usize,
    /// What it is.
    pub text: String,
    /// How often it was evaluated; 0 if the result of one like it was taken, or it was part of the one around it.
    pub runs: usize,
    /// Series that came out of it.
    pub series: usize,
    /// Values at steps that came out of it; histograms count by their size.
    pub samples: usize,
    /// Bytes of its result, where all of it was held at once; 0 where series were handed on one by one.
    pub bytes: usize,
    /// How long it took, with what is inside of it.
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

    /// Does what brings the value in order.
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

    /// Returns the time from the text to the value.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.preparation + self.evaluation_time
    }
}

impl QueryStats {
    /// Reads what an evaluation has counted.
    pub(crate) fn of(evaluator: &Evaluator<'_>, plan: &Plan, grid: Grid, mut timings: Timings, per_step: bool) -> Self {
        timings.evaluated();
        let (tally, total) = (&evaluator.tally, evaluator.tally.total());
        let of_step = |(step, looked): (usize, &crate::eval::tally::Looked)| StepSamples {
            timestamp_ms: grid.time_ms(step),
            queryable: looked.queryable,
            read: looked.read,
        };
        let steps = tally.steps().iter().enumerate().map(of_step);
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
    let work = evaluator.profile.work(plan.id);
    operators.push(Operator {
        depth,
        text: describe(plan),
        runs: work.n_runs,
        series: work.n_series,
        samples: work.n_samples,
        bytes: work.size,
        time: work.time,
    });
    plan.children().into_iter().for_each(|child| add_operators(child, depth + 1, evaluator, operators));
}
