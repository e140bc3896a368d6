//! The outcome of a write request: what was stored, dropped, deduplicated and rejected.

mod exemplars;
mod rejections;
mod series_sample;

use std::ops::AddAssign;

use varve_model::TimeRange;

pub use exemplars::{ExemplarCounts, ExemplarRejection};
pub use rejections::{Example, RejectionCount, Rejections};
pub use series_sample::{SeriesHash, SeriesSample};

/// The outcome of a request that did not fail as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Written {
    /// Samples stored, exact repetitions included.
    pub stored: SampleCounts,
    /// Samples that relabel rules dropped.
    pub dropped: SampleCounts,
    /// Samples of a standby replica of an HA pair.
    pub deduplicated: SampleCounts,
    /// Exemplars by outcome. Rejected exemplars that make the response a 400 are also in
    /// `rejections`.
    pub exemplars: ExemplarCounts,
    /// Rejected parts of the request. If there are none, the response is a success. Otherwise it is
    /// 400 with their text, since a retry cannot help.
    pub rejections: Rejections,
    /// Rejected parts that do not make the response a 400: metadata in remote write 2.0, which
    /// arrives with every sample.
    pub ignored: Rejections,
    /// The oldest and the newest timestamp of the floats whose time the store accepts.
    pub times: Option<TimeRange>,
    /// The replica of an HA pair that sent the request: `cluster/replica`.
    pub replica: Option<Box<str>>,
    /// Some of the series.
    pub series: SeriesSample,
    /// The data points of an OTLP request. `None` for other requests.
    pub points: Option<PointCounts>,
}

/// The data points of an OTLP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PointCounts {
    /// Data points in the request.
    pub sent: u64,
    /// Those of which at least one sample is not stored.
    pub rejected: u64,
}

/// The number of samples with one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCounts {
    /// Floats and histograms.
    pub total: u64,
    /// Histograms only.
    pub histograms: u64,
}

impl Written {
    /// Adds the outcome of another part of the same body.
    pub(crate) fn add(&mut self, other: Self) {
        self.stored += other.stored;
        self.dropped += other.dropped;
        self.deduplicated += other.deduplicated;
        self.exemplars.add(&other.exemplars);
        self.rejections.merge(other.rejections);
        self.ignored.merge(other.ignored);
        self.times = self
            .times
            .into_iter()
            .chain(other.times)
            .reduce(TimeRange::hull);
        self.replica = self.replica.take().or(other.replica);
        self.series.merge(other.series);
    }
}

impl SampleCounts {
    /// Creates the count of `total` floats and no histograms.
    #[must_use]
    pub fn floats(total: u64) -> Self {
        Self {
            total,
            histograms: 0,
        }
    }
}

impl AddAssign for SampleCounts {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.histograms += other.histograms;
    }
}
