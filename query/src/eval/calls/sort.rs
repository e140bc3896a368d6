//! `sort`, `sort_by_label` and related functions: sort an instant vector.

use std::cmp::Ordering;

use hashbrown::HashMap;

use super::label::string_arg;
use crate::annotations::{Annotation, Occurrence};
use crate::error::Result;
use crate::eval::columns::Vector;
use crate::eval::evaluator::Evaluator;
use crate::eval::sort::sort_by;
use crate::functions::Direction;
use crate::functions::sort::{compare, natural_order};
use crate::plan::Plan;
use crate::steps::Steps;

impl Evaluator<'_> {
    /// Sorts by value, NaN last in either direction, and drops histograms. With several steps it
    /// does not sort: the series of a range query are in label order.
    pub(super) fn sort(
        &mut self,
        plan: &Plan,
        arg: &Plan,
        direction: Direction,
        steps: Steps,
    ) -> Result<Vector> {
        let mut vector = self.vector(arg, steps)?;
        self.warn_if_range(plan, steps);
        vector.keep_floats();
        if steps.n_steps == 1 {
            sort_by(&mut vector.series, &self.limits, |a, b| {
                compare(a.column.values[0], b.column.values[0], direction)
            })?;
        }
        Ok(vector)
    }

    /// Sorts by the given labels in natural order, then by all labels.
    pub(super) fn sort_by_label(
        &mut self,
        plan: &Plan,
        args: &[Plan],
        direction: Direction,
        steps: Steps,
    ) -> Result<Vector> {
        let mut ranks = HashMap::new();
        for (rank, name) in args[1..].iter().enumerate() {
            ranks.entry(string_arg(name)?).or_insert(rank);
        }
        let mut vector = self.vector(&args[0], steps)?;
        self.warn_if_range(plan, steps);
        let mut charge = self.limits.ctx.charge();
        let mut keyed = Vec::with_capacity(vector.series.len());
        for series in std::mem::take(&mut vector.series) {
            self.limits.check()?;
            let mut key: Vec<(usize, &str)> = series
                .labels
                .iter()
                .filter_map(|(name, value)| Some((*ranks.get(name)?, value)))
                .collect();
            key.sort_unstable();
            charge.grow(
                2 * key.len() * size_of::<(usize, Box<str>)>()
                    + series.labels.size()
                    + size_of::<Key>(),
            )?;
            keyed.push((
                key.into_iter()
                    .map(|(rank, value)| (rank, value.into()))
                    .collect::<Key>(),
                series,
            ));
        }
        sort_by(&mut keyed, &self.limits, |(a_key, a), (b_key, b)| {
            let order = compare_keys(a_key, b_key).then_with(|| a.labels.cmp(&b.labels));
            if direction == Direction::Ascending {
                order
            } else {
                order.reverse()
            }
        })?;
        vector.series = keyed.into_iter().map(|(_, series)| series).collect();
        Ok(vector)
    }

    /// Adds the warning that sorting has no effect on a range query. Called after the argument is
    /// evaluated, so that of nested functions the outermost is reported.
    fn warn_if_range(&mut self, plan: &Plan, steps: Steps) {
        if steps.start_ms != steps.end_ms {
            self.annotations
                .add(Annotation::SortInRangeQuery, plan.span, Occurrence::Unknown);
        }
    }
}

/// The labels of a series by which it is sorted: their position among the arguments, ascending, and
/// their values.
type Key = Box<[(usize, Box<str>)]>;

/// Compares keys in natural order of the values; a missing label is first. Cost: linear in the
/// labels of the series, not in the number of arguments.
fn compare_keys(a: &Key, b: &Key) -> Ordering {
    let by_label = a.iter().zip(b).map(|((a_rank, a), (b_rank, b))| {
        // The series whose label comes first among the arguments has a label that the other one
        // lacks.
        b_rank.cmp(a_rank).then_with(|| natural_order(a, b))
    });
    by_label
        .fold(Ordering::Equal, Ordering::then)
        .then_with(|| a.len().cmp(&b.len()))
}
