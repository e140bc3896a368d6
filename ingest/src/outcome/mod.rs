//! What became of a write request.

mod exemplars;
mod rejects;

pub use exemplars::{ExemplarCounts, ExemplarRefusal};
pub use rejects::{Example, Reason, Reject, Rejects};

/// The outcome of a request that was not refused as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Written {
    /// Samples stored, floats and histograms, exact repetitions of stored ones included.
    pub samples_stored: u64,
    /// How many of them are histograms.
    pub histograms_stored: u64,
    /// Samples that rules have dropped, floats and histograms.
    pub samples_dropped: u64,
    /// How many of them are histograms.
    pub histograms_dropped: u64,
    /// Samples left out because another replica of their HA pair leads, floats and histograms.
    pub samples_left_out: u64,
    /// How many of them are histograms.
    pub histograms_left_out: u64,
    /// What became of exemplars. Those that make the answer a 400 are in `rejects` as well.
    pub exemplars: ExemplarCounts,
    /// What was not stored. Empty: the sender gets 204; else 400 with its text, since sending again cannot help.
    pub rejects: Rejects,
    /// What was not stored and does not make the answer a 400: metadata in remote write 2.0, which comes with every sample.
    pub ignored: Rejects,
}

impl Written {
    /// Adds what became of another part of the same body.
    pub(crate) fn add(&mut self, other: Self) {
        self.samples_stored += other.samples_stored;
        self.histograms_stored += other.histograms_stored;
        self.samples_dropped += other.samples_dropped;
        self.histograms_dropped += other.histograms_dropped;
        self.samples_left_out += other.samples_left_out;
        self.histograms_left_out += other.histograms_left_out;
        self.exemplars.add(&other.exemplars);
        self.rejects.merge(other.rejects);
        self.ignored.merge(other.ignored);
    }
}
