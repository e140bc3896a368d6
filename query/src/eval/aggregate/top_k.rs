//! `topk`, `bottomk`, `limitk`, `limit_ratio`: select series of each group without changing their
//! values.
//!
//! A series becomes absent at the steps that do not select it; no value is copied. A series that no
//! step selects any more is dropped before the remaining input is read.
//!
//! A group needs heaps only from its `k + 1`th series on. Most groups of
//! `topk by (cluster, namespace, pod) (1, …)` have one series.

use varve_context::Charge;
use varve_promql::ast::{AggregateOp, Span};
use varve_promql::decimal::General;
use varve_tsdb::select::LabelHint;

use super::heap::{Entry, Heap, Offer};
use super::{Groups, ParamRange};
use crate::annotations::{Annotation, Occurrence};
use crate::error::{Error, Result};
use crate::eval::columns::{GroupingKeys, Limits, Scalars, Series, StepSet, Vector, series_size};
use crate::eval::evaluator::Evaluator;
use crate::functions::sampling::sampling_offset;
use crate::plan::{Aggregate, Order};
use crate::steps::Steps;

/// Parameters from this value on overflow Prometheus' 64-bit integers.
const INTEGER_MAX: f64 = 9_223_372_036_854_775_807.0;

impl Evaluator<'_> {
    /// `topk(k, v)`, `bottomk(k, v)`, `limitk(k, v)`
    pub(super) fn top_k(
        &mut self,
        aggregate: &Aggregate,
        span: Span,
        steps: Steps,
    ) -> Result<Vector> {
        let (ks, range) = self.param(aggregate, steps)?;
        let valid = check_range(range);
        let limits = self.limits.clone();
        let mut selection = TopK::new(aggregate, ks, range, &limits);
        self.each_input(
            &aggregate.expr,
            steps,
            &LabelHint::All,
            false,
            1,
            &mut |series| {
                if range.max < 1.0 || valid.is_err() {
                    Ok(())
                } else {
                    selection.offer(series)
                }
            },
        )?;
        if range.max < 1.0 {
            return Ok(self.limits.vector());
        }
        valid?;
        if !selection.ignored_histograms.is_empty() {
            self.annotations.add(
                Annotation::HistogramIgnored(aggregate.op.as_str()),
                span,
                Occurrence::Steps(selection.ignored_histograms.clone()),
            );
        }
        if selection.has_tie()
            && aggregate.expr.order(self.settings.subquery_step_ms) != Some(Order::Fixed)
        {
            self.is_order_fixed = false;
        }
        selection.finish(&limits)
    }

    /// `limit_ratio(r, v)`: selects the series whose hash is in the first part of the hash space,
    /// or in the last part if the ratio is negative.
    pub(super) fn limit_ratio(&mut self, aggregate: &Aggregate, steps: Steps) -> Result<Vector> {
        let (ratios, range) = self.param(aggregate, steps)?;
        let limits = self.limits.clone();
        let mut selected = limits.vector();
        let mut held = limits.samples.guard();
        let mut charge = limits.ctx.charge();
        let mut groups = Groups::new(aggregate);
        let mut group_of = Vec::new();
        self.each_series(&aggregate.expr, steps, &mut |mut series| {
            limits.check()?;
            let n_samples = series.column.n_samples();
            let (group, is_new) = groups.intern(&series.labels, &limits)?;
            if is_new {
                charge.grow(GroupingKeys::size(groups.labels(group)))?;
            }
            let offset = sampling_offset(&series.labels);
            series.column.present.retain(|step| {
                let ratio = ratios[step].clamp(-1.0, 1.0);
                if ratio >= 0.0 {
                    ratio != 0.0 && offset < ratio
                } else {
                    offset >= 1.0 + ratio
                }
            });
            // As in Prometheus, unselected samples count as held until the aggregation ends.
            held.grow(n_samples - series.column.n_samples())?;
            if !series.column.present.is_empty() {
                charge.grow(2 * size_of::<usize>())?;
                group_of.push(group);
                selected.push(series)?;
            }
            Ok(())
        })?;
        drop(held);
        if range.max == 0.0 && range.min == 0.0 {
            return Ok(self.limits.vector());
        }
        if range.any_nan {
            return Err(Error::Execution("Ratio value is NaN".into()));
        }
        let span = aggregate
            .param
            .as_ref()
            .map_or_else(Default::default, |param| param.span);
        for ratio in range.outside(-1.0, 1.0) {
            self.annotations.add(
                Annotation::InvalidRatio(ratio, ratio.signum()),
                span,
                Occurrence::Steps(StepSet::full(steps.n_steps)),
            );
        }
        if steps.n_steps == 1 {
            let order = order_of_limit_ratio(&selected, &group_of);
            reorder(&mut selected, &order);
        }
        Ok(selected)
    }
}

