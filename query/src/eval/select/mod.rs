//! Selectors: the latest sample of every series within the lookback delta, the samples of range
//! functions, and the scans that rules share.

mod instant;
mod samples;
pub(super) mod shared_scans;
mod smoothed;

use std::sync::Arc;

use varve_model::labels::METRIC_NAME;
use varve_model::{Matcher, TimeRange};
use varve_promql::ast::RangeExtension;
use varve_tsdb::select::SelectHints;

use instant::InstantSelection;
pub(super) use instant::SampleField;
pub(super) use samples::RangeSamples;
pub(super) use shared_scans::Selected;
pub use shared_scans::{ScanPlan, SharedScans};

use crate::error::Result;
use crate::eval::evaluator::{Evaluator, Sink};
use crate::eval::stream::{LATEST_BATCH_SERIES, Pipeline, batch_len, batches};
use crate::plan::{Plan, Selector, Shift};
use crate::steps::Steps;

impl Evaluator<'_> {
    /// Streams the series of a selector.
    pub(super) fn each_selected(
        &mut self,
        plan: &Plan,
        selector: &Selector,
        pipeline: &Pipeline<'_>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        match selector.extension {
            Some(RangeExtension::Smoothed) => {
                self.each_smoothed(plan, selector, pipeline, steps, sink)
            }
            // As in Prometheus, an instant selector ignores `anchored`.
            Some(RangeExtension::Anchored) | None => self.each_latest(
                plan.id,
                selector,
                selector.shift,
                SampleField::Value,
                pipeline,
                steps,
                sink,
            ),
        }
    }

    /// Streams for every series and step the latest sample within the lookback delta, unless it is
    /// a staleness marker. `shift` determines the time at which to look; the selector's own shift
    /// determines which samples are read.
    #[expect(
        clippy::too_many_arguments,
        reason = "what to select, which field of it, and where it goes"
    )]
    fn each_latest(
        &mut self,
        id: usize,
        selector: &Selector,
        shift: Shift,
        field: SampleField,
        pipeline: &Pipeline<'_>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let lookback_ms = self.settings.lookback_ms;
        // A single step whose time is the end of the selection needs only the newest sample.
        let only_newest =
            steps.n_steps == 1 && shift == selector.shift && field != SampleField::InfoTimestamp;
        let hints = SelectHints {
            only_newest,
            skip_values: selector.skip_values,
            ..pipeline.hints()
        };
        let set = self.select(selector, steps, lookback_ms, 0, hints)?;
        // Fast path: the newest floats of the heads.
        if only_newest
            && field == SampleField::Value
            && pipeline.passes_series_on()
            && let Selected::Own(set) = &set
            && instant::each_newest_float(set, &mut *sink)?
        {
            return Ok(());
        }
        let batch_len = if only_newest {
            LATEST_BATCH_SERIES
        } else {
            batch_len(steps.n_steps)
        };
        let selection = InstantSelection {
            field,
            shift,
            steps,
            lookback_ms,
            skip_buckets: selector.skip_buckets,
            // Start timestamps are read with their samples.
            only_newest: only_newest && field != SampleField::StartTimestamp,
        };
        self.run(
            id,
            pipeline,
            batches(set, batch_len),
            |batch, out| selection.produce(&batch, &pipeline.limits, out),
            |_| {},
            sink,
        )
    }

    /// Selects the samples that the steps may read: from `before_ms` before the first step,
    /// excluded, to `after_ms` after the last step.
    pub(super) fn select(
        &self,
        selector: &Selector,
        steps: Steps,
        before_ms: i64,
        after_ms: i64,
        hints: SelectHints,
    ) -> Result<Selected> {
        let range = TimeRange {
            start_ms: selector
                .shift
                .apply(steps.start_ms)
                .saturating_sub(before_ms)
                .saturating_add(1),
            end_ms: selector
                .shift
                .apply(steps.last_ms())
                .saturating_add(after_ms),
        };
        let ctx = &self.limits.ctx;
        // Fast path: no external labels.
        if self.external_labels.is_empty() {
            if let Some(scans) = self.scans
                && let Some(shared) = scans.select(self.db, ctx, selector, range, hints.only_newest)
            {
                return Ok(shared);
            }
            return Ok(Selected::Own(Box::new(self.db.select_with(
                ctx,
                &selector.matchers,
                range,
                hints,
            )?)));
        }
        let mut matchers = Vec::with_capacity(selector.matchers.len());
        let mut is_selected = true;
        for matcher in &selector.matchers {
            match self
                .external_labels
                .iter()
                .find(|(name, _)| name == matcher.name())
            {
                Some((_, value)) => is_selected &= matcher.matches_in(ctx, value)?,
                None => matchers.push(matcher.clone()),
            }
        }
        if !is_selected {
            // No series has two names.
            matchers = ["a", "b"]
                .map(|name| Matcher::equal(METRIC_NAME, name))
                .into();
        }
        let set = self.db.select_with(ctx, &matchers, range, hints)?;
        Ok(Selected::Own(Box::new(
            set.with_labels(Arc::clone(&self.external_labels)),
        )))
    }

    /// Streams timestamps or start timestamps of the samples of a plain selector, as
    /// `timestamp(selector)` does. `id` is the expression id of the selector.
    pub(super) fn each_timestamp(
        &mut self,
        id: usize,
        selector: &Selector,
        field: SampleField,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        // With `@`, Prometheus ignores the offset here but still applies it when selecting samples.
        let shift = match selector.shift.at_ms {
            Some(_) => Shift {
                offset_ms: 0,
                ..selector.shift
            },
            None => selector.shift,
        };
        let pipeline = self.pipeline(Vec::new(), steps);
        self.each_latest(id, selector, shift, field, &pipeline, steps, sink)
    }

    /// Streams the timestamps of the samples of info series.
    pub(super) fn each_info(
        &mut self,
        selector: &Selector,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let pipeline = self.pipeline(Vec::new(), steps);
        self.each_latest(
            usize::MAX,
            selector,
            selector.shift,
            SampleField::InfoTimestamp,
            &pipeline,
            steps,
            sink,
        )
    }
}
