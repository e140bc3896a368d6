//! Limits the log lines about failed evaluations: while the disk is full, all rules fail.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum number of lines in a [`WINDOW`].
const LINES_MAX: u64 = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// Decides which failures of rules are logged. A rule logs one every ten minutes.
#[derive(Debug, Default)]
pub(super) struct FailureLog(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    /// When the window began, if there was one.
    started: Option<Instant>,
    /// Lines since then.
    n_logged: u64,
    /// Lines suppressed since the last one that was logged.
    n_suppressed: u64,
}

impl FailureLog {
    /// Returns the number of lines suppressed since the last logged one. Returns `None` if this
    /// line is to be suppressed too.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock();
        let is_over = lines
            .started
            .is_none_or(|started| now.saturating_duration_since(started) >= WINDOW);
        if is_over {
            lines.started = Some(now);
            lines.n_logged = 0;
        }
        if lines.n_logged == LINES_MAX {
            lines.n_suppressed += 1;
            return None;
        }
        lines.n_logged += 1;
        Some(std::mem::take(&mut lines.n_suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_maximum_of_lines() {
        let log = FailureLog::default();
        let start = Instant::now();
        for _line in 0..LINES_MAX {
            assert_eq!(log.admit(start), Some(0));
        }
        for _line in 0..3 {
            assert_eq!(log.admit(start + WINDOW / 2), None);
        }
        assert_eq!(log.admit(start + WINDOW), Some(3));
        assert_eq!(log.admit(start + WINDOW), Some(0));
    }
}
