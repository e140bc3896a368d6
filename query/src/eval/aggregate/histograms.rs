//! `sum` and `avg` of histograms.
//!
//! Histograms and numbers cannot be added: a step of a group that has both has no result.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_tsdb::histogram::ResetHint;

use super::super::column::{Bits, Column};
use super::super::series::Series;
use super::fold::add_note;
use crate::annotations::{HistogramOperation, Note, Remark};
use crate::histogram::{Added, FloatHistogram, HistogramMean, HistogramSum, MixedSchemas};
use crate::promql::ast::AggregateOp;

/// What a group has had of histograms, by step.
pub(super) struct HistogramFold {
    op: AggregateOp,
    steps: BTreeMap<usize, Step>,
}

#[derive(Default)]
struct Step {
    state: State,
    resets: bool,
    no_resets: bool,
}

#[derive(Default)]
enum State {
    /// Numbers came first, so that there is nothing to add up.
    #[default]
    Mixed,
    Sum(HistogramSum),
    Mean(HistogramMean),
    /// Exponential buckets met buckets with bounds of their own; what comes later is not looked at.
    Incompatible {
        had_numbers: bool,
    },
}

impl HistogramFold {
    pub(super) fn new(op: AggregateOp) -> Self {
        Self { op, steps: BTreeMap::new() }
    }

    /// Adds the histograms of a series; `floats` are the steps at which there has been a number. Returns the bytes that it
    /// takes more than before, at most.
    pub(super) fn add(&mut self, series: &Series, floats: &Bits, notes: &mut Vec<Note>) -> usize {
        let mut size = 0;
        for (step, histogram) in series.column.histograms() {
            match self.steps.get_mut(&step) {
                Some(known) => {
                    known.note_hint(histogram);
                    let added = known.state.add(histogram, series, notes);
                    if added.is_none() {
                        known.state = State::Incompatible { had_numbers: floats.contains(step) };
                    }
                    size += added.unwrap_or(0);
                }
                None => {
                    let state = if floats.contains(step) { State::Mixed } else { State::new(self.op, histogram) };
                    let mut new = Step { state, ..Step::default() };
                    size += size_of::<Step>() + new.state.size();
                    new.note_hint(histogram);
                    self.steps.insert(step, new);
                }
            }
        }
        size
    }

    /// Puts the results into the column of the numbers.
    pub(super) fn finish(self, column: &mut Column, notes: &mut Vec<Note>) {
        let numbers = column.present.clone();
        for (step, Step { state, resets, no_resets }) in self.steps {
            column.present.remove(step);
            let mut result = match state {
                State::Incompatible { had_numbers: false } => continue,
                _ if numbers.contains(step) => {
                    add_note(notes, Note::MixedAggregation);
                    continue;
                }
                State::Sum(sum) => sum.finish(),
                State::Mean(mean) => mean.finish(),
                State::Mixed | State::Incompatible { .. } => continue,
            };
            result.compact();
            column.push_histogram(step, Arc::new(result));
            if resets && no_resets {
                add_note(notes, Note::ResetsCollide(HistogramOperation::Aggregation));
            }
        }
    }
}

impl Step {
    fn note_hint(&mut self, histogram: &FloatHistogram) {
        if !matches!(self.state, State::Mixed | State::Incompatible { .. }) {
            self.resets |= histogram.reset_hint == ResetHint::Reset;
            self.no_resets |= histogram.reset_hint == ResetHint::NoReset;
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

    /// Adds a histogram; returns the bytes that it takes more than before, `None` if the histograms do not go together.
    fn add(&mut self, histogram: &FloatHistogram, series: &Series, notes: &mut Vec<Note>) -> Option<usize> {
        let before = self.size();
        let added = match self {
            Self::Mixed | Self::Incompatible { .. } => return Some(0),
            Self::Sum(sum) => sum.add(histogram),
            Self::Mean(mean) => mean.add(histogram),
        };
        match added {
            Ok(Added { bounds_reconciled, .. }) => {
                if bounds_reconciled {
                    add_note(notes, Note::BoundsReconciled(HistogramOperation::Aggregation));
                }
                Some(self.size().saturating_sub(before))
            }
            Err(MixedSchemas) => {
                add_note(notes, Remark::MixedSchemas.about(series.labels.metric_name()));
                None
            }
        }
    }
}
