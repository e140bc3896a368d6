//! Limits of the translation.

/// Maximum size of a resource, scope or data point. Decoded it takes up to forty times as much.
pub(crate) const DECODED_SIZE_MAX: usize = 1 << 20;
/// Maximum number of samples of `target_info` for one resource.
pub(crate) const TARGET_INFO_SAMPLES_MAX: i64 = 1_000;
