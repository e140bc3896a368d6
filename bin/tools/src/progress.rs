//! Progress on standard error: a bar on a terminal, otherwise a line from time to time.

use std::fmt;
use std::io::{IsTerminal, stderr, stdout};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;

use varve_system::quantity::print_rounded_size;

/// Redraws of the bar per second.
const DRAWS_PER_S: u8 = 5;
/// Interval of lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Unit of the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Series,
    Blocks,
}

impl Unit {
    fn amount(self, n: u64) -> String {
        match self {
            Self::Bytes => print_rounded_size(n as f64),
            Self::Series => format!("{} series", HumanCount(n)),
            Self::Blocks => format!("{} blocks", HumanCount(n)),
        }
    }
}

/// A progress display.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    what: &'static str,
    unit: Unit,
    bar: ProgressBar,
    /// Time of the last line. `None` on a terminal.
    line: Option<Mutex<Instant>>,
}

impl Progress {
    /// Starts a display with a description of the work.
    pub(crate) fn start(what: &'static str, unit: Unit) -> Self {
        Self::drawn_on(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S), what, unit)
    }

    /// Starts a display for work that prints to standard output, without a bar if that is the same
    /// terminal.
    pub(crate) fn with_output(what: &'static str, unit: Unit) -> Self {
        if stdout().is_terminal() {
            Self::drawn_on(ProgressDrawTarget::hidden(), what, unit)
        } else {
            Self::start(what, unit)
        }
    }

    fn drawn_on(target: ProgressDrawTarget, what: &'static str, unit: Unit) -> Self {
        let bar = ProgressBar::with_draw_target(None, target)
            .with_style(style(unit))
            .with_prefix(what);
        let started = Instant::now();
        Self {
            started,
            what,
            unit,
            bar,
            line: (!stderr().is_terminal()).then(|| Mutex::new(started)),
        }
    }

    /// Runs `work` with a function that updates the display, and removes the bar.
    pub(crate) fn during<T>(self, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
        let result = work(&mut |done, total| self.show(done, total, ""));
        self.finish();
        result
    }

    /// Updates the display: amount done, total amount, and additional information.
    pub(crate) fn show(&self, done: u64, total: u64, more: &str) {
        let Some(line_at) = &self.line else {
            self.bar.set_length(total);
            self.bar.set_message(more.to_owned());
            self.bar.set_position(done);
            return;
        };
        let mut line_at = line_at.lock();
        if line_at.elapsed() >= LINE_INTERVAL {
            *line_at = Instant::now();
            eprintln!(
                "{}: {}",
                self.what,
                line(self.unit, done, total, self.started.elapsed(), more)
            );
        }
    }

    /// Removes the bar. Returns the elapsed time.
    pub(crate) fn finish(&self) -> Duration {
        self.bar.finish_and_clear();
        self.started.elapsed()
    }
}

fn style(unit: Unit) -> ProgressStyle {
    // The last field is truncated at the width of the terminal, so that the line does not wrap.
    let style = ProgressStyle::with_template(
        "{prefix} [{bar:20}] {percent:>3}% {rate}, {eta} left {wide_msg}",
    );
    let rate = move |state: &ProgressState, out: &mut dyn fmt::Write| {
        // Writing to a string does not fail.
        let _ = write!(out, "{}/s", unit.amount(state.per_sec() as u64));
    };
    style
        .expect("the template is sound")
        .with_key("rate", rate)
        .progress_chars("=> ")
}

fn line(unit: Unit, done: u64, total: u64, elapsed: Duration, more: &str) -> String {
    let part = if total == 0 {
        1.0
    } else {
        (done as f64 / total as f64).min(1.0)
    };
    let rate = unit.amount((done as f64 / elapsed.as_secs_f64().max(0.001)) as u64);
    let left = if part > 0.01 {
        format!(", {:.0}s left", elapsed.as_secs_f64() * (1.0 - part) / part)
    } else {
        String::new()
    };
    format!(
        "{:.0}% of {}, {rate}/s{left} {more}",
        part * 100.0,
        unit.amount(total)
    )
    .trim_end()
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_percentage_rate_and_time_left() {
        let second = Duration::from_secs(1);
        let ten = Duration::from_secs(10);
        assert_eq!(
            line(Unit::Bytes, 1 << 20, 4 << 20, ten, "x"),
            "25% of 4.0 MiB, 102.4 KiB/s, 30s left x"
        );
        assert_eq!(
            line(Unit::Series, 0, 4000, second, ""),
            "0% of 4,000 series, 0 series/s"
        );
    }
}
