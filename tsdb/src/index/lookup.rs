//! The postings of all labels: adding series, and looking up the series of values.

use hashbrown::HashMap;
use roaring::RoaringBitmap;

use super::postings::Postings;
use super::slot_set::SlotSet;
use super::symbols::{SymbolId, Symbols};

use varve_context::{CHECK_INTERVAL, QueryContext};
use varve_model::Matcher;

use super::label_counts::LabelCounts;
use super::select::Named;
use super::value_order::ORDERED_VALUES_MIN;
use super::values::Values;
use crate::error::Result;

/// Maximum number of values whose series are counted to estimate a selection.
const COUNTED_VALUES_MAX: usize = if cfg!(test) { 3 } else { 64 };

/// The labels of series by slot. This is the inverse of postings, and cheaper for few series.
pub(crate) trait SlotLabels {
    /// Returns the value of a series for a label.
    fn value(&self, slot: u32, name: SymbolId) -> Option<SymbolId>;

    /// Returns the names of a series' labels, and an id of that list.
    fn names(&self, slot: u32) -> (u32, &[SymbolId]);
}

/// Postings by label name and value.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(super) names: HashMap<SymbolId, Values>,
    pub(super) all: SlotSet,
    pub(super) size: usize,
    /// Number of values of all labels.
    pub(super) n_values: usize,
}

impl Index {
    /// Adds a series by its label names and values. Calls `note_new` with each name that no other
    /// series has.
    pub(crate) fn insert(
        &mut self,
        slot: u32,
        labels: impl Iterator<Item = (SymbolId, SymbolId)>,
        mut note_new: impl FnMut(SymbolId),
    ) {
        self.all.insert(slot);
        for (name, value) in labels {
            let values = self.names.entry(name).or_insert_with(|| {
                note_new(name);
                Values::default()
            });
            let n_before = values.len();
            self.size = self.size.wrapping_add_signed(values.insert(value, slot));
            self.n_values += values.len() - n_before;
        }
    }

    /// Adds the slots from 0 to `end` to an empty index, without labels.
    pub(crate) fn insert_all(&mut self, end: u32) {
        debug_assert_eq!(self.all.len(), 0, "bulk loading starts with an empty index");
        self.all = SlotSet::of(std::slice::from_ref(&(0..end)));
    }

    /// Adds a new label with all series that have it.
    pub(crate) fn insert_label(&mut self, name: SymbolId, values: Values) {
        self.size += values.size();
        self.n_values += values.len();
        let replaced = self.names.insert(name, values);
        debug_assert!(replaced.is_none(), "a label is added once");
    }

    /// Returns the approximate size of the index in bytes.
    pub(crate) fn size(&self) -> usize {
        // A control byte an entry.
        self.size + self.names.capacity() * (size_of::<(SymbolId, Values)>() + 1)
    }

    /// Returns the number of values of all labels.
    pub(crate) fn n_values(&self) -> usize {
        self.n_values
    }

    /// Returns the labels with many values whose sorted order is missing or outdated.
    pub(crate) fn unordered(&self) -> Vec<SymbolId> {
        let many = self
            .names
            .iter()
            .filter(|(_, values)| values.len() >= ORDERED_VALUES_MIN);
        many.filter(|(_, values)| values.order().is_outdated())
            .map(|(&name, _)| name)
            .collect()
    }

    /// Begins to sort the values of a label.
    pub(crate) fn begin_order(&mut self, name: SymbolId) {
        let Some(values) = self.names.get_mut(&name) else {
            return;
        };
        self.size -= values.size();
        values.order_mut().begin();
        self.size += values.size();
    }

    /// Returns the values of a label in one piece of its table, and the number of pieces, which may
    /// grow once.
    pub(crate) fn values_of(&self, name: SymbolId, piece: usize) -> (Vec<SymbolId>, usize) {
        self.names
            .get(&name)
            .map_or((Vec::new(), 0), |values| values.values_in_piece(piece))
    }

    /// Sets the order of the values that existed at [`Index::begin_order`], and possibly later
    /// ones, sorted as strings.
    pub(crate) fn set_order(&mut self, name: SymbolId, ordered: Vec<SymbolId>) {
        let Some(values) = self.names.get_mut(&name) else {
            return;
        };
        self.size -= values.size();
        values.order_mut().set(ordered);
        self.size += values.size();
    }

    /// Returns an upper bound for the series that pass all matchers, from the matcher with the fewest
    /// series. Matchers that many values may pass are not considered.
    pub(crate) fn series_max(&self, symbols: &Symbols, matchers: &[Matcher]) -> u64 {
        let mut least = self.all.len();
        for matcher in matchers {
            if let Some(n_series) = self.series_max_of(symbols, matcher) {
                least = least.min(n_series);
            }
        }
        least
    }

