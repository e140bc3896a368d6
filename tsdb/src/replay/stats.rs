//! Statistics of a replay.

use crate::head::Replayed;

/// Statistics of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Number of series defined.
    pub n_series: u64,
    /// Number of samples restored.
    pub n_samples: u64,
    /// Exemplars restored, including those evicted again by newer ones.
    pub n_exemplars: u64,
    /// Number of samples that were already present.
    pub n_repeated: u64,
    /// Samples dropped because an earlier one has another value for the same timestamp.
    pub n_conflicting: u64,
    /// Samples whose series is not defined: its definition is damaged, or was lost in a power cut.
    pub n_unknown_samples: u64,
    /// Exemplars whose series is not defined.
    pub n_unknown_exemplars: u64,
    /// Bytes truncated from the ends of segments: writes that were incomplete when the process
    /// ended.
    pub torn_bytes: u64,
    /// Bytes inside files that belong to no valid record. They were copied to the quarantine.
    pub damaged_bytes: u64,
    /// Frames missing according to the sequence numbers around them, including those in damaged
    /// bytes.
    pub n_missing_frames: u64,
    /// Segments and directories that are missing according to the names of the others: the number of
    /// gaps. Also segments without a header, whose samples are as unknown.
    pub n_file_gaps: u64,
    /// Damaged checkpoints. An older checkpoint was used instead, or the valid part of the damaged
    /// one.
    pub n_damaged_checkpoints: u64,
    /// Series known to be lost with a damaged checkpoint.
    pub n_lost_series: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Samples accepted during the replay and buffered until its end.
    pub n_buffered: u64,
    /// Buffered samples that the WAL already had.
    pub n_buffered_repeated: u64,
    /// Buffered samples dropped because an earlier one has another value for the same timestamp.
    pub n_buffered_conflicting: u64,
    /// Buffered samples whose timestamp would have been rejected after the replay. They are stored,
    /// because they were acknowledged.
    pub n_buffered_out_of_bounds: u64,
}

impl ReplayStats {
    /// Counts `n` samples with the result `replayed`.
    pub(crate) fn count(&mut self, replayed: Replayed, n: usize) {
        let n = n as u64;
        match replayed {
            Replayed::New(_) => self.n_samples += n,
            Replayed::Repeated => self.n_repeated += n,
            Replayed::Conflicting => self.n_conflicting += n,
        }
    }

    /// Returns `true` if acknowledged data may be lost. Torn tails were not acknowledged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damaged_bytes
            + self.n_missing_frames
            + self.n_file_gaps
            + self.n_damaged_checkpoints
            + self.n_unknown_samples
            + self.n_unknown_exemplars
            > 0
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.n_series += other.n_series;
        self.n_samples += other.n_samples;
        self.n_exemplars += other.n_exemplars;
        self.n_repeated += other.n_repeated;
        self.n_conflicting += other.n_conflicting;
        self.n_unknown_samples += other.n_unknown_samples;
        self.n_unknown_exemplars += other.n_unknown_exemplars;
        self.torn_bytes += other.torn_bytes;
        self.damaged_bytes += other.damaged_bytes;
        self.n_missing_frames += other.n_missing_frames;
        self.n_file_gaps += other.n_file_gaps;
        self.n_damaged_checkpoints += other.n_damaged_checkpoints;
        self.n_lost_series += other.n_lost_series;
        self.read_bytes += other.read_bytes;
        self.n_buffered += other.n_buffered;
        self.n_buffered_repeated += other.n_buffered_repeated;
        self.n_buffered_conflicting += other.n_buffered_conflicting;
        self.n_buffered_out_of_bounds += other.n_buffered_out_of_bounds;
    }
}
