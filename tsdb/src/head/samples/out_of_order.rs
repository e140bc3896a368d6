//! Out-of-order samples of one series: samples that were not newer than all earlier samples of the
//! series.
//!
//! They are sorted into a buffer. A full buffer is encoded into a chunk. Each sample keeps its
//! append id until every reader sees the sample.

use varve_collections::SlabChains;
use varve_model::{Sample, TimeRange};

use crate::chunk::Chunk;
use crate::head::copy::HeadCopies;
use crate::isolation::{ReadView, before};

/// Maximum number of samples in the buffer of one series.
pub(crate) const OUT_OF_ORDER_SAMPLES_MAX: usize = 120;

/// The out-of-order samples of a series.
#[derive(Debug, Default)]
pub(in crate::head) struct OutOfOrder {
    /// Ascending in time.
    buffer: Vec<OutOfOrderSample>,
    /// Chunks in the order in which they were closed. They may overlap, but no timestamp occurs
    /// twice.
    closed: Vec<Chunk>,
    /// Samples in closed chunks that some reader may not see.
    recent: Vec<(u32, i64)>,
}

#[derive(Debug, Clone, Copy)]
struct OutOfOrderSample {
    timestamp_ms: i64,
    bits: u64,
    append_id: u32,
}

impl OutOfOrder {
    /// Adds a sample at a new timestamp.
    pub(in crate::head) fn insert(
        &mut self,
        slabs: &mut SlabChains,
        sample: Sample,
        append_id: u32,
        horizon: u32,
    ) {
        if self.buffer.len() == OUT_OF_ORDER_SAMPLES_MAX {
            self.close(slabs, horizon);
        }
        let idx = self
            .buffer
            .partition_point(|out_of_order| out_of_order.timestamp_ms < sample.timestamp_ms);
        let out_of_order = OutOfOrderSample {
            timestamp_ms: sample.timestamp_ms,
            bits: sample.value.to_bits(),
            append_id,
        };
        self.buffer.insert(idx, out_of_order);
    }

    fn close(&mut self, slabs: &mut SlabChains, horizon: u32) {
        self.recent
            .retain(|&(append_id, _)| !before(append_id, horizon));
        let mut chunk = Chunk::default();
        for out_of_order in self.buffer.drain(..) {
            if !chunk.accepts(out_of_order.timestamp_ms) {
                self.closed.push(std::mem::take(&mut chunk));
            }
            chunk.append(
                slabs,
                Sample {
                    timestamp_ms: out_of_order.timestamp_ms,
                    value: f64::from_bits(out_of_order.bits),
                },
            );
            if !before(out_of_order.append_id, horizon) {
                self.recent
                    .push((out_of_order.append_id, out_of_order.timestamp_ms));
            }
        }
        self.closed.push(chunk);
    }

    /// Returns the bits of the sample at a timestamp.
    pub(in crate::head) fn bits_at(&self, slabs: &SlabChains, timestamp_ms: i64) -> Option<u64> {
        match self
            .buffer
            .binary_search_by_key(&timestamp_ms, |out_of_order| out_of_order.timestamp_ms)
        {
            Ok(idx) => Some(self.buffer[idx].bits),
            Err(_) => self
                .closed
                .iter()
                .find_map(|chunk| chunk.bits_at(slabs, timestamp_ms)),
        }
    }

    /// Copies the samples that overlap `range` and are visible in `view` (every sample is visible
    /// if it is `None`).
    pub(in crate::head) fn copy(
        &self,
        slabs: &SlabChains,
        range: TimeRange,
        view: Option<&ReadView>,
        out: &mut HeadCopies,
    ) {
        out.hide_none();
        if let Some(view) = view {
            for &(_, timestamp_ms) in self
                .recent
                .iter()
                .filter(|(append_id, _)| !view.sees(*append_id))
            {
                out.hide(TimeRange::at(timestamp_ms));
            }
        }
        for chunk in &self.closed {
            out.push_chunk(slabs, chunk, range);
        }
        let from = self
            .buffer
            .partition_point(|out_of_order| out_of_order.timestamp_ms < range.start_ms);
        let inside = self.buffer[from..]
            .iter()
            .take_while(|out_of_order| out_of_order.timestamp_ms <= range.end_ms);
        let seen =
            inside.filter(|out_of_order| view.is_none_or(|view| view.sees(out_of_order.append_id)));
        out.push_samples(seen.map(|out_of_order| Sample {
            timestamp_ms: out_of_order.timestamp_ms,
            value: f64::from_bits(out_of_order.bits),
        }));
    }

    /// Replaces the ids of appends that every reader sees by an id that stays before all future
    /// ids.
    pub(in crate::head) fn settle(&mut self, horizon: u32) {
        self.recent
            .retain(|&(append_id, _)| !before(append_id, horizon));
        for out_of_order in self
            .buffer
            .iter_mut()
            .filter(|out_of_order| before(out_of_order.append_id, horizon))
        {
            out_of_order.append_id = horizon.wrapping_sub(1);
        }
    }

    /// Returns the number of samples.
    pub(in crate::head) fn len(&self) -> usize {
        self.buffer.len() + self.closed.iter().map(Chunk::len).sum::<usize>()
    }

    /// Returns the size of the samples in bytes, without encoded samples.
    pub(in crate::head) fn size(&self) -> usize {
        self.buffer.capacity() * size_of::<OutOfOrderSample>()
            + self.closed.capacity() * size_of::<Chunk>()
            + self.recent.capacity() * size_of::<(u32, i64)>()
    }
}
