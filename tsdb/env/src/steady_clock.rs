//! A clock that does not accept sudden jumps of the wall clock.
//!
//! A wall clock jumps when a machine boots with a wrong real-time clock, when a hypervisor resumes
//! it, or when somebody sets it. Most such jumps are errors that NTP corrects soon. So a
//! [`SteadyClock`] tells two times: the wall clock, and the time that the monotonic clock leads to
//! expect. A caller chooses the one whose error does no harm.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// A larger difference between wall clock and expected time is a jump. Smaller ones are
/// adjustments, for example of NTP.
const ADJUSTMENT_MAX_MS: i64 = 60_000;
/// The wall clock is accepted again after a jump that lasts so long.
pub const CLOCK_JUMP_CONFIRMED_AFTER: Duration = Duration::from_secs(3600);

/// A clock that compares the wall clock with the expected time.
#[derive(Debug)]
pub struct SteadyClock {
    clock: Arc<dyn Clock>,
    state: Mutex<Expected>,
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    /// The wall-clock time when the monotonic clock showed `at`.
    time_ms: i64,
    at: Duration,
    /// When the wall clock was first seen to differ.
    differs_since: Option<Duration>,
}

/// The times that a [`SteadyClock`] tells. They are equal unless the wall clock jumped within
/// [`CLOCK_JUMP_CONFIRMED_AFTER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The wall-clock time.
    pub wall_ms: i64,
    /// The expected time.
    pub expected_ms: i64,
    /// The time of [`Clock::elapsed`].
    pub elapsed: Duration,
}

impl Now {
    /// Returns the earlier time.
    pub fn earliest_ms(self) -> i64 {
        self.wall_ms.min(self.expected_ms)
    }

    /// Returns the later time.
    pub fn latest_ms(self) -> i64 {
        self.wall_ms.max(self.expected_ms)
    }
}

impl SteadyClock {
    /// Creates a clock that accepts the time of `clock` at first.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let expected = Expected {
            time_ms: clock.now_ms(),
            at: clock.elapsed(),
            differs_since: None,
        };
        Self {
            clock,
            state: Mutex::new(expected),
        }
    }

    /// Expects a time of at least `data_ms`, the time of the newest data: it was written in the
    /// past.
    pub fn expect_at_least(&self, data_ms: i64) {
        let mut expected = self.state.lock();
        expected.time_ms = expected.time_ms.max(data_ms);
    }

    /// Returns the current times.
    pub fn now(&self) -> Now {
        let wall_ms = self.clock.now_ms();
        let elapsed = self.clock.elapsed();
        let mut expected = self.state.lock();
        let expected_ms = time_after(expected.time_ms, elapsed.saturating_sub(expected.at));
        let is_jump = wall_ms.abs_diff(expected_ms) > ADJUSTMENT_MAX_MS as u64;
        if is_jump && expected.differs_since.is_none() {
            tracing::warn!(
                wall_ms,
                expected_ms,
                "the wall clock differs from the expected time"
            );
        }
        let since = *expected.differs_since.get_or_insert(elapsed);
        if is_jump && elapsed.saturating_sub(since) < CLOCK_JUMP_CONFIRMED_AFTER {
            return Now {
                wall_ms,
                expected_ms,
                elapsed,
            };
        }
        *expected = Expected {
            time_ms: wall_ms,
            at: elapsed,
            differs_since: None,
        };
        Now {
            wall_ms,
            expected_ms: wall_ms,
            elapsed,
        }
    }
}

/// Returns the time `elapsed` after `time_ms`.
pub fn time_after(time_ms: i64, elapsed: Duration) -> i64 {
    time_ms.saturating_add(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use crate::testing::ManualClock;

    use super::*;

    const T: i64 = 1_700_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn a_jump_is_believed_when_it_lasts() {
        for jump_ms in [
            5 * HOUR_MS,
            -5 * HOUR_MS,
            480 * HOUR_MS,
            -480 * HOUR_MS,
            i64::MAX - T,
            i64::MIN,
        ] {
            let manual = ManualClock::at(T);
            let clock = SteadyClock::new(Arc::new(manual.clone()));
            let wall = |passed_ms: i64| T.saturating_add(jump_ms).saturating_add(passed_ms);
            let check = |passed_ms: i64, expected_ms: i64| {
                manual.set(T + passed_ms);
                manual.jump_to(wall(passed_ms));
                let now = clock.now();
                manual.jump_to(T + passed_ms);
                assert_eq!(
                    (now.wall_ms, now.expected_ms),
                    (wall(passed_ms), expected_ms),
                    "{jump_ms} {passed_ms}"
                );
            };
            check(0, T);
            check(HOUR_MS - 1, T + HOUR_MS - 1);
            check(HOUR_MS, wall(HOUR_MS));
        }
    }

    #[test]
    fn a_jump_that_ends_is_forgotten() {
        let manual = ManualClock::at(T);
        let clock = SteadyClock::new(Arc::new(manual.clone()));
        for round in 1..5 {
            let now_ms = T + round * HOUR_MS * 3 / 4;
            manual.set(now_ms);
            manual.jump_to(now_ms + 5 * HOUR_MS);
            assert_eq!(
                (clock.now().earliest_ms(), clock.now().latest_ms()),
                (now_ms, now_ms + 5 * HOUR_MS)
            );
            manual.jump_to(now_ms);
            assert_eq!(
                (clock.now().earliest_ms(), clock.now().latest_ms()),
                (now_ms, now_ms)
            );
        }
    }

    /// NTP slews a clock by at most 500 us a second, or steps it by up to a second.
    #[test]
    fn adjustments_are_followed() {
        let manual = ManualClock::at(T);
        let clock = SteadyClock::new(Arc::new(manual.clone()));
        for (step, adjustment_ms) in (1..1000).zip(
            [500, -500, ADJUSTMENT_MAX_MS, -ADJUSTMENT_MAX_MS]
                .into_iter()
                .cycle(),
        ) {
            manual.set(manual.now_ms() + 1000 * step);
            manual.jump_to(manual.now_ms() + adjustment_ms);
            let now = clock.now();
            assert_eq!(
                (now.wall_ms, now.expected_ms),
                (manual.now_ms(), manual.now_ms()),
                "{step}"
            );
        }
    }

    #[test]
    fn data_is_not_newer_than_the_expected_time() {
        for (data_ms, expected_ms) in [(T - 1, T), (T + HOUR_MS, T + HOUR_MS)] {
            let clock = SteadyClock::new(Arc::new(ManualClock::at(T)));
            clock.expect_at_least(data_ms);
            assert_eq!(clock.now().expected_ms, expected_ms);
        }
    }
}
