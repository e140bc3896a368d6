//! The union of several selectors: series in label order, without duplicates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use varve_model::{Labels, Matcher, TimeRange};
use varve_tsdb::select::{Series, SeriesSet};
use varve_tsdb::{Db, ReadContext, Result};

/// An iterator over the series that match at least one of several selectors.
pub(crate) struct SelectorUnion {
    sets: Vec<SeriesSet>,
    /// The labels of the next series of each set, which is in `peeked`.
    next: BinaryHeap<Reverse<(Labels, usize)>>,
    peeked: Vec<Option<Series>>,
}

impl SelectorUnion {
    /// Selects series with their samples.
    ///
    /// # Errors
    /// The errors of [`Db::select_each`].
    pub(crate) fn select(
        db: &Db,
        ctx: &ReadContext,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<Self> {
        let sets = db.select_each(ctx, selectors, range)?;
        let peeked = sets.iter().map(|_| None).collect();
        let mut union = Self {
            next: BinaryHeap::with_capacity(sets.len()),
            sets,
            peeked,
        };
        (0..union.sets.len()).try_for_each(|idx| union.advance(idx))?;
        Ok(union)
    }

    fn advance(&mut self, idx: usize) -> Result<()> {
        if let Some(series) = self.sets[idx].next() {
            let series = series?;
            self.next.push(Reverse((series.labels().clone(), idx)));
            self.peeked[idx] = Some(series);
        }
        Ok(())
    }

    fn take_next(&mut self) -> Result<Option<Series>> {
        let Some(Reverse((labels, idx))) = self.next.pop() else {
            return Ok(None);
        };
        let series = self.peeked[idx].take();
        self.advance(idx)?;
        while let Some(Reverse((same, idx))) = self.next.peek()
            && *same == labels
        {
            let idx = *idx;
            self.next.pop();
            self.advance(idx)?;
        }
        Ok(series)
    }
}

impl Iterator for SelectorUnion {
    type Item = Result<Series>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.take_next();
        if next.is_err() {
            self.next.clear();
        }
        next.transpose()
    }
}
