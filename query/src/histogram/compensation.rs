//! Kahan compensation for the numbers of a histogram.

/// The compensations of a histogram's sums.
#[derive(Debug, Clone, Default)]
pub(super) struct Compensation {
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) zero_count: f64,
    /// One per bucket.
    pub(super) positive: Vec<f64>,
    pub(super) negative: Vec<f64>,
}
