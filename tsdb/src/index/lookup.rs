//! From matchers to series, and from series to label names and values.

use hashbrown::HashMap;
use roaring::RoaringBitmap;

use super::postings::{Postings, Values};
use super::select::{TERMS_PER_CHECK, Terms, select};
use super::slot_set::SlotSet;
use super::symbols::{SymbolId, Symbols};
use super::texts::Texts;
use super::value_order::ORDERED_VALUES_MIN;
use crate::cardinality::LabelCounts;
use crate::context::{CHECK_INTERVAL, QueryContext};
use crate::error::Result;
use crate::matcher::Matcher;

/// Postings by label name and value.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(super) names: HashMap<SymbolId, Values>,
    pub(super) all: SlotSet,
    pub(super) size: usize,
}

impl Index {
    /// Adds a series by its label names and values.
    pub(crate) fn insert(&mut self, slot: u32, labels: impl Iterator<Item = (SymbolId, SymbolId)>) {
        self.all.insert(slot);
        for (name, value) in labels {
            self.size = self.size.wrapping_add_signed(self.names.entry(name).or_default().insert(value, slot));
        }
    }

    /// Adds the slots from 0 to `end`, of which no label is known; there are none yet.
    pub(crate) fn insert_all(&mut self, end: u32) {
        debug_assert_eq!(self.all.len(), 0, "an index is built once");
        self.all = SlotSet::of(std::slice::from_ref(&(0..end)));
    }

    /// Adds a label that no series has yet, with all series that have it.
    pub(crate) fn insert_label(&mut self, name: SymbolId, values: Values) {
        self.size += values.size();
        let replaced = self.names.insert(name, values);
        debug_assert!(replaced.is_none(), "labels are built once");
    }

    /// Returns about how many bytes the index takes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the slots of the series that pass all matchers.
    ///
    /// # Errors
    /// When the request ends.
    pub(crate) fn select(&self, ctx: &QueryContext, symbols: &Symbols, matchers: &[Matcher]) -> Result<RoaringBitmap> {
        select(ctx, &mut HeadTerms { index: self, symbols }, matchers)
    }

    /// Returns the labels with many values whose order is not known, or not that of all.
    pub(crate) fn unordered(&self) -> Vec<SymbolId> {
        let many = self.names.iter().filter(|(_, values)| values.len() >= ORDERED_VALUES_MIN);
        many.filter(|(_, values)| values.order.is_outdated()).map(|(&name, _)| name).collect()
    }

    /// Begins to order the values of a label.
    pub(crate) fn begin_order(&mut self, name: SymbolId) {
        let Some(values) = self.names.get_mut(&name) else { return };
        self.size -= values.size();
        values.order.begin();
        self.size += values.size();
    }

    /// Returns the values of a label in a piece of its table, and the number of pieces, which may grow once.
    pub(crate) fn values_of(&self, name: SymbolId, piece: usize) -> (Vec<SymbolId>, usize) {
        self.names.get(&name).map_or((Vec::new(), 0), |values| values.of_piece(piece))
    }

    /// Takes the values that there were at [`Index::begin_order`], and maybe later ones, in order of their texts.
    pub(crate) fn set_order(&mut self, name: SymbolId, ordered: Vec<SymbolId>) {
        let Some(values) = self.names.get_mut(&name) else { return };
        self.size -= values.size();
        values.order.set(ordered);
        self.size += values.size();
    }

