//! Kernels for windows that contain native histograms, with or without floats.
//!
//! They run only for windows that have histograms. The kernels for floats do not handle histograms.

pub(super) mod extended;
pub(super) mod over_time;
pub(super) mod rate;

pub(crate) use extended::interpolate;
