//! Query profile: time and output of each operator, for `explain`.

use std::time::{Duration, Instant};

use super::columns::Vector;

/// The output of an operator.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OutputCount {
    pub(super) n_series: usize,
    /// Number of values. A histogram counts by its size.
    pub(super) n_samples: usize,
}

impl OutputCount {
    pub(super) fn add(&mut self, other: Self) {
        self.n_series += other.n_series;
        self.n_samples += other.n_samples;
    }
}

/// Time and output of one operator.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OperatorProfile {
    /// Number of evaluations; 0 if the result of an equal operator was reused.
    pub(crate) n_runs: usize,
    pub(crate) n_series: usize,
    pub(crate) n_samples: usize,
    /// Size of the materialized result in bytes; 0 if the series were streamed.
    pub(crate) size: usize,
    /// Evaluation time, including the children.
    pub(crate) time: Duration,
}

/// Profiles of all operators.
#[derive(Debug, Clone, Default)]
pub(crate) struct Profile {
    /// Profiles by expression id; empty if profiling is off.
    operators: Vec<OperatorProfile>,
}

impl Profile {
    /// Creates a profile of `n_plans` expressions, or an empty one unless `is_on`.
    pub(crate) fn new(is_on: bool, n_plans: usize) -> Self {
        Self {
            operators: if is_on {
                vec![OperatorProfile::default(); n_plans]
            } else {
                Vec::new()
            },
        }
    }

    /// Returns the size of a profile of `n_plans` expressions in bytes.
    pub(crate) const fn size(n_plans: usize) -> usize {
        n_plans * size_of::<OperatorProfile>()
    }

    /// Returns the current time, if profiling is on.
    pub(super) fn now(&self) -> Option<Instant> {
        if self.operators.is_empty() {
            return None;
        }
        Some(Instant::now())
    }

    /// Records an evaluation that started at `started`.
    pub(super) fn record_time(&mut self, id: usize, started: Option<Instant>) {
        if let Some(operator) = self.operators.get_mut(id)
            && let Some(started) = started
        {
            operator.n_runs += 1;
            operator.time += started.elapsed();
        }
    }

    /// Records streamed output.
    pub(super) fn record_output(&mut self, id: usize, output: OutputCount) {
        if let Some(operator) = self.operators.get_mut(id) {
            operator.n_series += output.n_series;
            operator.n_samples += output.n_samples;
        }
    }

    /// Records a materialized result.
    pub(super) fn record_vector(&mut self, id: usize, vector: &Vector) {
        if let Some(operator) = self.operators.get_mut(id) {
            operator.n_series = operator.n_series.max(vector.series.len());
            operator.n_samples = operator.n_samples.max(vector.n_samples());
            operator.size = operator.size.max(vector.size());
        }
    }

    /// Returns the profile of an expression.
    pub(crate) fn operator(&self, id: usize) -> OperatorProfile {
        self.operators.get(id).copied().unwrap_or_default()
    }
}