    fn postings(&self, symbols: &Symbols, name: &str, value: &str) -> Option<Postings<'_>> {
        self.names.get(&symbols.find(name)?)?.get(symbols.find(value)?)
    }

    fn values(&self, symbols: &Symbols, name: &str) -> Option<&Values> {
        self.names.get(&symbols.find(name)?)
    }

    /// Tells whether any series has a label of this name.
    pub(crate) fn has_label(&self, symbols: &Symbols, name: &str) -> bool {
        self.values(symbols, name).is_some()
    }

    /// Adds the names of the labels that series in `slots` (or any series) have to `names`.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn label_names(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        slots: Option<&RoaringBitmap>,
        names: &mut Texts,
    ) -> Result<()> {
        for (&name, values) in &self.names {
            ctx.check()?;
            if slots.is_none_or(|slots| values.iter().any(|(_, postings)| postings.intersects(slots))) {
                names.insert(symbols.text(name))?;
            }
        }
        Ok(())
    }

    /// Adds the values that series in `slots` (or any series) have for a label to `values`.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        name: &str,
        slots: Option<&RoaringBitmap>,
        values: &mut Texts,
    ) -> Result<()> {
        for (i, (value, postings)) in self.values(symbols, name).into_iter().flat_map(Values::iter).enumerate() {
            if i % CHECK_INTERVAL == 0 {
                ctx.check()?;
            }
            if slots.is_none_or(|slots| postings.intersects(slots)) {
                values.insert(symbols.text(value))?;
            }
        }
        Ok(())
    }

    /// Calls `each` with every value of a label and the slots of its series.
    pub(crate) fn for_each_value(&self, symbols: &Symbols, name: &str, mut each: impl FnMut(&str, RoaringBitmap)) {
        for (value, postings) in self.values(symbols, name).into_iter().flat_map(Values::iter) {
            let mut slots = RoaringBitmap::new();
            postings.union_into(&mut slots);
            each(symbols.text(value), slots);
        }
    }

    /// Counts the series of each value of a label, and the bytes that the index over them takes.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn count_label(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        name: &str,
        counts: &mut LabelCounts,
    ) -> Result<()> {
        let Some(values) = self.values(symbols, name) else { return Ok(()) };
        counts.add_size(values.size());
        for (i, (value, postings)) in values.iter().enumerate() {
            if i % CHECK_INTERVAL == 0 {
                ctx.check()?;
            }
            counts.add(symbols.text(value), postings.len())?;
        }
        Ok(())
    }
}

/// The index with the texts of its symbols.
struct HeadTerms<'a> {
    index: &'a Index,
    symbols: &'a Symbols,
}

