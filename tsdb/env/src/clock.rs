//! The only source of time.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A wall clock, and a monotonic clock.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Returns the wall-clock time in milliseconds since the Unix epoch. Administrators and NTP can
    /// change it.
    fn now_ms(&self) -> i64;

    /// Returns the time since a fixed moment of the process. It never goes backward.
    fn elapsed(&self) -> Duration;
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }

    fn elapsed(&self) -> Duration {
        static FIRST_CALL: LazyLock<Instant> = LazyLock::new(Instant::now);
        FIRST_CALL.elapsed()
    }
}
