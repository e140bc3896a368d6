//! Kernels for ranges with native histograms, alone or among floats.
//!
//! They run only for windows that have histograms; the kernels of floats know nothing of them.

pub(super) mod over_time;
pub(super) mod rate;

pub(crate) use rate::interpolate;