impl Terms for HeadTerms<'_> {
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

    fn unite_where(
        &mut self,
        ctx: &QueryContext,
        name: &str,
        prefix: &str,
        test: &dyn Fn(&str) -> bool,
        set: &mut RoaringBitmap,
    ) -> Result<()> {
        let Some(values) = self.index.values(self.symbols, name) else { return Ok(()) };
        let mut look_at = |i: usize, value, postings: Option<Postings<'_>>| {
            if i.is_multiple_of(TERMS_PER_CHECK) {
                ctx.check()?;
            }
            if test(self.symbols.text(value)) {
                postings.into_iter().for_each(|postings| postings.union_into(set));
            }
            Ok(())
        };
        match values.order.candidates(prefix, self.symbols).filter(|_| !prefix.is_empty()) {
            Some((found, fresh)) => {
                let mut all = found.iter().chain(fresh).enumerate();
                all.try_for_each(|(i, &value)| look_at(i, value, values.get(value)))
            }
            None => values.iter().enumerate().try_for_each(|(i, (value, of))| look_at(i, value, Some(of))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matcher::MatchOp;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const VALUES: [&str; 5] = ["", "a", "b", "ab", "c"];
    const PATTERNS: [&str; 11] = ["a", "a|b", "a.*", "ab.*", ".*", ".+", "", "x", "(a|c)", "a?", "b|"];

    fn matcher() -> impl Strategy<Value = Matcher> {
        let text = (0..VALUES.len()).prop_map(|i| VALUES[i]);
        let pattern = (0..PATTERNS.len()).prop_map(|i| PATTERNS[i]);
        let name = prop_oneof![Just("x"), Just("y"), Just("absent")];
        let value = prop_oneof![
            (Just(MatchOp::Equal), text.clone()),
            (Just(MatchOp::NotEqual), text),
            (Just(MatchOp::Regexp), pattern.clone()),
            (Just(MatchOp::NotRegexp), pattern),
        ];
        (name, value).prop_map(|(name, (op, value))| Matcher::new(op, name, value).unwrap())
    }

    fn order(symbols: &Symbols, index: &mut Index, name: &str) {
        let Some(name) = symbols.find(name) else { return };
        index.begin_order(name);
        let (_, n_pieces) = index.values_of(name, 0);
        let mut values: Vec<_> = (0..n_pieces).flat_map(|piece| index.values_of(name, piece).0).collect();
        values.sort_by_key(|&value| symbols.text(value));
        index.set_order(name, values);
    }

    #[test]
    fn a_prefix_leads_to_the_values_that_begin_with_it_and_to_those_that_came_late() {
        let (mut symbols, mut index) = (Symbols::new(0), Index::default());
        let insert = |symbols: &mut Symbols, index: &mut Index, slot: u32| {
            let pair = (symbols.intern("x").unwrap(), symbols.intern(&format!("{:04}", slot % 5000)).unwrap());
            index.insert(slot, std::iter::once(pair));
        };
        (0..2000).for_each(|slot| insert(&mut symbols, &mut index, slot));
        assert_eq!(index.unordered().len(), 1);
        order(&symbols, &mut index, "x");
        assert!(index.unordered().is_empty());
        (2000..2010).chain(5000..5010).for_each(|slot| insert(&mut symbols, &mut index, slot));
        assert_eq!(index.unordered().len(), 1, "some are new");
        let looked_at = |index: &Index, prefix: &str| {
            let n_tests = std::cell::Cell::new(0);
            let mut set = RoaringBitmap::new();
            let test = |value: &str| {
                n_tests.set(n_tests.get() + 1);
                value.starts_with(prefix)
            };
            let mut terms = HeadTerms { index, symbols: &symbols };
            terms.unite_where(&QueryContext::unbounded(), "x", prefix, &test, &mut set).unwrap();
            (n_tests.get(), set.len())
        };
        assert_eq!(looked_at(&index, "12"), (110, 100));
        assert_eq!(looked_at(&index, "000"), (20, 20), "those of old values that came late as well");
        assert_eq!(looked_at(&index, ""), (2010, 2020));
        let gone = (symbols.find("x").unwrap(), symbols.find("1999").unwrap());
        index.remove(1999, std::iter::once(gone));
        assert_eq!(looked_at(&index, "12"), (2009, 100), "one is gone: its number may be another's");
    }

    proptest! {
        /// What the index selects is what looking at every series selects.
        #[test]
        fn index_and_scan_agree(
            series in proptest::collection::vec((0..VALUES.len(), 0..VALUES.len()), 0..40),
            matchers in proptest::collection::vec(matcher(), 0..4), n_ordered in 0..40_usize,
        ) {
            let (mut symbols, mut index) = (Symbols::new(0), Index::default());
            for (slot, &(x, y)) in series.iter().enumerate() {
                let pairs = [("x", VALUES[x]), ("y", VALUES[y])];
                let labels: Vec<_> = pairs.iter().filter(|(_, v)| !v.is_empty())
                    .map(|(n, v)| (symbols.intern(n).unwrap(), symbols.intern(v).unwrap())).collect();
                index.insert(slot as u32, labels.into_iter());
                if slot == n_ordered {
                    order(&symbols, &mut index, "x");
                }
            }
            let value = |i: usize, name: &str| match name { "x" => VALUES[series[i].0], "y" => VALUES[series[i].1], _ => "" };
            let expected: Vec<_> = (0..series.len())
                .filter(|&i| matchers.iter().all(|m| m.matches(value(i, m.name())))).collect();

            let ctx = QueryContext::unbounded();
            let slots = index.select(&ctx, &symbols, &matchers).unwrap();
            prop_assert_eq!(slots.iter().map(|slot| slot as usize).collect::<Vec<_>>(), expected.clone());

            let mut values = Texts::new(&ctx);
            index.label_values(&ctx, &symbols, "x", Some(&slots), &mut values).unwrap();
            let by_scan: BTreeSet<_> = expected.iter().map(|&i| value(i, "x")).filter(|v| !v.is_empty()).collect();
            prop_assert!(values.iter().eq(by_scan));

            let mut names = Texts::new(&ctx);
            index.label_names(&ctx, &symbols, Some(&slots), &mut names).unwrap();
            let by_scan = ["x", "y"].into_iter().filter(|n| expected.iter().any(|&i| !value(i, n).is_empty()));
            prop_assert!(names.iter().eq(by_scan));
        }
    }
}
