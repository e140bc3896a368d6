//! Points in time, as precise as Prometheus' evaluation times.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    ns: i64,
}

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;

impl Time {
    /// Creates a time from nanoseconds since the epoch.
    #[must_use]
    pub fn from_ns(ns: i64) -> Self {
        Self { ns }
    }

    /// Creates a time from milliseconds since the epoch. Times beyond the year 2262 become the last
    /// representable time.
    #[must_use]
    pub fn from_ms(ms: i64) -> Self {
        Self {
            ns: ms.saturating_mul(NS_PER_MS),
        }
    }

    /// Creates a time from seconds since the epoch, with the same limits.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Self {
        Self {
            ns: seconds.saturating_mul(NS_PER_S),
        }
    }

    /// Returns nanoseconds since the epoch.
    #[must_use]
    pub fn ns(self) -> i64 {
        self.ns
    }

    /// Returns whole milliseconds since the epoch, rounded down.
    #[must_use]
    pub fn ms(self) -> i64 {
        self.ns.div_euclid(NS_PER_MS)
    }

    /// Returns whole seconds since the epoch, rounded down.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.ns.div_euclid(NS_PER_S)
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns).max(0) as u64)
    }

    /// Returns `true` if at least `duration` has passed since `earlier`. `earlier` may be in the
    /// future.
    pub(crate) fn has_passed(self, duration: Duration, earlier: Self) -> bool {
        self.ns.saturating_sub(earlier.ns) >= as_ns(duration)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self {
            ns: self.ns.saturating_add(as_ns(duration)),
        }
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self {
            ns: self.ns.saturating_sub(as_ns(duration)),
        }
    }
}

/// Returns a duration in nanoseconds, at most 292 years.
pub(crate) fn as_ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
