//! Statistics of the written samples.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::output::mib;
use crate::process::ProcessUsage;

/// Maximum number of memory values that are printed.
const PARTS_MAX: usize = 10;

/// Statistics of the written samples.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) n_samples: u64,
    /// Samples that the server rejected.
    pub(crate) n_rejected: u64,
    /// The response to the first of them.
    pub(crate) rejection: Option<String>,
    pub(crate) n_retries: u64,
    /// The latency of the last attempt of each request, sorted by `append`.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) duration: Duration,
    pub(crate) server: Option<(ProcessUsage, ProcessUsage)>,
    /// Memory of the server after each round, in bytes.
    pub(crate) resident_bytes: Vec<u64>,
}

impl Written {
    /// Adds the statistics of a later or concurrent write. A concurrent one has a duration of 0.
    pub(crate) fn append(&mut self, other: Self) {
        self.n_samples += other.n_samples;
        self.n_rejected += other.n_rejected;
        self.n_retries += other.n_retries;
        self.rejection = self.rejection.take().or(other.rejection);
        self.latencies.extend(other.latencies);
        self.latencies.sort_unstable();
        self.duration += other.duration;
        self.resident_bytes.extend(other.resident_bytes);
    }

    /// Returns an error if samples were rejected.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.rejection {
            Some(rejection) => bail!(
                "the server rejected requests with {} samples; {rejection}",
                self.n_rejected
            ),
            None => Ok(()),
        }
    }

    pub(crate) fn samples_per_s(&self) -> f64 {
        self.n_samples as f64 / self.duration.as_secs_f64().max(1e-9)
    }

    pub(crate) fn latency_ms(&self, per_mille: usize) -> f64 {
        self.latency(per_mille).as_secs_f64() * 1e3
    }

    fn latency(&self, per_mille: usize) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies
            .get(last * per_mille / 1000)
            .copied()
            .unwrap_or_default()
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.duration.as_secs_f64();
        let rate = self.samples_per_s();
        writeln!(
            f,
            "samples      {} in {seconds:.1} s, {rate:.0} per second",
            self.n_samples
        )?;
        let p50 = self.latency_ms(500);
        let p99 = self.latency_ms(990);
        let max = self.latency_ms(1000);
        writeln!(
            f,
            "requests     {}, p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms",
            self.latencies.len()
        )?;
        writeln!(f, "retries      {}", self.n_retries)?;
        writeln!(f, "rejected     {} samples", self.n_rejected)?;
        let Some((before, after)) = &self.server else {
            return Ok(());
        };
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        writeln!(
            f,
            "server CPU   {cpu:.1} s, {:.2} s per million samples",
            cpu * 1e6 / self.n_samples.max(1) as f64
        )?;

        writeln!(
            f,
            "server RSS   {:.0} MiB, peak {:.0} MiB",
            mib(after.resident_bytes),
            mib(after.peak_bytes)
        )?;
        let n_rounds = self.resident_bytes.len();
        let parts = PARTS_MAX.min(n_rounds);
        write!(f, "  over time ")?;
        for part in 1..=parts {
            let resident_bytes = self.resident_bytes[part * n_rounds / parts - 1];
            write!(f, " {:.0}", mib(resident_bytes))?;
        }
        writeln!(f, " MiB")
    }
}
