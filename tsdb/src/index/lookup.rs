//! From matchers to series, and from series to label names and values.

use std::collections::HashMap;

use roaring::RoaringBitmap;

use super::postings::{Postings, Values};
use super::select::{TERMS_PER_CHECK, Terms, select};
use super::symbols::{SymbolId, Symbols};
use super::texts::Texts;
use crate::cardinality::LabelCounts;
use crate::context::{CHECK_INTERVAL, QueryContext};
use crate::error::Result;
use crate::matcher::Matcher;

/// Postings by label name and value.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(super) names: HashMap<SymbolId, Values>,
    pub(super) all: RoaringBitmap,
    pub(super) size: usize,
}

impl Index {
    /// Adds a series by its label names and values.
    pub(crate) fn insert(&mut self, slot: u32, labels: impl Iterator<Item = (SymbolId, SymbolId)>) {
        self.all.insert(slot);
        for (name, value) in labels {
            let values = self.names.entry(name).or_default();
            let size = values.size();
            values.insert(value, slot);
            self.size = self.size + values.size() - size;
        }
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

    fn postings(&self, symbols: &Symbols, name: &str, value: &str) -> Option<Postings<'_>> {
        self.names.get(&symbols.find(name)?)?.get(symbols.find(value)?)
    }

    fn values(&self, symbols: &Symbols, name: &str) -> Option<&Values> {
        self.names.get(&symbols.find(name)?)
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

/// The index with the texts of its symbols. Values are found by hash, so that all of a label are tested where a block
/// would visit those with a prefix; the test looks at the prefix first.
struct HeadTerms<'a> {
    index: &'a Index,
    symbols: &'a Symbols,
}

impl Terms for HeadTerms<'_> {
    fn all(&self) -> RoaringBitmap {
        self.index.all.clone()
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
        _prefix: &str,
        test: &dyn Fn(&str) -> bool,
        set: &mut RoaringBitmap,
    ) -> Result<()> {
        let values = self.index.values(self.symbols, name).into_iter().flat_map(Values::iter);
        for (i, (value, postings)) in values.enumerate() {
            if i % TERMS_PER_CHECK == 0 {
                ctx.check()?;
            }
            if test(self.symbols.text(value)) {
                postings.union_into(set);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matcher::MatchOp;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const VALUES: [&str; 5] = ["", "a", "b", "ab", "c"];
    const PATTERNS: [&str; 10] = ["a", "a|b", "a.*", ".*", ".+", "", "x", "(a|c)", "a?", "b|"];

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

    proptest! {
        /// What the index selects is what looking at every series selects.
        #[test]
        fn index_and_scan_agree(
            series in proptest::collection::vec((0..VALUES.len(), 0..VALUES.len()), 0..40),
            matchers in proptest::collection::vec(matcher(), 0..4),
        ) {
            let (mut symbols, mut index) = (Symbols::new(0), Index::default());
            for (slot, &(x, y)) in series.iter().enumerate() {
                let pairs = [("x", VALUES[x]), ("y", VALUES[y])];
                let labels: Vec<_> = pairs.iter().filter(|(_, v)| !v.is_empty())
                    .map(|(n, v)| (symbols.intern(n).unwrap(), symbols.intern(v).unwrap())).collect();
                index.insert(slot as u32, labels.into_iter());
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
