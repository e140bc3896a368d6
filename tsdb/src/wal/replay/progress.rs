//! How far a replay is, and what it may take.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a replay is; may be read by any thread while it runs. Totals are known once definitions begin to load.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    n_files: AtomicU64,
    n_files_total: AtomicU64,
    n_bytes: AtomicU64,
    n_bytes_total: AtomicU64,
    n_samples: AtomicU64,
}

impl ReplayProgress {
    /// Counts the files of the log that were read to their end.
    pub fn n_files(&self) -> u64 {
        self.n_files.load(Ordering::Relaxed)
    }

    /// Counts the files that are to be read.
    pub fn n_files_total(&self) -> u64 {
        self.n_files_total.load(Ordering::Relaxed)
    }

    /// Counts the bytes that were read.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes.load(Ordering::Relaxed)
    }

    /// Counts the bytes that are to be read.
    pub fn n_bytes_total(&self) -> u64 {
        self.n_bytes_total.load(Ordering::Relaxed)
    }

    /// Counts the samples that were decoded.
    pub fn n_samples(&self) -> u64 {
        self.n_samples.load(Ordering::Relaxed)
    }

    pub(super) fn expect_file(&self, size: u64) {
        self.n_files_total.fetch_add(1, Ordering::Relaxed);
        self.n_bytes_total.fetch_add(size, Ordering::Relaxed);
    }

    pub(super) fn add_bytes(&self, n: u64) {
        self.n_bytes.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn add_samples(&self, n: u64) {
        self.n_samples.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn finish_file(&self) {
        self.n_files.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a worker takes: a window of a file, a record's plain payload, its columns, and the same by shard.
const WORKER_SIZE: usize = 4 << 20;
/// What the one worker takes on top that looks at a frame larger than its window.
const LARGE_FRAME_SIZE: usize = 8 << 20;

/// Returns how many workers may replay in `memory_bytes`: at most `concurrency`, at least one.
pub(crate) fn replay_workers(concurrency: usize, memory_bytes: usize) -> usize {
    (memory_bytes.saturating_sub(LARGE_FRAME_SIZE) / WORKER_SIZE).clamp(1, concurrency.max(1))
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
}
