//! From matchers to series, and from series to label names and values.

use std::collections::HashMap;

use roaring::RoaringBitmap;

use super::postings::Postings;
use super::symbols::{SymbolId, Symbols};
use super::texts::Texts;
use crate::context::{CHECK_INTERVAL, QueryContext};
use crate::error::Result;
use crate::matcher::{MatchOp, Matcher};

/// Postings by label name and value. Slots come in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Index {
    names: HashMap<SymbolId, Values>,
    all: RoaringBitmap,
    size: usize,
}

type Values = HashMap<SymbolId, Postings>;

/// What an entry of [`Values`] takes in a table that is between half and seven eighths full.
const VALUE_SIZE: usize = 36;

impl Index {
    /// Adds a series by its label names and values.
    pub(crate) fn insert(&mut self, slot: u32, labels: impl Iterator<Item = (SymbolId, SymbolId)>) {
        self.all.insert(slot);
        for (name, value) in labels {
            let postings = self.names.entry(name).or_default().entry(value).or_default();
            if postings.len() == 0 {
                self.size += VALUE_SIZE;
            }
            self.size += postings.push(slot);
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
        let mut selected = None;
        // Those that name what they want come first: they leave little for the others to look at.
        let (positive, negative): (Vec<_>, Vec<_>) = matchers.iter().partition(|m| !m.matches_empty());
        let (equal, others): (Vec<_>, Vec<_>) = positive.into_iter().partition(|m| m.op() == MatchOp::Equal);
        for matcher in equal.into_iter().chain(others) {
            self.keep(ctx, symbols, matcher, &mut selected)?;
        }
        let mut selected = selected.unwrap_or_else(|| self.all.clone());
        for matcher in negative {
            selected -= self.union(ctx, symbols, matcher.name(), |value| !matcher.matches(value))?;
        }
        Ok(selected)
    }

    /// Intersects `selected` with what a matcher that no absent label passes selects.
    fn keep(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        matcher: &Matcher,
        selected: &mut Option<RoaringBitmap>,
    ) -> Result<()> {
        if selected.as_ref().is_some_and(RoaringBitmap::is_empty) {
            return Ok(());
        }
        let literals: Option<Vec<&str>> = match matcher.op() {
            MatchOp::Equal => Some(vec![matcher.value()]),
            MatchOp::Regexp => {
                matcher.regexp().and_then(|r| r.literals()).map(|l| l.iter().map(String::as_str).collect())
            }
            MatchOp::NotEqual | MatchOp::NotRegexp => None,
        };
        // Fast path: one value.
        if let (Some(&[value]), Some(selected)) = (literals.as_deref(), selected.as_mut()) {
            match self.postings(symbols, matcher.name(), value) {
                Some(postings) => postings.intersect_into(selected),
                None => selected.clear(),
            }
            return Ok(());
        }
        let matching = match literals {
            Some(literals) => {
                let mut set = RoaringBitmap::new();
                for postings in literals.iter().filter_map(|value| self.postings(symbols, matcher.name(), value)) {
                    postings.union_into(&mut set);
                }
                set
            }
            None => self.union(ctx, symbols, matcher.name(), |value| matcher.matches(value))?,
        };
        match selected {
            Some(selected) => *selected &= matching,
            None => *selected = Some(matching),
        }
        Ok(())
    }

    fn postings(&self, symbols: &Symbols, name: &str, value: &str) -> Option<&Postings> {
        self.names.get(&symbols.find(name)?)?.get(&symbols.find(value)?)
    }

    fn values(&self, symbols: &Symbols, name: &str) -> Option<&Values> {
        self.names.get(&symbols.find(name)?)
    }

    /// Unites the postings of all values of a label that pass `test`.
    fn union(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        name: &str,
        test: impl Fn(&str) -> bool,
    ) -> Result<RoaringBitmap> {
        let mut set = RoaringBitmap::new();
        for (i, (&value, postings)) in self.values(symbols, name).into_iter().flatten().enumerate() {
            if i % CHECK_INTERVAL == 0 {
                ctx.check()?;
            }
            if test(symbols.text(value)) {
                postings.union_into(&mut set);
            }
        }
        Ok(set)
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
            if slots.is_none_or(|slots| values.values().any(|postings| postings.intersects(slots))) {
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
        for (i, (&value, postings)) in self.values(symbols, name).into_iter().flatten().enumerate() {
            if i % CHECK_INTERVAL == 0 {
                ctx.check()?;
            }
            if slots.is_none_or(|slots| postings.intersects(slots)) {
                values.insert(symbols.text(value))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
