//! Options of a store.

use std::sync::Arc;
use std::time::Duration;

use varve_env::{Clock, Fs, RealFs, SystemClock};
use varve_model::TimeRange;

use crate::error::{Error, Result};
use crate::limits::{SHARDS_MAX, STRICT_MAX_AGE_MS};

/// When the log is synced. In every mode, an append returns only after its records are written to
/// the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalSync {
    /// Every second, by a background thread: a power cut loses at most the last second.
    Interval,
    /// Before an append returns.
    Always,
    /// Never by the store.
    Never,
}

/// How a replay handles damage inside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalOnCorruption {
    /// Continues at the next frame with a correct checksum, copies the damaged bytes to the
    /// quarantine directory and counts them.
    Quarantine,
    /// Fails to open and changes nothing.
    Refuse,
}

/// Maximum of [`Options::exemplars_max`].
pub const EXEMPLARS_MAX: usize = 10_000_000;

/// Options of a [`Db`](crate::Db).
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of shards, a power of two from 1 to 256. It may change between starts.
    pub shards: usize,
    /// Number of logs shared by the shards, a power of two from 1 to 256; at most the number of
    /// shards. It may change between starts. Fewer logs compress better; more logs are replayed by
    /// more threads.
    pub wal_logs: usize,
    /// When the log is synced.
    pub wal_sync: WalSync,
    /// Size in bytes at which a log segment is closed and the next one started.
    pub wal_segment_size_bytes: u64,
    /// Number of threads that replay the log, at least 1.
    pub wal_replay_concurrency: usize,
    /// Maximum memory of a replay in bytes: for the log, and for samples that arrive while it runs.
    /// At least 16 MiB.
    pub wal_replay_memory_bytes: usize,
    /// If `true`, [`Db::open`](crate::Db::open) returns as soon as all series are known, and
    /// samples are replayed while the store is in use. If `false`, it returns when the replay is
    /// complete: then no call waits, and damage in the log is an error of `open`.
    pub wal_replay_in_background: bool,
    /// How a replay handles damage that is not a torn tail.
    pub wal_on_corruption: WalOnCorruption,
    /// Maximum age of an in-order sample relative to the newest timestamp of the store, in
    /// milliseconds.
    pub in_order_max_age_ms: i64,
    /// Maximum age of an out-of-order sample relative to the newest timestamp of the store, in
    /// milliseconds. With 0, samples must be in order and within the last hour, as in Prometheus.
    pub out_of_order_window_ms: i64,
    /// Maximum distance of a sample's timestamp ahead of the clock, in milliseconds.
    pub ahead_max_ms: i64,
    /// Maximum memory of series and samples in bytes. Above it, appends are rejected.
    pub head_size_max_bytes: usize,
    /// Interval between flushes of the heads. Bounds the length of the log to replay. The heads are
    /// also flushed when the samples of senders have moved forward by twice this time, as in a
    /// backfill.
    pub flush_interval: Duration,
    /// Size of samples in memory, in bytes, at which the heads are flushed before the interval has
    /// passed.
    pub flush_size_bytes: usize,
    /// Evicts a series whose newest sample is older than this relative to the newest timestamp of
    /// the store, in milliseconds.
    pub series_idle_ms: i64,
    /// Like `series_idle_ms`, for a stale series (its newest sample is a staleness marker), which
    /// is not expected to return.
    pub series_stale_ms: i64,
    /// Removes a block when all its samples are older than this relative to the newest timestamp or
    /// the clock, whichever is earlier, in milliseconds. `None` disables this.
    pub retention_ms: Option<i64>,
    /// Removes the oldest blocks while blocks and log exceed this size in bytes. `None` disables
    /// this.
    pub retention_size_bytes: Option<u64>,
    /// Maximum memory of decoded pages of blocks in bytes.
    pub page_cache_size_bytes: usize,
    /// Maximum memory of the series lists of recent selections in bytes. With 0, none are kept.
    pub kept_selections_size_bytes: usize,
    /// Maximum rate of merges in bytes per second; 0 is unlimited.
    pub compaction_bytes_per_second: u64,
    /// Reads all bytes of the blocks that overlap this range when the store opens, and does not use
    /// damaged ones: for tools that print everything that is sound. `None` only opens the blocks. A
    /// read that meets a damaged page then fails.
    pub verified: Option<TimeRange>,
    /// If `true`, background threads flush and merge. If `false`, the caller calls `flush` and
    /// `compact`.
    pub background: bool,
    /// Maximum number of stored exemplars, at most [`EXEMPLARS_MAX`]. 0 disables exemplars.
    pub exemplars_max: usize,
    /// Maximum size of the labels of exemplars and of their series in bytes. Above it, the oldest
    /// exemplars are evicted.
    pub exemplars_size_max_bytes: usize,
    /// Maximum size of the metadata of all metric families in bytes. Above it, the families that
    /// were added first are evicted.
    pub metadata_size_max_bytes: usize,
    /// The file system.
    pub fs: Arc<dyn Fs>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    /// One shard, at most 8 logs, synced every second, segments of 32 MiB, samples in order up to 3
    /// h old, out of order up to 30 min, at most 10 min ahead, a flush every 30 min or 512 MiB, a
    /// page cache of 64 MiB, 64 MiB of kept selections, unlimited memory, no retention, 100 MiB of exemplars, 64 MiB of
    /// metadata; `open` waits for the replay.
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
            flush_interval: Duration::from_secs(1800),
            flush_size_bytes: 512 << 20,
            series_idle_ms: 3_600_000,
            series_stale_ms: 300_000,
            retention_ms: None,
            retention_size_bytes: None,
            page_cache_size_bytes: 64 << 20,
            kept_selections_size_bytes: 64 << 20,
            compaction_bytes_per_second: 0,
            verified: None,
            background: true,
            exemplars_max: 100_000,
            exemplars_size_max_bytes: 100 << 20,
            metadata_size_max_bytes: 64 << 20,
            fs: Arc::new(RealFs),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// Returns the number of logs.
    pub(crate) fn n_logs(&self) -> usize {
        self.wal_logs.min(self.shards)
    }

    /// Returns the maximum age of any accepted sample relative to the newest timestamp, in
    /// milliseconds.
    pub(crate) fn age_max_ms(&self) -> i64 {
        self.in_order_max_age_ms
            .max(self.out_of_order_window_ms)
            .max(STRICT_MAX_AGE_MS)
    }

    /// Checks all bounds.
    ///
    /// # Errors
    /// [`Error::Options`] names the option and its bounds.
    pub(crate) fn check(&self) -> Result<()> {
        let check = |holds: bool, text: &str| {
            if holds {
                Ok(())
            } else {
                Err(Error::Options(text.to_owned()))
            }
        };
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
        check(
            self.wal_replay_concurrency > 0,
            "replay concurrency is 0, must be at least 1",
        )?;
        check(
            (4096..=1 << 30).contains(&self.wal_segment_size_bytes),
            &format!(
                "segment size is {} bytes, must be from 4 KiB to 1 GiB",
                self.wal_segment_size_bytes
            ),
        )?;
        check(
            self.wal_replay_memory_bytes >= 16 << 20,
            "replay memory must be at least 16 MiB",
        )?;
        check(self.in_order_max_age_ms >= 0, "in-order age is negative")?;
        check(
            self.out_of_order_window_ms >= 0,
            "out-of-order window is negative",
        )?;
        check(
            self.series_idle_ms >= 0,
            "time after which a series is idle is negative",
        )?;
        check(
            self.series_stale_ms >= 0,
            "time after which a stale series is evicted is negative",
        )?;
        check(!self.flush_interval.is_zero(), "flush interval is 0")?;
        check(
            self.exemplars_max <= EXEMPLARS_MAX,
            &format!("number of exemplars must be at most {EXEMPLARS_MAX}"),
        )?;
        check(
            self.ahead_max_ms >= 0,
            "maximum time ahead of the clock is negative",
        )
    }
}
