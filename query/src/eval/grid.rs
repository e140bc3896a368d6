//! The steps of an evaluation.

/// Evaluation times at equal intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Time of the first step.
    pub(crate) start_ms: i64,
    /// Interval between steps, positive.
    pub(crate) step_ms: i64,
    /// Number of steps; may be 0.
    pub(crate) n_steps: usize,
    /// The requested end, at or after the last step. As in Prometheus, subqueries are evaluated up
    /// to this time, which is visible in their annotations and errors.
    pub(crate) end_ms: i64,
}

impl Grid {
    /// Returns the steps from `start_ms` to `end_ms`, both included.
    pub(crate) fn new(start_ms: i64, end_ms: i64, step_ms: i64) -> Self {
        let step_ms = step_ms.max(1);
        let n_steps = match end_ms.checked_sub(start_ms) {
            Some(length_ms) if length_ms < 0 => 0,
            Some(length_ms) => {
                usize::try_from(length_ms / step_ms).map_or(usize::MAX, |n| n.saturating_add(1))
            }
            None if end_ms < start_ms => 0,
            None => usize::MAX,
        };
        Self {
            start_ms,
            step_ms,
            n_steps,
            end_ms,
        }
    }

    /// Returns a grid of a single step.
    pub(crate) fn instant(time_ms: i64) -> Self {
        Self {
            start_ms: time_ms,
            step_ms: 1,
            n_steps: 1,
            end_ms: time_ms,
        }
    }

    /// Returns the time of a step.
    #[inline]
    pub(crate) fn time_ms(self, step: usize) -> i64 {
        self.start_ms + self.step_ms * step as i64
    }

    /// Returns the time of the last step, or the requested end if there is no step or the time
    /// overflows.
    pub(crate) fn last_ms(self) -> i64 {
        let last = self
            .n_steps
            .checked_sub(1)
            .and_then(|last| i64::try_from(last).ok());
        let length_ms = last.and_then(|last| self.step_ms.checked_mul(last));
        length_ms
            .and_then(|length_ms| self.start_ms.checked_add(length_ms))
            .unwrap_or(self.end_ms)
    }

    /// Iterates over the times of all steps.
    pub(crate) fn times_ms(self) -> impl ExactSizeIterator<Item = i64> {
        (0..self.n_steps).map(move |step| self.time_ms(step))
    }

    /// Returns the steps of a subquery: the multiples of `step_ms` in the ranges of all steps of
    /// this grid.
    pub(crate) fn subquery(self, range_ms: i64, step_ms: i64, first_ms: i64, last_ms: i64) -> Self {
        debug_assert!(step_ms > 0, "the step of a subquery is positive");
        let before_ms = first_ms.saturating_sub(range_ms);
        let mut start_ms = step_ms * (before_ms / step_ms);
        if start_ms <= before_ms {
            start_ms = start_ms.saturating_add(step_ms);
        }
        Self::new(start_ms, last_ms, step_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_a_step_only_if_it_is_on_the_grid() {
        let steps = |start, end, step| Grid::new(start, end, step).times_ms().collect::<Vec<_>>();
        assert_eq!(steps(0, 10, 5), [0, 5, 10]);
        assert_eq!(steps(1, 10, 5), [1, 6]);
        assert_eq!(steps(1, 1, 5), [1]);
        assert!(steps(2, 1, 5).is_empty());
    }

    #[test]
    fn the_last_step_may_be_before_the_end() {
        assert_eq!(Grid::new(1, 10, 5).last_ms(), 6);
        assert_eq!(Grid::new(1, 4, 5).last_ms(), 1);
        assert_eq!(Grid::new(2, 1, 5).last_ms(), 1);
        assert_eq!(Grid::new(i64::MIN, i64::MAX, 1).last_ms(), i64::MAX);
    }

    #[test]
    fn steps_of_a_subquery_are_multiples_of_its_step() {
        let steps = |time, range, step| {
            Grid::instant(time)
                .subquery(range, step, time, time)
                .times_ms()
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(100, 50, 20), [60, 80, 100]);
        assert_eq!(steps(105, 45, 20), [80, 100]);
        assert_eq!(steps(-5, 40, 20), [-40, -20]);
        assert!(steps(5, 4, 20).is_empty());
    }
}
