//! `sort`, `sort_by_label` and their kin: the order of an instant vector.

use std::cmp::Ordering;

use super::Evaluator;
use super::grid::Grid;
use super::label::text_arg;
use super::series::Vector;
use crate::annotations::Note;
use crate::error::Result;
use crate::functions::{Direction, label};
use crate::plan::Plan;

impl Evaluator<'_> {
    /// Sorts by value, NaN last in either direction; histograms are left out. In a range query series are in order of labels whatever was asked.
    pub(super) fn sort(&mut self, plan: &Plan, arg: &Plan, direction: Direction, grid: Grid) -> Result<Vector> {
        self.warn_if_range(plan, grid);
        let mut vector = self.vector(arg, grid)?;
        vector.keep_floats();
        if grid.n_steps == 1 {
            vector.series.sort_by(|a, b| compare(a.column.values[0], b.column.values[0], direction));
        }
        Ok(vector)
    }

    /// Sorts by labels in natural order, then by all labels.
    pub(super) fn sort_by_label(
        &mut self,
        plan: &Plan,
        args: &[Plan],
        direction: Direction,
        grid: Grid,
    ) -> Result<Vector> {
        self.warn_if_range(plan, grid);
        let names = args[1..].iter().map(text_arg).collect::<Result<Vec<_>>>()?;
        let mut vector = self.vector(&args[0], grid)?;
        vector.series.sort_by(|a, b| {
            let by_name = names.iter().map(|name| {
                let (a, b) = (a.labels.get(name).unwrap_or(""), b.labels.get(name).unwrap_or(""));
                label::natural_order(a, b)
            });
            let order = by_name.fold(Ordering::Equal, Ordering::then).then_with(|| a.labels.cmp(&b.labels));
            if direction == Direction::Ascending { order } else { order.reverse() }
        });
        Ok(vector)
    }

    fn warn_if_range(&mut self, plan: &Plan, grid: Grid) {
        if grid.n_steps > 1 {
            self.annotations.add(Note::SortInRangeQuery, plan.span);
        }
    }
}

/// Compares values; NaN is behind all others.
pub(super) fn compare(a: f64, b: f64, direction: Direction) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then_with(|| {
        let order = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
        if direction == Direction::Ascending { order } else { order.reverse() }
    })
}
