//! Rate limit of log messages that many requests cause.
//!
//! While the disk is full, thousands of write requests a minute fail for one reason. The first
//! message of a kind is logged, then one every [`INTERVAL`], with the number of suppressed
//! messages.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum time between two messages of a kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides which messages are logged.
#[derive(Debug)]
pub(crate) struct LogLimiter {
    /// Bounded by the number of kinds in the program.
    kinds: Mutex<Vec<Kind>>,
}

#[derive(Debug)]
struct Kind {
    name: &'static str,
    logged: Instant,
    /// Messages suppressed since then.
    n_suppressed: u64,
}

impl LogLimiter {
    /// Creates a limiter.
    pub(crate) const fn new() -> Self {
        Self {
            kinds: Mutex::new(Vec::new()),
        }
    }

    /// Returns the number of messages of a kind suppressed since the last logged one. Returns
    /// `None` if this message is to be suppressed too.
    pub(crate) fn admit(&self, name: &'static str, now: Instant) -> Option<u64> {
        let mut all = self.kinds.lock();
        let Some(kind) = all.iter_mut().find(|kind| kind.name == name) else {
            all.push(Kind {
                name,
                logged: now,
                n_suppressed: 0,
            });
            return Some(0);
        };
        if now.saturating_duration_since(kind.logged) < INTERVAL {
            kind.n_suppressed += 1;
            return None;
        }
        kind.logged = now;
        Some(std::mem::take(&mut kind.n_suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_of_a_kind_is_logged_per_interval_and_the_others_are_counted() {
        let limiter = LogLimiter::new();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(limiter.admit("full disk", at(0)), Some(0));
        assert_eq!(limiter.admit("full disk", at(1)), None);
        assert_eq!(limiter.admit("no memory", at(2)), Some(0), "another kind");
        assert_eq!(limiter.admit("full disk", at(9_999)), None);
        assert_eq!(limiter.admit("full disk", at(10_000)), Some(2));
        assert_eq!(limiter.admit("full disk", at(10_001)), None);
        assert_eq!(limiter.admit("full disk", at(20_000)), Some(1));
    }
}
