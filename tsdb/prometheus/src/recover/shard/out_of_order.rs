//! Samples that are out of order, until they are chunks.

use varve_model::TimeRange;

use super::chunk_log::series_chunk;
use super::sample::{FullSample, Value};
use super::shard::Shard;
use crate::chunk::Encoder;

/// Estimated size of an out-of-order sample in its collections, without its histogram.
const OUT_OF_ORDER_SIZE: usize = 2 * size_of::<FullSample>();

impl Shard {
    /// Adds a sample, which may have the timestamp of another one.
    pub(super) fn push_out_of_order(&mut self, slot: u32, sample: FullSample) {
        self.out_of_order_size += OUT_OF_ORDER_SIZE
            + if let Value::Histogram(it) = &sample.value {
                it.size()
            } else {
                0
            };
        self.newest_out_of_order_ms = self.newest_out_of_order_ms.max(sample.timestamp_ms);
        self.out_of_order.entry(slot).or_default().push(sample);
    }

    /// Drops the out-of-order samples of a series in a range that are in memory. Spilled ones stay.
    pub(super) fn delete_out_of_order(&mut self, slot: u32, range: TimeRange) {
        if let Some(samples) = self.out_of_order.get_mut(&slot) {
            let n_samples = samples.len();
            samples.retain(|sample| !range.contains(sample.timestamp_ms));
            self.n_deleted += (n_samples - samples.len()) as u64;
        }
    }

    /// Encodes out-of-order samples into chunks. Of two with the same timestamp, the first one
    /// wins.
    pub(super) fn end_out_of_order(&mut self) {
        for (slot, mut samples) in std::mem::take(&mut self.out_of_order) {
            samples.sort_by_key(|sample| sample.timestamp_ms);
            let n_samples = samples.len();
            samples.dedup_by_key(|sample| sample.timestamp_ms);
            self.n_repeated_out_of_order += (n_samples - samples.len()) as u64;
            let mut encoder = Encoder::new(self.start_timestamps);
            for sample in samples {
                sample.encode(&mut encoder);
            }
            let state = &mut self.states[slot as usize];
            for chunk in encoder.finish() {
                self.windows
                    .add(chunk.min_ms, chunk.max_ms, &mut state.windows);
                self.finished
                    .append(&mut state.last, &series_chunk(&chunk, true, false));
            }
        }
        self.out_of_order_size = 0;
    }
}
