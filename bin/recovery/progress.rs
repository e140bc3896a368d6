//! How far it is: a line that is written over on a terminal, nothing elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Least time between two lines.
const INTERVAL: Duration = Duration::from_millis(200);

/// A line on the terminal that says how far it is.
#[derive(Debug)]
pub(super) struct ProgressLine {
    started: Instant,
    is_terminal: bool,
    last: Mutex<Option<Instant>>,
}

impl ProgressLine {
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), is_terminal: stderr().is_terminal(), last: Mutex::new(None) }
    }

    /// Shows what is being done, how much of it is done, and what else is worth saying.
    pub(super) fn show(&self, what: &str, done: u64, total: u64, more: &str) {
        if !self.is_terminal {
            return;
        }
        let Ok(mut last) = self.last.lock() else { return };
        if last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        *last = Some(Instant::now());
        // A terminal that is gone is no reason to stop.
        let _ = write!(stderr(), "\r\x1b[2K{}", line(what, done, total, self.started.elapsed(), more));
        let _ = stderr().flush();
    }

    /// Removes the line; returns the time since the start.
    pub(super) fn finish(&self) -> Duration {
        if self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
        self.started.elapsed()
    }
}

fn line(what: &str, done: u64, total: u64, elapsed: Duration, more: &str) -> String {
    let part = if total == 0 { 1.0 } else { (done as f64 / total as f64).min(1.0) };
    let left = match part > 0.01 {
        true => format!(", {:.0}s left", elapsed.as_secs_f64() * (1.0 - part) / part),
        false => String::new(),
    };
    let bar = "#".repeat((part * 20.0) as usize);
    format!("{what} [{bar:<20}] {:3.0}% {more}{left}", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let line = line("read", 1, 4, Duration::from_secs(10), "5/s");
        assert_eq!(line, "read [#####               ]  25% 5/s, 30s left");
        assert_eq!(super::line("read", 0, 4, Duration::ZERO, ""), "read [                    ]   0% ");
    }
}
