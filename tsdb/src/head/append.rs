//! Appending to the head: which samples are accepted, and how they are stored.

use std::time::Duration;

use varve_collections::prefetch;
use varve_context::Limit;
use varve_model::start_timestamps::Order;
use varve_model::{RejectionReason, Sample};

use super::head::Head;
use super::samples::AnySample;
use super::table::SlotRef;
use crate::batch::{NewFloat, NewHistogram, SeriesRef};
use crate::limits::STRICT_MAX_AGE_MS;

/// Bounds for the timestamps of new samples, fixed for the whole request.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Samples newer than this are too far in the future.
    pub(crate) future_max_ms: i64,
    /// Maximum distance of a sample ahead of the clock, which `future_max_ms` includes.
    pub(crate) ahead_max_ms: i64,
    /// Newest timestamp of the store, or the clock if that is earlier. `None` while the store is
    /// empty.
    pub(crate) newest_ms: Option<i64>,
    /// Maximum age of an in-order sample relative to `newest_ms`.
    pub(crate) in_order_max_age_ms: i64,
    /// Maximum age of an out-of-order sample relative to `newest_ms`. 0 disables out-of-order
    /// samples.
    pub(crate) out_of_order_window_ms: i64,
}

/// The outcome of a sample that was not rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// The sample is new. Contains the ref of its series, and whether it is the newest sample of
    /// the series.
    New(SeriesRef, Order),
    /// The series already has the same sample.
    Repeated,
}

/// The outcome of a sample read from the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// The sample is new.
    New(Order),
    /// The series already has the same sample.
    Repeated,
    /// The series has another value at this timestamp, which wins.
    Conflicting,
}

/// Number of appends whose memory is prefetched together.
const TOUCH_APPENDS: usize = 16;
/// Number of appends after which old append ids are renewed, so that compared ids are never 2^31
/// apart.
const RENUMBER_APPENDS: u32 = 1 << 29;

impl Bounds {
    /// Returns `true` if a sample newer than all others of its series is accepted.
    #[inline]
    fn accepts_in_order(&self, timestamp_ms: i64) -> bool {
        let max_age_ms = self.in_order_age_max_ms();
        self.newest_ms
            .is_none_or(|newest_ms| timestamp_ms >= newest_ms.saturating_sub(max_age_ms))
    }

    /// Returns the maximum age of an in-order sample that applies.
    #[inline]
    fn in_order_age_max_ms(&self) -> i64 {
        match self.out_of_order_window_ms {
            0 => STRICT_MAX_AGE_MS,
            window_ms => self.in_order_max_age_ms.max(window_ms),
        }
    }

    /// Returns `true` if a sample that is not newer than all others of its series is accepted.
    fn accepts_out_of_order(&self, timestamp_ms: i64) -> bool {
        let window_ms = self.out_of_order_window_ms;
        window_ms > 0
            && self
                .newest_ms
                .is_none_or(|newest_ms| timestamp_ms >= newest_ms.saturating_sub(window_ms))
    }

    /// Returns the reason to reject a sample that is newer than all others of its series, or the
    /// first of a new series.
    #[inline]
    #[must_use]
    pub fn first_sample_rejection(&self, timestamp_ms: i64) -> Option<RejectionReason> {
        if timestamp_ms > self.future_max_ms {
            Some(RejectionReason::TooFarInFuture)
        } else if !self.accepts_in_order(timestamp_ms) {
            Some(self.rejection(timestamp_ms))
        } else {
            None
        }
    }

    /// Returns the reason to reject a sample that is too old or out of order, as in Prometheus.
    fn rejection(&self, timestamp_ms: i64) -> RejectionReason {
        if self.out_of_order_window_ms > 0 {
            RejectionReason::TooOld
        } else if self.accepts_in_order(timestamp_ms) {
            RejectionReason::OutOfOrder
        } else {
            RejectionReason::OutOfBounds
        }
    }

