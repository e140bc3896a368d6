//! Limits of buckets, and the unit that sizes are given in.

/// A mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// Maximum number of objects that one call lists.
pub(crate) const LISTED_MAX: usize = 1_000_000;

/// Maximum number of empty pages of a list in a row.
pub(crate) const EMPTY_PAGES_MAX: usize = 100;
