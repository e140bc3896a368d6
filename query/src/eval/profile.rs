//! What each operator of a plan did: for `explain`.

use std::time::{Duration, Instant};

use super::series::Vector;

/// What came out of an operator while it was evaluated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passed {
    pub(super) n_series: usize,
    /// Values at steps; histograms count by their size.
    pub(super) n_samples: usize,
}

/// What one operator did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// How often it was evaluated; 0 if another one like it was in its place.
    pub(crate) n_runs: usize,
    pub(crate) n_series: usize,
    pub(crate) n_samples: usize,
    /// Bytes of its result, if that was held and not handed on.
    pub(crate) size: usize,
    /// With what is inside of it.
    pub(crate) time: Duration,
}

/// By the number of the expression; empty where nobody asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Profile {
    works: Vec<Work>,
}

impl Profile {
    /// Makes a profile of as many expressions, if it is asked for.
    pub(crate) fn new(is_on: bool, n_plans: usize) -> Self {
        Self { works: if is_on { vec![Work::default(); n_plans] } else { Vec::new() } }
    }

    /// Returns the bytes that a profile of `n_plans` expressions takes.
    pub(crate) const fn size(n_plans: usize) -> usize {
        n_plans * size_of::<Work>()
    }

    /// Returns the time, if it is asked for.
    pub(super) fn now(&self) -> Option<Instant> {
        (!self.works.is_empty()).then(Instant::now)
    }

    /// Notes the time that an expression took.
    pub(super) fn took(&mut self, id: usize, started: Option<Instant>) {
        if let (Some(work), Some(started)) = (self.works.get_mut(id), started) {
            work.n_runs += 1;
            work.time += started.elapsed();
        }
    }

    /// Notes the series that an expression handed on.
    pub(super) fn streamed(&mut self, id: usize, passed: Passed) {
        if let Some(work) = self.works.get_mut(id) {
            work.n_series += passed.n_series;
            work.n_samples += passed.n_samples;
        }
    }

    /// Notes the value of an expression, which is held.
    pub(super) fn held(&mut self, id: usize, vector: &Vector) {
        if let Some(work) = self.works.get_mut(id) {
            work.n_series = work.n_series.max(vector.series.len());
            work.n_samples = work.n_samples.max(vector.n_samples());
            work.size = work.size.max(vector.size());
        }
    }

    /// Returns what an expression did.
    pub(crate) fn work(&self, id: usize) -> Work {
        self.works.get(id).copied().unwrap_or_default()
    }
}