/// Fails if the parameter of `topk`, `bottomk` or `limitk` is not a valid number of series at every
/// step.
fn check_range(range: ParamRange) -> Result<()> {
    if range.any_nan {
        return Err(Error::Execution("Parameter value is NaN".into()));
    }
    for (bad, what, value) in [
        (range.min <= -INTEGER_MAX, "underflows", range.min),
        (range.max >= INTEGER_MAX, "overflows", range.max),
    ] {
        if bad {
            let value = General(value);
            return Err(Error::Execution(format!(
                "Scalar value {value} {what} int64"
            )));
        }
    }
    Ok(())
}

/// The series selected so far.
struct TopK<'a> {
    groups: Groups<'a>,
    ks: Scalars,
    /// The smallest `k` of all steps: every step selects all series of a group that has at most
    /// this many.
    k_min: usize,
    op: AggregateOp,
    /// The selected series of each group.
    selected: Vec<GroupSelection>,
    /// Series in order of arrival; `None` once no step selects the series.
    series: Vec<Option<Selected>>,
    /// The steps at which histograms were ignored; only `limitk` selects them.
    ignored_histograms: StepSet,
    limits: &'a Limits,
    charge: Charge,
}

/// The selected series of a group.
enum GroupSelection {
    /// All of its series, at most `k_min`, by index.
    All(Vec<usize>),
    /// The series in the heaps, one heap per step.
    Heaps(Vec<Heap>),
}

/// A series that is in at least one heap, or in a group without heaps.
struct Selected {
    series: Box<Series>,
    /// The number of heaps that contain the series.
    n_uses: usize,
}

impl<'a> TopK<'a> {
    fn new(aggregate: &'a Aggregate, ks: Scalars, range: ParamRange, limits: &'a Limits) -> Self {
        let n_steps = ks.len();
        Self {
            groups: Groups::new(aggregate),
            ks,
            k_min: if range.min < 1.0 {
                0
            } else {
                range.min as usize
            },
            op: aggregate.op,
            selected: Vec::new(),
            series: Vec::new(),
            ignored_histograms: StepSet::empty(n_steps),
            limits,
            charge: limits.ctx.charge(),
        }
    }

    /// Offers a series to its group.
    fn offer(&mut self, mut series: Series) -> Result<()> {
        self.limits.check()?;
        if self.op != AggregateOp::Limitk && !series.column.histograms.is_empty() {
            for (step, _) in series.column.histograms() {
                if self.ks[step] >= 1.0 {
                    self.ignored_histograms.insert(step);
                }
            }
            series.column.keep_floats();
        }
        let (group, is_new) = self.groups.intern(&series.labels, self.limits)?;
        if is_new {
            self.charge.grow(
                size_of::<GroupSelection>() + GroupingKeys::size(self.groups.labels(group)),
            )?;
            self.selected.push(GroupSelection::All(Vec::new()));
        }
        if series.column.present.is_empty() {
            return Ok(());
        }
        // With its entries in `series` and in a list of members: a list may have twice the capacity
        // that it needs.
        let size = series_size(&series) + 6 * size_of::<usize>();
        self.charge.grow(size)?;
        let series_idx = self.series.len();
        if let GroupSelection::All(members) = &mut self.selected[group] {
            // Fast path: every step selects all series of the group.
            if members.len() < self.k_min {
                members.push(series_idx);
                self.series.push(Some(Selected {
                    series: Box::new(series),
                    n_uses: 0,
                }));
                return Ok(());
            }
            self.build_heaps(group)?;
        }
        match self.offer_to_heaps(group, series_idx, &series)? {
            0 => self.charge.shrink(size),
            n_uses => self.series.push(Some(Selected {
                series: Box::new(series),
                n_uses,
            })),
        }
        Ok(())
    }

    /// Builds the heaps of a group from the series that have been offered.
    fn build_heaps(&mut self, group: usize) -> Result<()> {
        self.charge.grow(self.ks.len() * size_of::<Heap>())?;
        let heaps = GroupSelection::Heaps(
            self.ks
                .iter()
                .map(|&k| Heap::new(self.op, if k < 1.0 { 0 } else { k as usize }))
                .collect(),
        );
        if let GroupSelection::All(members) = std::mem::replace(&mut self.selected[group], heaps) {
            for series_idx in members {
                // Every step selects the series, so `release` is not called meanwhile.
                if let Some(mut member) = self.series[series_idx].take() {
                    member.n_uses = self.offer_to_heaps(group, series_idx, &member.series)?;
                    self.series[series_idx] = Some(member);
                }
            }
        }
        Ok(())
    }

