//! Writing what an evaluation computed, and staleness markers for what ended.

use std::collections::BTreeSet;

use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{Labels, RejectionReason, Sample};

use super::evaluate::{GroupEvaluation, Mode};
use crate::rule::Rule;
use crate::storage::{Failure, Output, OutputBudget};

impl GroupEvaluation<'_> {
    /// Writes the samples of a rule, which are of `series`, and staleness markers for series
    /// that it no longer writes. Returns the reason for the first rejection.
    pub(super) fn write(
        &self,
        rule: &Rule,
        budget: OutputBudget,
        mut outputs: Vec<Output>,
        mut series: BTreeSet<Labels>,
    ) -> Result<Option<String>, Failure> {
        let n_outputs = outputs.len();
        let vanished: Vec<Labels> = rule
            .state
            .lock()
            .previous_series
            .difference(&series)
            .cloned()
            .collect();
        let timestamp_ms = self.timestamp_ms();
        outputs.extend(
            vanished
                .into_iter()
                .map(|labels| stale(labels, timestamp_ms)),
        );
        if outputs.is_empty() {
            return Ok(None);
        }

        let mut rejections = self.storage.append(budget, &outputs)?;
        // Rejected staleness markers do not count: another rule may have continued their series.
        // Nor do duplicates while the group catches up: it repeats the evaluation before the outage,
        // whose samples may be in the store, computed from less data.
        rejections.retain(|rejection| {
            let is_duplicate = rejection.reason == RejectionReason::Duplicate;
            (rejection.index as usize) < n_outputs && !(is_duplicate && self.mode == Mode::CatchUp)
        });

        let state = &mut rule.state.lock();
        for rejection in &rejections {
            let labels = &outputs[rejection.index as usize].labels;
            // Nothing of this series is stored, so it needs no staleness marker. A series of
            // `state.previous_series` has an earlier sample, so it still has to end.
            if !state.previous_series.contains(labels) {
                series.remove(labels);
            }
        }
        state.previous_series = series;
        Ok(rejections.first().map(|rejection| {
            let labels = &outputs[rejection.index as usize].labels;
            format!("series {labels}: {}", rejection.reason)
        }))
    }

    /// Ends series of earlier rules that no rule has continued.
    pub(super) fn write_stale(&self) {
        let mut series = std::mem::take(&mut self.group.state.lock().stale);
        for rule in &self.group.rules {
            let state = rule.state.lock();
            series.retain(|labels| !state.previous_series.contains(labels));
        }
        if series.is_empty() {
            return;
        }
        let _background = self.storage.start_background();
        let timestamp_ms = self.timestamp_ms();
        let outputs: Vec<Output> = series
            .iter()
            .map(|labels| stale(labels.clone(), timestamp_ms))
            .collect();
        if self.storage.append(OutputBudget::Exempt, &outputs).is_err() {
            self.group.state.lock().stale = series;
        }
    }
}

/// Returns a staleness marker.
pub(super) fn stale(labels: Labels, timestamp_ms: i64) -> Output {
    let sample = Sample {
        timestamp_ms,
        value: f64::from_bits(STALE_NAN_BITS),
    };
    Output {
        labels,
        sample,
        histogram: None,
    }
}
