//! Aggregations whose state is a few numbers per group and step.

use varve_promql::ast::{AggregateOp, Span};

use super::histograms::HistogramFold;
use crate::annotations::{Annotation, AnnotationList, Occurrence};
use crate::error::{Error, Result};
use crate::eval::columns::{Column, Limits, Series, StepSet};
use crate::math::kahan::{KahanSum, Mean};

/// The aggregation state of one group at every step.
pub(super) struct Fold {
    op: AggregateOp,
    /// The steps at which the group has a float.
    seen: StepSet,
    state: State,
    /// The state of the histograms; `None` if no series of the group has histograms.
    histograms: Option<Box<HistogramFold>>,
}

/// The state of the floats: one element per step, meaningless for steps that are not in
/// `Fold::seen`.
enum State {
    Sum(Vec<KahanSum>),
    Avg(Vec<Mean>),
    Count(Vec<f64>),
    Min(Vec<f64>),
    Max(Vec<f64>),
    Group(usize),
    Stddev(Vec<Variance>),
    Stdvar(Vec<Variance>),
}

/// Welford's running variance, without compensation, as Prometheus computes it for aggregations.
#[derive(Debug, Clone, Copy)]
struct Variance {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Variance {
    fn new(first: f64) -> Self {
        Self {
            count: 1.0,
            mean: first,
            squares: if first.is_finite() { 0.0 } else { f64::NAN },
        }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }
}

impl Fold {
    /// Creates an empty group.
    ///
    /// # Errors
    /// [`Error::Execution`] for an operator that is not a fold.
    pub(super) fn new(op: AggregateOp, n_steps: usize) -> Result<Self> {
        let state = match op {
            AggregateOp::Sum => State::Sum(vec![KahanSum::new(0.0); n_steps]),
            AggregateOp::Avg => State::Avg(vec![Mean::new(0.0); n_steps]),
            AggregateOp::Count => State::Count(vec![0.0; n_steps]),
            AggregateOp::Min => State::Min(vec![0.0; n_steps]),
            AggregateOp::Max => State::Max(vec![0.0; n_steps]),
            AggregateOp::Group => State::Group(n_steps),
            AggregateOp::Stddev => State::Stddev(vec![Variance::new(0.0); n_steps]),
            AggregateOp::Stdvar => State::Stdvar(vec![Variance::new(0.0); n_steps]),
            _ => return Err(Error::Execution(format!("{} is not a fold", op.as_str()))),
        };
        Ok(Self {
            op,
            seen: StepSet::empty(n_steps),
            state,
            histograms: None,
        })
    }

    /// Returns the size of a group in bytes.
    pub(super) fn size(op: AggregateOp, n_steps: usize) -> usize {
        let element = match op {
            AggregateOp::Sum => size_of::<KahanSum>(),
            AggregateOp::Avg => size_of::<Mean>(),
            AggregateOp::Stddev | AggregateOp::Stdvar => size_of::<Variance>(),
            _ => size_of::<f64>(),
        };
        n_steps * element + n_steps / 8
    }

    /// Adds a series.
    pub(super) fn add(
        &mut self,
        series: &Series,
        annotations: &mut AnnotationList,
        limits: &Limits,
    ) -> Result<()> {
        // Fast path: only floats.
        if series.column.histograms.is_empty() {
            self.add_floats(&series.column);
            return Ok(());
        }
        match self.op {
            // Histograms count like floats.
            AggregateOp::Count | AggregateOp::Group => {
                self.add_floats(&series.column);
            }
            AggregateOp::Sum | AggregateOp::Avg => {
                self.histograms
                    .get_or_insert_with(|| Box::new(HistogramFold::new(self.op, limits)))
                    .add(series, &self.seen, annotations, limits)?;
                self.add_floats(&floats_of(&series.column));
            }
            _ => {
                let histogram_steps = series.column.histogram_steps();
                if !histogram_steps.is_empty() {
                    annotations.add(
                        Annotation::HistogramIgnored(self.op.as_str()),
                        Span::default(),
                        Occurrence::Steps(histogram_steps),
                    );
                }
                self.add_floats(&floats_of(&series.column));
            }
        }
        Ok(())
    }

    /// Adds the floats of a column.
    fn add_floats(&mut self, column: &Column) {
        let Self { seen, state, .. } = self;
        match state {
            State::Sum(sums) => each(column, seen, sums, KahanSum::new, |sum, value| {
                *sum = sum.plus(value)
            }),
            State::Avg(means) => each(column, seen, means, Mean::new, Mean::add),
            State::Count(counts) => each(column, seen, counts, |_| 1.0, |count, _| *count += 1.0),
            State::Min(bests) => each_best(column, seen, bests, |value, best| value < best),
            State::Max(bests) => each_best(column, seen, bests, |value, best| value > best),
            State::Group(_) => seen.union_with(&column.present),
            State::Stddev(variances) | State::Stdvar(variances) => {
                each(column, seen, variances, Variance::new, Variance::add)
            }
        }
    }

