//! `sort`, `sort_by_label` and related functions: sort an instant vector.

use std::cmp::Ordering;

use super::label::string_arg;
use crate::annotations::Annotation;
use crate::error::Result;
use crate::eval::Evaluator;
use crate::eval::columns::Vector;
use crate::eval::grid::Grid;
use crate::functions::Direction;
use crate::functions::sort::{compare, natural_order};
use crate::plan::Plan;

impl Evaluator<'_> {
    /// Sorts by value, NaN last in either direction, and drops histograms. Does not sort in a range query, whose series
    /// are in label order.
    pub(super) fn sort(&mut self, plan: &Plan, arg: &Plan, direction: Direction, grid: Grid) -> Result<Vector> {
        self.warn_if_range(plan, grid);
        let mut vector = self.vector(arg, grid)?;
        vector.keep_floats();
        if grid.n_steps == 1 {
            vector.series.sort_by(|a, b| compare(a.column.values[0], b.column.values[0], direction));
        }
        Ok(vector)
    }

    /// Sorts by the given labels in natural order, then by all labels.
    pub(super) fn sort_by_label(
        &mut self,
        plan: &Plan,
        args: &[Plan],
        direction: Direction,
        grid: Grid,
    ) -> Result<Vector> {
        self.warn_if_range(plan, grid);
        let names = args[1..].iter().map(string_arg).collect::<Result<Vec<_>>>()?;
        let mut vector = self.vector(&args[0], grid)?;
        vector.series.sort_by(|a, b| {
            let by_name = names.iter().map(|name| {
                let (a, b) = (a.labels.get(name).unwrap_or(""), b.labels.get(name).unwrap_or(""));
                natural_order(a, b)
            });
            let order = by_name.fold(Ordering::Equal, Ordering::then).then_with(|| a.labels.cmp(&b.labels));
            if direction == Direction::Ascending { order } else { order.reverse() }
        });
        Ok(vector)
    }

    fn warn_if_range(&mut self, plan: &Plan, grid: Grid) {
        if grid.n_steps > 1 {
            self.annotations.add(Annotation::SortInRangeQuery, plan.span);
        }
    }
}
