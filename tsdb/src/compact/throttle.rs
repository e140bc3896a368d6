//! Limits the rate of background writes.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Limits the average rate in bytes per second.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: u64,
    state: Mutex<Spent>,
}

#[derive(Debug)]
struct Spent {
    /// Size of the current file at the last call.
    size: u64,
    /// When the bytes written so far are within the rate.
    due: Instant,
}

/// Maximum time of a sleep, so that a merge can be stopped, and the time for which unused bytes are
/// carried over.
const PERIOD: Duration = Duration::from_secs(1);
/// Shorter waits are left to the next call.
const WAIT_MIN: Duration = Duration::from_millis(10);

impl Throttle {
    /// Creates a limit of `bytes_per_second`; 0 is unlimited.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            state: Mutex::new(Spent {
                size: 0,
                due: Instant::now(),
            }),
        }
    }

    /// Records that the current file has `size` bytes now, and sleeps if the rate is exceeded.
    pub(crate) fn spend(&self, size: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let wait = self.wait(size, Instant::now());
        if wait > WAIT_MIN {
            thread::sleep(wait);
        }
    }

    fn wait(&self, size: u64, now: Instant) -> Duration {
        let mut spent = self.state.lock();
        // A smaller size means a new file.
        let written = size.checked_sub(spent.size).unwrap_or(size);
        let from = now
            .checked_sub(PERIOD)
            .map_or(spent.due, |oldest| spent.due.max(oldest));
        let due = from + Duration::from_secs_f64(written as f64 / self.bytes_per_second as f64);
        *spent = Spent { size, due };
        due.saturating_duration_since(now).min(PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_steps_do_not_exceed_the_rate() {
        let throttle = Throttle::new(1000);
        let started = Instant::now();
        let mut now = Instant::now();
        for size in (900..=9000).step_by(900) {
            now += throttle.wait(size, now) + Duration::from_millis(200);
        }
        let took = now - started;
        assert!((8.5..9.5).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[test]
    fn unused_time_counts_for_a_second() {
        let throttle = Throttle::new(1000);
        let now = Instant::now() + Duration::from_secs(100);
        assert_eq!(throttle.wait(1000, now), Duration::ZERO);
        assert_eq!(throttle.wait(1500, now), Duration::from_millis(500));
        assert_eq!(
            throttle.wait(100, now),
            Duration::from_millis(600),
            "a new file"
        );
    }
}
