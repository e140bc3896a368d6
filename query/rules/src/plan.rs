//! The next evaluation of a group: at its time, once the data has arrived, or again after an
//! outage.
//!
//! Pure: the caller passes the time.

use std::time::Duration;

use crate::arrival::{Lags, Readiness};
use crate::group::Mode;
use crate::schedule::Schedule;
use crate::time::Time;

/// Interval at which a group checks whether data has arrived.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time that a group waits for senders to refill the gap of an outage.
pub const REFILL_WAIT_MAX: Duration = Duration::from_secs(300);
/// Maximum time that a group waits for the first request after an outage. Prometheus retries after
/// at most 5 s.
const RETURN_WAIT: Duration = Duration::from_secs(15);

/// The plan of a group.
#[derive(Debug, Clone)]
pub struct Plan {
    schedule: Schedule,
    last: Time,
    /// The evaluation that is due. It may wait for data.
    due: Option<Time>,
    /// The end of an outage whose evaluations are caught up.
    outage_end: Option<Time>,
}

/// The next step of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is evaluated now.
    Evaluate {
        /// The timestamp.
        tick: Time,
        /// The reason.
        mode: Mode,
        /// `true` if data of a sender is still missing after the longest wait.
        is_incomplete: bool,
    },
    /// There is nothing to do until this time.
    Wait(Time),
}

/// The senders that a group waits for, and the bound of the wait.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    /// The arrival lags of the senders.
    pub lags: &'a Lags,
    /// `rules.max_wait`; `None` for groups that do not wait.
    pub max_wait: Option<Duration>,
}

impl Plan {
    /// Creates a plan that begins with the first evaluation after `now`.
    #[must_use]
    pub fn new(schedule: Schedule, now: Time) -> Self {
        Self {
            schedule,
            last: schedule.at_or_before(now),
            due: None,
            outage_end: None,
        }
    }

    /// Creates a plan that begins after the evaluation at `last`, before an outage that has ended
    /// `now`.
    #[must_use]
    pub fn catch_up(schedule: Schedule, last: Time, now: Time) -> Self {
        Self {
            schedule,
            last,
            due: None,
            outage_end: Some(now),
        }
    }

    /// Returns the time of the next evaluation, or of the running one, while evaluations of an
    /// outage are left.
    #[must_use]
    pub fn catch_up_tick(&self) -> Option<Time> {
        self.outage_end.map(|_| self.schedule.after(self.last))
    }

    /// Creates the plan of a group that succeeds another one after a reload. `evaluated` is the
    /// last evaluation of the predecessor, which the plan may not know of. An evaluation that was
    /// due but did not run follows.
    #[must_use]
    pub fn succeed(&self, schedule: Schedule, evaluated: Option<Time>, now: Time) -> Self {
        if schedule != self.schedule {
            return Self::new(schedule, now);
        }
        let mut plan = self.clone();
        let pending = plan.due.unwrap_or_else(|| schedule.after(plan.last));
        if evaluated == Some(pending) {
            plan.done(pending);
        }
        plan
    }

    /// Returns the step at `now`, and the number of evaluations that are missed because earlier
    /// ones took too long.
    pub fn next(&mut self, now: Time, waiting: Waiting<'_>) -> (Next, u64) {
        // The clock was set back: the last evaluation, or the one that waits for data, would be in
        // the future for as long as the clock was ahead.
        let latest = self.due.map_or(self.last, |due| due.max(self.last));
        if latest > now + self.schedule.interval() {
            *self = Self::new(self.schedule, now);
        }
        if let Some(next) = self.next_to_catch_up(now, waiting.lags) {
            return (next, 0);
        }
        let mut n_missed = 0;
        let tick = match self.due {
            Some(tick) => tick,
            None => match self.schedule.due(self.last, now) {
                None => return (Next::Wait(self.schedule.after(self.last)), 0),
                Some(due) => {
                    n_missed = due.n_missed;
                    *self.due.insert(due.tick)
                }
            },
        };
        (self.next_at(tick, now, waiting), n_missed)
    }

