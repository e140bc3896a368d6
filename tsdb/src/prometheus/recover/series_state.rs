//! What was gathered of one series: chunks in the order of time, and what came late.

use std::ops::Range;
use std::sync::Arc;

use super::WINDOW_MS;
use super::part::Part;
use crate::histogram::Histogram;
use crate::prometheus::chunk::{Encoder, StartTimes};
use crate::prometheus::head_chunks::HeadChunk;
use crate::sample::Sample;

/// The value of a sample.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Float(f64),
    Histogram(Arc<Histogram>),
}

/// A sample that came late.
#[derive(Debug)]
struct LateSample {
    timestamp_ms: i64,
    start_ms: i64,
    value: Value,
}

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Taken,
    NotNewer,
}

/// One series.
#[derive(Debug)]
pub(super) struct SeriesState {
    last_ms: i64,
    /// Head chunks in order that were not reached yet, by their places.
    head: Range<u32>,
    encoder: Encoder,
    /// In the order of time; late ones behind or between, in the order in which they were made.
    pub(super) parts: Vec<Part>,
    late: Vec<LateSample>,
}

impl SeriesState {
    pub(super) fn new(starts: StartTimes) -> Self {
        Self { last_ms: i64::MIN, head: 0..0, encoder: Encoder::new(starts), parts: Vec::new(), late: Vec::new() }
    }

    /// Goes on with the head chunks of one more number of the series. Late ones are taken at once.
    pub(super) fn add_head_chunks(&mut self, places: Range<usize>, all: &[HeadChunk], valid_from_ms: i64) {
        self.take_head_chunks(i64::MAX, all, valid_from_ms);
        for place in places.clone().filter(|&place| all[place].is_late) {
            self.add_part(Part::of_head(place as u32, &all[place], true));
        }
        self.head = places.start as u32..places.end as u32;
    }

    /// Takes the head chunks that begin at `until_ms` or before.
    fn take_head_chunks(&mut self, until_ms: i64, all: &[HeadChunk], valid_from_ms: i64) {
        while let Some(chunk) = all.get(self.head.start as usize).filter(|_| !self.head.is_empty()) {
            if !chunk.is_late && chunk.min_ms > until_ms {
                return;
            }
            let place = self.head.start;
            self.head.start += 1;
            // Late ones were taken before; what blocks cover is left out.
            if chunk.is_late || chunk.max_ms < valid_from_ms {
                continue;
            }
            self.close();
            // A chunk that is not behind the others cannot be from one process: what it adds is kept.
            let overlaps = chunk.min_ms <= self.last_ms;
            self.add_part(Part::of_head(place, chunk, overlaps));
            self.last_ms = self.last_ms.max(chunk.max_ms);
        }
    }

    /// Appends a sample of the log.
    pub(super) fn push(
        &mut self,
        timestamp_ms: i64,
        start_ms: i64,
        value: &Value,
        all: &[HeadChunk],
        valid_from_ms: i64,
    ) -> Outcome {
        // Fast path: no head chunks, or none left.
        if !self.head.is_empty() {
            self.take_head_chunks(timestamp_ms, all, valid_from_ms);
        }
        if timestamp_ms <= self.last_ms {
            return Outcome::NotNewer;
        }
        if timestamp_ms.div_euclid(WINDOW_MS) != self.last_ms.div_euclid(WINDOW_MS) {
            self.close();
        }
        match value {
            Value::Float(value) => self.encoder.push(Sample { timestamp_ms, value: *value }, start_ms),
            Value::Histogram(histogram) => {
                self.encoder.push_histogram(timestamp_ms, Arc::clone(histogram), start_ms);
            }
        }
        self.last_ms = timestamp_ms;
        if self.encoder.has_finished() {
            self.encoder.drain().for_each(|chunk| self.add_part(Part::new(chunk, false)));
        }
        Outcome::Taken
    }

    /// Appends a late sample.
    pub(super) fn push_late(&mut self, timestamp_ms: i64, start_ms: i64, value: Value) {
        self.late.push(LateSample { timestamp_ms, start_ms, value });
    }