    /// Returns an upper bound for the series that pass a matcher. Returns `None` if many values may
    /// pass, or the empty value.
    fn series_max_of(&self, symbols: &Symbols, matcher: &Matcher) -> Option<u64> {
        if matcher.matches_empty() {
            return None;
        }
        let Some(values) = self.values(symbols, matcher.name()) else {
            return Some(0);
        };
        match Named::by(matcher) {
            Named::One(value) => Some(values.n_series(symbols, value)),
            Named::Listed(listed) if listed.len() <= COUNTED_VALUES_MAX => {
                let listed = listed.iter();
                Some(listed.map(|value| values.n_series(symbols, value)).sum())
            }
            Named::Listed(_) => None,
            Named::Prefixed(_) if values.len() <= COUNTED_VALUES_MAX => {
                Some(values.iter().map(|(_, postings)| postings.len()).sum())
            }
            Named::Prefixed(prefix) => {
                let (found, added) = values.order().candidates(prefix, symbols)?;
                if found.len() + added.len() > COUNTED_VALUES_MAX {
                    return None;
                }
                let candidates = found.iter().chain(added);
                let postings = candidates.filter_map(|&value| values.get(value));
                Some(postings.map(|postings| postings.len()).sum())
            }
        }
    }

    /// Returns an upper bound for the strings and series that [`Index::label_names`] visits, or
    /// [`Index::label_values`] if there is a `name`.
    pub(crate) fn label_strings_max(
        &self,
        symbols: &Symbols,
        name: Option<&str>,
        matchers: &[Matcher],
    ) -> u64 {
        if !matchers.is_empty() {
            return self.series_max(symbols, matchers);
        }
        match name {
            None => self.names.len() as u64,
            Some(name) => self
                .values(symbols, name)
                .map_or(0, |values| values.len() as u64),
        }
    }

