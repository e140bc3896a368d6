//! What a store is opened with.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::fs::{Clock, Fs, RealFs, SystemClock};
use crate::head::STRICT_MAX_AGE_MS;

/// Most shards that a store has.
pub(crate) const SHARDS_MAX: usize = 256;

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

/// What a replay does about damage inside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalOnCorruption {
    /// Goes on at the next sound frame, keeps the damaged bytes in the quarantine folder and counts them.
    Quarantine,
    /// Refuses to open, and changes nothing.
    Refuse,
}

/// The largest [`Options::exemplars_max`].
pub const EXEMPLARS_MAX: usize = 10_000_000;

/// Options of a [`Db`](crate::Db).
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of shards, a power of two from 1 to 256. It may change between starts.
    pub shards: usize,
    /// Number of logs that the shards share, a power of two from 1 to 256; as many as shards, if these are fewer. It may
    /// change between starts. Few make the log small, many let more threads replay it.
    pub wal_logs: usize,
    /// When the log is synced.
    pub wal_sync: WalSync,
    /// Size at which a segment of the log is closed and the next one begun, in bytes.
    pub wal_segment_size_bytes: u64,
    /// Threads that replay the log at open, at least 1.
    pub wal_replay_concurrency: usize,
    /// Bytes that a replay may hold in memory: of the log, and of samples that come while it runs. At least 16 MiB.
    pub wal_replay_memory_bytes: usize,
    /// Whether [`Db::open`](crate::Db::open) returns as soon as all series are known, and the samples are replayed while
    /// the store is in use. Without, it returns when all is there: then no call has to wait, and what is wrong with the
    /// log is an error of `open`.
    pub wal_replay_in_background: bool,
    /// What a replay does about damage that is not a torn end.
    pub wal_on_corruption: WalOnCorruption,
    /// How far behind the store's newest time a new sample may lie, in milliseconds.
    pub in_order_max_age_ms: i64,
    /// How far behind the store's newest time a sample may lie that is not newer than its series' newest one, in
    /// milliseconds. With 0 all samples must come in order, and within the last hour, as Prometheus has it.
    pub out_of_order_window_ms: i64,
    /// How far ahead of the clock a sample may lie, in milliseconds.
    pub ahead_max_ms: i64,
    /// Bytes of memory that series and samples may take; beyond it appends are refused.
    pub head_size_max_bytes: usize,
    /// How often the heads are flushed; at most so much of the log is ever replayed.
    pub flush_interval: Duration,
    /// Bytes of samples in memory at which the heads are flushed before the interval is over.
    pub flush_size_bytes: usize,
    /// How far a series' newest sample must lie behind the store's newest time for the series to leave the head, in
    /// milliseconds.
    pub series_idle_ms: i64,
    /// The same for a series whose newest sample is a staleness marker: it is not expected back.
    pub series_ended_ms: i64,
    /// Blocks go when all of their samples lie further behind the newest time, in milliseconds; `None`: never.
    pub retention_ms: Option<i64>,
    /// The oldest blocks go while blocks and log take more bytes; `None`: never.
    pub retention_size_bytes: Option<u64>,
    /// Bytes that decoded pages of blocks may take in memory.
    pub page_cache_size_bytes: usize,
    /// Bytes that merges may write in a second; 0 for no bound.
    pub compaction_bytes_per_second: u64,
    /// Whether the store flushes and merges by itself. Without, the embedder calls `flush` and `compact`.
    pub background: bool,
    /// Exemplars that are kept, the newest ones; 0: none, at most [`EXEMPLARS_MAX`].
    pub exemplars_max: usize,
    /// The disk.
    pub fs: Arc<dyn Fs>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    /// One shard, at most 8 logs, synced every second, segments of 32 MiB, 3 h of age, 30 min out of order, 10 min ahead, a flush every
    /// 10 min or 512 MiB, a page cache of 64 MiB, no bound on memory, no retention; `open` waits for the replay.
    fn default() -> Self {
        Self {
            shards: 1,
            wal_logs: 8,
            wal_sync: WalSync::Interval,
            wal_segment_size_bytes: 32 << 20,
            wal_replay_concurrency: 1,
            wal_replay_memory_bytes: 256 << 20,
            wal_replay_in_background: false,
            wal_on_corruption: WalOnCorruption::Quarantine,
            in_order_max_age_ms: 3 * 3_600_000,
            out_of_order_window_ms: 30 * 60_000,
            ahead_max_ms: 600_000,
            head_size_max_bytes: usize::MAX,
            flush_interval: Duration::from_secs(600),
            flush_size_bytes: 512 << 20,
            series_idle_ms: 3_600_000,
            series_ended_ms: 300_000,
            retention_ms: None,
            retention_size_bytes: None,
            page_cache_size_bytes: 64 << 20,
            compaction_bytes_per_second: 0,
            background: true,
            exemplars_max: 100_000,
            fs: Arc::new(RealFs),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// Returns how many logs there are.
    pub(crate) fn n_logs(&self) -> usize {
        self.wal_logs.min(self.shards)
    }

    /// Returns how far behind the newest time a sample can at most have been when it was accepted.
    pub(crate) fn age_max_ms(&self) -> i64 {
        self.in_order_max_age_ms.max(self.out_of_order_window_ms).max(STRICT_MAX_AGE_MS)
    }

    /// Checks all bounds.
    ///
    /// # Errors
    /// [`Error::Options`] names the option and its bounds.
    pub(crate) fn check(&self) -> Result<()> {
        let check = |holds: bool, text: &str| if holds { Ok(()) } else { Err(Error::Options(text.to_owned())) };
        let shards = self.shards;
        check(
            shards.is_power_of_two() && shards <= SHARDS_MAX,
            &format!("number of shards is {shards}, must be a power of two from 1 to 256"),
        )?;
        let logs = self.wal_logs;
        check(
            logs.is_power_of_two() && logs <= SHARDS_MAX,
            &format!("number of logs is {logs}, must be a power of two from 1 to 256"),
        )?;
        check(self.wal_replay_concurrency > 0, "replay concurrency is 0, must be at least 1")?;
        check(
            (4096..=1 << 30).contains(&self.wal_segment_size_bytes),
            &format!("segment size is {} bytes, must be from 4 KiB to 1 GiB", self.wal_segment_size_bytes),
        )?;
        check(self.wal_replay_memory_bytes >= 16 << 20, "replay memory must be at least 16 MiB")?;
        check(self.in_order_max_age_ms >= 0, "in-order age is negative")?;
        check(self.out_of_order_window_ms >= 0, "out-of-order window is negative")?;
        check(self.series_idle_ms >= 0, "time after which a series is idle is negative")?;
        check(self.series_ended_ms >= 0, "time after which a series that ended leaves is negative")?;
        check(!self.flush_interval.is_zero(), "flush interval is 0")?;
        check(self.exemplars_max <= EXEMPLARS_MAX, &format!("number of exemplars must be at most {EXEMPLARS_MAX}"))?;
        check(self.ahead_max_ms >= 0, "time ahead of the clock is negative")
    }
}