    /// Says by how much a timestamp was out of bounds, and what sets the limit. `None` if the
    /// bounds were not the reason.
    #[must_use]
    pub fn excess(&self, timestamp_ms: i64, reason: RejectionReason) -> Option<String> {
        if reason == RejectionReason::TooFarInFuture {
            let clock_ms = self.future_max_ms.saturating_sub(self.ahead_max_ms);
            return Some(format!(
                "{:?} ahead of the clock, limit {:?} by {}",
                duration_between(clock_ms, timestamp_ms),
                duration_between(0, self.ahead_max_ms),
                Limit::AheadOfClock
            ));
        }

        let newest_ms = self.newest_ms?;
        let age = duration_between(timestamp_ms, newest_ms);
        let in_order = duration_between(0, self.in_order_age_max_ms());
        let out_of_order = duration_between(0, self.out_of_order_window_ms);
        match reason {
            RejectionReason::TooOld => Some(format!(
                "{age:?} older than the newest time {newest_ms}, limit {in_order:?} by {}, \
                 out of order {out_of_order:?} by {}",
                Limit::InOrderAge,
                Limit::OutOfOrderWindow
            )),
            RejectionReason::OutOfBounds => Some(format!(
                "{age:?} older than the newest time {newest_ms}, limit {in_order:?} while {} is 0",
                Limit::OutOfOrderWindow
            )),
            _ => None,
        }
    }
}

/// Returns the time from `start_ms` to `end_ms`.
fn duration_between(start_ms: i64, end_ms: i64) -> Duration {
    Duration::from_millis(end_ms.abs_diff(start_ms))
}

impl Head {
    /// Records that every present and future reader sees the appends before `horizon`. Passing an
    /// older horizon than in the last call is safe. Must be called before the first append, unless
    /// that has id 0.
    pub(crate) fn set_horizon(&mut self, horizon: u32) {
        if horizon / RENUMBER_APPENDS != self.horizon / RENUMBER_APPENDS {
            self.live.settle(horizon);
        }
        self.horizon = horizon;
        self.frozen_is_visible |= self
            .frozen
            .as_ref()
            .is_some_and(|frozen| frozen.is_before(horizon));
    }

    /// Calls `append` for each sample. Touches the memory of 16 samples at a time first: the loads
    /// are independent of each other, so the processor waits for all of them at once.
    pub(crate) fn append_all(
        &mut self,
        floats: &[NewFloat],
        mut append: impl FnMut(&mut Self, &NewFloat),
    ) {
        for floats in floats.chunks(TOUCH_APPENDS) {
            self.prefetch(floats.iter().map(|float| float.slot));
            for float in floats {
                append(self, float);
            }
        }
    }

    /// Adds samples of the log by the rules of [`Head::replay`]. `samples` contains the samples of
    /// consecutive slots, starting with slot `first`. The samples of a slot are in the order of the
    /// log. `ends` has the end of each slot's samples. Calls `count` with each outcome and its
    /// number of samples.
    pub(crate) fn replay_runs(
        &mut self,
        first: u32,
        ends: &[usize],
        samples: &[Sample],
        mut count: impl FnMut(Replayed, usize),
    ) {
        let mut slot = first;
        let mut start = 0;
        for ends in ends.chunks(TOUCH_APPENDS) {
            self.prefetch(slot..slot + ends.len() as u32);
            for &end in ends {
                self.replay_run(slot, &samples[start..end], &mut count);
                slot += 1;
                start = end;
            }
        }
    }

    fn replay_run(
        &mut self,
        slot: u32,
        mut samples: &[Sample],
        count: &mut impl FnMut(Replayed, usize),
    ) {
        let append_id = self.horizon.wrapping_sub(1);
        while let Some(first) = samples.first() {
            let mut last_ms = self.table.row(slot).map_or(i64::MAX, |row| row.last_ms);
            let mut n_next = 0;
            for sample in samples {
                if sample.timestamp_ms <= last_ms {
                    break;
                }
                last_ms = sample.timestamp_ms;
                n_next += 1;
            }
            let n_done = n_next.max(1);
            if n_next > 0 {
                let newest_ms = samples[n_next - 1].timestamp_ms;
                self.table.row_mut(slot).last_ms = newest_ms;
                self.live
                    .append_run(slot, &samples[..n_next], append_id, self.horizon);
                count(Replayed::New(Order::Newest), n_next);
            } else {
                count(self.replay(slot, AnySample::Float(*first)), 1);
            }
            samples = &samples[n_done..];
        }
    }

    #[inline]
    fn prefetch(&self, slots: impl Iterator<Item = u32> + Clone) {
        let row = |slot| self.table.row(slot).map_or(0, |row| row.generation);
        // Two passes: the first loads the positions of the last bytes, the second these bytes.
        let row_words = slots.clone();
        prefetch(row_words.map(|slot| row(slot) ^ self.live.row_word(slot)));
        prefetch(slots.map(|slot| self.live.last_byte(slot)));
    }