    pub(super) fn postings(
        &self,
        symbols: &Symbols,
        name: &str,
        value: &str,
    ) -> Option<Postings<'_>> {
        self.names
            .get(&symbols.find(name)?)?
            .get(symbols.find(value)?)
    }

    pub(super) fn values(&self, symbols: &Symbols, name: &str) -> Option<&Values> {
        self.names.get(&symbols.find(name)?)
    }

    /// Returns the number of series with a value of a label.
    pub(crate) fn n_series_with(&self, symbols: &Symbols, name: &str, value: &str) -> u64 {
        self.postings(symbols, name, value)
            .map_or(0, |postings| postings.len())
    }

    /// Returns `true` if any series has a label of this name.
    pub(crate) fn has_label(&self, symbols: &Symbols, name: &str) -> bool {
        self.values(symbols, name).is_some()
    }

    /// Calls `each` with every value of a label and the slots of its series.
    pub(crate) fn for_each_value(
        &self,
        symbols: &Symbols,
        name: &str,
        mut each: impl FnMut(&str, RoaringBitmap),
    ) {
        let Some(values) = self.values(symbols, name) else {
            return;
        };
        for (value, postings) in values.iter() {
            let mut slots = RoaringBitmap::new();
            postings.union_into(&mut slots);
            each(symbols.resolve(value), slots);
        }
    }

    /// Counts the series of each value of a label, and the size of their postings.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn count_label(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        name: &str,
        counts: &mut LabelCounts,
    ) -> Result<()> {
        let Some(values) = self.values(symbols, name) else {
            return Ok(());
        };
        counts.add_size(values.size());
        for (i, (value, postings)) in values.iter().enumerate() {
            ctx.check_every(CHECK_INTERVAL, i)?;
            counts.add(symbols.resolve(value), postings.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::head_terms::HeadTerms;
    use super::super::select::{Terms, ValueTest};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use varve_model::{MatchOp, StringSet};

    const VALUES: [&str; 12] = [
        "", "a", "b", "ab", "c", "aa", "aab", "abc", "ba", "bb", "bc", "cab",
    ];
    const PATTERNS: [&str; 13] = [
        "a", "a|b", "a.*", "ab.*", ".*", ".+", "", "x", "(a|c)", "a?", "b|", ".*c", "[^c]+",
    ];

    /// The inserted labels.
    #[derive(Default)]
    struct Rows(Vec<Vec<(SymbolId, SymbolId)>>, Vec<Vec<SymbolId>>);

    impl Rows {
        fn push(&mut self, pairs: Vec<(SymbolId, SymbolId)>) {
            self.1.push(pairs.iter().map(|&(name, _)| name).collect());
            self.0.push(pairs);
        }
    }

    impl SlotLabels for Rows {
        fn value(&self, slot: u32, name: SymbolId) -> Option<SymbolId> {
            self.0[slot as usize]
                .iter()
                .find(|(other, _)| *other == name)
                .map(|&(_, value)| value)
        }

        fn names(&self, slot: u32) -> (u32, &[SymbolId]) {
            // The set of the names, as bits.
            let names = &self.1[slot as usize];
            (names.iter().map(|name| 1 << name.0.min(31)).sum(), names)
        }
    }

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
        let Some(name) = symbols.find(name) else {
            return;
        };
        index.begin_order(name);
        let (_, n_pieces) = index.values_of(name, 0);
        let mut values: Vec<_> = (0..n_pieces)
            .flat_map(|piece| index.values_of(name, piece).0)
            .collect();
        values.sort_by_key(|&value| symbols.resolve(value));
        index.set_order(name, values);
    }

    #[test]
    fn a_prefix_finds_sorted_values_and_those_added_since() {
        let mut symbols = Symbols::new(0);
        let mut index = Index::default();
        let insert = |symbols: &mut Symbols, index: &mut Index, slot: u32| {
            let pair = (
                symbols.intern("x").unwrap(),
                symbols.intern(&format!("{:04}", slot % 5000)).unwrap(),
            );
            index.insert(slot, std::iter::once(pair), |_| {});
        };
        (0..2000).for_each(|slot| insert(&mut symbols, &mut index, slot));
        assert_eq!(index.unordered().len(), 1);
        order(&symbols, &mut index, "x");
        assert!(index.unordered().is_empty());
        (2000..2010)
            .chain(5000..5010)
            .for_each(|slot| insert(&mut symbols, &mut index, slot));
        assert_eq!(index.unordered().len(), 1, "values were added since");
        let looked_at = |index: &Index, prefix: &str| {
            let n_tests = std::cell::Cell::new(0);
            let mut set = RoaringBitmap::new();
            let passes = |value: &str| {
                n_tests.set(n_tests.get() + 1);
                Ok(value.starts_with(prefix))
            };
            let mut terms = HeadTerms {
                index,
                symbols: &symbols,
                labels: &Rows::default(),
            };
            let values = ValueTest {
                ctx: &QueryContext::unbounded(),
                name: "x",
                prefix,
                passes: &passes,
            };
            terms.unite_where(&values, &mut set).unwrap();
            (n_tests.get(), set.len())
        };
        assert_eq!(looked_at(&index, "12"), (110, 100));
        assert_eq!(
            looked_at(&index, "000"),
            (20, 20),
            "new series of old values are found too"
        );
        assert_eq!(looked_at(&index, ""), (2010, 2020));
        let gone = (symbols.find("x").unwrap(), symbols.find("1999").unwrap());
        index.remove(1999, std::iter::once(gone), |_| {});
        assert_eq!(
            looked_at(&index, "12"),
            (2009, 100),
            "after a removal the id may be reused"
        );
    }

    proptest! {
        /// The index selects the same series as a scan of all series.
        #[test]
        fn index_and_scan_agree(
            series in proptest::collection::vec((0..VALUES.len(), 0..VALUES.len()), 0..80),
            matchers in proptest::collection::vec(matcher(), 0..4), n_ordered in 0..80_usize,
        ) {
            let mut symbols = Symbols::new(0);
            let mut index = Index::default();
            let mut rows = Rows::default();
            for (slot, &(x, y)) in series.iter().enumerate() {
                let pairs = [("x", VALUES[x]), ("y", VALUES[y])];
                let labels: Vec<_> = pairs.iter().filter(|(_, v)| !v.is_empty())
                    .map(|(n, v)| (symbols.intern(n).unwrap(), symbols.intern(v).unwrap())).collect();
                index.insert(slot as u32, labels.iter().copied(), |_| {});
                rows.push(labels);
                if slot == n_ordered {
                    order(&symbols, &mut index, "x");
                }
            }
            let value = |i: usize, name: &str| match name { "x" => VALUES[series[i].0], "y" => VALUES[series[i].1], _ => "" };
            let expected: Vec<_> = (0..series.len())
                .filter(|&i| matchers.iter().all(|m| m.matches(value(i, m.name())))).collect();

            let ctx = QueryContext::unbounded();
            prop_assert!(index.series_max(&symbols, &matchers) >= expected.len() as u64);
            let slots = index.select(&ctx, &symbols, &rows, &matchers).unwrap();
            prop_assert_eq!(slots.iter().map(|slot| slot as usize).collect::<Vec<_>>(), expected.clone());

            for n_first in [1, 2, 3, usize::MAX] {
                for name in ["x", "y", "absent"] {
                    let mut values = StringSet::of_first(&ctx, n_first);
                    index.label_values(&ctx, &symbols, &rows, name, &matchers, &mut values).unwrap();
                    let by_scan: BTreeSet<_> = expected.iter().map(|&i| value(i, name)).filter(|v| !v.is_empty()).collect();
                    prop_assert!(values.iter().take(n_first).eq(by_scan.iter().copied().take(n_first)));
                    prop_assert!(values.iter().all(|value| by_scan.contains(value)));
                }

                let mut names = StringSet::of_first(&ctx, n_first);
                index.label_names(&ctx, &symbols, &rows, &matchers, &mut names).unwrap();
                let by_scan = ["x", "y"].into_iter().filter(|n| expected.iter().any(|&i| !value(i, n).is_empty()));
                prop_assert!(names.iter().take(n_first).eq(by_scan.take(n_first)));
            }
        }
    }
}
