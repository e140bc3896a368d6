//! Writes a decoded batch into the store. All samples take this way: those of senders, those of
//! recording and alerting rules, and those of the server itself.
//!
//! The steps are those of [`admission`](crate::admission). A source takes steps 3 to 5 when it asks
//! for a permit, and step 6 when it decodes. [`Write::store`] takes the others, in this order. The
//! first pass over a request stores the samples of known series, and creates new series if
//! admission control allows it without waiting. Each later pass first waits in the queue, and
//! handles the series that the previous pass deferred.
//!
//! | | sender | rules | server itself |
//! | --- | --- | --- | --- |
//! | steps | all | 3 to 5 | none |
//! | label sets | parsed, deduplicated, relabeled | valid as they are | valid as they are |
//! | a new series | created, deferred or rejected | created or rejected | created |
//! | a rejected sample | counted, with an example | listed by its index | counted, with an example |
//!
//! Within a pass, `push` fills the batch for the store, `resolve` finds or creates the series
//! without a cached route, and `append` hands the batch to the store. `finish` counts the
//! outcome and stores the metadata.

mod append;
pub(crate) mod buffers;
mod denial;
pub(crate) mod exemplars;
mod finish;
mod metadata;
mod push;
mod request;
mod resolve;
mod routes;

pub(crate) use request::{Decoded, RejectedSamples, Write, Writer};
#[cfg(test)]
pub(crate) use routes::NEW_ROUTES_MAX;

use crate::admission::DeferredSeries;
use crate::error::WriteError;
use crate::outcome::Written;
use crate::route::Route;
use append::ROUNDS_MAX;