    /// Appends a sample unless it is rejected.
    ///
    /// A sample newer than all others of its series is accepted up to a maximum age. A sample that
    /// the head already has, bit for bit, is accepted at any age: the sender repeats it because it
    /// missed the acknowledgement. A sample with another value at a stored timestamp is a
    /// duplicate, unless the stored sample is frozen. Any other sample is out of order and accepted
    /// within the window. A sample at the newest timestamp of its series is also accepted if that
    /// newest sample has left the head: the two may be equal. With a window of 0, the rules are
    /// those of Prometheus (`tsdb/head_append.go`), except that a repetition is accepted at any
    /// age.
    ///
    /// # Errors
    /// The reason why the sample was rejected.
    #[inline]
    pub(crate) fn append(
        &mut self,
        bounds: &Bounds,
        append_id: u32,
        float: &NewFloat,
    ) -> Result<Appended, RejectionReason> {
        let Sample { timestamp_ms, .. } = float.sample;
        let (last_ms, series) = self.admit(bounds, float.slot, float.generation, timestamp_ms)?;
        // Fast path: the next sample.
        if timestamp_ms > last_ms {
            self.push(float.slot, float.sample, append_id);
            return Ok(Appended::New(series, Order::Newest));
        }
        self.append_out_of_order(
            bounds,
            append_id,
            float.slot,
            AnySample::Float(float.sample),
            last_ms,
            series,
        )
    }

    /// Appends a histogram by the rules of [`Head::append`].
    ///
    /// # Errors
    /// The reasons of [`Head::append`], and [`RejectionReason::HistogramTooLarge`].
    pub(crate) fn append_histogram(
        &mut self,
        bounds: &Bounds,
        append_id: u32,
        new: &NewHistogram,
    ) -> Result<Appended, RejectionReason> {
        let NewHistogram {
            slot,
            generation,
            timestamp_ms,
            ref histogram,
            ..
        } = *new;
        if !histogram.fits() {
            return Err(RejectionReason::HistogramTooLarge);
        }
        let (last_ms, series) = self.admit(bounds, slot, generation, timestamp_ms)?;
        let sample = AnySample::Histogram(timestamp_ms, histogram);
        if timestamp_ms > last_ms {
            self.push_any(slot, sample, append_id);
            return Ok(Appended::New(series, Order::Newest));
        }
        self.append_out_of_order(bounds, append_id, slot, sample, last_ms, series)
    }

    /// Returns the newest timestamp and the ref of a series, unless a sample at `timestamp_ms` is
    /// rejected regardless of its value.
    #[inline]
    fn admit(
        &self,
        bounds: &Bounds,
        slot: u32,
        generation: u32,
        timestamp_ms: i64,
    ) -> Result<(i64, SeriesRef), RejectionReason> {
        let row = self
            .table
            .row(slot)
            .filter(|row| row.generation == generation && row.is_used());
        let row = row.ok_or(RejectionReason::Moved)?;
        if timestamp_ms > bounds.future_max_ms {
            return Err(RejectionReason::TooFarInFuture);
        }
        if timestamp_ms > row.last_ms && !bounds.accepts_in_order(timestamp_ms) {
            return Err(bounds.rejection(timestamp_ms));
        }
        Ok((row.last_ms, row.series))
    }

    #[cold]
    fn append_out_of_order(
        &mut self,
        bounds: &Bounds,
        append_id: u32,
        slot: u32,
        sample: AnySample<'_>,
        last_ms: i64,
        series: SeriesRef,
    ) -> Result<Appended, RejectionReason> {
        let timestamp_ms = sample.timestamp_ms();
        let is_last = timestamp_ms == last_ms;
        match self.live.has_same(slot, sample) {
            Some(true) => return Ok(Appended::Repeated),
            Some(false)
                if bounds.out_of_order_window_ms > 0
                    || is_last && bounds.accepts_in_order(timestamp_ms) =>
            {
                return Err(RejectionReason::Duplicate);
            }
            Some(false) => return Err(bounds.rejection(timestamp_ms)),
            None => {}
        }
        let frozen = self
            .frozen
            .as_ref()
            .and_then(|frozen| frozen.has_same(slot, sample));
        if frozen == Some(true) {
            return Ok(Appended::Repeated);
        }
        let may_be_in_blocks = is_last && frozen.is_none() && bounds.accepts_in_order(timestamp_ms);
        if !may_be_in_blocks && !bounds.accepts_out_of_order(timestamp_ms) {
            return Err(bounds.rejection(timestamp_ms));
        }
        self.live
            .append_out_of_order(slot, sample, append_id, self.horizon);
        Ok(Appended::New(series, Order::OutOfOrder))
    }

