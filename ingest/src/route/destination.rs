//! Where the samples of a label set go, and the counters of the cache that remembers it.

use varve_model::RejectionReason;
use varve_tsdb::SeriesHandle;

use crate::relabel::Attribution;

/// The outcome for the samples of a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Stored in a series.
    Series(SeriesHandle, Attribution),
    /// Dropped by relabel rules.
    Dropped(Attribution),
    /// Deduplicated, because another replica of the HA pair leads. Never cached, since leaders
    /// change.
    Standby,
    /// Rejected.
    Rejected(RejectionReason),
}

/// Counters of the route cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Look-ups that found a route.
    pub hits: u64,
    /// Look-ups that found no route.
    pub misses: u64,
    /// Evicted routes.
    pub evicted: u64,
    /// Cached routes.
    pub entries: u64,
    /// Bytes of memory.
    pub size_bytes: u64,
}
