//! A worker's share of the series, with what was gathered of each: chunks that grow, chunks that are ended, late samples.
//!
//! Invariants
//! 1. No chunk crosses a boundary of [`WINDOW_MS`](super::WINDOW_MS), but for head chunks and late ones.
//! 2. Samples of a series in order ascend in time, those of its head chunks included.
//! 3. What is moved to the file when memory is short changes no sample: chunks that end for it are marked as cut.
//!
//! Threads: a shard is changed by one worker at a time.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use varve_tsdb::collections::Column;
use varve_tsdb::histogram::Histogram;
use varve_tsdb::{Result, Sample, TimeRange};

use super::chunk_log::{ChunkLog, ChunkRef, Part, PartBytes};
use super::scratch::ScratchFile;
use super::windows::{WindowSet, Windows, range_of, window_of};
use crate::chunk::{Chunk, Encoder, Encoding, GrowingChunk, GrowingChunks, StartTimes};
use crate::head_chunks::{HeadChunk, HeadChunkFiles};

/// A float on its way to its series, or something else, whose place is named: millions are on their way at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// The value, as bits; the place of an [`Extra`], if `step_ms` says so.
    pub(super) bits: u64,
    /// The series' place in the shard.
    pub(super) slot: u32,
    /// Milliseconds behind [`Share::base_ms`]; [`EXTRA`]: not a float, or not so near.
    pub(super) step_ms: u32,
}

/// Says that an item is an [`Extra`].
pub(super) const EXTRA: u32 = u32::MAX;

/// What few items are.
#[derive(Debug, Clone)]
pub(super) enum Extra {
    /// All that was logged of the series before this is in a block.
    Forget,
    Sample(FullSample),
}

/// A sample with all that it may have.
#[derive(Debug, Clone)]
pub(super) struct FullSample {
    pub(super) timestamp_ms: i64,
    pub(super) start_ms: i64,
    pub(super) value: Value,
}

/// Samples for a shard, in the order of the log.
#[derive(Debug)]
pub(super) struct Share<'a> {
    pub(super) items: &'a [Item],
    pub(super) extras: &'a [Extra],
    pub(super) base_ms: i64,
    pub(super) is_late: bool,
}

/// The value of a sample.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Float(f64),
    Histogram(Arc<Histogram>),
}

/// The head chunks of all series, and since when they count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) chunks: &'a [HeadChunk],
    pub(super) valid_from_ms: i64,
}

/// One series.
#[derive(Debug)]
struct SeriesState {
    /// The time of the last sample in order, and the chunk that grows, if it is one of floats without starts.
    growing: GrowingChunk,
    /// The last chunk that is ended.
    last: ChunkRef,
    windows: WindowSet,
    /// The chunk that grows is another one: it is in [`Shard::others`].
    is_other: bool,
    /// There are head chunks that were not reached yet.
    has_head: bool,
}

impl SeriesState {
    const NEW: Self = Self {
        growing: GrowingChunk::behind(i64::MIN),
        last: ChunkRef::NONE,
        windows: WindowSet::EMPTY,
        is_other: false,
        has_head: false,
    };
}

/// What was found of a series, but for its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) min_ms: i64,
    pub(super) max_ms: i64,
    pub(super) n_samples: u32,
    pub(super) encoding: Encoding,
    pub(super) is_late: bool,
    pub(super) is_cut: bool,
    pub(super) place: Place,
}

/// Where the bytes of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It still grows; the time of its first sample is not known before it is read.
    Growing,
    Ended(ChunkRef),
    /// In a file of head chunks, by the chunk's place in the list.
    Head(u32),
}

