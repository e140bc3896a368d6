//! Samples on their way to a shard.

use std::sync::Arc;

use varve_model::histogram::Histogram;
use varve_model::{Sample, TimeRange};

use crate::chunk::Encoder;

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
    /// Drops the out-of-order samples of the WAL so far in a range that ends before the end of the
    /// blocks. Spilled ones stay.
    Delete(TimeRange),
    Sample(FullSample),
}

/// A sample with all of its fields.
#[derive(Debug, Clone)]
pub(crate) struct FullSample {
    pub(crate) timestamp_ms: i64,
    pub(crate) start_ms: i64,
    pub(crate) value: Value,
}

impl FullSample {
    /// Appends the sample to the chunks of `encoder`.
    pub(super) fn encode(self, encoder: &mut Encoder) {
        let Self {
            timestamp_ms,
            start_ms,
            value,
        } = self;
        match value {
            Value::Float(value) => encoder.push(
                Sample {
                    timestamp_ms,
                    value,
                },
                start_ms,
            ),
            Value::Histogram(histogram) => {
                encoder.push_histogram(timestamp_ms, histogram, start_ms)
            }
        }
    }
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
