//! The times at which a query is evaluated.

/// Evaluation times at equal intervals. An instant query has one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Steps {
    /// Time of the first step.
    pub(crate) start_ms: i64,
    /// The requested end, at or after the last step. As in Prometheus, subqueries are evaluated up
    /// to this time, which is visible in their annotations and errors.
    pub(crate) end_ms: i64,
    /// Interval between steps; 0 for an instant query.
    pub(crate) step_ms: i64,
    /// Number of steps; may be 0.
    pub(crate) n_steps: usize,
}

impl Steps {
    /// Returns the steps from `start_ms` to `end_ms`, both included. The value of a query at these
    /// steps is a matrix.
    ///
    /// An [`Engine`](crate::Engine) checks that the interval is positive and that the end is not
    /// before the start.
    #[must_use]
    pub fn range(start_ms: i64, end_ms: i64, step_ms: i64) -> Self {
        let n_steps = match end_ms.checked_sub(start_ms) {
            Some(length_ms) if length_ms < 0 => 0,
            Some(length_ms) => usize::try_from(length_ms / step_ms.max(1))
                .map_or(usize::MAX, |n| n.saturating_add(1)),
            None if end_ms < start_ms => 0,
            None => usize::MAX,
        };
        Self {
            start_ms,
            end_ms,
            step_ms,
            n_steps,
        }
    }

    /// Returns a single step. The value of an instant query may have any type.
    #[must_use]
    pub fn instant(time_ms: i64) -> Self {
        Self {
            start_ms: time_ms,
            end_ms: time_ms,
            step_ms: 0,
            n_steps: 1,
        }
    }

    /// Returns `true` if these are the steps of an instant query.
    #[must_use]
    pub fn is_instant(self) -> bool {
        self.step_ms == 0 && self.start_ms == self.end_ms
    }

    /// Returns the time of the first step.
    #[must_use]
    pub fn start_ms(self) -> i64 {
        self.start_ms
    }

    /// Returns the end of the range, included; the last step may be earlier.
    #[must_use]
    pub fn end_ms(self) -> i64 {
        self.end_ms
    }

    /// Returns the interval between steps; 0 for an instant query.
    #[must_use]
    pub fn step_ms(self) -> i64 {
        self.step_ms
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

    /// Returns the steps of a subquery: the multiples of `step_ms` in
    /// `(first_ms - range_ms, last_ms]`.
    pub(crate) fn of_subquery(range_ms: i64, step_ms: i64, first_ms: i64, last_ms: i64) -> Self {
        debug_assert!(step_ms > 0, "the step of a subquery is positive");
        let before_ms = first_ms.saturating_sub(range_ms);
        let mut start_ms = step_ms * (before_ms / step_ms);
        if start_ms <= before_ms {
            start_ms = start_ms.saturating_add(step_ms);
        }
        Self::range(start_ms, last_ms, step_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_a_step_only_if_the_interval_divides_the_range() {
        let times = |start, end, step| {
            Steps::range(start, end, step)
                .times_ms()
                .collect::<Vec<_>>()
        };
        assert_eq!(times(0, 10, 5), [0, 5, 10]);
        assert_eq!(times(1, 10, 5), [1, 6]);
        assert_eq!(times(1, 1, 5), [1]);
        assert!(times(2, 1, 5).is_empty());
    }

    #[test]
    fn the_last_step_may_be_before_the_end() {
        assert_eq!(Steps::range(1, 10, 5).last_ms(), 6);
        assert_eq!(Steps::range(1, 4, 5).last_ms(), 1);
        assert_eq!(Steps::range(2, 1, 5).last_ms(), 1);
        assert_eq!(Steps::range(i64::MIN, i64::MAX, 1).last_ms(), i64::MAX);
    }

    #[test]
    fn steps_of_a_subquery_are_multiples_of_its_step() {
        let times = |time, range, step| {
            Steps::of_subquery(range, step, time, time)
                .times_ms()
                .collect::<Vec<_>>()
        };
        assert_eq!(times(100, 50, 20), [60, 80, 100]);
        assert_eq!(times(105, 45, 20), [80, 100]);
        assert_eq!(times(-5, 40, 20), [-40, -20]);
        assert!(times(5, 4, 20).is_empty());
    }
}
