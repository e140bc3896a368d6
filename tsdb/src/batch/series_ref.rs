//! Series refs.

/// A series ref, as stored on disk: unique over all shards and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeriesRef(pub(crate) u64);
