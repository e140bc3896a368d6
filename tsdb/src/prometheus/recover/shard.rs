//! A worker's share of the series.

use std::sync::Arc;

use super::part::{Part, SpillFile};
use super::series_state::{LATE_SAMPLE_SIZE, Outcome, SeriesState, Value};
use crate::error::Result;
use crate::histogram::Histogram;
use crate::prometheus::chunk::StartTimes;
use crate::prometheus::head_chunks::HeadChunk;

/// A sample on its way to its series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) timestamp_ms: i64,
    /// The value of a float.
    pub(super) bits: u64,
    /// The series' place in the shard.
    pub(super) slot: u32,
    /// 0: a float without a start; [`FORGET`]; else one more than the place of an [`Extra`].
    pub(super) extra: u32,
}

/// Says that all that was logged of the series before this is in a block.
pub(super) const FORGET: u32 = u32::MAX;

/// What few samples have.
#[derive(Debug, Clone)]
pub(super) struct Extra {
    pub(super) start_ms: i64,
    pub(super) histogram: Option<Arc<Histogram>>,
}

/// Samples for a shard, in the order of the log.
#[derive(Debug)]
pub(super) struct Share<'a> {
    pub(super) items: &'a [Item],
    pub(super) extras: &'a [Extra],
    pub(super) is_late: bool,
}

/// Some of the series, with what was gathered of them.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) states: Vec<SeriesState>,
    pub(super) file: SpillFile,
    starts: StartTimes,
    /// Bytes in memory that can be moved to the file.
    memory: usize,
    pub(super) n_taken: u64,
    pub(super) n_late: u64,
    pub(super) n_not_newer: u64,
}

impl Shard {
    pub(super) fn new(file: SpillFile, starts: StartTimes) -> Self {
        Self { states: Vec::new(), file, starts, memory: 0, n_taken: 0, n_late: 0, n_not_newer: 0 }
    }

    /// Makes room for a new series.
    pub(super) fn push_series(&mut self) {
        self.states.push(SeriesState::new(self.starts));
    }

    /// Returns the bytes that [`Shard::spill`] would move.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Gives the samples to their series.
    pub(super) fn apply(&mut self, share: &Share<'_>, head: &[HeadChunk], valid_from_ms: i64) {
        for item in share.items {
            let state = &mut self.states[item.slot as usize];
            if item.extra == FORGET {
                state.forget();
                continue;
            }
            let extra = (item.extra as usize).checked_sub(1).map(|place| &share.extras[place]);
            let start_ms = extra.map_or(0, |extra| extra.start_ms);
            let value = match extra.and_then(|extra| extra.histogram.as_ref()) {
                Some(histogram) => Value::Histogram(Arc::clone(histogram)),
                None => Value::Float(f64::from_bits(item.bits)),
            };
            if share.is_late {
                self.n_late += 1;
                self.memory += LATE_SAMPLE_SIZE + if let Value::Histogram(it) = &value { it.size() } else { 0 };
                state.push_late(item.timestamp_ms, start_ms, value);
                continue;
            }
            let n_parts = state.parts.len();
            match state.push(item.timestamp_ms, start_ms, &value, head, valid_from_ms) {
                Outcome::Taken => self.n_taken += 1,
                Outcome::NotNewer => self.n_not_newer += 1,
            }
            self.memory += state.parts[n_parts..].iter().map(Part::size).sum::<usize>();
        }
    }

    /// Moves all finished chunks, and what came late, to the file.
    pub(super) fn spill(&mut self) -> Result<()> {
        for state in &mut self.states {
            state.close_late();
            for part in &mut state.parts {
                self.file.spill(part)?;
            }
        }
        self.memory = 0;
        self.file.flush()
    }

    /// Ends all chunks.
    pub(super) fn finish(&mut self, head: &[HeadChunk], valid_from_ms: i64) {
        self.states.iter_mut().for_each(|state| state.finish(head, valid_from_ms));
    }
}
