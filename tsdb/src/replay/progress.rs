//! Progress of a replay, and the division of its memory among workers.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::options::Options;

/// Interval between log messages about the progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Progress counters; any thread may read them. Totals are known once definitions begin to load.
#[derive(Debug, Default)]
pub(crate) struct ReplayProgress {
    started: OnceLock<Instant>,
    n_reports: AtomicU64,
    /// Files read to their end.
    pub(super) n_files: AtomicU64,
    /// Files to read.
    pub(super) n_files_total: AtomicU64,
    /// Bytes read.
    pub(super) n_bytes: AtomicU64,
    /// Bytes to read.
    pub(super) n_bytes_total: AtomicU64,
    /// Samples decoded.
    pub(super) n_samples: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl ReplayProgress {
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

    /// Logs the progress if the interval has passed and no other worker has logged it.
    fn report(&self, elapsed: Duration, n_bytes: u64) {
        let n_due = elapsed.as_secs() / REPORT_INTERVAL.as_secs();
        if self.n_reports.fetch_max(n_due, Ordering::Relaxed) >= n_due {
            return;
        }
        let samples_per_second = count(&self.n_samples) as f64 / elapsed.as_secs_f64();
        let share_left =
            count(&self.n_bytes_total).saturating_sub(n_bytes) as f64 / n_bytes.max(1) as f64;
        let left = Duration::try_from_secs_f64((elapsed.as_secs_f64() * share_left).round())
            .unwrap_or(Duration::MAX);
        tracing::info!(progress = %self, samples_per_second = samples_per_second.round(), ?left, "Replaying the WAL");
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
        let n_bytes = count(&self.n_bytes);
        let total = count(&self.n_bytes_total);
        let percent = n_bytes as f64 * 100.0 / total.max(1) as f64;
        let mib = total as f64 / f64::from(1 << 20);
        write!(
            f,
            "{percent:.1} % of {mib:.1} MiB of the WAL, {} samples",
            count(&self.n_samples)
        )
    }
}

/// Memory of a worker in bytes: a window of a file, a decompressed payload, and its columns.
const WORKER_SIZE: usize = 4 << 20;
/// Maximum bytes of a worker's [`SampleBins`](super::sample_bins::SampleBins); fewer if memory is
/// short.
const SAMPLE_BINS_SIZE_MAX: usize = 24 << 20;
/// Additional bytes for the one worker that reads a frame larger than its window.
const LARGE_FRAME_SIZE: usize = 8 << 20;

/// Returns the bytes of the replay's memory for its workers. In the foreground this is all of it.
/// In the background it is what the workers can use, at most three quarters: the rest is for
/// samples that are written during the replay.
pub(crate) fn replay_share(options: &Options) -> usize {
    let memory_bytes = options.wal_replay_memory_bytes;
    if !options.wal_replay_in_background {
        return memory_bytes;
    }
    let share_max = memory_bytes - memory_bytes / 4;
    let n_workers = replay_workers(options.wal_replay_concurrency, share_max);
    share_max.min(n_workers * (WORKER_SIZE + SAMPLE_BINS_SIZE_MAX) + LARGE_FRAME_SIZE)
}

/// Returns the number of workers for `memory_bytes`: at most `concurrency`, at least one.
pub(crate) fn replay_workers(concurrency: usize, memory_bytes: usize) -> usize {
    (memory_bytes.saturating_sub(LARGE_FRAME_SIZE) / WORKER_SIZE).clamp(1, concurrency.max(1))
}

/// Returns the bytes for the sample bins of each of `n_workers` workers, which share
/// `memory_bytes`.
pub(crate) fn sample_bins_bytes(n_workers: usize, memory_bytes: usize) -> usize {
    let worker_bytes = memory_bytes.saturating_sub(LARGE_FRAME_SIZE) / n_workers;
    worker_bytes
        .saturating_sub(WORKER_SIZE)
        .min(SAMPLE_BINS_SIZE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_bounded_by_memory() {
        for (concurrency, mib, workers) in [
            (8, 16, 2),
            (8, 256, 8),
            (64, 256, 62),
            (1, 16, 1),
            (4, 0, 1),
            (0, 256, 1),
        ] {
            assert_eq!(
                replay_workers(concurrency, mib << 20),
                workers,
                "{concurrency} in {mib} MiB"
            );
        }
    }

    #[test]
    fn workers_in_the_background_leave_a_quarter_for_buffered_samples() {
        for (wal_replay_concurrency, mib, taken_mib) in [(8, 16, 12), (2, 256, 64), (64, 256, 192)]
        {
            let wal_replay_memory_bytes = mib << 20;
            let share = |wal_replay_in_background| {
                let options = Options {
                    wal_replay_concurrency,
                    wal_replay_memory_bytes,
                    ..Options::default()
                };
                replay_share(&Options {
                    wal_replay_in_background,
                    ..options
                }) >> 20
            };
            assert_eq!(
                (share(true), share(false)),
                (taken_mib, mib),
                "{wal_replay_concurrency} in {mib} MiB"
            );
        }
    }

    #[test]
    fn sample_bins_take_what_workers_leave() {
        for (n_workers, mib, bins_mib) in [
            (1, 12, 0),
            (2, 40, 12),
            (2, 256, 24),
            (8, 120, 10),
            (46, 192, 0),
            (1, 0, 0),
        ] {
            assert_eq!(
                sample_bins_bytes(n_workers, mib << 20),
                bins_mib << 20,
                "{n_workers} in {mib} MiB"
            );
        }
    }

    #[test]
    fn progress_prints_as_one_line() {
        let progress = ReplayProgress::default();
        assert_eq!(
            progress.to_string(),
            "0.0 % of 0.0 MiB of the WAL, 0 samples"
        );
        progress.expect_file(3 << 20);
        progress.add_bytes(1 << 20);
        progress.add_samples(7);
        assert_eq!(
            progress.to_string(),
            "33.3 % of 3.0 MiB of the WAL, 7 samples"
        );
    }
}
