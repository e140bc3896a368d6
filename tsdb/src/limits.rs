//! Limits that several modules share.

/// Maximum number of shards of a store.
pub(crate) const SHARDS_MAX: usize = 256;
/// Maximum age in milliseconds of an in-order sample if out-of-order samples are disabled: half a
/// block, as in Prometheus.
pub(crate) const STRICT_MAX_AGE_MS: i64 = 3_600_000;
