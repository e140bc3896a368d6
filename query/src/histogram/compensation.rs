//! Kahan compensation terms of a sum of histograms.

/// Compensation terms of the numbers of a summed histogram.
#[derive(Debug, Clone, Default)]
pub(super) struct Compensation {
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) zero_count: f64,
    /// One term per bucket.
    pub(super) positive: Vec<f64>,
    pub(super) negative: Vec<f64>,
}
