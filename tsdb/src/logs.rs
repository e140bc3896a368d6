//! The logs of a store, each shared by some of its shards.
//!
//! Used by `db` (appending, committing), `flush` (cutting) and `exemplars`. A request leaves one record in each log that
//! it concerns, however many shards there are: many shards tear it into small pieces, and what is said of a sample gets
//! the shorter the more of its neighbours stand beside it. A log is written to the disk far faster than heads take
//! samples, so a few logs serve any number of shards.
//!
//! The number of logs is a power of two and at most that of the shards. A series belongs to the log that the lowest bits
//! of its hash say, as it belongs to its shard: all series of a shard are in one log, and that is the one that the lowest
//! bits of the shard's number say.
//!
//! Invariants
//! 1. Of two requests with samples for one log, one goes through all of its shards and into the log before the other: the
//!    order of the log is that in which heads took the samples.
//! 2. A definition is in the log before the series is known to anybody.
//!
//! Lock order: what is gathered, then a shard's head, then the numbers, the cut and the log's own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::error::Result;
use crate::head::{SeriesRef, SlotRef};
use crate::labels::{Labels, Metadata};
use crate::sample::Sample;
use crate::sample::exemplar::NumberedExemplars;
use crate::shard::Shard;
use crate::wal::{Cut, LoggedHistogram, Position, SampleColumn, Start, ToldStarts, Wal};

/// Numbers of series that a log takes at a time: senders write series in the order in which they were first seen, and
/// numbers that follow each other take next to nothing in a log.
const RESERVED_REFS: u64 = 1024;
/// Samples for which the memory of a request is kept for the next one.
const KEPT_SAMPLES: usize = 1 << 16;
/// Series that are described under one lock.
const BATCH_SERIES: usize = 512;

/// A log and what belongs to it.
#[derive(Debug)]
pub(crate) struct Log {
    wal: Wal,
    /// Locked from the first of its shards that a request changes until its record is in the log.
    gathered: Mutex<Gathered>,
    /// Numbers for new series.
    refs: Mutex<Range<u64>>,
    /// Where the log was cut when its heads were frozen last, until a checkpoint stands for what is before it.
    cut: Mutex<Option<Cut>>,
}

/// What a request brings to the shards of a log.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    floats: SampleColumn,
    /// The places of the floats in the request.
    places: Vec<u32>,
    histograms: Vec<LoggedHistogram>,
    starts_of_histograms: ToldStarts,
    /// Memory for putting floats into order.
    ordered: Ordered,
}

#[derive(Debug, Default)]
struct Ordered {
    /// By place in the request, one more than the place among the floats.
    by_place: Vec<u32>,
    floats: SampleColumn,
    /// Where each float went.
    moved: Vec<u32>,
}

/// A request on its way into a log.
#[derive(Debug)]
pub(crate) struct Appending<'a> {
    wal: &'a Wal,
    gathered: MutexGuard<'a, Gathered>,
}

impl Log {
    /// Starts without samples.
    pub(crate) fn new(wal: Wal) -> Arc<Self> {
        Arc::new(Self { wal, gathered: Mutex::default(), refs: Mutex::default(), cut: Mutex::default() })
    }

