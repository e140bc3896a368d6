//! Late samples of one series: those that were not newer than all before.
//!
//! They are sorted into a buffer; a full buffer is encoded into a chunk. Each carries its request while a reader may not
//! see it.

use super::copy::HeadCopies;
use super::visible::{Visible, before};
use crate::chunk::{Blocks, Chunk};
use crate::sample::{Sample, TimeRange};

/// Samples that the buffer of one series holds before it is closed into a chunk.
pub(crate) const LATE_SAMPLES_MAX: usize = 120;

/// A series' late samples.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Ascending in time.
    buffer: Vec<LateSample>,
    /// In the order in which they were closed; they may overlap. No timestamp occurs twice.
    closed: Vec<Chunk>,
    /// Samples in closed chunks that some reader may not see.
    recent: Vec<(u32, i64)>,
}

#[derive(Debug, Clone, Copy)]
struct LateSample {
    timestamp_ms: i64,
    bits: u64,
    request: u32,
}

impl Late {
    /// Adds a sample whose time is not there yet.
    pub(super) fn insert(&mut self, blocks: &mut Blocks, sample: Sample, request: u32, horizon: u32) {
        if self.buffer.len() == LATE_SAMPLES_MAX {
            self.close(blocks, horizon);
        }
        let at = self.buffer.partition_point(|late| late.timestamp_ms < sample.timestamp_ms);
        let late = LateSample { timestamp_ms: sample.timestamp_ms, bits: sample.value.to_bits(), request };
        self.buffer.insert(at, late);
    }

    fn close(&mut self, blocks: &mut Blocks, horizon: u32) {
        self.recent.retain(|&(request, _)| !before(request, horizon));
        let mut chunk = Chunk::default();
        for late in self.buffer.drain(..) {
            if !chunk.takes(late.timestamp_ms) {
                self.closed.push(std::mem::take(&mut chunk));
            }
            chunk.append(blocks, Sample { timestamp_ms: late.timestamp_ms, value: f64::from_bits(late.bits) });
            if !before(late.request, horizon) {
                self.recent.push((late.request, late.timestamp_ms));
            }
        }
        self.closed.push(chunk);
    }

    /// Returns the bits of the sample at a time, if there is one.
    pub(super) fn bits_at(&self, blocks: &Blocks, timestamp_ms: i64) -> Option<u64> {
        match self.buffer.binary_search_by_key(&timestamp_ms, |late| late.timestamp_ms) {
            Ok(at) => Some(self.buffer[at].bits),
            Err(_) => self.closed.iter().find_map(|chunk| chunk.bits_at(blocks, timestamp_ms)),
        }
    }

    /// Copies what reaches into a range and is visible (everything to whom `visible` is `None`).
    pub(super) fn copy(&self, blocks: &Blocks, range: TimeRange, visible: Option<&Visible>, out: &mut HeadCopies) {
        out.hide_none();
        if let Some(visible) = visible {
            for &(_, at) in self.recent.iter().filter(|(request, _)| !visible.sees(*request)) {
                out.hide(TimeRange { start_ms: at, end_ms: at });
            }
        }
        for chunk in &self.closed {
            out.push_chunk(blocks, chunk, range);
        }
        let from = self.buffer.partition_point(|late| late.timestamp_ms < range.start_ms);
        let inside = self.buffer[from..].iter().take_while(|late| late.timestamp_ms <= range.end_ms);
        let seen = inside.filter(|late| visible.is_none_or(|visible| visible.sees(late.request)));
        out.push_samples(seen.map(|late| Sample { timestamp_ms: late.timestamp_ms, value: f64::from_bits(late.bits) }));
    }

    /// Marks requests that every reader sees with one that stays before all to come.
    pub(super) fn settle(&mut self, horizon: u32) {
        self.recent.retain(|&(request, _)| !before(request, horizon));
        self.buffer.iter_mut().filter(|late| before(late.request, horizon)).for_each(|late| {
            late.request = horizon.wrapping_sub(1);
        });
    }

    /// Returns the bytes that the samples take besides encoded bytes.
    pub(super) fn size(&self) -> usize {
        self.buffer.capacity() * size_of::<LateSample>()
            + self.closed.capacity() * size_of::<Chunk>()
            + self.recent.capacity() * size_of::<(u32, i64)>()
    }
}
