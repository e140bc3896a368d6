//! How many samples a query looks at, by step, as Prometheus counts them.

use super::grid::Grid;

/// Samples at one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Those that the step would need if it were asked for alone.
    pub(crate) queryable: u64,
    /// Those of them that no step before has needed: a window counts what it has more than the one before.
    pub(crate) read: u64,
}

/// Counts by step; has no steps, and costs nothing, where nobody asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    steps: Vec<Looked>,
}

impl Tally {
    /// Returns a tally of as many steps, if it is asked for.
    pub(crate) fn new(is_on: bool, n_steps: usize) -> Self {
        Self { steps: if is_on { vec![Looked::default(); n_steps] } else { Vec::new() } }
    }

    /// Returns a tally of nothing, for a grid of as many steps, that is on if this one is.
    pub(crate) fn empty(&self, n_steps: usize) -> Self {
        Self::new(self.is_on(), n_steps)
    }

    /// Tells whether anybody asks.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Counts samples that a step needs, all of which are read for it.
    #[inline]
    pub(crate) fn add(&mut self, step: usize, n_samples: usize) {
        self.add_window(step, n_samples, n_samples);
    }

    /// Counts the samples of a window, of which some are not in the one before.
    #[inline]
    pub(crate) fn add_window(&mut self, step: usize, n_samples: usize, n_new: usize) {
        if let Some(looked) = self.steps.get_mut(step) {
            looked.queryable += n_samples as u64;
            looked.read += n_new as u64;
        }
    }

    /// Adds another tally of the same steps.
    pub(crate) fn absorb(&mut self, other: &Self) {
        for (looked, more) in self.steps.iter_mut().zip(&other.steps) {
            looked.queryable += more.queryable;
            looked.read += more.read;
        }
    }

    /// Adds that of an expression that is evaluated once: every step needs its samples, which are read once.
    pub(crate) fn absorb_invariant(&mut self, once: &Self) {
        let total = once.total();
        self.steps.iter_mut().for_each(|looked| looked.queryable += total.queryable);
        self.steps.iter_mut().take(1).for_each(|looked| looked.read += total.read);
    }

    /// Adds what a subquery has read, to the earliest step that uses it; what lies between the windows of two steps counts
    /// for none. Its values are counted by the function that takes them.
    pub(crate) fn absorb_reads(&mut self, of: &Self, inner: Grid, grid: Grid, offset_ms: i64, range_ms: i64) {
        if self.steps.len() <= 1 {
            self.steps.iter_mut().for_each(|looked| looked.read += of.total().read);
            return;
        }
        for (at, looked) in of.steps.iter().enumerate().filter(|(_, looked)| looked.read > 0) {
            let time_ms = inner.time_ms(at).saturating_add(offset_ms);
            let after_ms = time_ms.saturating_sub(grid.start_ms).max(0);
            let step = usize::try_from(after_ms.div_euclid(grid.step_ms)).unwrap_or(usize::MAX);
            let step = step.saturating_add(usize::from(after_ms % grid.step_ms > 0)).min(self.steps.len() - 1);
            if time_ms > grid.time_ms(step).saturating_sub(range_ms) {
                self.steps[step].read += looked.read;
            }
        }
    }

    /// Adds that of a subquery whose value is that of the query.
    pub(crate) fn absorb_whole(&mut self, of: &Self) {
        let total = of.total();
        if let Some(last) = self.steps.last_mut() {
            last.queryable += total.queryable;
            last.read += total.read;
        }
    }

    /// Returns the counts by step.
    pub(crate) fn steps(&self) -> &[Looked] {
        &self.steps
    }

    /// Returns the sums over all steps.
    pub(crate) fn total(&self) -> Looked {
        self.steps.iter().fold(Looked::default(), |sum, looked| Looked {
            queryable: sum.queryable + looked.queryable,
            read: sum.read + looked.read,
        })
    }

    /// Returns what was added since another state of this tally.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let less = |(now, before): (&Looked, &Looked)| Looked {
            queryable: now.queryable - before.queryable,
            read: now.read - before.read,
        };
        Self { steps: self.steps.iter().zip(&before.steps).map(less).collect() }
    }

    /// Returns the bytes that a tally of `n_steps` takes.
    pub(crate) const fn size(n_steps: usize) -> usize {
        n_steps * size_of::<Looked>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(reads: &[u64]) -> Tally {
        Tally { steps: reads.iter().map(|&read| Looked { queryable: read, read }).collect() }
    }

    fn reads(tally: &Tally) -> Vec<u64> {
        tally.steps.iter().map(|looked| looked.read).collect()
    }

    #[test]
    fn reads_of_a_subquery_go_to_the_step_that_uses_them_first() {
        let (inner, grid) = (Grid::new(0, 50, 10), Grid::new(20, 60, 20));
        let of = tally(&[1, 1, 1, 1, 1, 1]);
        let of_steps = |offset_ms, range_ms| {
            let mut sum = Tally::new(true, 3);
            sum.absorb_reads(&of, inner, grid, offset_ms, range_ms);
            reads(&sum)
        };
        // 0, 10 and 20 for the step at 20; 30 and 40 for that at 40; 50 for that at 60.
        assert_eq!(of_steps(0, 30), [3, 2, 1]);
        assert_eq!(of_steps(20, 50), [1, 2, 3]);
        // The windows of 10 ms leave gaps.
        assert_eq!(of_steps(0, 10), [1, 1, 0]);
        let mut one = Tally::new(true, 1);
        one.absorb_reads(&of, inner, Grid::instant(50), 0, 10);
        assert_eq!(reads(&one), [6]);
    }

    #[test]
    fn invariants_are_needed_at_every_step_and_read_once() {
        let mut sum = Tally::new(true, 3);
        sum.absorb_invariant(&tally(&[5]));
        assert_eq!((reads(&sum), sum.total().queryable), (vec![5, 0, 0], 15));
        let mut off = Tally::default();
        off.absorb_invariant(&tally(&[5]));
        off.add(7, 1);
        assert_eq!(off.total(), Looked::default());
    }
}
