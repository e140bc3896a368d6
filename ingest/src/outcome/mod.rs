//! The outcome of a write request: what was stored, dropped, deduplicated and rejected.

mod exemplars;
mod rejects;

use std::ops::AddAssign;

pub use exemplars::{ExemplarCounts, ExemplarRejection};
pub use rejects::{Example, Reason, Reject, Rejects};

/// The outcome of a request that did not fail as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Written {
    /// Samples stored, exact repetitions included.
    pub stored: SampleCounts,
    /// Samples that relabel rules dropped.
    pub dropped: SampleCounts,
    /// Samples of an HA standby.
    pub deduplicated: SampleCounts,
    /// Exemplars. Those that make the response a 400 are in `rejects` too.
    pub exemplars: ExemplarCounts,
    /// What was not stored. If empty, the sender gets 204; else 400 with its text, since a retry cannot help.
    pub rejects: Rejects,
    /// What was not stored without making the response a 400: metadata in remote write 2.0, which comes with every sample.
    pub ignored: Rejects,
}

/// The number of samples with one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCounts {
    /// Floats and histograms.
    pub total: u64,
    /// The histograms among them.
    pub histograms: u64,
}

impl Written {
    /// Adds the outcome of another part of the same body.
    pub(crate) fn add(&mut self, other: Self) {
        self.stored += other.stored;
        self.dropped += other.dropped;
        self.deduplicated += other.deduplicated;
        self.exemplars.add(&other.exemplars);
        self.rejects.merge(other.rejects);
        self.ignored.merge(other.ignored);
    }
}

impl SampleCounts {
    /// Counts floats only.
    #[must_use]
    pub fn floats(total: u64) -> Self {
        Self { total, histograms: 0 }
    }
}

impl AddAssign for SampleCounts {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.histograms += other.histograms;
    }
}
