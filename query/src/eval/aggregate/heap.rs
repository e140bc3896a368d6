//! The heaps of `topk`, `bottomk` and `limitk`: the best candidates of a group at one step.

use varve_promql::ast::AggregateOp;

use crate::functions::Direction;
use crate::functions::sort::compare;

/// A candidate for selection: its value, and the index of its series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) value: f64,
    pub(super) series_idx: usize,
}

/// The outcome of offering a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Rejected,
    Added,
    /// The candidate replaced that of the series at this index.
    Replaced(usize),
}

/// A heap of the best `k` candidates, worst first. The algorithm is that of Go's `container/heap`,
/// because it determines which of several equal candidates remain.
pub(super) struct Heap {
    pub(super) op: AggregateOp,
    pub(super) k: usize,
    pub(super) entries: Vec<Entry>,
    /// The best value that was rejected or replaced.
    pub(super) best_excluded: Option<f64>,
}

impl Heap {
    pub(super) fn new(op: AggregateOp, k: usize) -> Self {
        Self {
            op,
            k,
            entries: Vec::new(),
            best_excluded: None,
        }
    }

    /// Returns `true` if an excluded value equals the worst value of the heap.
    pub(super) fn has_tie(&self) -> bool {
        match (self.entries.first(), self.best_excluded) {
            (Some(worst), Some(excluded)) => {
                !self.worse(excluded, worst.value) || excluded.is_nan() && worst.value.is_nan()
            }
            _ => false,
        }
    }

    pub(super) fn exclude(&mut self, value: f64) {
        if self
            .best_excluded
            .is_none_or(|best| self.worse(best, value))
        {
            self.best_excluded = Some(value);
        }
    }

    pub(super) fn offer(&mut self, entry: Entry) -> Offer {
        if self.entries.len() < self.k {
            if self.entries.is_empty() {
                // Without this, the first push reserves memory for four entries, even if `k` is 1.
                self.entries.reserve_exact(self.k.min(4));
            }
            self.entries.push(entry);
            self.up(self.entries.len() - 1);
            return Offer::Added;
        }
        if self.k > 0 && self.op != AggregateOp::Limitk {
            let Entry {
                value: worst,
                series_idx,
            } = self.entries[0];
            if self.worse(worst, entry.value) && !worst.is_nan()
                || (worst.is_nan() && !entry.value.is_nan())
            {
                self.entries[0] = entry;
                self.down();
                self.exclude(worst);
                return Offer::Replaced(series_idx);
            }
            self.exclude(entry.value);
        }
        Offer::Rejected
    }

    /// Sorts the candidates, best first.
    pub(super) fn sorted(&mut self) -> &[Entry] {
        let direction = match self.op {
            AggregateOp::Topk => Direction::Descending,
            AggregateOp::Bottomk => Direction::Ascending,
            _ => return &self.entries,
        };
        self.entries
            .sort_by(|a, b| compare(a.value, b.value, direction));
        &self.entries
    }

    /// Returns `true` if the heap removes value `a` before `b`. NaN is removed first.
    fn worse(&self, a: f64, b: f64) -> bool {
        match self.op {
            AggregateOp::Bottomk => a.is_nan() || a > b,
            // For `limitk` and `limit_ratio` values affect only the order of the result.
            _ => a.is_nan() || a < b,
        }
    }

    fn up(&mut self, mut idx: usize) {
        while idx > 0 {
            let parent = (idx - 1) / 2;
            if !self.worse(self.entries[idx].value, self.entries[parent].value) {
                break;
            }
            self.entries.swap(idx, parent);
            idx = parent;
        }
    }

    fn down(&mut self) {
        let mut idx = 0;
        while let Some(left) = self.entries.get(2 * idx + 1) {
            let right = self
                .entries
                .get(2 * idx + 2)
                .filter(|right| self.worse(right.value, left.value));
            let child = 2 * idx + 1 + usize::from(right.is_some());
            if !self.worse(self.entries[child].value, self.entries[idx].value) {
                break;
            }
            self.entries.swap(idx, child);
            idx = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: AggregateOp, k: usize, values: &[f64], expect: &[usize]) {
        let mut heap = Heap::new(op, k);
        for (series_idx, &value) in values.iter().enumerate() {
            heap.offer(Entry { value, series_idx });
        }
        assert_eq!(
            heap.sorted()
                .iter()
                .map(|entry| entry.series_idx)
                .collect::<Vec<_>>(),
            expect,
            "{op:?} {values:?}"
        );
    }

    #[test]
    fn the_best_values_are_selected_and_nan_is_never_better() {
        check(AggregateOp::Topk, 2, &[1.0, 3.0, 2.0], &[1, 2]);
        check(AggregateOp::Bottomk, 2, &[1.0, 3.0, 2.0], &[0, 2]);
        check(
            AggregateOp::Topk,
            2,
            &[f64::NAN, 1.0, f64::NAN, 0.0],
            &[1, 3],
        );
        check(AggregateOp::Topk, 5, &[f64::NAN, 1.0], &[1, 0]);
        check(AggregateOp::Topk, 0, &[1.0], &[]);
    }

    #[test]
    fn a_tie_is_noticed_if_it_decides_which_series_are_selected() {
        for (values, expect) in [
            (&[1.0, 3.0, 2.0][..], false),
            (&[3.0, 3.0], false),
            (&[3.0, 3.0, 1.0], false),
            (&[3.0, 1.0, 1.0], true),
            (&[1.0, 1.0, 3.0], true),
            (&[1.0, 1.0, 3.0, 2.0], false),
            (&[0.0, 1.0, -0.0], true),
            (&[f64::NAN, 1.0, f64::NAN], true),
            (&[f64::NAN, f64::NAN, 1.0, 2.0], false),
        ] {
            for (op, sign) in [(AggregateOp::Topk, 1.0), (AggregateOp::Bottomk, -1.0)] {
                let mut heap = Heap::new(op, 2);
                for (series_idx, &value) in values.iter().enumerate() {
                    heap.offer(Entry {
                        value: sign * value,
                        series_idx,
                    });
                }
                assert_eq!(heap.has_tie(), expect, "{op:?} {values:?}");
            }
        }
    }

    #[test]
    fn limitk_selects_the_first_series() {
        check(AggregateOp::Limitk, 2, &[1.0, 3.0, 2.0], &[0, 1]);
        check(AggregateOp::Limitk, 3, &[1.0, 3.0, 0.5, 2.0], &[2, 1, 0]);
    }
}
