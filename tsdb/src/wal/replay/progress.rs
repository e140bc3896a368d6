//! How far a replay is, and what it may take.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::options::Options;

/// How often a line of the program's log tells how far a replay is.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// How far a replay is; may be read by any thread while it runs. Totals are known once definitions begin to load.
#[derive(Debug, Default)]
pub(crate) struct ReplayProgress {
    started: OnceLock<Instant>,
    n_reports: AtomicU64,
    n_files: AtomicU64,
    n_files_total: AtomicU64,
    n_bytes: AtomicU64,
    n_bytes_total: AtomicU64,
    n_samples: AtomicU64,
}

impl ReplayProgress {
    /// Counts the files of the log that were read to their end.
    pub(crate) fn n_files(&self) -> u64 {
        self.n_files.load(Ordering::Relaxed)
    }

    /// Counts the files that are to be read.
    pub(crate) fn n_files_total(&self) -> u64 {
        self.n_files_total.load(Ordering::Relaxed)
    }

    /// Counts the bytes that were read.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.n_bytes.load(Ordering::Relaxed)
    }

    /// Counts the bytes that are to be read.
    pub(crate) fn n_bytes_total(&self) -> u64 {
        self.n_bytes_total.load(Ordering::Relaxed)
    }

    /// Counts the samples that were decoded.
    pub(crate) fn n_samples(&self) -> u64 {
        self.n_samples.load(Ordering::Relaxed)
    }

    pub(super) fn expect_file(&self, size: u64) {
        self.started.get_or_init(Instant::now);
        self.n_files_total.fetch_add(1, Ordering::Relaxed);
        self.n_bytes_total.fetch_add(size, Ordering::Relaxed);
    }

    pub(super) fn add_bytes(&self, n: u64) {
        let n_bytes = self.n_bytes.fetch_add(n, Ordering::Relaxed) + n;
        if let Some(elapsed) = self.started.get().map(Instant::elapsed) {
            self.report(elapsed, n_bytes);
        }
    }

    /// Says how far the replay is, if that is due and no other worker does.
    fn report(&self, elapsed: Duration, n_bytes: u64) {
        let n_due = elapsed.as_secs() / REPORT_INTERVAL.as_secs();
        if self.n_reports.fetch_max(n_due, Ordering::Relaxed) >= n_due {
            return;
        }
        let samples_per_second = self.n_samples() as f64 / elapsed.as_secs_f64();
        let share_left = self.n_bytes_total().saturating_sub(n_bytes) as f64 / n_bytes.max(1) as f64;
        let left = Duration::try_from_secs_f64((elapsed.as_secs_f64() * share_left).round()).unwrap_or(Duration::MAX);
        tracing::info!(progress = %self, samples_per_second = samples_per_second.round(), ?left, "Replaying the log");
    }

    pub(super) fn add_samples(&self, n: u64) {
        self.n_samples.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn finish_file(&self) {
        self.n_files.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for ReplayProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_bytes, total) = (self.n_bytes(), self.n_bytes_total());
        let percent = n_bytes as f64 * 100.0 / total.max(1) as f64;
        let mib = total as f64 / f64::from(1 << 20);
        write!(f, "{percent:.1} % of {mib:.1} MiB of the log, {} samples", self.n_samples())
    }
}

/// What a worker takes: a window of a file, a record's plain payload, its columns.
const WORKER_SIZE: usize = 4 << 20;
/// What it takes on top at most, if there is room: samples that are gathered by series.
const GATHERED_SIZE_MAX: usize = 24 << 20;
/// What the one worker takes on top that looks at a frame larger than its window.
const LARGE_FRAME_SIZE: usize = 8 << 20;

/// Returns the bytes that the workers of a replay take of its memory: all of it if nothing is written meanwhile, else what
/// they can use and at most three quarters.
pub(crate) fn replay_share(options: &Options) -> usize {
    let memory_bytes = options.wal_replay_memory_bytes;
    if !options.wal_replay_in_background {
        return memory_bytes;
    }
    let share_max = memory_bytes - memory_bytes / 4;
    let n_workers = replay_workers(options.wal_replay_concurrency, share_max);
    share_max.min(n_workers * (WORKER_SIZE + GATHERED_SIZE_MAX) + LARGE_FRAME_SIZE)
}

/// Returns how many workers may replay in `memory_bytes`: at most `concurrency`, at least one.
pub(crate) fn replay_workers(concurrency: usize, memory_bytes: usize) -> usize {
    (memory_bytes.saturating_sub(LARGE_FRAME_SIZE) / WORKER_SIZE).clamp(1, concurrency.max(1))
}

/// Returns what each of some workers may take to gather samples, of `memory_bytes` for all.
pub(crate) fn gathered_bytes(n_workers: usize, memory_bytes: usize) -> usize {
    let of_worker = memory_bytes.saturating_sub(LARGE_FRAME_SIZE) / n_workers;
    of_worker.saturating_sub(WORKER_SIZE).min(GATHERED_SIZE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_bounded_by_memory() {
        for (concurrency, mib, workers) in [(8, 16, 2), (8, 256, 8), (64, 256, 62), (1, 16, 1), (4, 0, 1), (0, 256, 1)]
        {
            assert_eq!(replay_workers(concurrency, mib << 20), workers, "{concurrency} in {mib} MiB");
        }
    }

    #[test]
    fn workers_in_the_background_leave_a_quarter_to_what_is_held() {
        for (wal_replay_concurrency, mib, taken_mib) in [(8, 16, 12), (2, 256, 64), (64, 256, 192)] {
            let wal_replay_memory_bytes = mib << 20;
            let of = |wal_replay_in_background| {
                let options = Options { wal_replay_concurrency, wal_replay_memory_bytes, ..Options::default() };
                replay_share(&Options { wal_replay_in_background, ..options }) >> 20
            };
            assert_eq!((of(true), of(false)), (taken_mib, mib), "{wal_replay_concurrency} in {mib} MiB");
        }
    }

    #[test]
    fn what_is_gathered_takes_what_workers_leave() {
        for (n_workers, mib, gathered_mib) in
            [(1, 12, 0), (2, 40, 12), (2, 256, 24), (8, 120, 10), (46, 192, 0), (1, 0, 0)]
        {
            assert_eq!(gathered_bytes(n_workers, mib << 20), gathered_mib << 20, "{n_workers} in {mib} MiB");
        }
    }

    #[test]
    fn progress_is_told_in_a_line() {
        let progress = ReplayProgress::default();
        assert_eq!(progress.to_string(), "0.0 % of 0.0 MiB of the log, 0 samples");
        progress.expect_file(3 << 20);
        progress.add_bytes(1 << 20);
        progress.add_samples(7);
        assert_eq!(progress.to_string(), "33.3 % of 3.0 MiB of the log, 7 samples");
    }
}
