//! What a recovery found, kept and lost.

use std::collections::BTreeMap;

use varve_tsdb::fs::damage::DamageReport;

use crate::block::BlockMeta;
use crate::wal::RecordType;

/// Most series that are listed because their definition is lost.
pub(super) const LOST_SERIES_MAX: usize = 100_000;

/// What a recovery found, kept and lost.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What is damaged, and where.
    pub damage: DamageReport,
    /// The blocks that were written.
    pub blocks: Vec<BlockMeta>,
    /// Samples before that time are in blocks already; `None` without blocks.
    pub covered_before_ms: Option<i64>,
    /// Bytes of logs that were read.
    pub read_size: u64,
    /// Segments that were read, those of the checkpoint included.
    pub n_segments: u64,
    /// The number of the checkpoint.
    pub checkpoint: Option<u64>,
    /// Records by type.
    pub records: RecordCounts,
    /// Chunks found in head chunk files.
    pub n_head_chunks: u64,
    /// Series with a definition.
    pub n_series: u64,
    /// Samples in order that were taken from the log.
    pub n_samples: u64,
    /// Late samples that were taken.
    pub n_late_samples: u64,
    /// Samples that blocks cover.
    pub n_covered: u64,
    /// Samples that were not newer than the one before: repeated ones, and late ones, which the other log has.
    pub n_not_newer: u64,
    /// Histograms whose resolution is not known.
    pub n_unknown_schema: u64,
    /// Deletions that were applied.
    pub n_tombstones: u64,
    /// Exemplars, which blocks do not hold.
    pub n_exemplars: u64,
    /// Series with metadata, which blocks do not hold.
    pub n_metadata: u64,
    /// Samples of series without a definition.
    pub n_unknown_samples: u64,
    /// These series, by number; the first hundred thousand.
    pub unknown_series: BTreeMap<u64, LostSeries>,
    /// Bytes that did not fit in memory.
    pub spilled_size: u64,
}

/// Records by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordCounts([u64; RecordType::ALL.len()]);

impl RecordCounts {
    /// Counts a record.
    pub fn add(&mut self, record_type: RecordType) {
        self.0[record_type as usize - 1] += 1;
    }

    /// Adds all of `other`.
    pub(super) fn append(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(n, more)| *n += more);
    }

    /// Iterates over the types that there are.
    pub fn iter(&self) -> impl Iterator<Item = (RecordType, u64)> + '_ {
        RecordType::ALL.into_iter().zip(self.0).filter(|(_, n)| *n > 0)
    }
}

/// What is known of a series whose definition is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSeries {
    /// Samples.
    pub n_samples: u64,
    /// Of the oldest sample.
    pub min_ms: i64,
    /// Of the newest sample.
    pub max_ms: i64,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// How much of it is done, in bytes of logs or in series of blocks.
    pub done: u64,
    /// How much there is.
    pub total: u64,
    /// Samples so far.
    pub n_samples: u64,
}

/// The steps of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Logs are read.
    Read,
    /// Blocks are written.
    Write,
}
