//! A manual clock for tests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// A clock that a test sets. Clones share its time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    /// Wall-clock time in milliseconds, and the elapsed time.
    time: Arc<Mutex<(i64, Duration)>>,
}

impl ManualClock {
    /// Creates a clock at `now_ms`.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        let clock = Self::default();
        clock.jump_to(now_ms);
        clock
    }

    /// Lets time pass until the wall clock shows `now_ms`.
    pub fn set(&self, now_ms: i64) {
        let mut time = self.time.lock();
        let (before_ms, elapsed) = *time;
        let passed_ms = u64::try_from(now_ms.saturating_sub(before_ms)).unwrap_or(0);
        *time = (now_ms, elapsed + Duration::from_millis(passed_ms));
    }

    /// Changes the wall clock while no time passes.
    pub fn jump_to(&self, now_ms: i64) {
        self.time.lock().0 = now_ms;
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.time.lock().0
    }

    fn elapsed(&self) -> Duration {
        self.time.lock().1
    }
}
