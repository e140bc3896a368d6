//! [`Limit`]: which limit a request exceeded.

use std::fmt;

/// A limit that a request may exceed. Code that reacts to a limit compares this, not its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Memory of one query.
    QueryMemory,
    /// Memory of all queries together. The same query may succeed when others have ended.
    QueryMemoryTotal,
    /// Memory of the process.
    ProcessMemory,
    /// Memory of the evaluation of rules.
    RulesMemory,
    /// Memory of write requests.
    WritesMemory,
    /// Memory of all queries of a tenant.
    TenantMemory,
    /// Samples that a request of a tenant reads.
    TenantSamples,
    /// Length of the time that a selector of a tenant reads.
    TenantRange,
    /// Samples that a query holds at once.
    QuerySamples,
    /// Series that a request for metadata visits.
    MetadataSeries,
    /// A limit to which no code reacts, by its name: that of a format, or of one place in the code.
    Other(&'static str),
}

impl Limit {
    /// Returns the name in errors and metrics: the flag or the key that sets the limit, if there is
    /// one.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::QueryMemory => "--query.max-memory",
            Self::QueryMemoryTotal => "--query.max-memory-total",
            Self::ProcessMemory => "--memory.refuse-at",
            Self::RulesMemory => "--rules.max-memory-total",
            Self::WritesMemory => "--ingest.bytes-in-flight-max",
            Self::TenantMemory => "tenants.limits.memory",
            Self::TenantSamples => "tenants.limits.samples",
            Self::TenantRange => "tenants.limits.range",
            Self::QuerySamples => "--query.max-samples",
            Self::MetadataSeries => "--query.max-metadata-series",
            Self::Other(name) => name,
        }
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
