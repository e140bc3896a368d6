//! Evaluation of matchers on the index of a head.

use std::ops::ControlFlow;

use roaring::RoaringBitmap;
use varve_context::QueryContext;
use varve_model::Matcher;

use super::lookup::{Index, SlotLabels};
use super::postings::Postings;
use super::select::{Candidates, TERMS_PER_CHECK, Terms, ValueTest, candidates, select};
use super::slot_bits::SlotBits;
use super::symbols::Symbols;
use crate::error::Result;

/// The cost of testing a value and adding its series to a set, in units of reading the value of one
/// series.
const VALUE_COST: u64 = 16;
/// The series of the values of a label are counted if there are at most this many values, and one
/// for this many series: to learn that every series has the label takes less than to unite them.
const COUNTED_MIN: u64 = 1024;
const COUNTED_SHARE: u64 = 64;
/// Test results that are cached while series are visited.
const VERDICTS: usize = 256;

impl Index {
    /// Returns the slots of the series that pass all matchers.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn select(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        labels: &impl SlotLabels,
        matchers: &[Matcher],
    ) -> Result<RoaringBitmap> {
        select(
            ctx,
            &mut HeadTerms {
                index: self,
                symbols,
                labels,
            },
            matchers,
        )
    }

    /// Returns the slots of the series that may pass all matchers, and the matchers that more than
    /// `n_many` series pass, which remain to be tested.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn candidates<'a>(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        labels: &impl SlotLabels,
        matchers: &'a [Matcher],
        n_many: u64,
    ) -> Result<Candidates<'a>> {
        let mut terms = HeadTerms {
            index: self,
            symbols,
            labels,
        };
        candidates(ctx, &mut terms, matchers, n_many)
    }
}

/// The index with the strings of its symbols and the labels of its series.
pub(super) struct HeadTerms<'a, L> {
    pub(super) index: &'a Index,
    pub(super) symbols: &'a Symbols,
    pub(super) labels: &'a L,
}

impl<L> HeadTerms<'_, L> {
    /// Calls `visit` with each value that begins with the prefix of a test, and possibly others,
    /// and its series.
    fn visit_candidates(
        &self,
        values: &ValueTest<'_>,
        mut visit: impl FnMut(&str, Postings<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let ValueTest {
            ctx, name, prefix, ..
        } = *values;
        let Some(values) = self.index.values(self.symbols, name) else {
            return Ok(());
        };
        let Some((found, added)) = values.order().candidates(prefix, self.symbols) else {
            for (i, (value, postings)) in values.iter().enumerate() {
                ctx.check_every(TERMS_PER_CHECK, i)?;
                if visit(self.symbols.resolve(value), postings)?.is_break() {
                    break;
                }
            }
            return Ok(());
        };
        for (i, &value) in found.iter().chain(added).enumerate() {
            ctx.check_every(TERMS_PER_CHECK, i)?;
            if let Some(postings) = values.get(value)
                && visit(self.symbols.resolve(value), postings)?.is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

impl<L: SlotLabels> Terms for HeadTerms<'_, L> {
    fn all(&self) -> RoaringBitmap {
        self.index.all.to_bitmap()
    }

    fn n_series(&self) -> u64 {
        self.index.all.len()
    }

    fn unite(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()> {
        if let Some(postings) = self.index.postings(self.symbols, name, value) {
            postings.union_into(set);
        }
        Ok(())
    }

    fn intersect(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()> {
        match self.index.postings(self.symbols, name, value) {
            Some(postings) => postings.intersect_into(set),
            None => set.clear(),
        }
        Ok(())
    }

    fn is_on_all(&mut self, name: &str) -> Result<bool> {
        let n_series = self.index.all.len();
        let Some(values) = self.index.values(self.symbols, name) else {
            return Ok(n_series == 0);
        };
        if values.len() as u64 > n_series / COUNTED_SHARE + COUNTED_MIN {
            return Ok(false);
        }
        let mut n_counted = 0;
        for (_, postings) in values.iter() {
            n_counted += postings.len();
        }
        Ok(n_counted == n_series)
    }

    fn passes_more(&mut self, values: &ValueTest<'_>, n_series: u64) -> Result<bool> {
        let mut n_passing = 0;
        self.visit_candidates(values, |value, postings| {
            if (values.passes)(value)? {
                n_passing += postings.len();
            }
            Ok(if n_passing > n_series {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        Ok(n_passing > n_series)
    }

    fn unite_where(&mut self, values: &ValueTest<'_>, set: &mut RoaringBitmap) -> Result<()> {
        let mut bits = SlotBits::new(self.index.all.end());
        self.visit_candidates(values, |value, postings| {
            if (values.passes)(value)? {
                postings.add_to(&mut bits);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        *set |= bits.into_bitmap();
        Ok(())
    }

    fn retain_where(&mut self, values: &ValueTest<'_>, set: &mut RoaringBitmap) -> Result<bool> {
        let ValueTest {
            ctx,
            name,
            prefix,
            passes,
        } = *values;
        let Self {
            index,
            symbols,
            labels,
        } = *self;
        let Some(name) = symbols.find(name) else {
            return Ok(false);
        };
        let Some(values) = index.names.get(&name) else {
            return Ok(false);
        };
        let candidates = values.order().candidates(prefix, symbols);
        let n_values = candidates.map_or(values.len(), |(found, added)| found.len() + added.len());
        if set.len() > n_values as u64 * VALUE_COST {
            return Ok(false);
        }
        let mut verdicts = [(None, passes("")?); VERDICTS];
        let mut kept = RoaringBitmap::new();
        for (i, slot) in set.iter().enumerate() {
            ctx.check_every(TERMS_PER_CHECK, i)?;
            let value = labels.value(slot, name);
            let known = &mut verdicts[value.map_or(0, |value| value.0 as usize % VERDICTS)];
            if value != known.0 {
                *known = (
                    value,
                    passes(value.map_or("", |value| symbols.resolve(value)))?,
                );
            }
            if known.1 {
                kept.insert(slot);
            }
        }
        *set = kept;
        Ok(true)
    }

    fn weight(&mut self, name: &str, value: &str) -> Result<u64> {
        Ok(self
            .index
            .postings(self.symbols, name, value)
            .map_or(0, |postings| postings.len()))
    }
}