/// Some of the series.
#[derive(Debug)]
pub(super) struct Shard {
    states: Column<SeriesState>,
    growing: GrowingChunks,
    ended: ChunkLog,
    /// Chunks that grow of histograms, and of samples with starts, by slot.
    others: HashMap<u32, Box<Encoder>>,
    late: HashMap<u32, Vec<FullSample>>,
    late_size: usize,
    /// By slot, the head chunks that were not reached yet, by their places; empty if there are none at all.
    head: Vec<Range<u32>>,
    starts: StartTimes,
    pub(super) windows: Windows,
    /// The newest late sample.
    newest_late_ms: i64,
    pub(super) n_taken: u64,
    pub(super) n_late: u64,
    pub(super) n_not_newer: u64,
}

/// Samples whose series are brought into the processor's cache at once.
const TOUCHED_LEN: usize = 64;
/// Bytes of a late sample, without its histogram, and of what stands around it.
const LATE_SIZE: usize = 2 * size_of::<FullSample>();
/// Bytes that a chunk in [`Shard::others`] takes, more or less.
const OTHER_SIZE: usize = 2048;
/// Bytes of a series, whatever was gathered of it.
pub(super) const SERIES_SIZE: usize = size_of::<SeriesState>() + size_of::<Range<u32>>();

impl Shard {
    pub(super) fn new(file: ScratchFile, starts: StartTimes) -> Self {
        Self {
            states: Column::default(),
            growing: GrowingChunks::default(),
            ended: ChunkLog::new(file),
            others: HashMap::new(),
            late: HashMap::new(),
            late_size: 0,
            head: Vec::new(),
            starts,
            windows: Windows::default(),
            newest_late_ms: i64::MIN,
            n_taken: 0,
            n_late: 0,
            n_not_newer: 0,
        }
    }

    /// Makes room for so many series.
    pub(super) fn grow(&mut self, n_series: usize) {
        while self.states.len() < n_series {
            self.states.push(SeriesState::NEW);
        }
    }

    /// Returns the bytes that [`Shard::spill`] would move.
    pub(super) fn memory(&self) -> usize {
        self.growing.size() + self.ended.memory() + self.others.len() * OTHER_SIZE + self.late_size
    }

    /// Returns the bytes that were moved.
    pub(super) fn spilled_size(&self) -> u64 {
        self.ended.spilled_size()
    }

    /// Returns the time of the newest sample.
    pub(super) fn newest_ms(&self) -> i64 {
        self.states.iter().map(|state| state.growing.last_ms()).max().unwrap_or(i64::MIN).max(self.newest_late_ms)
    }

    /// Gives the samples to their series.
    pub(super) fn apply(&mut self, share: &Share<'_>, head: Head<'_>) {
        for items in share.items.chunks(TOUCHED_LEN) {
            // Their series are brought into the processor's cache all at once, instead of waiting for one after the other.
            let touch = |sum, item: &Item| sum ^ self.states[item.slot as usize].growing.last_ms();
            std::hint::black_box(items.iter().fold(0, touch));
            self.apply_some(items, share, head);
        }
    }

    fn apply_some(&mut self, items: &[Item], share: &Share<'_>, head: Head<'_>) {
        // Samples that come together are mostly of one window: it is looked for when it changes, not for each of them.
        let mut window = TimeRange { start_ms: i64::MAX, end_ms: i64::MIN };
        for item in items {
            let timestamp_ms = share.base_ms.wrapping_add(i64::from(item.step_ms));
            if !(window.start_ms..=window.end_ms).contains(&timestamp_ms) {
                window = range_of(window_of(timestamp_ms));
            }
            let state = &mut self.states[item.slot as usize];
            let last_ms = state.growing.last_ms();
            let is_simple = item.step_ms != EXTRA && !(share.is_late || state.has_head);
            // Fast path: a float that goes on a chunk of its window. A chunk with samples is none of head chunks before it.
            if is_simple && state.growing.takes_more() && timestamp_ms > last_ms && last_ms >= window.start_ms {
                let sample = Sample { timestamp_ms, value: f64::from_bits(item.bits) };
                state.growing.push(&mut self.growing, sample);
                self.n_taken += 1;
                continue;
            }
            // Fast path: a float that head chunks have already.
            if is_simple && timestamp_ms <= last_ms {
                self.n_not_newer += 1;
                continue;
            }
            self.apply_slowly(item, share, head);
        }
    }