    /// Runs the checks that do not depend on the stored samples of the series, and returns the
    /// series ref. [`Head::append`] also rejects every sample that this rejects, except repeated
    /// samples.
    ///
    /// # Errors
    /// The reason why the sample is rejected.
    pub(crate) fn check_unordered(
        &self,
        bounds: &Bounds,
        slot_ref: SlotRef,
        timestamp_ms: i64,
    ) -> Result<SeriesRef, RejectionReason> {
        let row = self
            .table
            .row(slot_ref.slot)
            .filter(|row| row.generation == slot_ref.generation && row.is_used());
        let row = row.ok_or(RejectionReason::Moved)?;
        bounds
            .first_sample_rejection(timestamp_ms)
            .map_or(Ok(row.series), Err)
    }

    /// Returns `true` if [`Head::append`] would reject a sample as too old or out of order,
    /// assuming that the series has no sample at that timestamp.
    pub(crate) fn rejects_timestamp(&self, bounds: &Bounds, slot: u32, timestamp_ms: i64) -> bool {
        let is_newest = self
            .table
            .row(slot)
            .is_some_and(|row| timestamp_ms > row.last_ms);
        if is_newest {
            !bounds.accepts_in_order(timestamp_ms)
        } else {
            !bounds.accepts_out_of_order(timestamp_ms)
        }
    }

    /// Adds a sample of the log by the rules of [`Head::append`] but without bounds on its
    /// timestamp: of two values for one timestamp the first wins. The sample is visible to every
    /// reader.
    #[inline]
    pub(crate) fn replay(&mut self, slot: u32, sample: AnySample<'_>) -> Replayed {
        let append_id = self.horizon.wrapping_sub(1);
        if self
            .table
            .row(slot)
            .is_some_and(|row| sample.timestamp_ms() > row.last_ms)
        {
            self.push_any(slot, sample, append_id);
            return Replayed::New(Order::Newest);
        }
        let frozen = || {
            self.frozen
                .as_ref()
                .and_then(|frozen| frozen.has_same(slot, sample))
        };
        match self.live.has_same(slot, sample).or_else(frozen) {
            Some(true) => Replayed::Repeated,
            Some(false) => Replayed::Conflicting,
            None => {
                self.live
                    .append_out_of_order(slot, sample, append_id, self.horizon);
                Replayed::New(Order::OutOfOrder)
            }
        }
    }

    /// Returns the newest in-order timestamp of a series, or `None` if it has no sample.
    pub(crate) fn last_ms(&self, slot: u32) -> Option<i64> {
        let last_ms = self.table.row(slot)?.last_ms;
        (last_ms != i64::MIN).then_some(last_ms)
    }

    /// Raises the newest in-order timestamp of a series to `last_ms`, the timestamp of its newest
    /// sample in blocks. Does nothing if the known timestamp is newer.
    pub(crate) fn set_last(&mut self, slot: u32, last_ms: i64) {
        let row = self.table.row_mut(slot);
        row.last_ms = row.last_ms.max(last_ms);
    }

    #[inline]
    fn push_any(&mut self, slot: u32, sample: AnySample<'_>, append_id: u32) {
        match sample {
            AnySample::Float(sample) => self.push(slot, sample, append_id),
            AnySample::Histogram(timestamp_ms, histogram) => {
                let last_ms =
                    std::mem::replace(&mut self.table.row_mut(slot).last_ms, timestamp_ms);
                self.live
                    .insert_histogram(slot, timestamp_ms, last_ms, histogram, append_id);
            }
        }
    }

    #[inline]
    fn push(&mut self, slot: u32, sample: Sample, append_id: u32) {
        self.table.row_mut(slot).last_ms = sample.timestamp_ms;
        self.live.append(slot, sample, append_id, self.horizon);
    }

    /// Returns `true` if some series has, or had, start timestamps. In this case a sample without a
    /// start timestamp may need a log entry that says so.
    #[inline]
    pub(crate) fn has_starts(&self) -> bool {
        !self.with_start_timestamps.is_empty()
    }

    /// Sets the start timestamp (0: unknown) of a sample that was just appended or replayed.
    /// Returns `true` if it must be logged.
    pub(crate) fn set_start(
        &mut self,
        slot: u32,
        timestamp_ms: i64,
        start_ms: i64,
        order: Order,
    ) -> bool {
        if start_ms == 0 && !self.with_start_timestamps.contains(&slot) {
            return false;
        }
        self.with_start_timestamps.insert(slot);
        self.live.starts.set(slot, timestamp_ms, start_ms, order)
    }
}