    /// Returns the result as a column.
    pub(super) fn finish(self, annotations: &mut AnnotationList) -> Column {
        let values: Vec<f64> = match self.state {
            // iter(), not into_iter(): collecting in place would keep the larger allocation of the
            // state.
            State::Sum(sums) => sums.iter().map(|sum| sum.total()).collect(),
            State::Avg(means) => means.iter().map(|mean| mean.finish()).collect(),
            State::Count(values) | State::Min(values) | State::Max(values) => values,
            State::Group(n_steps) => vec![1.0; n_steps],
            State::Stddev(variances) => variances
                .iter()
                .map(|s| (s.squares / s.count).sqrt())
                .collect(),
            State::Stdvar(variances) => variances.iter().map(|s| s.squares / s.count).collect(),
        };
        let mut column = Column {
            values: values.into(),
            present: self.seen,
            histograms: Vec::new(),
        };
        if let Some(histograms) = self.histograms {
            histograms.finish(&mut column, annotations);
        }
        column
    }
}

/// Returns a column with only the floats.
fn floats_of(column: &Column) -> Column {
    Column {
        values: column.copied_values(),
        present: column.float_steps().into_owned(),
        histograms: Vec::new(),
    }
}

/// Updates the state of each step at which the column has a value. The first value of a step sets
/// it to `start(value)`.
#[inline]
fn each<S>(
    column: &Column,
    seen: &mut StepSet,
    states: &mut [S],
    start: impl Fn(f64) -> S,
    add: impl Fn(&mut S, f64),
) {
    for (step, value) in column.iter() {
        if seen.contains(step) {
            add(&mut states[step], value);
        } else {
            states[step] = start(value);
        }
    }
    seen.union_with(&column.present);
}

/// Updates the best value of each step. Any value is better than NaN.
#[inline]
fn each_best(
    column: &Column,
    seen: &mut StepSet,
    bests: &mut [f64],
    is_better: impl Fn(f64, f64) -> bool,
) {
    each(
        column,
        seen,
        bests,
        |first| first,
        |best, value| {
            if is_better(value, *best) || best.is_nan() {
                *best = value;
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::columns::SampleLimit;

    fn check(op: AggregateOp, series: &[&[Option<f64>]], expect: &[Option<f64>]) {
        let mut fold = Fold::new(op, expect.len()).unwrap();
        let limits = Limits {
            ctx: varve_tsdb::ReadContext::unbounded(),
            samples: SampleLimit::new(1),
        };
        let mut annotations = AnnotationList::default();
        for values in series {
            let mut column = Column::absent(values.len());
            values.iter().enumerate().for_each(|(step, value)| {
                if let Some(value) = value {
                    column.set(step, *value);
                }
            });
            let series = Series {
                labels: varve_model::Labels::empty(),
                drop_name: false,
                column,
            };
            fold.add(&series, &mut annotations, &limits).unwrap();
        }
        let column = fold.finish(&mut annotations);
        let values: Vec<_> = (0..expect.len()).map(|step| column.get(step)).collect();
        assert_eq!(format!("{values:?}"), format!("{expect:?}"), "{op:?}");
    }

    #[test]
    fn steps_are_aggregated_independently() {
        let series: &[&[_]] = &[&[Some(1.0), None, None], &[Some(3.0), Some(5.0), None]];
        check(AggregateOp::Sum, series, &[Some(4.0), Some(5.0), None]);
        check(AggregateOp::Avg, series, &[Some(2.0), Some(5.0), None]);
        check(AggregateOp::Count, series, &[Some(2.0), Some(1.0), None]);
        check(AggregateOp::Group, series, &[Some(1.0), Some(1.0), None]);
        check(AggregateOp::Stdvar, series, &[Some(1.0), Some(0.0), None]);
    }

    #[test]
    fn any_value_is_better_than_nan() {
        let series: &[&[_]] = &[
            &[Some(f64::NAN)],
            &[Some(2.0)],
            &[Some(1.0)],
            &[Some(f64::NAN)],
        ];
        check(AggregateOp::Min, series, &[Some(1.0)]);
        check(AggregateOp::Max, series, &[Some(2.0)]);
        check(AggregateOp::Sum, series, &[Some(f64::NAN)]);
        check(
            AggregateOp::Stddev,
            &[&[Some(f64::INFINITY)]],
            &[Some(f64::NAN)],
        );
    }
}
