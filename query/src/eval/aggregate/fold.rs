//! Aggregations that need no more than a few numbers per group and step.

use super::super::column::{Bits, Column};
use super::super::series::Series;
use super::histograms::HistogramFold;
use crate::annotations::Note;
use crate::error::{Error, Result};
use crate::float::{KahanSum, Mean};
use crate::promql::ast::AggregateOp;

/// The state of one group at every step.
pub(super) struct Fold {
    op: AggregateOp,
    /// The steps at which the group has had a number.
    seen: Bits,
    state: State,
    /// What the group has had of histograms.
    histograms: Option<Box<HistogramFold>>,
}

/// One element per step; meaningless until the step has been seen.
enum State {
    Sum(Vec<KahanSum>),
    Avg(Vec<Mean>),
    Count(Vec<f64>),
    Min(Vec<f64>),
    Max(Vec<f64>),
    Group(usize),
    Stddev(Vec<Spread>),
    Stdvar(Vec<Spread>),
}

/// Welford's running variance, as Prometheus has it for aggregations: without compensation.
#[derive(Debug, Clone, Copy)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn new(first: f64) -> Self {
        Self { count: 1.0, mean: first, squares: if first.is_finite() { 0.0 } else { f64::NAN } }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }
}

impl Fold {
    /// Starts an empty group.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operator that is no fold.
    pub(super) fn new(op: AggregateOp, n_steps: usize) -> Result<Self> {
        let zeros = || vec![0.0; n_steps];
        let state = match op {
            AggregateOp::Sum => State::Sum(vec![KahanSum::new(0.0); n_steps]),
            AggregateOp::Avg => State::Avg(vec![Mean::new(0.0); n_steps]),
            AggregateOp::Count => State::Count(zeros()),
            AggregateOp::Min => State::Min(zeros()),
            AggregateOp::Max => State::Max(zeros()),
            AggregateOp::Group => State::Group(n_steps),
            AggregateOp::Stddev => State::Stddev(vec![Spread::new(0.0); n_steps]),
            AggregateOp::Stdvar => State::Stdvar(vec![Spread::new(0.0); n_steps]),
            _ => return Err(Error::Unsupported(format!("aggregation {} is not supported yet", op.as_str()))),
        };
        Ok(Self { op, seen: Bits::none(n_steps), state, histograms: None })
    }

    /// Returns the bytes that a group takes.
    pub(super) fn size(op: AggregateOp, n_steps: usize) -> usize {
        let element = match op {
            AggregateOp::Sum => size_of::<KahanSum>(),
            AggregateOp::Avg => size_of::<Mean>(),
            AggregateOp::Stddev | AggregateOp::Stdvar => size_of::<Spread>(),
            _ => size_of::<f64>(),
        };
        n_steps * element + n_steps / 8
    }

    /// Adds a series; returns the bytes that its histograms take from now on. Each thing to be said is added to `notes`.
    pub(super) fn add(&mut self, series: &Series, notes: &mut Vec<Note>) -> usize {
        // Fast path: only floats.
        if series.column.histograms.is_empty() {
            self.add_floats(&series.column);
            return 0;
        }
        match self.op {
            // A histogram counts as a number does.
            AggregateOp::Count | AggregateOp::Group => {
                self.add_floats(&series.column);
                0
            }
            AggregateOp::Sum | AggregateOp::Avg => {
                let histograms = self.histograms.get_or_insert_with(|| Box::new(HistogramFold::new(self.op)));
                let size = histograms.add(series, &self.seen, notes);
                self.add_floats(&floats_of(&series.column));
                size
            }
            _ => {
                if series.column.histograms().next().is_some() {
                    add_note(notes, Note::HistogramIgnored(self.op.as_str()));
                }
                self.add_floats(&floats_of(&series.column));
                0
            }
        }
    }

