//! Options of the open store, its retention, and uploads of its blocks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use varve_env::{RealFs, SystemClock};
use varve_objstore::BucketConfig;
use varve_objstore::uploads::{UploadOptions, external_labels};
use varve_promql::Features;
use varve_query::EngineOptions;
use varve_system::machine::{self, Memory};
use varve_system::quantity::millis;
use varve_tsdb::retention::RetentionSize;

use super::automatic::or_default;
use super::features::{DELTA_FEATURE, has_feature};
use super::{query, write};
use crate::file::{Config, RetentionConfig};
use crate::flags::{OnCorruption, REPLAY_MEMORY_MIN_BYTES, ServeArgs, WalSync};

/// Maximum memory of the metadata of metric families in bytes.
const METADATA_SIZE_MAX_BYTES: usize = 64 << 20;
/// Maximum number of WALs that the shards share: a request of 2,000 samples has 250 for each.
const WAL_LOGS_MAX: usize = 8;
/// Size at which a segment of a WAL is closed and the next one started.
const WAL_SEGMENT_SIZE_BYTES: u64 = 32 << 20;
/// Age of the newest sample of a series, relative to that of the store, at which the series is
/// evicted.
const SERIES_IDLE_MS: i64 = 3_600_000;
/// The same for a stale series, which is not expected to return.
const SERIES_STALE_MS: i64 = 300_000;

/// Options of the open store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Options of the storage engine.
    pub tsdb: varve_tsdb::Options,
    /// Limits of the write path.
    pub ingest: varve_ingest::Limits,
    /// Options of the query engine.
    pub engine: EngineOptions,
    /// Whether OTLP deltas are added up.
    pub delta_to_cumulative: bool,
    /// Maximum time by which an OTLP delta may end before the newest one of its stream.
    pub late_delta_max: Duration,
}

/// Default memory of a replay on a machine with enough of it.
const REPLAY_MEMORY_BYTES: usize = 256 << 20;

/// Limits of the retention of all series. 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// Maximum age of samples.
    pub time: Duration,
    /// Maximum bytes of blocks and WAL.
    pub size: usize,
    /// Maximum size of blocks and WAL as a percentage of the volume. Prevails over `size`.
    pub percentage: f64,
}

/// The flags of retention.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetentionFlags {
    time: Option<Duration>,
    size: usize,
}

impl RetentionFlags {
    /// How long samples are retained if there is no limit at all, as in Prometheus.
    const TIME_DEFAULT: Duration = Duration::from_secs(15 * 86_400);

    pub(super) fn new(args: &ServeArgs) -> Self {
        Self {
            time: args.retention_time,
            size: args.retention_size,
        }
    }

    /// Returns the retention of a configuration, with the flags as defaults.
    pub(super) fn with(&self, config: &RetentionConfig) -> Retention {
        let size = config.size.unwrap_or(self.size);
        let percentage = config.percentage.unwrap_or_default();
        let default = if size > 0 || percentage > 0.0 {
            Duration::ZERO
        } else {
            Self::TIME_DEFAULT
        };
        Retention {
            time: config.time.or(self.time).unwrap_or(default),
            size,
            percentage,
        }
    }
}

impl Retention {
    /// Returns the maximum size of blocks and WAL, if there is one.
    #[must_use]
    pub fn size_limit(&self) -> Option<RetentionSize> {
        let bytes = Some(self.size as u64).filter(|&size| size > 0);
        if self.percentage > 0.0 {
            Some(RetentionSize::VolumePercent {
                percent: self.percentage,
                otherwise: bytes,
            })
        } else {
            bytes.map(RetentionSize::Bytes)
        }
    }
}

/// Returns the options of a store in a process that may use `memory`.
pub(super) fn store(
    args: &ServeArgs,
    memory: &Memory,
    config: &Config,
    features: Features,
) -> StoreOptions {
    StoreOptions {
        tsdb: tsdb(args, memory, config),
        ingest: write::limits(&args.ingest, memory.share(1, 1)),
        engine: query::engine(args, config, features),
        delta_to_cumulative: has_feature(args, DELTA_FEATURE),
        late_delta_max: args.ingest.late_delta_window,
    }
}

