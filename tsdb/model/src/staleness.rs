//! The staleness marker.

/// The NaN that marks the end of a series (Prometheus `model/value`, StaleNaN).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Returns `true` if a value is the staleness marker. Other NaNs are ordinary values.
#[must_use]
pub fn is_stale_nan(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}