    /// Adds the numbers of a column.
    fn add_floats(&mut self, column: &Column) {
        let Self { seen, state, .. } = self;
        match state {
            State::Sum(sums) => each(column, seen, sums, KahanSum::new, |sum, value| *sum = sum.plus(value)),
            State::Avg(means) => each(column, seen, means, Mean::new, Mean::add),
            State::Count(counts) => each(column, seen, counts, |_| 1.0, |count, _| *count += 1.0),
            State::Min(bests) => each(
                column,
                seen,
                bests,
                |value| value,
                |best, value| {
                    if *best > value || best.is_nan() {
                        *best = value;
                    }
                },
            ),
            State::Max(bests) => each(
                column,
                seen,
                bests,
                |value| value,
                |best, value| {
                    if *best < value || best.is_nan() {
                        *best = value;
                    }
                },
            ),
            State::Group(_) => seen.unite(&column.present),
            State::Stddev(spreads) | State::Stdvar(spreads) => each(column, seen, spreads, Spread::new, Spread::add),
        }
    }

    /// Returns the result.
    pub(super) fn finish(self, notes: &mut Vec<Note>) -> Column {
        let values = match self.state {
            State::Sum(sums) => sums.into_iter().map(KahanSum::total).collect(),
            State::Avg(means) => means.into_iter().map(Mean::finish).collect(),
            State::Count(values) | State::Min(values) | State::Max(values) => values,
            State::Group(n_steps) => vec![1.0; n_steps],
            State::Stddev(spreads) => spreads.into_iter().map(|s| (s.squares / s.count).sqrt()).collect(),
            State::Stdvar(spreads) => spreads.into_iter().map(|s| s.squares / s.count).collect(),
        };
        let mut column = Column { values, present: self.seen, histograms: Vec::new() };
        if let Some(histograms) = self.histograms {
            histograms.finish(&mut column, notes);
        }
        column
    }
}

/// Adds what is to be said, once.
pub(super) fn add_note(notes: &mut Vec<Note>, note: Note) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Returns a column with the numbers only.
fn floats_of(column: &Column) -> Column {
    Column { values: column.values.clone(), present: column.float_steps().into_owned(), histograms: Vec::new() }
}

/// Starts or continues the state of each step at which the column has a value.
#[inline]
fn each<S>(column: &Column, seen: &mut Bits, states: &mut [S], start: impl Fn(f64) -> S, add: impl Fn(&mut S, f64)) {
    for (step, value) in column.iter() {
        if seen.contains(step) {
            add(&mut states[step], value);
        } else {
            states[step] = start(value);
        }
    }
    seen.unite(&column.present);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: AggregateOp, series: &[&[Option<f64>]], expect: &[Option<f64>]) {
        let mut fold = Fold::new(op, expect.len()).unwrap();
        for values in series {
            let mut column = Column::absent(values.len());
            values.iter().enumerate().for_each(|(step, value)| {
                if let Some(value) = value {
                    column.set(step, *value);
                }
            });
            fold.add(&Series { labels: varve_tsdb::Labels::empty(), drop_name: false, column }, &mut Vec::new());
        }
        let column = fold.finish(&mut Vec::new());
        let values: Vec<_> = (0..expect.len()).map(|step| column.get(step)).collect();
        assert_eq!(format!("{values:?}"), format!("{expect:?}"), "{op:?}");
    }

    #[test]
    fn each_step_is_a_group_of_its_own() {
        let series: &[&[_]] = &[&[Some(1.0), None, None], &[Some(3.0), Some(5.0), None]];
        check(AggregateOp::Sum, series, &[Some(4.0), Some(5.0), None]);
        check(AggregateOp::Avg, series, &[Some(2.0), Some(5.0), None]);
        check(AggregateOp::Count, series, &[Some(2.0), Some(1.0), None]);
        check(AggregateOp::Group, series, &[Some(1.0), Some(1.0), None]);
        check(AggregateOp::Stdvar, series, &[Some(1.0), Some(0.0), None]);
    }

    #[test]
    fn nan_loses_against_anything() {
        let series: &[&[_]] = &[&[Some(f64::NAN)], &[Some(2.0)], &[Some(1.0)], &[Some(f64::NAN)]];
        check(AggregateOp::Min, series, &[Some(1.0)]);
        check(AggregateOp::Max, series, &[Some(2.0)]);
        check(AggregateOp::Sum, series, &[Some(f64::NAN)]);
        check(AggregateOp::Stddev, &[&[Some(f64::INFINITY)]], &[Some(f64::NAN)]);
    }
}
