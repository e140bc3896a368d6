//! Exemplars: examples that a series' samples stand for, such as the trace of one request. The newest of the whole store
//! are kept in memory, in a [`ring`] of a bounded number and size.
//!
//! Used by [`Db::append`](crate::Db::append) and [`Db::exemplars`](crate::Db::exemplars). Every exemplar has a number,
//! ascending over the store; the log of its series' shard has a record of it, and a checkpoint those that are still in
//! the ring. Replay puts them back by their numbers, from whatever logs, in whatever order: the ring is as it was. Those
//! that come while the log is replayed go to the ring and the log at once, under numbers above all that the log may have.
//! Which of them are out of order is said by what is in the ring by then; one that the log has as well is there once.
//!
//! Invariants
//! 1. What an append acknowledged and the ring still holds survives what samples survive.
//! 2. The exemplars of a request are seen together or not at all.
//! 3. An exemplar that comes again is there once, unless its value is NaN (as in Prometheus).
//!
//! Deletes and retention do not concern exemplars, nor do snapshots have them; the ring forgets by itself.
//!
//! Lock order: the ring, then a shard's head, then its log. Crash: whole records, as for samples.

mod ring;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::Ring;

use crate::batch::{SeriesHandle, WriteBatch};
use crate::context::{CHECK_INTERVAL, QueryContext};
use crate::error::Result;
use crate::head::SlotRef;
use crate::labels::Labels;
use crate::logs::Log;
use crate::matcher::Matcher;
use crate::memory::Charge;
use crate::sample::TimeRange;
use crate::shard::log_of;
use crate::store::Store;
use crate::wal::Position;

/// Most characters of an exemplar's label names and values together (OpenMetrics 1.0, "Exemplars").
pub const EXEMPLAR_LABELS_LEN_MAX: usize = 128;
/// Bytes of labels that the ring holds at most, for each exemplar that it may hold.
pub const EXEMPLAR_LABELS_SIZE: usize = 1024;

/// An example that a sample of a series stands for.
#[derive(Debug, Clone)]
pub struct Exemplar {
    /// What identifies it, for instance `trace_id`.
    pub labels: Labels,
    /// Any double, bit for bit.
    pub value: f64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
}

/// Why an exemplar was not stored. The words are Prometheus' (`storage/interface.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum RejectExemplar {
    /// Older than the newest one of its series, by more than the window for late samples; or as old, and before it in
    /// the order of values and labels.
    #[error("out of order exemplar")]
    OutOfOrder,
    /// Too far ahead of the clock.
    #[error("out of bounds")]
    OutOfBounds,
    /// Its labels have more than [`EXEMPLAR_LABELS_LEN_MAX`] characters.
    #[error("label length for exemplar exceeds maximum of {EXEMPLAR_LABELS_LEN_MAX} UTF-8 characters")]
    LabelsTooLong,
    /// The store keeps none.
    #[error("exemplar storage is disabled or max exemplars is less than or equal to 0")]
    Disabled,
    /// The series has left the place that the handle names; find it again.
    #[error("series has moved")]
    Moved,
}

/// An exemplar that was not stored.
#[derive(Debug, Clone)]
pub struct RejectedExemplar {
    /// What the caller gave to [`WriteBatch::push_exemplar`] with it.
    pub tag: u32,
    /// The exemplar.
    pub exemplar: Exemplar,
    /// Why it was not stored.
    pub reason: RejectExemplar,
}

/// Exemplars that a query found, ascending by the labels of their series.
#[derive(Debug)]
pub struct ExemplarSet {
    /// The series that have some; each is there once.
    pub series: Vec<SeriesExemplars>,
    _charge: Charge,
}

/// The exemplars of a series.
#[derive(Debug, Clone)]
pub struct SeriesExemplars {
    /// The labels of the series.
    pub labels: Labels,
    /// At least one, in order of time; at one time in the order in which they came.
    pub exemplars: Vec<Exemplar>,
}

/// Figures of the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExemplarStats {
    /// Exemplars stored since the store was opened.
    pub n_appended: u64,
    /// Exemplars refused as out of order since then.
    pub n_out_of_order: u64,
    /// Exemplars in the ring.
    pub n_stored: u64,
    /// Series that have some.
    pub n_series: u64,
    /// Exemplars that the ring may hold.
    pub n_max: u64,
    /// The time of the one that was stored first; `None` if there is none.
    pub oldest_ms: Option<i64>,
}

/// An exemplar of a batch.
#[derive(Debug, Clone)]
pub(crate) struct AppendExemplar {
    pub(crate) series: SeriesHandle,
    pub(crate) tag: u32,
    pub(crate) exemplar: Exemplar,
}

/// Exemplars of a series with their numbers, ascending in time, as a checkpoint writes them.
pub(crate) type NumberedExemplars = (Labels, Vec<(u64, Exemplar)>);

/// The exemplars of a store.
#[derive(Debug)]
pub(crate) struct Exemplars {
    ring: Mutex<Ring>,
}

impl Exemplars {
    /// Makes a ring for so many; 0: none is kept.
    pub(crate) fn new(n_max: usize) -> Self {
        Self { ring: Mutex::new(Ring::new(n_max)) }
    }

    /// Leaves out the numbers before one: those of exemplars that are still to be put back.
    pub(crate) fn skip_to(&self, number: u64) {
        self.ring().skip_to(number);
    }

