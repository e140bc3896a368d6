//! Data points that mark their series as stale.

use varve_model::staleness::STALE_NAN_BITS;

/// Returns `true` if a data point marks its series as stale.
pub(crate) fn is_stale(flags: u32) -> bool {
    flags & NO_RECORDED_VALUE != 0
}

/// Returns `value`, or the staleness marker if a data point marks its series as stale.
pub(crate) fn stale_or(flags: u32, value: f64) -> f64 {
    if is_stale(flags) {
        f64::from_bits(STALE_NAN_BITS)
    } else {
        value
    }
}

const NO_RECORDED_VALUE: u32 = 1;