    /// Offers a series to the heaps of its group. Returns the number of heaps that contain it now.
    fn offer_to_heaps(
        &mut self,
        group: usize,
        series_idx: usize,
        series: &Series,
    ) -> Result<usize> {
        let mut n_uses = 0;
        for (step, value) in series.column.iter() {
            let GroupSelection::Heaps(heaps) = &mut self.selected[group] else {
                break;
            };
            match heaps[step].offer(Entry { value, series_idx }) {
                Offer::Rejected => continue,
                Offer::Added => self.charge.grow(2 * size_of::<Entry>())?,
                Offer::Replaced(other) => self.release(other),
            }
            n_uses += 1;
        }
        Ok(n_uses)
    }

    /// Records that a heap no longer contains the series at index `at`. Drops the series if that
    /// was the last heap.
    fn release(&mut self, series_idx: usize) {
        // The series being offered is not stored yet, and is at most once in each heap.
        let Some(selected) = &mut self.series[series_idx] else {
            return;
        };
        selected.n_uses -= 1;
        if selected.n_uses == 0 {
            self.charge.shrink(series_size(&selected.series));
            self.series[series_idx] = None;
        }
    }

    /// Returns `true` if the order of the series has decided which of several equal values are
    /// selected. A group without heaps excludes no series.
    fn has_tie(&self) -> bool {
        self.selected
            .iter()
            .any(|group| matches!(group, GroupSelection::Heaps(heaps) if heaps.iter().any(Heap::has_tie)))
    }

    /// Returns the selected series, present at the steps that selected them. If there is a single
    /// step, they are in heap order.
    fn finish(mut self, limits: &Limits) -> Result<Vector> {
        let n_steps = self.ks.len();
        for group in 0..self.selected.len() {
            // Several series of a single step are returned in the order of a heap.
            if n_steps == 1
                && matches!(&self.selected[group], GroupSelection::All(members) if members.len() > 1)
            {
                self.build_heaps(group)?;
            }
        }
        let in_heaps = self
            .series
            .iter_mut()
            .flatten()
            .filter(|selected| selected.n_uses > 0);
        for selected in in_heaps {
            selected.series.column.present = StepSet::empty(n_steps);
        }
        let mut order = Vec::new();
        for of_group in &mut self.selected {
            let heaps = match of_group {
                GroupSelection::All(members) => {
                    order.append(members);
                    continue;
                }
                GroupSelection::Heaps(heaps) => heaps,
            };
            for (step, heap) in heaps.iter_mut().enumerate() {
                for series_idx in heap.entries.iter().map(|entry| entry.series_idx) {
                    if let Some(selected) = &mut self.series[series_idx] {
                        selected.series.column.present.insert(step);
                    }
                }
            }
            if let [heap] = &mut heaps[..] {
                order.extend(heap.sorted().iter().map(|entry| entry.series_idx));
            }
        }
        let mut vector = limits.vector();
        let mut indexes = vec![usize::MAX; self.series.len()];
        for (index, selected) in indexes.iter_mut().zip(self.series) {
            if let Some(selected) = selected {
                *index = vector.series.len();
                vector.push(*selected.series)?;
            }
        }
        if n_steps == 1 {
            reorder(
                &mut vector,
                &order
                    .iter()
                    .map(|&series_idx| indexes[series_idx])
                    .collect::<Vec<_>>(),
            );
        }
        Ok(vector)
    }
}

/// Returns the indexes of the selected series of a single step in the order of Prometheus' heaps,
/// group by group.
fn order_of_limit_ratio(selected: &Vector, group_of: &[usize]) -> Vec<usize> {
    let n_groups = group_of.iter().map(|&group| group + 1).max().unwrap_or(0);
    let mut heaps: Vec<_> = (0..n_groups)
        .map(|_| Heap::new(AggregateOp::LimitRatio, usize::MAX))
        .collect();
    for (series_idx, (series, &group)) in selected.series.iter().zip(group_of).enumerate() {
        if let Some(value) = series.column.get(0) {
            heaps[group].offer(Entry { value, series_idx });
        }
    }
    heaps
        .iter()
        .flat_map(|heap| heap.entries.iter().map(|entry| entry.series_idx))
        .collect()
}

/// Moves the series at the indexes in `order` to the front, in this order. All other series have no
/// values.
fn reorder(vector: &mut Vector, order: &[usize]) {
    let mut ranks = vec![usize::MAX; vector.series.len()];
    for (rank, &series) in order.iter().enumerate() {
        ranks[series] = rank;
    }
    let mut series: Vec<_> = std::mem::take(&mut vector.series)
        .into_iter()
        .zip(ranks)
        .collect();
    series.sort_by_key(|&(_, rank)| rank);
    vector.series = series.into_iter().map(|(series, _)| series).collect();
}
