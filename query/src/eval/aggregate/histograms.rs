//! `sum` and `avg` of histograms.
//!
//! Histograms and floats cannot be added: a group has no result at a step that has both.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_context::Charge;
use varve_model::histogram::ResetHint;
use varve_promql::ast::{AggregateOp, Span};

use crate::annotations::{
    Annotation, AnnotationList, HistogramOperation, Occurrence, SeriesAnnotation,
};
use crate::error::Result;
use crate::eval::columns::{Column, Limits, Series, StepSet};
use crate::histogram::{Combined, FloatHistogram, HistogramMean, HistogramSum, MixedSchemas};

/// The histogram state of a group, by step.
pub(super) struct HistogramFold {
    op: AggregateOp,
    steps: BTreeMap<usize, Step>,
    /// Charge for the memory of the steps.
    charge: Charge,
}

#[derive(Default)]
struct Step {
    state: State,
    has_reset: bool,
    has_no_reset: bool,
}

#[derive(Default)]
enum State {
    /// The step has a float and a histogram, and the float came first. Histograms are not
    /// aggregated.
    #[default]
    Mixed,
    Sum(HistogramSum),
    Mean(HistogramMean),
    /// The histograms have both exponential and custom buckets. Further histograms are ignored.
    Incompatible {
        had_floats: bool,
    },
}

/// Copies of a step that are charged: two in the map of steps, whose nodes may be half empty, and
/// one in the list of results.
const CHARGED_STEP_COPIES: usize = 3;

impl HistogramFold {
    pub(super) fn new(op: AggregateOp, limits: &Limits) -> Self {
        Self {
            op,
            steps: BTreeMap::new(),
            charge: limits.ctx.charge(),
        }
    }

    /// Adds the histograms of a series. `floats` are the steps at which the group already has a
    /// float.
    pub(super) fn add(
        &mut self,
        series: &Series,
        floats: &StepSet,
        annotations: &mut AnnotationList,
        limits: &Limits,
    ) -> Result<()> {
        for (step, histogram) in series.column.histograms() {
            limits.check()?;
            match self.steps.get_mut(&step) {
                Some(known) => {
                    known.record_hint(histogram);
                    let added = known.state.add(step, histogram, series, annotations);
                    if added.is_none() {
                        known.state = State::Incompatible {
                            had_floats: floats.contains(step),
                        };
                    }
                    self.charge.grow(added.unwrap_or(0))?;
                }
                None => {
                    let state = if floats.contains(step) {
                        State::Mixed
                    } else {
                        State::new(self.op, histogram)
                    };
                    let mut new = Step {
                        state,
                        ..Step::default()
                    };
                    self.charge
                        .grow(CHARGED_STEP_COPIES * size_of::<Step>() + new.state.size())?;
                    new.record_hint(histogram);
                    self.steps.insert(step, new);
                }
            }
        }
        Ok(())
    }

    /// Writes the results to `column`, which holds the results of the floats.
    pub(super) fn finish(self, column: &mut Column, annotations: &mut AnnotationList) {
        let floats = column.present.clone();
        for (
            step,
            Step {
                state,
                has_reset,
                has_no_reset,
            },
        ) in self.steps
        {
            column.present.remove(step);
            let mut result = match state {
                State::Incompatible { had_floats: false } => continue,
                _ if floats.contains(step) => {
                    annotations.add(
                        Annotation::MixedAggregation,
                        Span::default(),
                        Occurrence::at(step),
                    );
                    continue;
                }
                State::Sum(sum) => sum.finish(),
                State::Mean(mean) => mean.finish(),
                State::Mixed | State::Incompatible { .. } => continue,
            };
            result.compact();
            column.push_histogram(step, Arc::new(result));
            if has_reset && has_no_reset {
                annotations.add(
                    Annotation::CounterResetCollision(HistogramOperation::Aggregation),
                    Span::default(),
                    Occurrence::at(step),
                );
            }
        }
    }
}

impl Step {
    fn record_hint(&mut self, histogram: &FloatHistogram) {
        if !matches!(self.state, State::Mixed | State::Incompatible { .. }) {
            self.has_reset |= histogram.reset_hint == ResetHint::Reset;
            self.has_no_reset |= histogram.reset_hint == ResetHint::NoReset;
        }
    }
}

impl State {
    fn new(op: AggregateOp, first: &FloatHistogram) -> Self {
        match op {
            AggregateOp::Avg => Self::Mean(HistogramMean::new(first.clone())),
            _ => Self::Sum(HistogramSum::new(first.clone())),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Sum(sum) => sum.size(),
            Self::Mean(mean) => mean.size(),
            Self::Mixed | Self::Incompatible { .. } => 0,
        }
    }

    /// Adds a histogram at a step. Returns the number of bytes by which the state grows, or `None`
    /// if the histograms are incompatible.
    fn add(
        &mut self,
        step: usize,
        histogram: &FloatHistogram,
        series: &Series,
        annotations: &mut AnnotationList,
    ) -> Option<usize> {
        let before = self.size();
        let added = match self {
            Self::Mixed | Self::Incompatible { .. } => return Some(0),
            Self::Sum(sum) => sum.add(histogram),
            Self::Mean(mean) => mean.add(histogram),
        };
        match added {
            Ok(Combined {
                custom_bounds_reconciled,
                ..
            }) => {
                if custom_bounds_reconciled {
                    annotations.add(
                        Annotation::CustomBoundsReconciled(HistogramOperation::Aggregation),
                        Span::default(),
                        Occurrence::at(step),
                    );
                }
                Some(self.size().saturating_sub(before))
            }
            Err(MixedSchemas) => {
                annotations.add(
                    SeriesAnnotation::MixedSchemas.of_metric(series.labels.metric_name()),
                    Span::default(),
                    Occurrence::at(step),
                );
                None
            }
        }
    }
}