    /// Returns the files of the log.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Begins to append a request's samples; others wait until it ends.
    pub(crate) fn append(&self) -> Appending<'_> {
        let mut gathered = self.gathered.lock();
        // After a panic it may hold what never got as far as the log.
        gathered.clear();
        Appending { wal: &self.wal, gathered }
    }

    /// Returns the number of the next new series, to be kept locked until it is known whether that was used.
    pub(crate) fn next_ref(&self, next_ref: &AtomicU64) -> NextRef<'_> {
        let mut refs = self.refs.lock();
        if refs.is_empty() {
            let start = next_ref.fetch_add(RESERVED_REFS, Ordering::Relaxed);
            *refs = start..start + RESERVED_REFS;
        }
        NextRef(refs)
    }

    /// Cuts the log and freezes the heads of its shards at the same place; no request is in flight. What is frozen
    /// already stays, and the cut with it.
    ///
    /// # Errors
    /// As [`Wal::rotate`]; nothing has changed then.
    pub(crate) fn freeze<'a>(&self, shards: impl Iterator<Item = &'a Shard> + Clone) -> Result<()> {
        if shards.clone().any(|shard| shard.head().frozen().is_some()) {
            return Ok(());
        }
        *self.cut() = Some(self.wal.rotate()?);
        for shard in shards {
            shard.head_mut().freeze();
        }
        Ok(())
    }

    /// Replaces the log before the last cut by a checkpoint, if there was a cut since the last one. What was frozen at the
    /// cut must be in blocks; `shards` are those of the log, `exemplars` has what the ring holds of their series.
    ///
    /// # Errors
    /// As [`Wal::checkpoint`]; the log stays as it is, and the next call tries again.
    pub(crate) fn checkpoint<'a>(
        &self,
        shards: impl Iterator<Item = &'a Shard>,
        next_ref: u64,
        families: Option<&BTreeMap<String, Metadata>>,
        exemplars: &[NumberedExemplars],
    ) -> Result<()> {
        let Some(cut) = *self.cut() else { return Ok(()) };
        let series = shards.flat_map(|shard| {
            let slots = by_number(shard);
            (0..slots.len()).step_by(BATCH_SERIES).flat_map(move |from| {
                let end = slots.len().min(from + BATCH_SERIES);
                describe(shard, &slots[from..end])
            })
        });
        let series = series.map(Ok);
        let families = families.into_iter().flatten().map(|(family, metadata)| (family.as_str(), metadata));
        self.wal.checkpoint(cut, series, next_ref, families, exemplars)?;
        *self.cut() = None;
        Ok(())
    }

    fn cut(&self) -> MutexGuard<'_, Option<Cut>> {
        self.cut.lock()
    }
}

/// Returns the series of a shard by their numbers: in the order in which they were first seen, which is mostly that in which
/// senders write them. They have their slots in this order after a restart, so that samples come to slots side by side.
fn by_number(shard: &Shard) -> Vec<(SeriesRef, SlotRef)> {
    let mut all = Vec::new();
    for step in 0.. {
        let head = shard.head();
        let Some(slots) = head.slots_of_step(step) else { break };
        all.extend(slots.filter_map(|slot| Some((head.number(slot)?, head.slot_ref(slot)))));
    }
    all.sort_unstable_by_key(|&(series, _)| series);
    all
}

fn describe(shard: &Shard, slots: &[(SeriesRef, SlotRef)]) -> Vec<(SeriesRef, Labels, i64)> {
    let head = shard.head();
    let current = slots.iter().filter(|&&(_, of)| head.is_current(of));
    current.filter_map(|&(_, of)| head.checkpoint_entry(of.slot)).collect()
}

/// The number of the next new series; nobody else gets one until it is dropped.
pub(crate) struct NextRef<'a>(MutexGuard<'a, Range<u64>>);

impl NextRef<'_> {
    /// Returns the number.
    pub(crate) fn get(&self) -> SeriesRef {
        SeriesRef(self.0.start)
    }

    /// Says that a series has it now.
    pub(crate) fn take(mut self) {
        self.0.start += 1;
    }
}

impl Appending<'_> {
    /// Returns what was gathered so far.
    pub(crate) fn gathered(&mut self) -> &mut Gathered {
        &mut self.gathered
    }

    /// Appends what was gathered to the log, uncommitted, and returns what must be committed before the request may be
    /// acknowledged. What was only repeated may still wait for its first commit: the position covers that as well.
    pub(crate) fn finish(mut self) -> Position {
        let gathered = &mut *self.gathered;
        gathered.order();
        let Gathered { floats, histograms, starts_of_histograms, .. } = gathered;
        if !floats.is_empty() {
            self.wal.append_samples(floats);
        }
        if !histograms.is_empty() {
            self.wal.append_histograms(histograms, starts_of_histograms);
        }
        // They refer to memory of the request.
        histograms.clear();
        if floats.len() > KEPT_SAMPLES {
            *gathered = Gathered::default();
        }
        self.wal.end()
    }
}