impl Write<'_> {
    /// Stores a request of a sender.
    ///
    /// # Errors
    /// See [`WriteError`]. If the store cannot create a series, the samples of known series are
    /// stored before the error is returned.
    pub(crate) fn store(mut self) -> Result<Written, WriteError> {
        self.store_sent()?;
        Ok(self.finish())
    }

    /// Reserves the memory for [`Write::store_noting_rejected`].
    ///
    /// # Errors
    /// If there is too little.
    pub(crate) fn noting_rejected(mut self) -> Result<Self, WriteError> {
        let n_samples = self.request.batch.n_all_samples();
        self.permit
            .memory
            .grow(n_samples * RejectedSamples::INDEX_SIZE)?;
        self.rejected_samples = Some(RejectedSamples::default());
        Ok(self)
    }

    /// Stores a request of a sender as [`Write::store`] does. Returns the samples that are not
    /// stored as well: those that were rejected, and after an error those that the store was not
    /// given.
    pub(crate) fn store_noting_rejected(
        mut self,
    ) -> (Result<Written, WriteError>, RejectedSamples) {
        let outcome = self.store_sent();
        if outcome.is_err() {
            self.note_unstored();
        }
        let mut rejected = self.rejected_samples.take().unwrap_or_default();
        rejected.sort();
        (outcome.map(|()| self.finish()), rejected)
    }

    fn store_sent(&mut self) -> Result<(), WriteError> {
        // IMPORTANT: before the first change. A malformed request stores nothing.
        self.check_unknown_labels()?;

        self.permit.start();
        self.pass(None)?;

        let stored = if self.deferred.series.is_empty() {
            Ok(())
        } else {
            self.store_deferred()
        };
        // What was stored counts, also if the rest of the request failed.
        self.count_attributed();
        stored?;

        self.store_metadata()?;
        self.settings.ha.ensure_decided()
    }

    /// Stores the deferred series, in as many passes as necessary.
    fn store_deferred(&mut self) -> Result<(), WriteError> {
        self.permit.enqueue(&self.deferred)?;

        let mut stored_nothing = false;
        while !self.deferred.series.is_empty() {
            self.permit.wait_for_rates(&self.deferred, stored_nothing)?;
            if self.defers_new_series() {
                self.permit.wait_to_create(&self.deferred)?;
            }
            let series = self.deferred.take_series();
            // Yields after every few series that it creates.
            self.pass(Some(&series))?;
            stored_nothing = self.deferred.series.len() == series.len();
        }
        Ok(())
    }

    /// Returns `true` if new series are deferred. Known series need no permit to create series: they
    /// are deferred only because of their team's sample rate.
    fn defers_new_series(&self) -> bool {
        self.deferred
            .series
            .iter()
            .any(|deferred| self.routes[deferred.series_idx as usize].is_none())
    }

    /// Runs one pass over all series, or over the series that the previous pass deferred.
    fn pass(&mut self, series: Option<&[DeferredSeries]>) -> Result<(), WriteError> {
        self.out.batch.clear();
        self.n_created = 0;
        self.n_unknown = 0;
        self.bounds = None;

        self.admit_samples(series);
        let pushed = match series {
            None => self.push_all(),
            Some(series) => self.push_deferred(series),
        };
        self.push_exemplars(series);

        // What was pushed is stored, also if a series could not be created.
        let appended = self.append();
        self.cache_new_routes();
        // Keeps the permit during the append: the samples of new series are as expensive as those
        // of many known series, under the same locks.
        self.permit.end_pass();
        self.defer_evicted();
        self.stored.total += appended?;
        pushed
    }

    /// Defers the series of this pass that were evicted before their samples were stored. The
    /// samples count for their team and relabel rules in the pass that stores them.
    fn defer_evicted(&mut self) {
        let out = &mut *self.out;
        for &series_idx in &out.evicted {
            if let Some(Route::Series(_, attribution)) = self.routes[series_idx as usize].take() {
                let n_samples = self.request.batch.n_samples_of(series_idx as usize) as u64;
                out.attributed.remove(attribution, n_samples);
            }
            self.deferred.insert(series_idx);
        }
        if !out.evicted.is_empty() {
            out.pushed_before.extend_from_slice(&out.evicted);
            out.pushed_before.sort_unstable();
            out.pushed_before.dedup();
        }
    }

    /// Takes the samples of known series from the budgets of their teams. Denies the samples of
    /// teams that exceed their budget.
    fn admit_samples(&mut self, series: Option<&[DeferredSeries]>) {
        let budgets = self.permit.budgets();
        if !budgets.bounds_samples() {
            return;
        }
        match series {
            None => {
                for series_idx in 0..self.routes.len() {
                    self.request_samples(series_idx);
                }
            }
            Some(series) => {
                for deferred in series {
                    self.request_samples(deferred.series_idx as usize);
                }
            }
        }
        self.settings
            .relabeling
            .attributions
            .by_team(&mut self.out.requested, &mut self.out.by_team);
        budgets.admit_samples(&self.out.by_team, |team, denied| {
            self.deferred.deny_samples(team, denied);
        });
        self.out.by_team.clear();
    }

    fn request_samples(&mut self, series_idx: usize) {
        if let Some(Route::Series(_, attribution)) = self.routes[series_idx] {
            let n_samples = self.request.batch.n_samples_of(series_idx) as u64;
            self.out.requested.add_any(attribution, n_samples);
        }
    }

    /// Stores samples of rules, or of the server itself.
    ///
    /// # Errors
    /// See [`WriteError`]. If a series cannot be found or created in the first round, nothing is
    /// stored. After a later error, some of the samples may be stored.
    pub(crate) fn store_internal(&mut self) -> Result<(), WriteError> {
        let mut pending: Vec<u32> = (0..self.request.batch.series.len() as u32).collect();
        for _ in 0..ROUNDS_MAX {
            self.out.batch.clear();
            self.push_internal(&pending)?;
            let appended = self.append();
            self.cache_new_routes();
            self.stored.total += appended?;

            // Evicted between the look-up and the append, so they are created again.
            pending.clone_from(&self.out.evicted);
            if pending.is_empty() {
                return Ok(());
            }
            for &series_idx in &pending {
                self.routes[series_idx as usize] = None;
            }
        }
        Err(WriteError::Moved)
    }
}
