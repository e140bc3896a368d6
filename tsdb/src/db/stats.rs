//! Statistics of an open store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use varve_env::RealFs;
use varve_env::damage::DamageReport;
use varve_env::volume::Volume;
use varve_model::TimeRange;

use crate::block::BlockMeta;
use crate::block::set::{check_in, metas_in};
use crate::block::tombstones;
use crate::compact::CompactionStats;
use crate::error::Result;
use crate::replay::ReplayStats;
use crate::select::KeptSelectionStats;
use crate::shard::exemplars::ExemplarStats;
use crate::store::Store;
use crate::store::family_table::MetadataStats;

/// Statistics of an open store.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Series in memory.
    pub n_series: u64,
    /// Number of label names of the series in memory.
    pub n_label_names: u64,
    /// Samples appended since the store was opened.
    pub n_appended: u64,
    /// Histograms among them.
    pub n_histograms_appended: u64,
    /// Approximate size of series and samples in memory in bytes.
    pub head_size_bytes: u64,
    /// The newest timestamp. `None` if there is none.
    pub newest_ms: Option<i64>,
    /// Bytes of log records that are not written yet.
    pub wal_pending_bytes: u64,
    /// Results of the replay at open. Zero until it ends.
    pub replayed: ReplayStats,
    /// Blocks and parts.
    pub n_blocks: u64,
    /// Size of their files in bytes.
    pub blocks_size_bytes: u64,
    /// Samples in them. A sample in several blocks counts for each.
    pub blocks_samples: u64,
    /// Bytes of values in `blocks_size_bytes`.
    pub blocks_values_bytes: u64,
    /// Bytes of timestamps in `blocks_size_bytes`.
    pub blocks_timestamps_bytes: u64,
    /// Bytes of indexes in `blocks_size_bytes`.
    pub blocks_index_bytes: u64,
    /// Blocks that are damaged or unreadable, and are not used.
    pub n_damaged_blocks: u64,
    /// Size of the files of the WAL in bytes. `None` if a directory cannot be read.
    pub wal_size_bytes: Option<u64>,
    /// The volume of the blocks, if its space is known.
    pub volume: Option<Volume>,
    /// Bytes of decoded pages in memory.
    pub page_cache_bytes: u64,
    /// Series lists of recent selections.
    pub kept_selections: KeptSelectionStats,
    /// Merges and retention.
    pub compaction: CompactionStats,
    /// Exemplars.
    pub exemplars: ExemplarStats,
    /// Metadata of metric families.
    pub metadata: MetadataStats,
    /// Panics of background tasks. The tasks start again each time.
    pub n_background_panics: u64,
}

/// Summary of a block or part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSummary {
    /// Its id. No other block of the store ever has it.
    pub number: u64,
    /// From the oldest to the newest sample.
    pub range: TimeRange,
    /// 0 for a part that a flush wrote, otherwise one more than the highest level of its sources.
    pub level: u8,
    /// The ids of the blocks that it was merged from.
    pub sources: Vec<u64>,
    /// Series.
    pub n_series: u64,
    /// Samples.
    pub n_samples: u64,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Bytes of values in `size_bytes`.
    pub values_bytes: u64,
    /// Bytes of timestamps in `size_bytes`.
    pub timestamps_bytes: u64,
    /// Bytes of the index in `size_bytes`.
    pub index_bytes: u64,
}

/// Size of a series in one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesCost {
    /// From its first to its last sample.
    pub range: TimeRange,
    /// Samples.
    pub n_samples: u64,
    /// Samples that are histograms.
    pub n_histograms: u64,
    /// Size of its values before pages are compressed. Timestamps, which series share, and the
    /// index are not included.
    pub values_bytes: u64,
}

impl BlockSummary {
    /// Lists the blocks and parts of a data directory whose index is sound, ascending by time, and
    /// the damage of the others. Reads no samples, takes no lock and changes nothing. A block that a
    /// running server removes meanwhile may be missing.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the directory cannot be listed, and
    /// [`Error::Version`](crate::Error::Version) if a block has a newer format.
    pub fn list(data_dir: &Path) -> Result<(Vec<Self>, DamageReport)> {
        let (metas, damage) = metas_in(&RealFs, data_dir)?;
        Ok((Self::in_order(&metas), damage))
    }

    /// Checks that all bytes of the blocks of a data directory are sound. Returns the number of sound
    /// blocks, and one entry for each damaged block. Takes no lock and changes nothing.
    ///
    /// # Errors
    /// The errors of [`BlockSummary::list`].
    pub fn check(data_dir: &Path) -> Result<(u64, DamageReport)> {
        check_in(&RealFs, data_dir)
    }

    /// Records damage of the tombstones of a data directory in `damage`. Takes no lock and
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if there are too many open files.
    /// [`Error::Version`](crate::Error::Version) if the tombstones have a newer format.
    pub fn check_delete_rules(data_dir: &Path, damage: &mut DamageReport) -> Result<()> {
        tombstones::check_in(Arc::new(RealFs), data_dir, damage)
    }

    pub(super) fn in_order(metas: &[BlockMeta]) -> Vec<Self> {
        let mut blocks: Vec<_> = metas.iter().map(Self::of).collect();
        blocks.sort_by_key(|block| (block.range.start_ms, block.range.end_ms, block.number));
        blocks
    }

    pub(super) fn of(meta: &BlockMeta) -> Self {
        Self {
            number: meta.origin.id.0,
            range: meta.range,
            level: meta.origin.level,
            sources: meta.origin.sources.iter().map(|id| id.0).collect(),
            n_series: meta.n_series,
            n_samples: meta.n_samples,
            size_bytes: meta.size,
            values_bytes: meta.values_size,
            timestamps_bytes: meta.timestamps_size,
            index_bytes: meta.index_size,
        }
    }
}

impl Stats {
    /// Collects the statistics that the store has.
    pub(super) fn of(store: &Store) -> Self {
        let mut stats = Stats {
            newest_ms: store.newest.get(),
            replayed: store.replay.stats(),
            n_damaged_blocks: store.blocks.damage().n_damaged(),
            wal_size_bytes: store.log_size().ok(),
            volume: store.options.fs.volume(store.blocks.dir()).ok(),
            page_cache_bytes: store.blocks.cache_size(),
            compaction: *store.compaction_stats.lock(),
            exemplars: store.exemplars.stats(),
            metadata: store.metadata.lock().stats(),
            n_label_names: store.head_totals.label_names.len() as u64,
            n_background_panics: store.n_background_panics.load(Ordering::Relaxed),
            ..Stats::default()
        };
        for shard in &store.shards {
            let head = shard.head();
            stats.n_series += head.len() as u64;
            stats.head_size_bytes += head.size() as u64;
        }
        stats.wal_pending_bytes = store
            .logs
            .iter()
            .map(|shared_log| shared_log.log().pending_size() as u64)
            .sum();
        for stored in store.blocks.list().iter() {
            let meta = stored.meta();
            stats.n_blocks += 1;
            stats.blocks_size_bytes += meta.size;
            stats.blocks_samples += meta.n_samples;
            stats.blocks_values_bytes += meta.values_size;
            stats.blocks_timestamps_bytes += meta.timestamps_size;
            stats.blocks_index_bytes += meta.index_size;
        }
        stats
    }
}
