//! Sample statistics: numbers of samples that each step needs, as counted by Prometheus.

use super::columns::Column;
use super::grid::Grid;

/// Number of samples at one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampleCount {
    /// Samples that the step needs.
    pub(crate) queryable: u64,
    /// Samples that no earlier step needs: a window does not count the samples it shares with the previous window.
    pub(crate) read: u64,
}

/// Counts by step. If statistics are off, there are no steps, and counting costs nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepSampleStats {
    steps: Vec<SampleCount>,
}

impl StepSampleStats {
    /// Returns empty statistics of `n_steps` steps; without steps unless `is_on`.
    pub(crate) fn new(is_on: bool, n_steps: usize) -> Self {
        Self { steps: if is_on { vec![SampleCount::default(); n_steps] } else { Vec::new() } }
    }

    /// Returns empty statistics of `n_steps` steps; off if `self` is off.
    pub(crate) fn empty(&self, n_steps: usize) -> Self {
        Self::new(self.is_on(), n_steps)
    }

    /// Returns `true` if statistics are on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Counts samples that only this step needs.
    #[inline]
    pub(crate) fn add(&mut self, step: usize, n_samples: usize) {
        self.add_window(step, n_samples, n_samples);
    }

    /// Counts the samples of a window, `n_new` of which the previous window does not have.
    #[inline]
    pub(crate) fn add_window(&mut self, step: usize, n_samples: usize, n_new: usize) {
        if let Some(count) = self.steps.get_mut(step) {
            count.queryable += n_samples as u64;
            count.read += n_new as u64;
        }
    }

    /// Counts the values of a selected series. A histogram counts by its size.
    pub(crate) fn add_column(&mut self, column: &Column) {
        if self.is_on() {
            column.float_steps().iter().for_each(|step| self.add(step, 1));
            column.histograms().for_each(|(step, histogram)| self.add(step, histogram.n_samples()));
        }
    }

    /// Adds other statistics of the same steps.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (count, more) in self.steps.iter_mut().zip(&other.steps) {
            count.queryable += more.queryable;
            count.read += more.read;
        }
    }

    /// Adds the statistics of a step-invariant expression: every step needs its samples, but they are read once.
    pub(crate) fn add_invariant(&mut self, once: &Self) {
        let total = once.total();
        self.steps.iter_mut().for_each(|count| count.queryable += total.queryable);
        self.steps.iter_mut().take(1).for_each(|count| count.read += total.read);
    }

    /// Adds each read of a subquery to the earliest step that uses it. Reads between the windows of two steps are not
    /// counted. The function around the subquery counts its values.
    pub(crate) fn add_reads(&mut self, other: &Self, inner: Grid, grid: Grid, offset_ms: i64, range_ms: i64) {
        if self.steps.len() <= 1 {
            self.steps.iter_mut().for_each(|count| count.read += other.total().read);
            return;
        }
        for (at, count) in other.steps.iter().enumerate().filter(|(_, count)| count.read > 0) {
            let time_ms = inner.time_ms(at).saturating_add(offset_ms);
            let after_ms = time_ms.saturating_sub(grid.start_ms).max(0);
            let step = usize::try_from(after_ms.div_euclid(grid.step_ms)).unwrap_or(usize::MAX);
            let step = step.saturating_add(usize::from(after_ms % grid.step_ms > 0)).min(self.steps.len() - 1);
            if time_ms > grid.time_ms(step).saturating_sub(range_ms) {
                self.steps[step].read += count.read;
            }
        }
    }

    /// Adds the statistics of a subquery that is the root of the query.
    pub(crate) fn add_whole(&mut self, other: &Self) {
        let total = other.total();
        if let Some(last) = self.steps.last_mut() {
            last.queryable += total.queryable;
            last.read += total.read;
        }
    }

    /// Returns the counts by step.
    pub(crate) fn steps(&self) -> &[SampleCount] {
        &self.steps
    }

    /// Returns the sums over all steps.
    pub(crate) fn total(&self) -> SampleCount {
        self.steps.iter().fold(SampleCount::default(), |sum, count| SampleCount {
            queryable: sum.queryable + count.queryable,
            read: sum.read + count.read,
        })
    }

    /// Returns the counts since an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let less = |(now, before): (&SampleCount, &SampleCount)| SampleCount {
            queryable: now.queryable - before.queryable,
            read: now.read - before.read,
        };
        Self { steps: self.steps.iter().zip(&before.steps).map(less).collect() }
    }

    /// Returns the size of the statistics of `n_steps` steps in bytes.
    pub(crate) const fn size(n_steps: usize) -> usize {
        n_steps * size_of::<SampleCount>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(reads: &[u64]) -> StepSampleStats {
        StepSampleStats { steps: reads.iter().map(|&read| SampleCount { queryable: read, read }).collect() }
    }

    fn reads(stats: &StepSampleStats) -> Vec<u64> {
        stats.steps.iter().map(|count| count.read).collect()
    }

    #[test]
    fn reads_of_a_subquery_count_for_the_first_step_that_uses_them() {
        let (inner, grid) = (Grid::new(0, 50, 10), Grid::new(20, 60, 20));
        let inner_stats = stats(&[1, 1, 1, 1, 1, 1]);
        let reads_by_step = |offset_ms, range_ms| {
            let mut sum = StepSampleStats::new(true, 3);
            sum.add_reads(&inner_stats, inner, grid, offset_ms, range_ms);
            reads(&sum)
        };
        // The step at 20 counts 0, 10 and 20; the step at 40 counts 30 and 40; the step at 60 counts 50.
        assert_eq!(reads_by_step(0, 30), [3, 2, 1]);
        assert_eq!(reads_by_step(20, 50), [1, 2, 3]);
        // Windows of 10 ms leave gaps between steps.
        assert_eq!(reads_by_step(0, 10), [1, 1, 0]);
        let mut one = StepSampleStats::new(true, 1);
        one.add_reads(&inner_stats, inner, Grid::instant(50), 0, 10);
        assert_eq!(reads(&one), [6]);
    }

    #[test]
    fn step_invariant_samples_are_needed_at_every_step_and_read_once() {
        let mut sum = StepSampleStats::new(true, 3);
        sum.add_invariant(&stats(&[5]));
        assert_eq!((reads(&sum), sum.total().queryable), (vec![5, 0, 0], 15));
        let mut off = StepSampleStats::default();
        off.add_invariant(&stats(&[5]));
        off.add(7, 1);
        assert_eq!(off.total(), SampleCount::default());
    }
}
