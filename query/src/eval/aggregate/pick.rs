//! `topk`, `bottomk`, `limitk`, `limit_ratio`: some series of each group, unchanged.
//!
//! A step picks by taking away presence from the series it does not pick; no value is copied. What cannot be picked any more
//! is let go as series come.

use varve_tsdb::context::Charge;

use super::super::Evaluator;
use super::super::column::Bits;
use super::super::grid::Grid;
use super::super::keys::Keys;
use super::super::scalar::Scalars;
use super::super::series::{Bounds, Series, Vector, series_size};
use super::super::sort::compare;
use super::{Groups, ParamRange};
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
        let refused = check_range(range);
        let bounds = self.bounds.clone();
        let mut picks = Picks::new(aggregate, ks, &bounds);
        let mut hold = bounds.samples.hold();
        self.each_series(&aggregate.expr, grid, &mut |series| {
            // As in Prometheus samples count until the aggregation is done, though they are not kept.
            hold.grow(series.column.n_samples())?;
            match range.max < 1.0 || refused.is_err() {
                true => Ok(()),
                false => picks.offer(series),
            }
        })?;
        drop(hold);
        if range.max < 1.0 {
            return Ok(self.bounds.vector());
        }
        refused?;
        if picks.ignored_histograms {
            self.annotations.add(Note::HistogramIgnored(aggregate.op.as_str()), span);
        }
        picks.finish(&bounds)
    }

    /// `limit_ratio(r, v)`: the series whose hash lies in the first part of all hashes, or for negative ratios in the
    /// last.
    pub(super) fn limit_ratio(&mut self, aggregate: &Aggregate, grid: Grid) -> Result<Vector> {
        let (ratios, range) = self.param(aggregate, grid)?;
        let bounds = self.bounds.clone();
        let (mut picked, mut hold, mut charge) = (bounds.vector(), bounds.samples.hold(), bounds.ctx.charge());
        let (mut groups, mut group_of) = (Groups::new(aggregate), Vec::new());
        self.each_series(&aggregate.expr, grid, &mut |mut series| {
            bounds.check()?;
            let n_samples = series.column.n_samples();
            let (number, is_new) = groups.number(&series.labels);
            if is_new {
                charge.grow(Keys::size(groups.labels(number)))?;
            }
            let offset = sampling_offset(&series.labels);
            let is_picked = |ratio: f64| if ratio >= 0.0 { offset < ratio } else { offset >= 1.0 + ratio };
            series.column.present.retain(|step| {
                let ratio = ratios[step].clamp(-1.0, 1.0);
                ratio != 0.0 && is_picked(ratio)
            });
            // As in Prometheus samples count until the aggregation is done, though they are not kept.
            hold.grow(n_samples - series.column.n_samples())?;
            if !series.column.present.is_empty() {
                charge.grow(2 * size_of::<usize>())?;
                group_of.push(number);
                picked.push(series)?;
            }
            Ok(())
        })?;
        drop(hold);
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
        if grid.n_steps == 1 {
            let order = order_of_limit_ratio(&picked, &group_of);
            reorder(&mut picked, &order);
        }
        Ok(picked)
    }
}

/// Fails if a parameter of `topk` and its kin is no number of series.
fn check_range(range: ParamRange) -> Result<()> {
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
    Ok(())
}

/// What was picked so far: of each group and step the best candidates, and the series that they are of.
struct Picks<'a> {
    groups: Groups<'a>,
    ks: Scalars,
    op: AggregateOp,
    /// By group, then by step.
    heaps: Vec<Vec<Heap>>,
    /// Those that were picked at some step, in the order in which they came; `None` if no heap has them any more.
    series: Vec<Option<Picked>>,
    /// There were histograms, which only `limitk` picks.
    ignored_histograms: bool,
    bounds: &'a Bounds,
    charge: Charge,
}

/// A series that some heaps have.
struct Picked {
    series: Box<Series>,
    n_uses: usize,
}

impl<'a> Picks<'a> {
    fn new(aggregate: &'a Aggregate, ks: Scalars, bounds: &'a Bounds) -> Self {
        Self {
            groups: Groups::new(aggregate),
            ks,
            op: aggregate.op,
            heaps: Vec::new(),
            series: Vec::new(),
            ignored_histograms: false,
            bounds,
            charge: bounds.ctx.charge(),
        }
    }

