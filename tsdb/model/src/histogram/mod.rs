//! Native histograms.
//!
//! The fields have the same meaning as in Prometheus' `prompb/types.proto` and `model/histogram`.
//! The store does not interpret them.

mod native_histogram;
mod validate;

pub use native_histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts,
    ResetHint, all_same, same,
};
pub use validate::InvalidHistogram;
