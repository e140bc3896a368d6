//! Native histograms of PromQL: all counts are floats, and buckets are identified by index.
//!
//! ```text
//! stored Histogram -> from_storage (counter reset hints) -> FloatHistogram -> arithmetic, quantile, trim -> text, JSON
//! ```
//!
//! Used by `functions` and `eval`, which share histograms by [`std::sync::Arc`] and copy them
//! before changing them. Operations have the same order as in Prometheus' `model/histogram` and
//! `promql/quantile.go`, so results have the same bits.
//!
//! Invariants
//! 1. Histograms with custom buckets have neither a zero bucket nor negative buckets.
//! 2. Exponential schemas are at most 8.

mod float_histogram;

mod arithmetic;
mod bounds;
mod buckets;
pub(crate) mod from_storage;
mod mean;
mod quantile;
mod reset;
mod sum;
mod text;
mod trim;

pub use arithmetic::{Combined, MixedSchemas};
pub use float_histogram::{Bucket, FloatHistogram};
pub(crate) use mean::HistogramMean;
pub(crate) use quantile::NanEffect;
pub(crate) use sum::HistogramSum;
pub use text::print_stored;
pub(crate) use trim::Keep;
