//! Sample statistics: numbers of samples that each step needs, as counted by Prometheus.

use super::columns::Column;
use crate::plan::Shift;
use crate::steps::Steps;

/// Number of samples at one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampleCount {
    /// Samples that the step needs.
    pub(crate) queryable: u64,
    /// Samples that no earlier step needs: a window does not count the samples it shares with the
    /// previous window.
    pub(crate) read: u64,
}

/// Counts by step. If statistics are off, there are no steps, and counting costs nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepSampleStats {
    steps: Vec<SampleCount>,
    n_series: u64,
}

impl SampleCount {
    fn add(&mut self, more: Self) {
        self.queryable += more.queryable;
        self.read += more.read;
    }
}

impl StepSampleStats {
    /// Returns empty statistics of `n_steps` steps; without steps unless `is_on`.
    pub(crate) fn new(is_on: bool, n_steps: usize) -> Self {
        Self {
            steps: if is_on {
                vec![SampleCount::default(); n_steps]
            } else {
                Vec::new()
            },
            n_series: 0,
        }
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
            for step in column.float_steps().iter() {
                self.add(step, 1);
            }
            for (step, histogram) in column.histograms() {
                self.add(step, histogram.n_samples());
            }
        }
    }

    /// Adds other statistics of the same steps.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.n_series += other.n_series;
        for (count, more) in self.steps.iter_mut().zip(&other.steps) {
            count.add(*more);
        }
    }

    /// Counts a series that a selector read.
    pub(crate) fn add_series(&mut self) {
        self.n_series += u64::from(self.is_on());
    }

    /// Returns the number of series that selectors read. A series that several selectors read
    /// counts several times.
    pub(crate) fn n_series(&self) -> u64 {
        self.n_series
    }

    /// Adds the statistics of a step-invariant expression: every step needs its samples, but they
    /// are read once.
    pub(crate) fn add_invariant(&mut self, once: &Self) {
        let total = once.total();
        self.n_series += once.n_series;
        for count in &mut self.steps {
            count.queryable += total.queryable;
        }
        if let Some(count) = self.steps.first_mut() {
            count.read += total.read;
        }
    }

    /// Adds the statistics of a subquery. Each step needs the samples of all inner steps in its
    /// window. Each read counts for the earliest step whose window has it. Reads between the
    /// windows of two steps are not counted.
    pub(crate) fn add_subquery(
        &mut self,
        other: &Self,
        inner: Steps,
        steps: Steps,
        shift: Shift,
        range_ms: i64,
    ) {
        self.n_series += other.n_series;
        if let [only] = &mut self.steps[..] {
            only.add(other.total());
            return;
        }
        let mut from = 0;
        let mut to = 0;
        let mut sum = 0;
        let time_ms = |step: usize| inner.time_ms(step).saturating_add(shift.offset_ms);
        for (count, end_ms) in self.steps.iter_mut().zip(steps.times_ms()) {
            let end_ms = shift.at_ms.unwrap_or(end_ms);
            while to < other.steps.len() && time_ms(to) <= end_ms {
                sum += other.steps[to].queryable;
                if time_ms(to) > end_ms.saturating_sub(range_ms) {
                    count.read += other.steps[to].read;
                }
                to += 1;
            }
            while from < to && time_ms(from) <= end_ms.saturating_sub(range_ms) {
                sum -= other.steps[from].queryable;
                from += 1;
            }
            count.queryable += sum;
        }
    }

    /// Adds the statistics of a subquery that is the root of the query.
    pub(crate) fn add_whole(&mut self, other: &Self) {
        self.n_series += other.n_series;
        if let Some(last) = self.steps.last_mut() {
            last.add(other.total());
        }
    }

    /// Returns the counts by step.
    pub(crate) fn steps(&self) -> &[SampleCount] {
        &self.steps
    }

    /// Returns the sums over all steps.
    pub(crate) fn total(&self) -> SampleCount {
        let mut total = SampleCount::default();
        for count in &self.steps {
            total.add(*count);
        }
        total
    }

    /// Returns the counts since an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let steps = self
            .steps
            .iter()
            .zip(&before.steps)
            .map(|(now, before)| SampleCount {
                queryable: now.queryable - before.queryable,
                read: now.read - before.read,
            })
            .collect();
        Self {
            steps,
            n_series: self.n_series - before.n_series,
        }
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
        StepSampleStats {
            steps: reads
                .iter()
                .map(|&read| SampleCount {
                    queryable: read,
                    read,
                })
                .collect(),
            n_series: 1,
        }
    }

    fn reads(stats: &StepSampleStats) -> Vec<u64> {
        stats.steps.iter().map(|count| count.read).collect()
    }

    #[test]
    fn reads_of_a_subquery_count_for_the_first_step_that_uses_them() {
        let inner = Steps::range(0, 50, 10);
        let steps = Steps::range(20, 60, 20);
        let inner_stats = stats(&[1, 1, 1, 1, 1, 1]);
        let check = |(offset_ms, at_ms, range_ms), read: [u64; 3], needed: [u64; 3]| {
            let mut sum = StepSampleStats::new(true, 3);
            sum.add_subquery(
                &inner_stats,
                inner,
                steps,
                Shift { offset_ms, at_ms },
                range_ms,
            );
            let queryable: Vec<_> = sum.steps.iter().map(|count| count.queryable).collect();
            assert_eq!(
                (reads(&sum), queryable, sum.n_series()),
                (read.into(), needed.into(), 1),
                "{offset_ms}"
            );
        };
        // The step at 20 reads 0, 10 and 20; the step at 40 reads 30 and 40; the step at 60 reads 50.
        check((0, None, 30), [3, 2, 1], [3, 3, 2]);
        check((20, None, 50), [1, 2, 2], [1, 3, 5]);
        // Windows of 10 ms leave gaps between steps.
        check((0, None, 10), [1, 1, 0], [1, 1, 0]);
        // All steps need the same window.
        check((0, Some(40), 20), [2, 0, 0], [2, 2, 2]);
        let mut one = StepSampleStats::new(true, 1);
        one.add_subquery(
            &inner_stats,
            inner,
            Steps::instant(50),
            Shift {
                offset_ms: 0,
                at_ms: None,
            },
            10,
        );
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