/// Returns the default memory of a replay, at most `share_max` bytes if possible. A process that was
/// killed for its memory must fit when it starts again with the same heads.
fn replay_memory(share_max: usize) -> usize {
    share_max.clamp(REPLAY_MEMORY_MIN_BYTES, REPLAY_MEMORY_BYTES)
}

fn tsdb(args: &ServeArgs, memory: &Memory, config: &Config) -> varve_tsdb::Options {
    varve_tsdb::Options {
        shards: or_default(args.shards, machine::shards),
        wal_logs: machine::cores().next_power_of_two().min(WAL_LOGS_MAX),
        wal_sync: match args.wal_sync {
            WalSync::Interval => varve_tsdb::WalSync::Interval,
            WalSync::Always => varve_tsdb::WalSync::Always,
            WalSync::Never => varve_tsdb::WalSync::Never,
        },
        wal_segment_size_bytes: WAL_SEGMENT_SIZE_BYTES,
        wal_replay_concurrency: or_default(args.wal_replay_concurrency, machine::cores),
        wal_replay_memory_bytes: or_default(args.wal_replay_memory, || {
            replay_memory(memory.share(1, 8))
        }),
        wal_replay_in_background: true,
        wal_on_corruption: match args.wal_on_corruption {
            OnCorruption::Quarantine => varve_tsdb::WalOnCorruption::Quarantine,
            OnCorruption::Refuse => varve_tsdb::WalOnCorruption::Refuse,
        },
        flush_interval: args.flush_interval,
        flush_size_bytes: or_default(args.flush_size, || memory.share(1, 8)),
        page_cache_size_bytes: or_default(args.page_cache_size, || memory.share(1, 16)),
        kept_selections_size_bytes: memory.share(1, 64),
        compaction_bytes_per_second: args.compaction_rate as u64,
        // `Reloader::open_store` sets them: a reload may change them.
        retention_ms: None,
        retention_size_bytes: None,
        out_of_order_window_ms: millis(config.storage.tsdb.out_of_order_time_window),
        in_order_max_age_ms: millis(config.storage.tsdb.in_order_max_age),
        ahead_max_ms: millis(config.storage.tsdb.ahead_max),
        exemplars_max: config.storage.exemplars.max_exemplars,
        exemplars_size_max_bytes: memory.share(1, 32),
        metadata_size_max_bytes: memory.share(1, 64).min(METADATA_SIZE_MAX_BYTES),
        head_size_max_bytes: or_default(args.head_max_memory, || memory.share(1, 2)),
        series_idle_ms: SERIES_IDLE_MS,
        series_stale_ms: SERIES_STALE_MS,
        verified: None,
        background: true,
        fs: Arc::new(RealFs),
        clock: Arc::new(SystemClock),
    }
}

/// Returns the settings of uploads, if they are enabled.
///
/// # Errors
/// If the configuration of the bucket is invalid, or the server has no external labels.
pub(super) fn uploads(args: &ServeArgs, config: &Config) -> Result<Option<UploadOptions>> {
    let Some(path) = &args.objstore.bucket else {
        return Ok(None);
    };
    external_labels(&config.global.external_labels)?;
    Ok(Some(UploadOptions {
        bucket: BucketConfig::load(path)?,
        data_dir: args.tsdb_path.clone(),
        interval: args.objstore.upload_interval,
        bytes_per_second: args.objstore.max_bandwidth as u64,
        local_retention_ms: args.objstore.local_retention.map(millis),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_takes_a_part_of_little_memory() {
        let mib = |n: usize| n << 20;
        for (limit, expect) in [(64, 16), (400, 50), (2048, 256), (65_536, 256)] {
            assert_eq!(replay_memory(mib(limit) / 8), mib(expect), "{limit} MiB");
        }
    }
}