    /// Puts back an exemplar that a log has; `series` is asked only if there is room for it.
    pub(crate) fn restore(&self, number: u64, exemplar: Exemplar, series: impl FnOnce() -> Option<Labels>) -> Restored {
        let mut ring = self.ring();
        if !ring.has_room_for(number) {
            return Restored::Passed;
        }
        let Some(series) = series() else { return Restored::Orphaned };
        ring.restore(number, series, exemplar);
        Restored::Done
    }

    /// Returns all exemplars by the log that their series are in.
    pub(crate) fn by_log(&self, n_logs: usize) -> Vec<Vec<NumberedExemplars>> {
        let mut by_log = vec![Vec::new(); n_logs];
        for (labels, exemplars) in self.ring().series() {
            let all = exemplars.map(|(number, exemplar)| (number, exemplar.clone())).collect();
            by_log[log_of(labels, n_logs)].push((labels.clone(), all));
        }
        by_log
    }

    /// Returns figures of the ring.
    pub(crate) fn stats(&self) -> ExemplarStats {
        self.ring().stats()
    }

    /// Returns the exemplars in `range` of the series that pass all matchers of one of the `selectors`.
    ///
    /// # Errors
    /// When the request ends, or its memory is used up.
    pub(crate) fn select(
        &self,
        ctx: &QueryContext,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<ExemplarSet> {
        let mut charge = ctx.charge();
        // Labels are shared, so that a copy takes little, and no matcher runs while the ring is locked.
        let mut series = self.copy(ctx, range, &mut charge)?;
        let mut interrupted = Ok(());
        let mut n_checked = 0;
        series.retain(|one| {
            n_checked += 1;
            if interrupted.is_ok() && n_checked % CHECK_INTERVAL == 0 {
                interrupted = ctx.check();
            }
            interrupted.is_ok() && selectors.iter().any(|matchers| all_match(matchers, &one.labels))
        });
        interrupted?;
        series.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        Ok(ExemplarSet { series, _charge: charge })
    }

    fn copy(&self, ctx: &QueryContext, range: TimeRange, charge: &mut Charge) -> Result<Vec<SeriesExemplars>> {
        let ring = self.ring();
        charge.grow_at_once(ring.len() * (size_of::<Exemplar>() + size_of::<SeriesExemplars>()))?;
        let mut all = Vec::new();
        for (idx, (labels, exemplars)) in ring.series().enumerate() {
            if idx % CHECK_INTERVAL == 0 {
                ctx.check()?;
            }
            let in_range = exemplars.map(|(_, exemplar)| exemplar).filter(|one| range.contains(one.timestamp_ms));
            let exemplars: Vec<Exemplar> = in_range.cloned().collect();
            if !exemplars.is_empty() {
                all.push(SeriesExemplars { labels: labels.clone(), exemplars });
            }
        }
        Ok(all)
    }

    /// Locks the ring. Nothing under the lock is meant to panic; if it does, going on beats refusing all exemplars.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of an exemplar of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restored {
    /// It is in the ring.
    Done,
    /// It was there already, or has been forgotten since.
    Passed,
    /// Nobody knows its series.
    Orphaned,
}

impl Store {
    /// Appends the exemplars of a batch to the ring and, uncommitted, to the logs. Returns what is to be committed.
    pub(crate) fn append_exemplars(&self, batch: &mut WriteBatch, future_max_ms: i64) -> Vec<(&Log, Position)> {
        let WriteBatch { exemplars, rejected_exemplars, .. } = batch;
        // Fast path: a request without exemplars.
        if exemplars.is_empty() {
            return Vec::new();
        }
        let mut ring = self.exemplars.ring();
        let mut concerned = vec![false; self.logs.len()];
        for AppendExemplar { series, tag, exemplar } in exemplars.iter() {
            concerned[usize::from(series.shard) % self.logs.len()] = true;
            if let Err(reason) = self.append_exemplar(&mut ring, *series, exemplar, future_max_ms) {
                rejected_exemplars.push(RejectedExemplar { tag: *tag, exemplar: exemplar.clone(), reason });
            }
        }
        // What was only repeated may still wait for its first commit: the positions cover that as well.
        let logs = self.logs.iter().zip(concerned).filter(|(_, is_concerned)| *is_concerned);
        logs.map(|(log, _)| (&**log, log.wal().end())).collect()
    }

    fn append_exemplar(
        &self,
        ring: &mut Ring,
        series: SeriesHandle,
        exemplar: &Exemplar,
        future_max_ms: i64,
    ) -> Result<(), RejectExemplar> {
        if self.options.exemplars_max == 0 {
            return Err(RejectExemplar::Disabled);
        }
        if exemplar.timestamp_ms > future_max_ms {
            return Err(RejectExemplar::OutOfBounds);
        }
        let shard = &self.shards[usize::from(series.shard)];
        // Held until the record is in the log: the series does not leave the head before a checkpoint can have the
        // exemplar from the ring.
        let head = shard.head();
        let of = SlotRef { slot: series.slot, generation: series.generation };
        let known = head.is_current(of).then(|| head.describe(of.slot)).flatten();
        let Some((series_ref, labels, _)) = known else { return Err(RejectExemplar::Moved) };
        if let Some(number) = ring.append(labels, exemplar, self.options.out_of_order_window_ms)? {
            shard.wal().append_exemplar(number, series_ref, exemplar);
        }
        Ok(())
    }
}

fn all_match(matchers: &[Matcher], labels: &Labels) -> bool {
    matchers.iter().all(|matcher| matcher.matches(labels.get(matcher.name()).unwrap_or("")))
}

#[cfg(test)]
mod tests;
