//! Exemplar storage: the newest exemplars of the whole store, in memory, in a [`ring`] of bounded
//! length and size.
//!
//! Used by [`Db::append`](crate::Db::append) and [`Db::exemplars`](crate::Db::exemplars). Every
//! exemplar has an id. Ids ascend over the whole store. Each exemplar has a record in the log of
//! its series. A checkpoint contains the exemplars that are still in the ring. A replay restores
//! exemplars by id, from any log in any order, so the ring has the same contents as before.
//! Exemplars that arrive during a replay are added to ring and log at once, with ids above all ids
//! in the log. Whether such an exemplar is out of order depends on the contents of the ring at that
//! moment. If the log contains it too, it is stored once.
//!
//! Invariants
//! 1. An acknowledged exemplar that is still in the ring is as durable as a sample.
//! 2. The exemplars of a request become visible together.
//! 3. A repeated exemplar is stored once, unless its value is NaN (as in Prometheus).
//!
//! The ring evicts the oldest exemplars. Snapshots do not contain evicted exemplars. Deletes and
//! retention do not affect exemplars.
//!
//! Lock order: the ring, then a shard's head, then its log. Crash: whole records, as for samples.

pub(crate) mod ring;

use parking_lot::Mutex;
pub use ring::ExemplarStats;
use ring::Ring;
use varve_context::{CHECK_INTERVAL, Charge, QueryContext};
use varve_model::{Exemplar, Labels, Matcher, TimeRange};

use crate::batch::NumberedExemplars;
use crate::error::Result;
use crate::wal::log_of;

/// The result of an exemplar query, ascending by the labels of the series.
#[derive(Debug)]
pub struct ExemplarSet {
    /// The series with exemplars, each once.
    pub series: Vec<SeriesExemplars>,
    _charge: Charge,
}

/// The exemplars of a series.
#[derive(Debug, Clone)]
pub struct SeriesExemplars {
    /// The labels of the series.
    pub labels: Labels,
    /// At least one, in order of time, and at equal timestamps in order of arrival.
    pub exemplars: Vec<Exemplar>,
}

/// The exemplars of a store.
#[derive(Debug)]
pub(crate) struct Exemplars {
    pub(crate) ring: Mutex<Ring>,
}

impl Exemplars {
    /// Creates storage for `n_max` exemplars, with labels of at most `size_max` bytes. 0 disables
    /// it.
    pub(crate) fn new(n_max: usize, size_max: usize) -> Self {
        Self {
            ring: Mutex::new(Ring::new(n_max, size_max)),
        }
    }

    /// Reserves the ids below `number` for exemplars to be restored.
    pub(crate) fn skip_to(&self, number: u64) {
        self.ring.lock().skip_to(number);
    }

    /// Restores an exemplar from a log. `series` is called only if the ring has room for it.
    pub(crate) fn restore(
        &self,
        number: u64,
        exemplar: Exemplar,
        series: impl FnOnce() -> Option<Labels>,
    ) -> Restored {
        let mut ring = self.ring.lock();
        if !ring.has_room_for(number) {
            return Restored::Skipped;
        }
        let Some(series) = series() else {
            return Restored::UnknownSeries;
        };
        ring.restore(number, series, exemplar);
        Restored::Added
    }

    /// Returns all exemplars in the ring, grouped by the log of their series.
    pub(crate) fn by_log(&self, n_logs: usize) -> Vec<Vec<NumberedExemplars>> {
        let mut by_log = vec![Vec::new(); n_logs];
        for (labels, exemplars) in self.ring.lock().series() {
            let all = exemplars
                .map(|(number, exemplar)| (number, exemplar.clone()))
                .collect();
            by_log[log_of(labels, n_logs)].push((labels.clone(), all));
        }
        by_log
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> ExemplarStats {
        self.ring.lock().stats()
    }

    /// Returns the exemplars in `range` of the series that pass all matchers of one of the
    /// `selectors`.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn select(
        &self,
        ctx: &QueryContext,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<ExemplarSet> {
        let mut charge = ctx.charge();
        // Copies first, so that no matcher runs under the lock. A copy is small, because labels are
        // shared.
        let mut series = self.copy(ctx, range, &mut charge)?;
        let mut failure = Ok(());
        series.retain(|one| {
            failure.is_ok()
                && any_matches(ctx, selectors, &one.labels).unwrap_or_else(|error| {
                    failure = Err(error);
                    false
                })
        });
        failure?;
        series.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        Ok(ExemplarSet {
            series,
            _charge: charge,
        })
    }

    fn copy(
        &self,
        ctx: &QueryContext,
        range: TimeRange,
        charge: &mut Charge,
    ) -> Result<Vec<SeriesExemplars>> {
        let ring = self.ring.lock();
        charge.grow_without_waiting(
            ring.len() * (size_of::<Exemplar>() + size_of::<SeriesExemplars>()),
        )?;
        let mut all = Vec::new();
        for (idx, (labels, exemplars)) in ring.series().enumerate() {
            ctx.check_every(CHECK_INTERVAL, idx)?;
            let in_range = exemplars
                .map(|(_, exemplar)| exemplar)
                .filter(|one| range.contains(one.timestamp_ms));
            let exemplars: Vec<Exemplar> = in_range.cloned().collect();
            if !exemplars.is_empty() {
                all.push(SeriesExemplars {
                    labels: labels.clone(),
                    exemplars,
                });
            }
        }
        Ok(all)
    }
}

/// The outcome of restoring an exemplar from the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restored {
    /// The exemplar was added to the ring.
    Added,
    /// The ring has the exemplar already, or has evicted it since.
    Skipped,
    /// The series of the exemplar is unknown.
    UnknownSeries,
}

/// Returns `true` if labels pass all matchers of one of the `selectors`.
fn any_matches(ctx: &QueryContext, selectors: &[Vec<Matcher>], labels: &Labels) -> Result<bool> {
    for matchers in selectors {
        ctx.check()?;
        let mut matches = true;
        for matcher in matchers {
            matches =
                matches && matcher.matches_in(ctx, labels.get(matcher.name()).unwrap_or(""))?;
        }
        if matches {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
