//! [`Limit`]: which limit a request exceeded.

use std::fmt;
use std::sync::OnceLock;

/// A limit that a request may exceed. Code that reacts to a limit compares this, not its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    // Memory.
    /// Memory of one query.
    QueryMemory,
    /// Memory of all queries together. The same query may succeed when others have ended.
    QueryMemoryTotal,
    /// Memory of the process.
    ProcessMemory,
    /// Memory of the evaluation of rules.
    RulesMemory,
    /// The part of it for templates, and for alerts and errors that rules keep.
    RulesAlertMemory,
    /// Memory of write requests.
    WritesMemory,
    /// Memory of a write request while no other is active.
    LoneWriteMemory,
    /// Memory of the head of a shard.
    HeadMemory,
    /// Memory of all queries of a tenant.
    TenantMemory,

    // Reads.
    /// Samples that a request of a tenant reads.
    TenantSamples,
    /// Length of the time that a selector of a tenant reads.
    TenantRange,
    /// Samples that a query holds at once.
    QuerySamples,
    /// Series that a request for metadata visits.
    MetadataSeries,

    // Write requests.
    /// Bytes of a body as received.
    BodySize,
    /// Bytes of a decompressed body.
    DecompressedSize,
    /// Bytes of the label sets of a request with resolved symbols.
    ResolvedSize,
    /// Bytes of a decompressed import.
    ImportSize,
    /// Duration of an import.
    ImportTime,
    /// Series of a request.
    SeriesPerRequest,
    /// Samples, exemplars or symbols of a request.
    SamplesPerRequest,
    /// Labels of a series.
    LabelsPerSeries,
    /// Bytes of a label value.
    LabelValueSize,
    /// Age of a sample that is the newest of its series.
    InOrderAge,
    /// Age of a sample that is not the newest of its series.
    OutOfOrderWindow,
    /// Time of a sample ahead of the clock.
    AheadOfClock,
    /// Label names of the series in memory.
    LabelNames,
    /// Series of a metric in memory.
    SeriesPerMetric,
    /// Requests that create series at the same time.
    SeriesCreation,
    /// Active series of a team.
    TeamSeries,
    /// Active series of all teams.
    TotalSeries,
    /// Series that a team creates per second.
    TeamNewSeries,
    /// Series that all teams create per second.
    TotalNewSeries,
    /// Samples of a team per second.
    TeamSampleRate,
    /// Samples of all teams per second.
    TotalSampleRate,

    // Rules.
    /// Alerts of all rules.
    Alerts,

    /// A limit that nobody sets and to which no code reacts, by its name: that of a format, or of
    /// one place in the code.
    Other(&'static str),
}

/// How a program calls the limits that it lets people set, such as by the names of its flags.
pub type LimitNames = fn(Limit) -> Option<&'static str>;

/// The names of the program. Like a logger they belong to the process, since errors of all crates
/// name limits.
static NAMES: OnceLock<LimitNames> = OnceLock::new();

impl From<&'static str> for Limit {
    fn from(name: &'static str) -> Self {
        Self::Other(name)
    }
}

impl Limit {
    /// Sets how errors and metrics of this process call limits. The first call wins. Without one,
    /// and where `names` has none, they say in plain words what is limited.
    pub fn set_names(names: LimitNames) {
        // Fails if the names are already set, as in tests.
        let _first_stands = NAMES.set(names);
    }

    /// Returns the name in errors and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        let given = NAMES.get().and_then(|names| names(self));
        given.unwrap_or(match self {
            Self::QueryMemory => "memory of a query",
            Self::QueryMemoryTotal => "memory of all queries",
            Self::ProcessMemory => "memory of the process",
            Self::RulesMemory => "memory of rules",
            Self::RulesAlertMemory => "memory that rules keep",
            Self::WritesMemory => "memory of write requests",
            Self::LoneWriteMemory => "memory of a write request",
            Self::HeadMemory => "bytes in the head of a shard",
            Self::TenantMemory => "memory of a tenant",
            Self::TenantSamples => "samples of a tenant",
            Self::TenantRange => "time range of a tenant",
            Self::QuerySamples => "samples of a query",
            Self::MetadataSeries => "series of a request for metadata",
            Self::BodySize => "size of a body",
            Self::DecompressedSize => "decompressed size of a body",
            Self::ResolvedSize => "size of label sets",
            Self::ImportSize => "decompressed size of an import",
            Self::ImportTime => "duration of an import",
            Self::SeriesPerRequest => "series of a write request",
            Self::SamplesPerRequest => "samples of a write request",
            Self::LabelsPerSeries => "the maximum of labels",
            Self::LabelValueSize => "the maximum size",
            Self::InOrderAge => "the maximum age in order",
            Self::OutOfOrderWindow => "the out-of-order window",
            Self::AheadOfClock => "the maximum time ahead of the clock",
            Self::LabelNames => "label names in memory",
            Self::SeriesPerMetric => "series of a metric",
            Self::SeriesCreation => "requests that create series",
            Self::TeamSeries => "active series of a team",
            Self::TotalSeries => "active series of all teams",
            Self::TeamNewSeries => "new series of a team per second",
            Self::TotalNewSeries => "new series per second",
            Self::TeamSampleRate => "samples of a team per second",
            Self::TotalSampleRate => "samples per second",
            Self::Alerts => "alerts of all rules",
            Self::Other(name) => name,
        })
    }

    /// Returns `true` for a limit on the memory that a query holds, alone or with others.
    #[must_use]
    pub fn is_memory_of_queries(self) -> bool {
        matches!(
            self,
            Self::QueryMemory | Self::QueryMemoryTotal | Self::ProcessMemory | Self::TenantMemory
        )
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