    /// Forgets everything: the series was moved to a block at this point of the log.
    pub(super) fn forget(&mut self) {
        *self = Self { head: self.head.end..self.head.end, ..Self::new(self.encoder.starts()) };
    }

    /// Ends the open chunk.
    fn close(&mut self) {
        self.encoder.finish().into_iter().for_each(|chunk| self.add_part(Part::new(chunk, false)));
    }

    /// Adds a part. Most series have one or two: room for four at once would take more than their samples do.
    fn add_part(&mut self, part: Part) {
        if self.parts.len() == self.parts.capacity() {
            self.parts.reserve_exact(self.parts.len().max(1));
        }
        self.parts.push(part);
    }

    /// Turns late samples into chunks.
    pub(super) fn close_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let mut late = std::mem::take(&mut self.late);
        late.sort_by_key(|sample| sample.timestamp_ms);
        late.dedup_by_key(|sample| sample.timestamp_ms);
        let mut encoder = Encoder::new(self.encoder.starts());
        for LateSample { timestamp_ms, start_ms, value } in late {
            match value {
                Value::Float(value) => encoder.push(Sample { timestamp_ms, value }, start_ms),
                Value::Histogram(histogram) => encoder.push_histogram(timestamp_ms, histogram, start_ms),
            }
        }
        encoder.finish().into_iter().for_each(|chunk| self.add_part(Part::new(chunk, true)));
    }

    /// Ends everything.
    pub(super) fn finish(&mut self, all: &[HeadChunk], valid_from_ms: i64) {
        self.take_head_chunks(i64::MAX, all, valid_from_ms);
        self.close();
        self.close_late();
    }
}

/// Bytes that a late sample takes.
pub(super) const LATE_SAMPLE_SIZE: usize = size_of::<LateSample>();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::chunk::Encoding;

    fn head_chunk(min_ms: i64, max_ms: i64, is_late: bool) -> HeadChunk {
        let encoding = Encoding::Xor;
        HeadChunk { series: 1, min_ms, max_ms, n_samples: 2, encoding, is_late, file: 0, offset: 0, size: 0 }
    }

    fn ranges(state: &SeriesState) -> Vec<(i64, i64, bool)> {
        state.parts.iter().map(|part| (part.min_ms, part.max_ms, part.is_late)).collect()
    }

    #[test]
    fn the_log_fills_what_head_chunks_do_not_cover() {
        let all =
            [head_chunk(0, 5, false), head_chunk(10, 20, false), head_chunk(30, 40, false), head_chunk(3, 9, true)];
        let mut state = SeriesState::new(StartTimes::Dropped);
        state.add_head_chunks(0..4, &all, 10);
        let taken: Vec<_> = [11, 20, 21, 25, 24, 30, 41, 45, 45]
            .into_iter()
            .filter(|&time| state.push(time, 0, &Value::Float(1.0), &all, 10) == Outcome::Taken)
            .collect();
        assert_eq!(taken, [21, 25, 41, 45]);
        state.push_late(7, 0, Value::Float(1.0));
        state.push_late(2, 0, Value::Float(2.0));
        state.push_late(7, 0, Value::Float(3.0));
        state.finish(&all, 10);
        let expected = [(3, 9, true), (10, 20, false), (21, 25, false), (30, 40, false), (41, 45, false), (2, 7, true)];
        assert_eq!(ranges(&state), expected);
    }

    #[test]
    fn chunks_end_with_their_window() {
        let mut state = SeriesState::new(StartTimes::Dropped);
        for time in [WINDOW_MS - 2, WINDOW_MS - 1, WINDOW_MS, 3 * WINDOW_MS] {
            state.push(time, 0, &Value::Float(1.0), &[], i64::MIN);
        }
        state.finish(&[], i64::MIN);
        let starts: Vec<_> = state.parts.iter().map(|part| part.min_ms).collect();
        assert_eq!(starts, [WINDOW_MS - 2, WINDOW_MS, 3 * WINDOW_MS]);
        state.forget();
        assert!(state.parts.is_empty());
    }
}
