//! Warnings and infos about the arguments of `histogram_quantile` and related functions.

use varve_model::Labels;
use varve_promql::ast::Span;

use crate::annotations::{Annotation, ForcedMonotonicity, Occurrence, RaisedExtent};
use crate::error::Result;
use crate::eval::columns::{Series, StepSet};
use crate::eval::evaluator::Evaluator;

impl Evaluator<'_> {
    /// Adds warnings about quantiles outside of [0, 1]. Called after all arguments are evaluated,
    /// so that of equal annotations the outermost position is reported.
    pub(super) fn check_quantiles(&mut self, quantiles: &[f64], span: Span) -> Result<()> {
        // The last invalid quantile and its steps.
        let mut run: Option<(f64, StepSet)> = None;
        for (step, &q) in quantiles.iter().enumerate() {
            if is_valid(q) {
                continue;
            }
            let (_, steps) = match &mut run {
                Some(same) if same.0.to_bits() == q.to_bits() => same,
                _ => {
                    self.limits.check()?;
                    self.add_invalid_quantile(run.take(), span);
                    run.insert((q, StepSet::empty(quantiles.len())))
                }
            };
            steps.insert(step);
        }
        self.add_invalid_quantile(run, span);
        Ok(())
    }

    fn add_invalid_quantile(&mut self, run: Option<(f64, StepSet)>, span: Span) {
        if let Some((q, steps)) = run {
            self.annotations.add(
                Annotation::InvalidQuantile(q),
                span,
                Occurrence::Steps(steps),
            );
        }
    }

    /// Adds the warning about a series whose label `le` is not valid.
    pub(super) fn add_bad_bucket_label(&mut self, series: &Series, label: &str, span: Span) {
        let metric_name = self.known_name(&series.labels);
        self.annotations.add(
            Annotation::BadBucketLabel {
                metric_name,
                label: label.into(),
            },
            span,
            Occurrence::Steps(series.column.present.clone()),
        );
    }

    /// Adds the info about the raised buckets of a classic histogram.
    pub(super) fn add_forced_monotonicity(
        &mut self,
        labels: &Labels,
        extents: Vec<(usize, RaisedExtent)>,
        span: Span,
    ) {
        let Some(extent) = RaisedExtent::of_all(&extents) else {
            return;
        };
        let metric_name = self.known_name(labels);
        self.annotations.add(
            Annotation::ForcedMonotonicity(ForcedMonotonicity {
                metric_name,
                extent,
            }),
            span,
            Occurrence::Raised(extents),
        );
    }

    /// Returns the metric name if it is still known, that is, with delayed name removal; otherwise
    /// an empty string.
    pub(super) fn known_name(&self, labels: &Labels) -> String {
        let delayed = self.settings.features.delayed_name_removal;
        if delayed {
            labels.metric_name().to_owned()
        } else {
            String::new()
        }
    }
}

pub(super) fn is_valid(quantile: f64) -> bool {
    (0.0..=1.0).contains(&quantile)
}
