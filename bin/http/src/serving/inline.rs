//! Small jobs, which run on the thread of their connection.
//!
//! The size of a job is an estimate, and the thread serves other connections. If a job takes longer
//! than expected, for example to print labels of many kilobytes, further jobs run on other threads
//! for a while.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum time that a small job should take.
const TIME_MAX: Duration = Duration::from_micros(500);
/// Suspension of small jobs after one that took longer than [`TIME_MAX`], as a multiple of its
/// duration.
const SUSPENSION_FACTOR: u32 = 20;

/// Decides whether small jobs run on the threads of their connections.
#[derive(Debug, Default)]
pub(crate) struct InlinePolicy {
    suspended_until: Mutex<Option<Instant>>,
}

impl InlinePolicy {
    /// Returns `true` if no job took too long recently.
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        self.suspended_until.lock().is_none_or(|until| now >= until)
    }

    /// Records the duration of a job that ended at `now`. Returns `true` if it suspends small jobs.
    pub(super) fn record(&self, duration: Duration, now: Instant) -> bool {
        let is_long = duration > TIME_MAX;
        if is_long {
            let mut suspended_until = self.suspended_until.lock();
            // `None` is less than any time.
            *suspended_until =
                (*suspended_until).max(now.checked_add(duration * SUSPENSION_FACTOR));
        }
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_job_suspends_the_others_for_a_multiple_of_its_duration() {
        let inline = InlinePolicy::default();
        let now = Instant::now();
        assert!(!inline.record(TIME_MAX, now));
        assert!(inline.is_allowed(now));
        assert!(inline.record(Duration::from_millis(50), now));
        assert!(inline.record(Duration::from_millis(1), now));
        assert!(!inline.is_allowed(now + Duration::from_millis(999)));
        assert!(inline.is_allowed(now + Duration::from_secs(1)));
    }
}
