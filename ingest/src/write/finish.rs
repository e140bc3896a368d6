//! The end of a request: counts what was stored, stores the metadata, and returns the outcome to
//! the sender.

use varve_model::{Rejection, TenantLabels};

use super::metadata;
use super::request::{Request, Write, Writer};
use crate::admission::Team;
use crate::error::WriteError;
use crate::outcome::{Rejections, SeriesSample, Written};

impl Write<'_> {
    /// Counts pushed samples for their relabel rules and teams, and deduplicated samples for their
    /// cluster.
    pub(super) fn count_attributed(&mut self) {
        self.settings
            .ha
            .count_sender_deduplicated(self.n_sender_deduplicated);

        let by_team = &mut self.out.by_team;
        self.settings
            .relabeling
            .attributions
            .count(&mut self.out.attributed, by_team);
        let n_attributed: u64 = by_team.iter().map(|(_, n)| n).sum();
        by_team.push((Team::NONE, self.stored.total.saturating_sub(n_attributed)));
        self.permit.budgets().count_samples(by_team);
        by_team.clear();
    }

    /// Stores the metadata of a request whose samples are stored.
    ///
    /// # Errors
    /// If the store cannot write the metadata. The samples are stored by then, which the sender does
    /// not learn. A retry is safe: the store recognizes each sample that it already has as an exact
    /// repetition, counts it as stored, and the retry writes the metadata. Metadata is not written
    /// first, since it would then describe series of a request that may still be denied.
    pub(super) fn store_metadata(&mut self) -> Result<(), WriteError> {
        let Request { message, batch, .. } = self.request;
        // Version 2.0 sends metadata with every series: the sender must not drop samples for it.
        let invalid_metadata = if self.request.is_v2() {
            &mut self.ignored
        } else {
            &mut self.rejections
        };
        metadata::write(
            &self.receiver.db,
            &TenantLabels::new(self.permit.labels),
            message,
            &batch.families,
            invalid_metadata,
        )
    }

    /// Returns the outcome to the sender.
    pub(super) fn finish(mut self) -> Written {
        self.stored.histograms -= self.out.histograms_rejected;

        // If there are no bounds, all times count.
        let bounds = self.receiver.db.bounds().ok();
        let batch = self.request.batch;
        let times = batch.times(|time_ms| {
            bounds.is_none_or(|bounds| bounds.first_sample_rejection(time_ms).is_none())
        });
        Written {
            stored: self.stored,
            dropped: self.dropped,
            deduplicated: self.deduplicated,
            exemplars: std::mem::take(&mut self.out.exemplars),
            rejections: self.rejections,
            ignored: self.ignored,
            times,
            replica: self.settings.ha.replica(),
            series: SeriesSample::of(batch.keys(), batch.n_series(), &self.request.sender_labels),
            points: None,
        }
    }

    /// Returns the rejected samples of the server itself.
    pub(crate) fn rejections(self) -> Rejections {
        self.rejections
    }

    /// Counts stored samples of rules for their team, and returns those that were not stored,
    /// by the index of their series.
    pub(crate) fn finish_rules(self) -> Vec<Rejection> {
        if let Writer::Rules(_, team) = self.request.writer {
            let n_samples = self.request.batch.n_all_samples() as u64;
            let n_rejected = self.rule_rejections.len() as u64;
            self.permit
                .budgets()
                .count_samples(&[(team, n_samples - n_rejected)]);
        }
        self.rule_rejections
    }
}
