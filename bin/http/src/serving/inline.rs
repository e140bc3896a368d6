//! Small jobs, which run on the thread of their connection.
//!
//! A thread of the server's I/O must not be blocked. If a job takes longer than expected, for example to print labels of
//! many kilobytes, further jobs run on other threads for a while.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum time that a small job should take.
const TIME_MAX: Duration = Duration::from_millis(5);
/// For how many times its duration a job that took longer suspends all others: it bounds the share of the time for
/// which the thread is blocked.
const SUSPENDED_FACTOR: u32 = 100;

/// Decides whether small jobs run on the threads of their connections.
#[derive(Debug, Default)]
pub(crate) struct Inline {
    suspended_until: Mutex<Option<Instant>>,
}

impl Inline {
    /// Returns `true` if no job took too long recently.
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        self.suspended_until.lock().is_none_or(|until| now >= until)
    }

    /// Notes the duration of a job that has ended.
    pub(super) fn note(&self, duration: Duration, now: Instant) {
        if duration > TIME_MAX {
            *self.suspended_until.lock() = now.checked_add(duration * SUSPENDED_FACTOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_job_suspends_the_others_for_a_multiple_of_its_duration() {
        let (inline, now) = (Inline::default(), Instant::now());
        inline.note(TIME_MAX, now);
        assert!(inline.is_allowed(now));
        inline.note(Duration::from_millis(10), now);
        assert!(!inline.is_allowed(now + Duration::from_millis(999)));
        assert!(inline.is_allowed(now + Duration::from_secs(1)));
    }
}