    /// Notes that the evaluation at `tick` has ended.
    pub fn done(&mut self, tick: Time) {
        self.last = tick;
        self.due = None;
    }

    fn next_at(&self, tick: Time, now: Time, Waiting { lags, max_wait }: Waiting<'_>) -> Next {
        let evaluate = |is_incomplete| Next::Evaluate {
            tick,
            mode: Mode::Live,
            is_incomplete,
        };
        let interval = self.schedule.interval();
        let Some(max_wait) = max_wait else {
            return evaluate(false);
        };
        let deadline = tick + max_wait.min(interval);
        match lags.readiness(tick, now, interval) {
            Readiness::Ready => evaluate(false),
            _ if now >= deadline => evaluate(true),
            Readiness::At(time) => Next::Wait(time.min(deadline)),
            Readiness::Unknown => Next::Wait((now + CHECK_INTERVAL).min(deadline)),
        }
    }

    /// Returns the next step while evaluations of an outage are left: all that are due, except the
    /// newest.
    fn next_to_catch_up(&mut self, now: Time, lags: &Lags) -> Option<Next> {
        let outage_end = self.outage_end?;
        let tick = self.schedule.after(self.last);
        if self.schedule.after(tick) > now {
            self.outage_end = None;
            return None;
        }
        let has_refilled =
            now >= outage_end + RETURN_WAIT && lags.have_refilled(now, self.schedule.interval());
        if !has_refilled && now < outage_end + REFILL_WAIT_MAX {
            return Some(Next::Wait(now + CHECK_INTERVAL));
        }
        Some(Next::Evaluate {
            tick,
            mode: Mode::CatchUp,
            is_incomplete: !has_refilled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: i64) -> Time {
        Time::from_seconds(seconds)
    }

    /// A schedule of 30 s, and the first evaluation time at or after 10,000 s.
    fn schedule() -> (Schedule, Time) {
        let schedule = Schedule::new("f", "g", 30 * S);
        (schedule, schedule.at_or_before(at(10_030)))
    }

    fn live(tick: Time, is_incomplete: bool) -> Next {
        Next::Evaluate {
            tick,
            mode: Mode::Live,
            is_incomplete,
        }
    }

    #[test]
    fn a_slow_evaluation_leaves_out_the_next_ones() {
        let (schedule, first) = schedule();
        let lags = Lags::default();
        let waiting = Waiting {
            lags: &lags,
            max_wait: None,
        };
        let mut plan = Plan::new(schedule, first - S);
        assert_eq!(plan.next(first - S, waiting), (Next::Wait(first), 0));
        assert_eq!(plan.next(first + S, waiting), (live(first, false), 0));
        plan.done(first);
        let third = first + 90 * S;
        assert_eq!(plan.next(third, waiting), (live(third, false), 2));
        assert_eq!(
            plan.next(third + S, waiting),
            (live(third, false), 0),
            "counted once"
        );
    }

    #[test]
    fn evaluations_go_on_after_the_clock_was_set_back() {
        let (schedule, first) = schedule();
        let lags = Lags::default();
        let waiting = Waiting {
            lags: &lags,
            max_wait: None,
        };
        let mut plan = Plan::new(schedule, first - S);
        let ahead = first + 6 * 3600 * S;
        assert_eq!(plan.next(ahead, waiting).0, live(ahead, false));
        plan.done(ahead);
        assert_eq!(
            plan.next(first + S, waiting),
            (Next::Wait(first + 30 * S), 0)
        );
        assert_eq!(
            plan.next(first + 30 * S, waiting),
            (live(first + 30 * S, false), 0)
        );
    }

    #[test]
    fn an_evaluation_that_waits_is_dropped_after_the_clock_was_set_back() {
        let (schedule, first) = schedule();
        let ahead = first + 6 * 3600 * S;
        let lags = Lags::default();
        for seconds in (0..600).rev() {
            let sent = ahead - seconds * S;
            lags.note("a", sent, (sent - 5 * S).ms(), (sent - 5 * S).ms());
        }
        let waiting = Waiting {
            lags: &lags,
            max_wait: Some(10 * S),
        };
        let mut plan = Plan::new(schedule, first - S);
        assert!(matches!(plan.next(ahead, waiting).0, Next::Wait(_)));
        assert_eq!(
            plan.next(first + S, waiting).0,
            Next::Wait(first + 30 * S),
            "the evaluation at the wrong time was dropped"
        );
    }

    #[test]
    fn a_successor_repeats_an_evaluation_that_did_not_run() {
        let (schedule, first) = schedule();
        let lags = Lags::default();
        let waiting = Waiting {
            lags: &lags,
            max_wait: None,
        };
        let mut plan = Plan::new(schedule, first - S);
        let now = first + S;
        assert_eq!(plan.next(now, waiting).0, live(first, false));
        let next = |evaluated| plan.succeed(schedule, evaluated, now).next(now, waiting).0;
        assert_eq!(next(None), live(first, false));
        assert_eq!(next(Some(first - 30 * S)), live(first, false));
        assert_eq!(next(Some(first)), Next::Wait(first + 30 * S));
        let other = Schedule::new("f", "g", 70 * S);
        let aligned = other.after(other.at_or_before(now));
        assert_eq!(
            plan.succeed(other, Some(first), now).next(now, waiting).0,
            Next::Wait(aligned)
        );
    }

    #[test]
    fn an_evaluation_waits_for_data_at_most_as_long_as_configured() {
        let (schedule, first) = schedule();
        let lags = Lags::default();
        lags.note("a", first - S, (first - S).ms(), (first - S).ms());
        let waiting = Waiting {
            lags: &lags,
            max_wait: Some(10 * S),
        };
        let mut plan = Plan::new(schedule, first - S);
        assert_eq!(
            plan.next(first, waiting).0,
            Next::Wait(first + CHECK_INTERVAL)
        );
        assert_eq!(plan.next(first + 10 * S, waiting).0, live(first, true));
        lags.note("a", first + S, first.ms(), first.ms());
        assert_eq!(plan.next(first + 2 * S, waiting).0, live(first, false));
        let off = Waiting {
            max_wait: None,
            ..waiting
        };
        assert_eq!(
            Plan::new(schedule, first - S).next(first, off).0,
            live(first, false)
        );
    }

    #[test]
    fn evaluations_of_an_outage_follow_in_order_once_the_gap_is_filled() {
        let (schedule, last) = schedule();
        let lags = Lags::default();
        let waiting = Waiting {
            lags: &lags,
            max_wait: None,
        };
        let start = last + 100 * S;
        let mut plan = Plan::catch_up(schedule, last, start);
        assert_eq!(
            plan.next(start, waiting).0,
            Next::Wait(start + CHECK_INTERVAL),
            "a sender may come back"
        );
        let now = start + RETURN_WAIT;
        lags.note("a", now, last.ms(), (last + 50 * S).ms());
        assert_eq!(
            plan.next(now, waiting).0,
            Next::Wait(now + CHECK_INTERVAL),
            "it refills the gap"
        );
        lags.note("a", now, now.ms(), now.ms());
        for tick in [last + 30 * S, last + 60 * S] {
            let caught_up = Next::Evaluate {
                tick,
                mode: Mode::CatchUp,
                is_incomplete: false,
            };
            assert_eq!(plan.next(now, waiting), (caught_up, 0));
            plan.done(tick);
        }
        assert_eq!(plan.next(now, waiting), (live(last + 90 * S, false), 0));
    }

    #[test]
    fn a_gap_that_is_not_filled_is_waited_for_only_so_long() {
        let (schedule, last) = schedule();
        let lags = Lags::default();
        let waiting = Waiting {
            lags: &lags,
            max_wait: None,
        };
        let start = last + 100 * S;
        let mut plan = Plan::catch_up(schedule, last, start);
        let late = start + REFILL_WAIT_MAX;
        lags.note("a", late, last.ms(), (last + 50 * S).ms());
        let incomplete = Next::Evaluate {
            tick: last + 30 * S,
            mode: Mode::CatchUp,
            is_incomplete: true,
        };
        assert_eq!(plan.next(late, waiting).0, incomplete);
    }
}
