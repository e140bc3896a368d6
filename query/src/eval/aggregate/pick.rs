//! `topk`, `bottomk`, `limitk`, `limit_ratio`: some series of each group, unchanged.
//!
//! A step picks by taking away presence from the series it does not pick; nothing is copied.

use super::super::Evaluator;
use super::super::column::Bits;
use super::super::grid::Grid;
use super::super::series::Vector;
use super::super::sort::compare;
use super::members;
use crate::annotations::Note;
use crate::error::{Error, Result};
use crate::functions::Direction;
use crate::functions::label::sampling_offset;
use crate::plan::Aggregate;
use crate::promql::ast::{AggregateOp, Span};

/// Parameters from here on do not fit Prometheus' integers.
const INTEGER_MAX: f64 = 9_223_372_036_854_775_807.0;

impl Evaluator<'_> {
    /// `topk(k, v)`, `bottomk(k, v)`, `limitk(k, v)`
    pub(super) fn pick(&mut self, aggregate: &Aggregate, span: Span, grid: Grid) -> Result<Vector> {
        let (ks, range) = self.param(aggregate, grid)?;
        let mut input = self.vector(&aggregate.expr, grid)?;
        let n_series = input.series.len();
        if range.max < 1.0 {
            return Ok(self.bounds.vector());
        }
        if range.any_nan {
            return Err(Error::Execution("Parameter value is NaN".into()));
        }
        for (bad, what, value) in
            [(range.min <= -INTEGER_MAX, "underflows", range.min), (range.max >= INTEGER_MAX, "overflows", range.max)]
        {
            if bad {
                let value = crate::promql::number::short(value);
                return Err(Error::Execution(format!("Scalar value {value} {what} int64")));
            }
        }
        if aggregate.op != AggregateOp::Limitk {
            self.ignore_histograms(aggregate.op, &mut input, span, |step| ks[step] >= 1.0);
        }
        let (_, groups) = members(aggregate, &input);
        let mut order = Vec::new();
        for group in &groups {
            let mut kept = vec![Bits::none(grid.n_steps); group.len()];
            let mut heap = Heap::new(aggregate.op);
            for (step, &k) in ks.iter().enumerate() {
                self.bounds.check()?;
                heap.clear(if k < 1.0 { 0 } else { (k as usize).min(n_series) });
                for (at, &member) in group.iter().enumerate() {
                    if let Some(value) = input.series[member].column.get(step) {
                        heap.offer(Entry { value, at });
                    }
                }
                heap.sorted().iter().for_each(|entry| kept[entry.at].insert(step));
            }
            for (steps, &member) in kept.into_iter().zip(group) {
                input.series[member].column.present = steps;
            }
            // The order at the last step is that of an instant vector.
            order.extend(heap.sorted().iter().map(|entry| group[entry.at]));
        }
        if grid.n_steps == 1 {
            reorder(&mut input, &order);
        }
        input.drop_empty();
        Ok(input)
    }

    /// `limit_ratio(r, v)`: the series whose hash lies in the first part of all hashes, or for negative ratios in the
    /// last.
    pub(super) fn limit_ratio(&mut self, aggregate: &Aggregate, grid: Grid) -> Result<Vector> {
        let (ratios, range) = self.param(aggregate, grid)?;
        let mut input = self.vector(&aggregate.expr, grid)?;
        if range.max == 0.0 && range.min == 0.0 {
            return Ok(self.bounds.vector());
        }
        if range.any_nan {
            return Err(Error::Execution("Ratio value is NaN".into()));
        }
        let span = aggregate.param.as_ref().map_or_else(Default::default, |param| param.span);
        for ratio in range.outside(-1.0, 1.0) {
            self.annotations.add(Note::InvalidRatio(ratio, ratio.signum()), span);
        }
        for series in &mut input.series {
            self.bounds.check()?;
            let offset = sampling_offset(&series.labels);
            let picked = |ratio: f64| if ratio >= 0.0 { offset < ratio } else { offset >= 1.0 + ratio };
            series.column.present.retain(|step| {
                let ratio = ratios[step].clamp(-1.0, 1.0);
                ratio != 0.0 && picked(ratio)
            });
        }
        if grid.n_steps == 1 {
            let order = order_of_limit_ratio(aggregate, &input);
            reorder(&mut input, &order);
        }
        input.drop_empty();
        Ok(input)
    }
}

