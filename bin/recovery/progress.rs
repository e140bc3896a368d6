//! How far it is, on standard error: a bar on a terminal, else a plain line now and then.

use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Times a second that the bar is drawn.
const DRAWS_PER_S: u8 = 5;
/// Time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Says how far something is.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    what: &'static str,
    bar: ProgressBar,
    /// When the last plain line was printed, where there is no terminal.
    line: Option<Mutex<Instant>>,
}

impl Progress {
    /// Begins with what is being done.
    pub(super) fn start(what: &'static str) -> Self {
        let is_terminal = stderr().is_terminal();
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {per_sec}, {eta} left {msg}");
        bar.set_style(style.expect("the template is sound").progress_chars("=> "));
        bar.set_prefix(what);
        let started = Instant::now();
        Self { started, what, bar, line: (!is_terminal).then(|| Mutex::new(started)) }
    }

    /// Shows how much is done of how much, and what else is worth saying.
    pub(super) fn show(&self, done: u64, total: u64, more: &str) {
        let Some(line_at) = &self.line else {
            self.bar.set_length(total);
            self.bar.set_position(done);
            if !more.is_empty() {
                self.bar.set_message(more.to_owned());
            }
            return;
        };
        let mut line_at = line_at.lock().unwrap_or_else(PoisonError::into_inner);
        if line_at.elapsed() >= LINE_INTERVAL {
            *line_at = Instant::now();
            eprintln!("{}", line(self.what, done, total, self.started.elapsed(), more));
        }
    }

    /// Removes the bar; returns the time since the start.
    pub(super) fn finish(&self) -> Duration {
        self.bar.finish_and_clear();
        self.started.elapsed()
    }
}

fn line(what: &str, done: u64, total: u64, elapsed: Duration, more: &str) -> String {
    let part = if total == 0 { 1.0 } else { (done as f64 / total as f64).min(1.0) };
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = match part > 0.01 {
        true => format!(", {:.0}s left", elapsed.as_secs_f64() * (1.0 - part) / part),
        false => String::new(),
    };
    format!("{what}: {:.0}% of {total}, {rate:.0}/s{left} {more}", part * 100.0).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        assert_eq!(line("read", 100, 400, Duration::from_secs(10), "x"), "read: 25% of 400, 10/s, 30s left x");
        assert_eq!(line("read", 0, 4, Duration::from_secs(1), ""), "read: 0% of 4, 0/s");
    }
}