    fn apply_slowly(&mut self, item: &Item, share: &Share<'_>, head: Head<'_>) {
        let &Item { bits, slot, step_ms } = item;
        let sample = match step_ms {
            EXTRA => match &share.extras[bits as usize] {
                Extra::Forget => return self.forget(slot),
                Extra::Sample(sample) => sample.clone(),
            },
            _ => {
                let timestamp_ms = share.base_ms.wrapping_add(i64::from(step_ms));
                FullSample { timestamp_ms, start_ms: 0, value: Value::Float(f64::from_bits(bits)) }
            }
        };
        if share.is_late {
            self.n_late += 1;
            return self.push_late(slot, sample);
        }
        match self.push(slot, sample, head) {
            true => self.n_taken += 1,
            false => self.n_not_newer += 1,
        }
    }

    /// Appends a sample of the log; false if it is not newer than the last one.
    fn push(&mut self, slot: u32, sample: FullSample, head: Head<'_>) -> bool {
        let FullSample { timestamp_ms, start_ms, value } = sample;
        if self.states[slot as usize].has_head {
            self.take_head_chunks(slot, timestamp_ms, head);
        }
        let state = &self.states[slot as usize];
        let last_ms = state.growing.last_ms();
        if timestamp_ms <= last_ms {
            return false;
        }
        let is_plain = matches!(value, Value::Float(_)) && self.starts == StartTimes::Dropped;
        let goes_on = match is_plain {
            true => state.growing.takes_more(),
            false => state.is_other,
        };
        if !goes_on || window_of(timestamp_ms) != window_of(last_ms) {
            self.end(slot, false);
        }
        let state = &mut self.states[slot as usize];
        self.windows.add(timestamp_ms, timestamp_ms, &mut state.windows);
        match value {
            Value::Float(value) if is_plain => state.growing.push(&mut self.growing, Sample { timestamp_ms, value }),
            value => self.push_other(slot, timestamp_ms, start_ms, value),
        }
        true
    }

    fn push_other(&mut self, slot: u32, timestamp_ms: i64, start_ms: i64, value: Value) {
        let state = &mut self.states[slot as usize];
        state.is_other = true;
        state.growing.pass(timestamp_ms);
        let encoder = self.others.entry(slot).or_insert_with(|| Box::new(Encoder::new(self.starts)));
        match value {
            Value::Float(value) => encoder.push(Sample { timestamp_ms, value }, start_ms),
            Value::Histogram(histogram) => encoder.push_histogram(timestamp_ms, histogram, start_ms),
        }
        if encoder.has_finished() {
            encoder.drain().for_each(|chunk| self.ended.append(&mut state.last, &part_of(&chunk, false, false)));
        }
    }

    fn push_late(&mut self, slot: u32, sample: FullSample) {
        self.late_size += LATE_SIZE + if let Value::Histogram(it) = &sample.value { it.size() } else { 0 };
        self.newest_late_ms = self.newest_late_ms.max(sample.timestamp_ms);
        self.late.entry(slot).or_default().push(sample);
    }

    /// Goes on with the head chunks of one more number of a series. Late ones are taken at once.
    pub(super) fn add_head_chunks(&mut self, slot: u32, places: Range<usize>, head: Head<'_>) {
        if places.is_empty() {
            return;
        }
        self.take_head_chunks(slot, i64::MAX, head);
        for place in places.clone().filter(|&place| head.chunks[place].is_late) {
            self.newest_late_ms = self.newest_late_ms.max(head.chunks[place].max_ms);
            self.append_head_chunk(slot, place, head, true);
        }
        self.head.resize(self.states.len(), 0..0);
        // Places are 32 bits in all that names them: that many chunks are more than memory holds.
        self.head[slot as usize] = places.start as u32..places.end as u32;
        self.states[slot as usize].has_head = true;
    }