/// Returns the series that are left at the only step in the order in which Prometheus' heap holds them.
fn order_of_limit_ratio(aggregate: &Aggregate, input: &Vector) -> Vec<usize> {
    let (_, groups) = members(aggregate, input);
    let mut heap = Heap::new(aggregate.op);
    let mut order = Vec::new();
    for group in &groups {
        heap.clear(group.len());
        for (at, &member) in group.iter().enumerate() {
            if let Some(value) = input.series[member].column.get(0) {
                heap.offer(Entry { value, at });
            }
        }
        order.extend(heap.sorted().iter().map(|entry| group[entry.at]));
    }
    order
}

/// Puts the series named first, in this order; the others have no values.
fn reorder(vector: &mut Vector, order: &[usize]) {
    let mut place = vec![usize::MAX; vector.series.len()];
    order.iter().enumerate().for_each(|(at, &series)| place[series] = at);
    let mut series: Vec<_> = std::mem::take(&mut vector.series).into_iter().zip(place).collect();
    series.sort_by_key(|&(_, place)| place);
    vector.series = series.into_iter().map(|(series, _)| series).collect();
}

/// A candidate: its value, and its place in the group.
#[derive(Debug, Clone, Copy)]
struct Entry {
    value: f64,
    at: usize,
}

/// The best `k` candidates, the worst of them first, as a heap. Which of several equals stay depends on how the heap is
/// built, so it is built in the way of Go's `container/heap`.
struct Heap {
    op: AggregateOp,
    k: usize,
    entries: Vec<Entry>,
}

impl Heap {
    fn new(op: AggregateOp) -> Self {
        Self { op, k: 0, entries: Vec::new() }
    }

    fn clear(&mut self, k: usize) {
        self.k = k;
        self.entries.clear();
    }

    fn offer(&mut self, entry: Entry) {
        if self.entries.len() < self.k {
            self.entries.push(entry);
            self.up(self.entries.len() - 1);
        } else if self.k > 0 && self.op != AggregateOp::Limitk {
            let worst = self.entries[0].value;
            if self.worse(worst, entry.value) && !worst.is_nan() || (worst.is_nan() && !entry.value.is_nan()) {
                self.entries[0] = entry;
                self.down();
            }
        }
    }

    /// Sorts the candidates, the best first.
    fn sorted(&mut self) -> &[Entry] {
        let direction = match self.op {
            AggregateOp::Topk => Direction::Descending,
            AggregateOp::Bottomk => Direction::Ascending,
            _ => return &self.entries,
        };
        self.entries.sort_by(|a, b| compare(a.value, b.value, direction));
        &self.entries
    }

    /// Tells whether `a` is to go before `b`; NaN goes first.
    fn worse(&self, a: f64, b: f64) -> bool {
        match self.op {
            AggregateOp::Bottomk => a.is_nan() || a > b,
            // With limits values decide nothing but the order of the result.
            _ => a.is_nan() || a < b,
        }
    }

    fn up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.worse(self.entries[at].value, self.entries[parent].value) {
                break;
            }
            self.entries.swap(at, parent);
            at = parent;
        }
    }

    fn down(&mut self) {
        let mut at = 0;
        while let Some(left) = self.entries.get(2 * at + 1) {
            let right = self.entries.get(2 * at + 2).filter(|right| self.worse(right.value, left.value));
            let child = 2 * at + 1 + usize::from(right.is_some());
            if !self.worse(self.entries[child].value, self.entries[at].value) {
                break;
            }
            self.entries.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: AggregateOp, k: usize, values: &[f64], expect: &[usize]) {
        let mut heap = Heap::new(op);
        heap.clear(k);
        values.iter().enumerate().for_each(|(at, &value)| heap.offer(Entry { value, at }));
        assert_eq!(heap.sorted().iter().map(|entry| entry.at).collect::<Vec<_>>(), expect, "{op:?} {values:?}");
    }

    #[test]
    fn the_best_are_picked_and_nan_is_never_better() {
        check(AggregateOp::Topk, 2, &[1.0, 3.0, 2.0], &[1, 2]);
        check(AggregateOp::Bottomk, 2, &[1.0, 3.0, 2.0], &[0, 2]);
        check(AggregateOp::Topk, 2, &[f64::NAN, 1.0, f64::NAN, 0.0], &[1, 3]);
        check(AggregateOp::Topk, 5, &[f64::NAN, 1.0], &[1, 0]);
        check(AggregateOp::Topk, 0, &[1.0], &[]);
    }

    #[test]
    fn limits_take_what_comes_first() {
        check(AggregateOp::Limitk, 2, &[1.0, 3.0, 2.0], &[0, 1]);
        check(AggregateOp::Limitk, 3, &[1.0, 3.0, 0.5, 2.0], &[2, 1, 0]);
    }
}
