//! What a store is opened with.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fs::{Clock, Fs, RealFs, SystemClock};

/// When the log is synced to the disk. In every mode it is written to the operating system before an append returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalSync {
    /// Every second, by a thread of the store: a power cut costs at most that.
    Interval,
    /// Before an append returns.
    Always,
    /// Never by the store.
    Never,
}

/// Options of a [`Db`](crate::Db).
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of shards, a power of two from 1 to 256. It may change between starts.
    pub shards: usize,
    /// When the log is synced.
    pub wal_sync: WalSync,
    /// Size at which a segment of the log is closed and the next one begun, in bytes.
    pub wal_segment_size_bytes: u64,
    /// Threads that replay the log at open, at least 1.
    pub wal_replay_concurrency: usize,
    /// How far behind the store's newest time a new sample may lie, in milliseconds.
    pub in_order_max_age_ms: i64,
    /// How far ahead of the clock a sample may lie, in milliseconds.
    pub ahead_max_ms: i64,
    /// Bytes of memory that series and samples may take; beyond it appends are refused.
    pub head_size_max_bytes: usize,
    /// The disk.
    pub fs: Arc<dyn Fs>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    /// One shard, synced every second, segments of 32 MiB, 3 h of age, 10 min ahead, no bound on memory.
    fn default() -> Self {
        Self {
            shards: 1,
            wal_sync: WalSync::Interval,
            wal_segment_size_bytes: 32 << 20,
            wal_replay_concurrency: 1,
            in_order_max_age_ms: 3 * 3_600_000,
            ahead_max_ms: 600_000,
            head_size_max_bytes: usize::MAX,
            fs: Arc::new(RealFs),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// Checks all bounds.
    ///
    /// # Errors
    /// [`Error::Options`] names the option and its bounds.
    pub(crate) fn check(&self) -> Result<()> {
        let check = |holds: bool, text: &str| if holds { Ok(()) } else { Err(Error::Options(text.to_owned())) };
        let shards = self.shards;
        check(
            shards.is_power_of_two() && shards <= 256,
            &format!("number of shards is {shards}, must be a power of two from 1 to 256"),
        )?;
        check(self.wal_replay_concurrency > 0, "replay concurrency is 0, must be at least 1")?;
        check(
            (4096..=1 << 30).contains(&self.wal_segment_size_bytes),
            &format!("segment size is {} bytes, must be from 4 KiB to 1 GiB", self.wal_segment_size_bytes),
        )?;
        check(self.in_order_max_age_ms >= 0, "in-order age is negative")?;
        check(self.ahead_max_ms >= 0, "time ahead of the clock is negative")
    }
}