    /// Takes the head chunks of a series that begin at `until_ms` or before.
    fn take_head_chunks(&mut self, slot: u32, until_ms: i64, head: Head<'_>) {
        while self.states[slot as usize].has_head {
            let places = &mut self.head[slot as usize];
            let Some(place) = places.next() else {
                self.states[slot as usize].has_head = false;
                return;
            };
            let chunk = &head.chunks[place as usize];
            if !chunk.is_late && chunk.min_ms > until_ms {
                places.start = place;
                return;
            }
            // Late ones were taken before; what blocks cover is left out.
            if chunk.is_late || chunk.max_ms < head.valid_from_ms {
                continue;
            }
            self.end(slot, false);
            // A chunk that is not behind the others cannot be from one process: what it adds is kept.
            let last_ms = self.states[slot as usize].growing.last_ms();
            self.append_head_chunk(slot, place as usize, head, chunk.min_ms <= last_ms);
            self.states[slot as usize].growing.pass(last_ms.max(chunk.max_ms));
        }
    }

    fn append_head_chunk(&mut self, slot: u32, place: usize, head: Head<'_>, is_late: bool) {
        let HeadChunk { min_ms, max_ms, n_samples, encoding, .. } = head.chunks[place];
        let bytes = PartBytes::Head(place as u32);
        let state = &mut self.states[slot as usize];
        self.windows.add(min_ms, max_ms, &mut state.windows);
        let part = Part { min_ms, max_ms, n_samples, encoding, is_late, is_cut: false, bytes };
        self.ended.append(&mut state.last, &part);
    }

    /// Forgets everything: the series was moved to a block at this point of the log.
    fn forget(&mut self, slot: u32) {
        let state = &mut self.states[slot as usize];
        state.growing.clear(&mut self.growing);
        *state = SeriesState::NEW;
        self.others.remove(&slot);
        self.late.remove(&slot);
    }

    /// Ends the chunk of a series that grows, if there is one.
    fn end(&mut self, slot: u32, is_cut: bool) {
        let state = &mut self.states[slot as usize];
        if state.growing.n_samples() > 0 {
            let (max_ms, n_samples, mut bytes) = (state.growing.last_ms(), state.growing.n_samples(), Vec::new());
            let min_ms = state.growing.copy_to(&self.growing, &mut bytes);
            state.growing.clear(&mut self.growing);
            let (encoding, bytes) = (Encoding::Xor, PartBytes::Here(&bytes));
            let part = Part { min_ms, max_ms, n_samples, encoding, is_late: false, is_cut, bytes };
            self.ended.append(&mut state.last, &part);
        }
        if std::mem::take(&mut state.is_other)
            && let Some(mut encoder) = self.others.remove(&slot)
        {
            for chunk in encoder.finish() {
                self.ended.append(&mut state.last, &part_of(&chunk, false, is_cut));
            }
        }
    }

    /// Turns late samples into chunks. Of two at one time the first stays.
    fn end_late(&mut self) {
        for (slot, mut samples) in std::mem::take(&mut self.late) {
            samples.sort_by_key(|sample| sample.timestamp_ms);
            samples.dedup_by_key(|sample| sample.timestamp_ms);
            let mut encoder = Encoder::new(self.starts);
            for FullSample { timestamp_ms, start_ms, value } in samples {
                match value {
                    Value::Float(value) => encoder.push(Sample { timestamp_ms, value }, start_ms),
                    Value::Histogram(histogram) => encoder.push_histogram(timestamp_ms, histogram, start_ms),
                }
            }
            let state = &mut self.states[slot as usize];
            for chunk in encoder.finish() {
                self.windows.add(chunk.min_ms, chunk.max_ms, &mut state.windows);
                self.ended.append(&mut state.last, &part_of(&chunk, true, false));
            }
        }
        self.late_size = 0;
    }

