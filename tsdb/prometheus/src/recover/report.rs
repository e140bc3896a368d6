//! The report of a recovery.

use std::collections::BTreeMap;

use varve_env::damage::DamageReport;
use varve_env::sample_totals::SampleTotals;

use super::exemplars_and_metadata::ExemplarsAndMetadata;
use crate::block::BlockMeta;
use crate::wal::RecordType;

/// Maximum number of unknown series that are listed.
pub(crate) const UNKNOWN_SERIES_MAX: usize = 100_000;

/// The result of a recovery.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Damage in the files that were read.
    pub damage: DamageReport,
    /// The blocks that were written.
    pub blocks: Vec<BlockMeta>,
    /// End of the existing blocks, or of the truncated part of the WAL: earlier in-order samples
    /// are in blocks. `None` without either.
    pub covered_before_ms: Option<i64>,
    /// Bytes of WAL and WBL that were read.
    pub read_size: u64,
    /// Number of segments that were read, including the segments of the checkpoint.
    pub n_segments: u64,
    /// Number of the checkpoint.
    pub checkpoint: Option<u64>,
    /// Number of records by type.
    pub records: RecordCounts,
    /// Number of head chunks.
    pub n_head_chunks: u64,
    /// Number of series with a definition.
    pub n_series: u64,
    /// Number of in-order samples from the WAL.
    pub n_samples: u64,
    /// Number of out-of-order samples.
    pub n_out_of_order: u64,
    /// Number of samples that existing blocks cover.
    pub n_covered: u64,
    /// Number of samples not newer than the sample before: duplicates, and out-of-order samples,
    /// which are in the WBL as well. The blocks get those that a series does not have yet.
    pub n_not_newer: u64,
    /// Number of histograms with an unknown schema.
    pub n_unknown_schema: u64,
    /// Number of tombstones.
    pub n_tombstones: u64,
    /// Number of exemplars, which blocks do not store.
    pub n_exemplars: u64,
    /// Number of metadata entries, which blocks do not store.
    pub n_metadata: u64,
    /// Number of samples of unknown series, which have no definition.
    pub n_unknown_samples: u64,
    /// What became of the samples of WAL, WBL and head chunks. Those that were written are kept.
    pub totals: SampleTotals,
    /// The first hundred thousand unknown series, by ref.
    pub unknown_series: BTreeMap<u64, UnknownSeries>,
    /// Bytes spilled to disk.
    pub spilled_size: u64,
}

/// The result of importing the WAL, WBL and head chunks of a data directory.
#[derive(Debug)]
pub struct ImportedHead {
    /// The report of the recovery. It lists no blocks.
    pub report: Report,
    /// Number of blocks written.
    pub n_blocks: u64,
    /// Number of samples in them.
    pub n_samples: u64,
    /// What the blocks do not store.
    pub exemplars_and_metadata: ExemplarsAndMetadata,
}

/// Number of records by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordCounts([u64; RecordType::ALL.len()]);

impl RecordCounts {
    /// Counts a record.
    pub fn add(&mut self, record_type: RecordType) {
        self.0[record_type as usize - 1] += 1;
    }

    /// Adds the counts of `other`.
    pub(super) fn append(&mut self, other: &Self) {
        for (n, more) in self.0.iter_mut().zip(other.0) {
            *n += more;
        }
    }

    /// Iterates over the types with at least one record.
    pub fn iter(&self) -> impl Iterator<Item = (RecordType, u64)> + '_ {
        RecordType::ALL
            .into_iter()
            .zip(self.0)
            .filter(|(_, n)| *n > 0)
    }
}

/// An unknown series: the WAL has samples of it, but no definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSeries {
    /// Number of samples.
    pub n_samples: u64,
    /// Timestamp of the oldest sample.
    pub min_ms: i64,
    /// Timestamp of the newest sample.
    pub max_ms: i64,
}

/// Progress of a recovery.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The current phase.
    pub phase: RecoverPhase,
    /// Amount done: bytes of segments, or series of blocks.
    pub done: u64,
    /// Total amount of this phase.
    pub total: u64,
    /// Number of samples so far.
    pub n_samples: u64,
}

/// Phases of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoverPhase {
    /// Reading the WAL and WBL.
    Read,
    /// Writing blocks.
    Write,
}
