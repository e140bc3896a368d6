//! Warnings that a flood of requests causes, logged now and then.
//!
//! While a disk is full every write request is refused, thousands a minute, and for one reason. The first one of a kind is
//! logged, then one every [`INTERVAL`], with the number of those that were left out.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides which warnings are logged.
#[derive(Debug)]
pub(crate) struct Muffler {
    /// No more than there are kinds in the program.
    seen: Mutex<Vec<Seen>>,
}

#[derive(Debug)]
struct Seen {
    kind: &'static str,
    logged: Instant,
    /// Since then.
    n_left_out: u64,
}

impl Muffler {
    /// Starts without a warning.
    pub(crate) const fn new() -> Self {
        Self { seen: Mutex::new(Vec::new()) }
    }

    /// Returns how many of a kind were left out since the last that was logged, if this one is to be logged.
    pub(crate) fn admit(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = all.iter_mut().find(|seen| seen.kind == kind) else {
            all.push(Seen { kind, logged: now, n_left_out: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(seen.logged) < INTERVAL {
            seen.n_left_out += 1;
            return None;
        }
        seen.logged = now;
        Some(std::mem::take(&mut seen.n_left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_is_logged_in_an_interval_and_the_others_are_counted() {
        let (muffler, start) = (Muffler::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(muffler.admit("full disk", at(0)), Some(0));
        assert_eq!(muffler.admit("full disk", at(1)), None);
        assert_eq!(muffler.admit("no memory", at(2)), Some(0), "another kind");
        assert_eq!(muffler.admit("full disk", at(9_999)), None);
        assert_eq!(muffler.admit("full disk", at(10_000)), Some(2));
        assert_eq!(muffler.admit("full disk", at(10_001)), None);
        assert_eq!(muffler.admit("full disk", at(20_000)), Some(1));
    }
}