    /// Moves all chunks, and what came late, to the file. Those that grow end for it.
    pub(super) fn spill(&mut self) -> Result<()> {
        for slot in 0..self.states.len() {
            // There are no more slots than series.
            self.end(slot as u32, true);
            self.ended.spill(false)?;
        }
        self.growing = GrowingChunks::default();
        self.end_late();
        self.ended.spill(true)
    }

    /// Ends all chunks that do not stay where they are until they are read.
    pub(super) fn finish(&mut self, head: Head<'_>) {
        for slot in 0..self.head.len() {
            self.take_head_chunks(slot as u32, i64::MAX, head);
        }
        let others: Vec<u32> = self.others.keys().copied().collect();
        others.into_iter().for_each(|slot| self.end(slot, false));
        self.end_late();
    }

    /// Tells whether a series may have samples in a window.
    pub(super) fn may_have(&self, slot: u32, window: i64) -> bool {
        self.states[slot as usize].windows.may_have(window)
    }

    /// Reads what [`Shard::find`] and [`Shard::read`] will read first; returns what means nothing.
    pub(super) fn touch(&self, slot: u32, window: i64) -> u64 {
        let state = &self.states[slot as usize];
        let is_growing = window_of(state.growing.last_ms()) == window;
        let growing = if is_growing { state.growing.touch(&self.growing) } else { 0 };
        growing ^ self.ended.touch(state.last)
    }

    /// Finds the chunks of a series that reach into a window, in the order of time; late ones behind or between, in the order
    /// in which they were made.
    pub(super) fn find(&self, slot: u32, window: i64, scratch: &mut Vec<u8>, found: &mut Vec<Found>) -> Result<()> {
        let (state, TimeRange { start_ms, end_ms }) = (&self.states[slot as usize], range_of(window));
        found.clear();
        let mut at = state.last;
        while let Some((part, before)) = self.ended.get(at, scratch)? {
            let Part { min_ms, max_ms, n_samples, encoding, is_late, is_cut, bytes } = part;
            if min_ms <= end_ms && start_ms <= max_ms {
                let place = match bytes {
                    PartBytes::Here(_) => Place::Ended(at),
                    PartBytes::Head(place) => Place::Head(place),
                };
                found.push(Found { min_ms, max_ms, n_samples, encoding, is_late, is_cut, place });
            }
            at = before;
        }
        found.reverse();
        let (n_samples, max_ms) = (state.growing.n_samples(), state.growing.last_ms());
        if n_samples > 0 && window_of(max_ms) == window {
            let (min_ms, encoding, place) = (start_ms, Encoding::Xor, Place::Growing);
            found.push(Found { min_ms, max_ms, n_samples, encoding, is_late: false, is_cut: false, place });
        }
        Ok(())
    }

    /// Returns the bytes of a chunk that was found; `scratch` takes what has to be read.
    pub(super) fn read<'a>(
        &'a self,
        slot: u32,
        found: &mut Found,
        head: (&HeadChunkFiles, &[HeadChunk]),
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        match found.place {
            Place::Growing => {
                scratch.clear();
                found.min_ms = self.states[slot as usize].growing.copy_to(&self.growing, scratch);
                Ok(scratch)
            }
            Place::Ended(at) => match self.ended.get(at, scratch)? {
                Some((Part { bytes: PartBytes::Here(bytes), .. }, _)) => Ok(bytes),
                _ => Ok(&[]),
            },
            Place::Head(place) => {
                head.0.read(&head.1[place as usize], scratch)?;
                Ok(scratch)
            }
        }
    }
}

fn part_of(chunk: &Chunk, is_late: bool, is_cut: bool) -> Part<'_> {
    let &Chunk { encoding, min_ms, max_ms, n_samples, ref bytes } = chunk;
    // A chunk has a few hundred samples at most.
    Part { min_ms, max_ms, n_samples: n_samples as u32, encoding, is_late, is_cut, bytes: PartBytes::Here(bytes) }
}

#[cfg(test)]
mod tests;