    /// Looks at a series, the next in order.
    fn offer(&mut self, mut series: Series) -> Result<()> {
        self.bounds.check()?;
        if self.op != AggregateOp::Limitk && !series.column.histograms.is_empty() {
            self.ignored_histograms |= series.column.histograms().any(|(step, _)| self.ks[step] >= 1.0);
            series.column.keep_floats();
        }
        let (number, new) = self.groups.number(&series.labels);
        if new {
            let n_steps = self.ks.len();
            self.charge.grow(n_steps * size_of::<Heap>() + Keys::size(self.groups.labels(number)))?;
            let of_step = |&k: &f64| Heap::new(self.op, if k < 1.0 { 0 } else { k as usize });
            self.heaps.push(self.ks.iter().map(of_step).collect());
        }
        self.charge.grow(series_size(&series) + 2 * size_of::<usize>())?;
        let (at, mut n_uses) = (self.series.len(), 0);
        for (step, value) in series.column.iter() {
            match self.heaps[number][step].offer(Entry { value, at }) {
                Offered::Refused => continue,
                Offered::Taken => self.charge.grow(2 * size_of::<Entry>())?,
                Offered::InPlaceOf(other) => self.let_go(other),
            }
            n_uses += 1;
        }
        match n_uses {
            0 => self.charge.shrink(series_size(&series)),
            _ => self.series.push(Some(Picked { series: Box::new(series), n_uses })),
        }
        Ok(())
    }

    /// Takes a series out of one heap.
    fn let_go(&mut self, at: usize) {
        // What is being offered is in a heap only once.
        let Some(picked) = &mut self.series[at] else { return };
        picked.n_uses -= 1;
        if picked.n_uses == 0 {
            self.charge.shrink(series_size(&picked.series));
            self.series[at] = None;
        }
    }

    /// Returns the series that were picked, each at the steps at which it was; those of a single step in the order of the
    /// heaps.
    fn finish(mut self, bounds: &Bounds) -> Result<Vector> {
        let n_steps = self.ks.len();
        self.series.iter_mut().flatten().for_each(|picked| picked.series.column.present = Bits::none(n_steps));
        let mut order = Vec::new();
        for heaps in &mut self.heaps {
            for (step, heap) in heaps.iter_mut().enumerate() {
                for picked in heap.entries.iter().map(|entry| entry.at) {
                    if let Some(picked) = &mut self.series[picked] {
                        picked.series.column.present.insert(step);
                    }
                }
            }
            if let [heap] = &mut heaps[..] {
                order.extend(heap.sorted().iter().map(|entry| entry.at));
            }
        }
        let mut vector = bounds.vector();
        let mut places = vec![usize::MAX; self.series.len()];
        for (place, picked) in places.iter_mut().zip(self.series) {
            if let Some(picked) = picked {
                *place = vector.series.len();
                vector.push(*picked.series)?;
            }
        }
        if n_steps == 1 {
            reorder(&mut vector, &order.iter().map(|&at| places[at]).collect::<Vec<_>>());
        }
        Ok(vector)
    }
}

/// Returns the series of the only step in the order in which Prometheus' heaps hold them, group after group.
fn order_of_limit_ratio(picked: &Vector, group_of: &[usize]) -> Vec<usize> {
    let n_groups = group_of.iter().map(|&number| number + 1).max().unwrap_or(0);
    let mut heaps: Vec<_> = (0..n_groups).map(|_| Heap::new(AggregateOp::LimitRatio, usize::MAX)).collect();
    for (at, (series, &number)) in picked.series.iter().zip(group_of).enumerate() {
        if let Some(value) = series.column.get(0) {
            heaps[number].offer(Entry { value, at });
        }
    }
    heaps.iter().flat_map(|heap| heap.entries.iter().map(|entry| entry.at)).collect()
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

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offered {
    Refused,
    Taken,
    /// Another one had to go.
    InPlaceOf(usize),
}

/// The best `k` candidates, the worst of them first, as a heap. Which of several equals stay depends on how the heap is
/// built, so it is built in the way of Go's `container/heap`.
struct Heap {
    op: AggregateOp,
    k: usize,
    entries: Vec<Entry>,
}

impl Heap {
    fn new(op: AggregateOp, k: usize) -> Self {
        Self { op, k, entries: Vec::new() }
    }

    fn offer(&mut self, entry: Entry) -> Offered {
        if self.entries.len() < self.k {
            self.entries.push(entry);
            self.up(self.entries.len() - 1);
            return Offered::Taken;
        }
        if self.k > 0 && self.op != AggregateOp::Limitk {
            let Entry { value: worst, at } = self.entries[0];
            if self.worse(worst, entry.value) && !worst.is_nan() || (worst.is_nan() && !entry.value.is_nan()) {
                self.entries[0] = entry;
                self.down();
                return Offered::InPlaceOf(at);
            }
        }
        Offered::Refused
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
        let mut heap = Heap::new(op, k);
        for (at, &value) in values.iter().enumerate() {
            heap.offer(Entry { value, at });
        }
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