impl Gathered {
    /// Adds a sample at a place of the request.
    #[inline]
    pub(crate) fn push(&mut self, place: u32, series: SeriesRef, sample: Sample) {
        self.floats.push(series, sample);
        self.places.push(place);
    }

    /// Counts the samples that are no histograms.
    pub(crate) fn n_floats(&self) -> usize {
        self.floats.len()
    }

    /// Notes the start of the sample that is added next.
    pub(crate) fn push_start(&mut self, start: Start) {
        self.floats.starts.push(self.floats.len(), start);
    }

    /// Adds a histogram.
    pub(crate) fn push_histogram(&mut self, histogram: LoggedHistogram) {
        self.histograms.push(histogram);
    }

    /// Counts the histograms.
    pub(crate) fn n_histograms(&self) -> usize {
        self.histograms.len()
    }

    /// Notes the start of the histogram that is added next.
    pub(crate) fn push_start_of_histogram(&mut self, start: Start) {
        self.starts_of_histograms.push(self.histograms.len(), start);
    }

    /// Says that the samples are held: those of whose starts nothing is told have none.
    pub(crate) fn hold(&mut self) {
        self.floats.starts.hold();
        self.starts_of_histograms.hold();
    }

    fn clear(&mut self) {
        self.floats.clear();
        self.places.clear();
        self.histograms.clear();
        self.starts_of_histograms.clear();
    }

    /// Puts floats that several shards brought back into the order of the request.
    fn order(&mut self) {
        // Fast path: one shard keeps the order.
        if self.places.is_sorted() {
            return;
        }
        let Ordered { by_place, floats, moved } = &mut self.ordered;
        let end = self.places.iter().max().map_or(0, |&last| last as usize + 1);
        by_place.clear();
        by_place.resize(end, 0);
        for (&place, from) in self.places.iter().zip(1..) {
            by_place[place as usize] = from;
        }
        floats.clear();
        moved.clear();
        moved.resize(self.places.len(), 0);
        for from in by_place.iter().filter_map(|from| from.checked_sub(1)) {
            // No more than the request has samples, whose places are 32 bits.
            moved[from as usize] = floats.len() as u32;
            floats.push(self.floats.refs[from as usize], self.floats.samples[from as usize]);
        }
        floats.starts.take_moved(&mut self.floats.starts, moved);
        std::mem::swap(&mut self.floats, floats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Order;

    fn gathered(places: &[u32]) -> Gathered {
        let mut gathered = Gathered::default();
        for &place in places {
            if place % 3 == 0 {
                gathered.push_start(Start { start_ms: place.into(), order: Some(Order::Newest) });
            }
            gathered.push(place, SeriesRef(place.into()), Sample { timestamp_ms: place.into(), value: 0.0 });
        }
        gathered
    }

    #[test]
    fn samples_of_several_shards_come_back_into_the_order_of_the_request() {
        for places in [&[][..], &[4], &[0, 1, 2, 3], &[1, 4, 6, 0, 3, 9, 2, 5], &[9, 6, 3]] {
            let mut gathered = gathered(places);
            gathered.order();
            let mut sorted = places.to_vec();
            sorted.sort_unstable();
            assert_eq!(gathered.floats.refs, sorted.iter().map(|&of| SeriesRef(of.into())).collect::<Vec<_>>());
            assert!(gathered.floats.samples.is_sorted_by_key(|sample| sample.timestamp_ms));
            let told = gathered.floats.starts.iter().map(|(at, start)| (sorted[at], start.start_ms));
            let expected = sorted.iter().filter(|&&place| place % 3 == 0).map(|&place| (place, i64::from(place)));
            assert_eq!(told.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{places:?}");
        }
    }
}
