//! Samples on their way to a shard.

use std::sync::Arc;

use varve_model::histogram::Histogram;

/// A float sample of a series, or the index of an [`Extra`]. Small, because millions are in memory
/// at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoutedSample {
    /// Bits of the value, or the index of an [`Extra`].
    pub(crate) bits: u64,
    /// Slot of the series in the shard.
    pub(crate) slot: u32,
    /// Milliseconds after [`ShardBatch::base_ms`], or [`EXTRA`].
    pub(crate) offset_ms: u32,
}

/// Marks a sample that is an [`Extra`].
pub(crate) const EXTRA: u32 = u32::MAX;

/// A rare item that does not fit a [`RoutedSample`].
#[derive(Debug, Clone)]
pub(crate) enum Extra {
    /// A block contains all samples of the series logged so far.
    Evict,
    Sample(FullSample),
}

/// A sample with all of its fields.
#[derive(Debug, Clone)]
pub(crate) struct FullSample {
    pub(crate) timestamp_ms: i64,
    pub(crate) start_ms: i64,
    pub(crate) value: Value,
}

/// Samples of a shard, in log order.
#[derive(Debug)]
pub(crate) struct ShardBatch<'a> {
    pub(crate) items: &'a [RoutedSample],
    pub(crate) extras: &'a [Extra],
    pub(crate) base_ms: i64,
    pub(crate) is_out_of_order: bool,
}

/// Value of a sample.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Float(f64),
    Histogram(Arc<Histogram>),
}
