//! Lists of the label names and values of the series that match.
//!
//! With a limit, only the first strings in order are needed, and the work ends when they are found:
//!
//! 1. Matchers that many series pass are postponed: they are tested on series of a string until one
//!    passes. If too many fail, the list begins again with the exact series.
//! 2. The values of a label with many values are visited in their sorted order.
//!
//! If few series match, their labels are read instead of the series of each string.

use hashbrown::HashSet;
use roaring::RoaringBitmap;
use varve_context::{CHECK_INTERVAL, QueryContext};
use varve_model::{Matcher, StringSet};

use super::lookup::{Index, SlotLabels};
use super::postings::Postings;
use super::select::{Candidates, TERMS_PER_CHECK};
use super::symbols::{SymbolId, Symbols};
use super::values::Values;
use crate::error::Result;

/// Matchers that more than this number of series pass are postponed.
const MANY_SERIES: u64 = if cfg!(test) { 4 } else { 1 << 14 };
/// The same, for each string of the limit: testing a series takes about as long as adding this many
/// to a set.
const MANY_SERIES_PER_STRING: u64 = if cfg!(test) { 1 } else { 64 };
/// Maximum number of series that fail a postponed matcher, besides those below.
const FAILED_MAX: usize = if cfg!(test) { 4 } else { 1 << 12 };
/// Further series that may fail for each string of the limit.
const FAILED_PER_STRING: usize = 8;
/// One more series may fail for this many: testing them takes a small part of the time in which the
/// exact series are found.
const SERIES_PER_FAILURE: u64 = 128;
/// Number of series whose names are read before other names are looked for.
const SAMPLED_SERIES: u64 = if cfg!(test) { 2 } else { 256 };
/// Reading the names of this many series takes as long as comparing one value with all series.
const SERIES_PER_VALUE: u64 = 8;

/// The series whose labels are listed.
struct ListedSeries<'a, L> {
    ctx: &'a QueryContext,
    index: &'a Index,
    symbols: &'a Symbols,
    labels: &'a L,
    candidates: Candidates<'a>,
    /// Number of series that may fail a postponed matcher.
    n_failures_left: usize,
}

impl Index {
    /// Adds the names of the labels of the series that pass all matchers to `names`.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds a limit.
    pub(crate) fn label_names(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        labels: &impl SlotLabels,
        matchers: &[Matcher],
        names: &mut StringSet,
    ) -> Result<()> {
        if matchers.is_empty() {
            return self.add_all_names(ctx, symbols, names);
        }
        let mut series = self.listed(ctx, symbols, labels, matchers, names.n_first())?;
        series.add_names(names)?;
        if series.has_given_up() {
            series.select_exactly(matchers)?;
            series.add_names(names)?;
        }
        Ok(())
    }

    /// Adds the values that the series that pass all matchers have for a label to `values`.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds a limit.
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        labels: &impl SlotLabels,
        name: &str,
        matchers: &[Matcher],
        values: &mut StringSet,
    ) -> Result<()> {
        // Fast path: no series has the label.
        let Some(name) = symbols
            .find(name)
            .filter(|name| self.names.contains_key(name))
        else {
            return Ok(());
        };
        let mut series = self.listed(ctx, symbols, labels, matchers, values.n_first())?;
        series.add_values(name, values)?;
        if series.has_given_up() {
            series.select_exactly(matchers)?;
            series.add_values(name, values)?;
        }
        Ok(())
    }

    fn add_all_names(
        &self,
        ctx: &QueryContext,
        symbols: &Symbols,
        names: &mut StringSet,
    ) -> Result<()> {
        for (i, &name) in self.names.keys().enumerate() {
            ctx.check_every(CHECK_INTERVAL, i)?;
            let text = symbols.resolve(name);
            if names.wants(text) {
                names.insert(text)?;
            }
        }
        Ok(())
    }

    /// Returns the series that may pass all matchers, for a list of `n_first` strings.
    fn listed<'a, L: SlotLabels>(
        &'a self,
        ctx: &'a QueryContext,
        symbols: &'a Symbols,
        labels: &'a L,
        matchers: &'a [Matcher],
        n_first: usize,
    ) -> Result<ListedSeries<'a, L>> {
        let n_many = MANY_SERIES.max((n_first as u64).saturating_mul(MANY_SERIES_PER_STRING));
        let mut candidates = if matchers.is_empty() {
            Candidates::all()
        } else {
            self.candidates(ctx, symbols, labels, matchers, n_many)?
        };
        if let Some(slots) = &candidates.series
            && candidates.postponed.is_empty()
        {
            ctx.count_series(slots.len())?;
            // Fast path: the matchers keep all series.
            if slots.len() == self.all.len() {
                candidates.series = None;
            }
        }
        // There are fewer than 2^31 series.
        let n_failures = FAILED_MAX + (self.all.len() / SERIES_PER_FAILURE) as usize;
        Ok(ListedSeries {
            ctx,
            index: self,
            symbols,
            labels,
            candidates,
            n_failures_left: n_failures.saturating_add(n_first.saturating_mul(FAILED_PER_STRING)),
        })
    }
}

impl<L: SlotLabels> ListedSeries<'_, L> {
    /// Returns `true` if too many series failed a postponed matcher, so that strings may be missing.
    fn has_given_up(&self) -> bool {
        self.n_failures_left == 0
    }

    /// Replaces the candidates with the series that pass all matchers.
    fn select_exactly(&mut self, matchers: &[Matcher]) -> Result<()> {
        let slots = self
            .index
            .select(self.ctx, self.symbols, self.labels, matchers)?;
        self.ctx.count_series(slots.len())?;
        self.candidates.series = Some(slots);
        self.candidates.postponed.clear();
        self.n_failures_left = 1;
        Ok(())
    }

    fn add_names(&mut self, names: &mut StringSet) -> Result<()> {
        let index = self.index;
        if self.are_all() {
            return index.add_all_names(self.ctx, self.symbols, names);
        }
        // Most names are among those of some series.
        let mut seen = self.names_of(self.sample().into_iter())?;
        let unseen = index.names.iter().filter(|(name, _)| !seen.contains(*name));
        let n_values: u64 = unseen.map(|(_, values)| values.len() as u64).sum();
        let few = self.few(n_values.saturating_mul(SERIES_PER_VALUE));
        if let Some(slots) = few {
            seen = self.names_of(slots.iter())?;
        }
        let has_all = few.is_some();

        let mut in_order: Vec<_> = index
            .names
            .keys()
            .map(|&name| (self.symbols.resolve(name), name))
            .collect();
        in_order.sort_unstable();
        let mut names = names.ascending();
        for (text, name) in in_order {
            // A name may have many values with long lists.
            self.ctx.check()?;
            if !names.needs(text) {
                break;
            }
            if seen.contains(&name) || (!has_all && self.have_name(name)?) {
                names.insert(text)?;
            }
        }
        Ok(())
    }

    fn add_values(&mut self, name: SymbolId, values: &mut StringSet) -> Result<()> {
        let Some(all) = self.index.names.get(&name) else {
            return Ok(());
        };
        if let Some(slots) = self.few(all.len() as u64) {
            return self.values_of(slots, name, values);
        }
        let symbols = self.symbols;
        // Values that are added in order are not sorted again. If many must be tested, visiting the
        // table is faster.
        let has_all = self.are_all();
        if let Some((in_order, added)) = all.order().sorted()
            && (has_all || values.n_first() < all.len())
        {
            let mut ascending = values.ascending();
            for (i, &value) in in_order.iter().enumerate() {
                self.ctx.check_every(TERMS_PER_CHECK, i)?;
                let text = symbols.resolve(value);
                if !ascending.needs(text) {
                    break;
                }
                if has_all || self.have_value(all, value)? {
                    ascending.insert(text)?;
                }
            }
            let added = added
                .iter()
                .filter_map(|&value| Some((value, all.get(value)?)));
            return self.add_unordered(added, values);
        }
        self.add_unordered(all.iter(), values)
    }

    /// Adds values that are needed and that a series has.
    fn add_unordered<'v>(
        &mut self,
        all: impl Iterator<Item = (SymbolId, Postings<'v>)>,
        values: &mut StringSet,
    ) -> Result<()> {
        for (i, (value, postings)) in all.enumerate() {
            self.ctx.check_every(TERMS_PER_CHECK, i)?;
            let text = self.symbols.resolve(value);
            if values.wants(text) && self.has_any(postings)? {
                values.insert(text)?;
            }
        }
        Ok(())
    }

    /// Returns `true` if all series of the head are listed.
    fn are_all(&self) -> bool {
        self.candidates.series.is_none() && self.candidates.postponed.is_empty()
    }

    /// Returns the candidates if they are fewer than `n_strings`, so that reading their labels costs
    /// less than reading the series of each string.
    fn few(&self, n_strings: u64) -> Option<&RoaringBitmap> {
        let slots = self.candidates.series.as_ref()?;
        if slots.len() < n_strings {
            Some(slots)
        } else {
            None
        }
    }

    /// Returns some of the candidates, from all parts of the head.
    fn sample(&self) -> Vec<u32> {
        let mut slots = Vec::new();
        for i in 0..SAMPLED_SERIES {
            match &self.candidates.series {
                // Slots are less than 2^31.
                Some(series) => {
                    slots.extend(series.select((i * series.len() / SAMPLED_SERIES) as u32))
                }
                None => {
                    let slot = (i * u64::from(self.index.all.end()) / SAMPLED_SERIES) as u32;
                    if self.index.all.contains(slot) {
                        slots.push(slot);
                    }
                }
            }
        }
        slots
    }

    /// Returns the names of the labels of series, list by list: most series share their list.
    fn names_of(&self, slots: impl Iterator<Item = u32>) -> Result<HashSet<SymbolId>> {
        let mut names = HashSet::new();
        let mut seen = HashSet::new();
        for (i, slot) in slots.enumerate() {
            self.ctx.check_every(CHECK_INTERVAL, i)?;
            let (list, list_names) = self.labels.names(slot);
            if !seen.contains(&list) && self.passes_postponed(slot)? {
                seen.insert(list);
                names.extend(list_names);
            }
        }
        Ok(names)
    }

    /// Adds the values of series for a label.
    fn values_of(
        &self,
        slots: &RoaringBitmap,
        name: SymbolId,
        values: &mut StringSet,
    ) -> Result<()> {
        let mut last = None;
        for (i, slot) in slots.iter().enumerate() {
            self.ctx.check_every(CHECK_INTERVAL, i)?;
            let value = self.labels.value(slot, name);
            // Neighbors often share a value.
            if value == last {
                continue;
            }
            let Some(known) = value else {
                continue;
            };
            if self.passes_postponed(slot)? {
                values.insert(self.symbols.resolve(known))?;
                last = value;
            }
        }
        Ok(())
    }

    /// Returns `true` if one of the series has a label of this name.
    fn have_name(&mut self, name: SymbolId) -> Result<bool> {
        let values = self.index.names.get(&name);
        for (i, (_, postings)) in values.into_iter().flat_map(Values::iter).enumerate() {
            self.ctx.check_every(TERMS_PER_CHECK, i)?;
            if self.has_any(postings)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns `true` if one of the series has a value.
    fn have_value(&mut self, all: &Values, value: SymbolId) -> Result<bool> {
        match all.get(value) {
            Some(postings) => self.has_any(postings),
            None => Ok(false),
        }
    }

    /// Returns `true` if one of the series is in `postings`. After too many failures, it returns
    /// `false` for all.
    fn has_any(&mut self, postings: Postings<'_>) -> Result<bool> {
        if self.has_given_up() {
            return Ok(false);
        }
        let Candidates { series, postponed } = &self.candidates;
        if let Some(slots) = series
            && !postings.intersects(slots)
        {
            return Ok(false);
        }
        if postponed.is_empty() {
            return Ok(true);
        }
        for slot in postings.iter() {
            if self.n_failures_left == 0 {
                return Ok(false);
            }
            let is_candidate = series.as_ref().is_none_or(|slots| slots.contains(slot));
            if is_candidate && self.passes_postponed(slot)? {
                return Ok(true);
            }
            self.n_failures_left -= 1;
        }
        Ok(false)
    }

    fn passes_postponed(&self, slot: u32) -> Result<bool> {
        let postponed = &self.candidates.postponed;
        passes(self.ctx, self.symbols, self.labels, slot, postponed)
    }
}

/// Returns `true` if a series passes all matchers.
///
/// # Errors
/// If the request is interrupted.
pub(crate) fn passes(
    ctx: &QueryContext,
    symbols: &Symbols,
    labels: &impl SlotLabels,
    slot: u32,
    matchers: &[&Matcher],
) -> Result<bool> {
    for matcher in matchers {
        let name = symbols.find(matcher.name());
        let value = name.and_then(|name| labels.value(slot, name));
        let text = value.map_or("", |value| symbols.resolve(value));
        if !matcher.matches_in(ctx, text)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const N_SERIES: u32 = 20_000;
    const N_VALUES: u32 = 2000;

    /// The labels of the series of a head, which counts how many of them were read.
    struct Counted {
        n_read: Cell<u32>,
        names: [SymbolId; 2],
        x: Vec<SymbolId>,
        y: Vec<SymbolId>,
    }

    impl SlotLabels for Counted {
        fn value(&self, slot: u32, name: SymbolId) -> Option<SymbolId> {
            self.n_read.set(self.n_read.get() + 1);
            let values = if name == self.names[0] {
                &self.x
            } else {
                &self.y
            };
            Some(values[slot as usize % values.len()])
        }

        fn names(&self, _: u32) -> (u32, &[SymbolId]) {
            self.n_read.set(self.n_read.get() + 1);
            (0, &self.names)
        }
    }

    /// Creates an index of two labels. The values of `x` are sorted.
    fn index_of_two_labels() -> (Symbols, Index, Counted) {
        let mut symbols = Symbols::new(0);
        let names = ["x", "y"].map(|name| symbols.intern(name).unwrap());
        let mut interned = |n: u32| -> Vec<SymbolId> {
            (0..n)
                .map(|i| symbols.intern(&format!("{i:04}")).unwrap())
                .collect()
        };
        let labels = Counted {
            n_read: Cell::new(0),
            names,
            x: interned(N_VALUES),
            y: interned(100),
        };
        let mut index = Index::default();
        for slot in 0..N_SERIES {
            let pair = |name| (name, labels.value(slot, name).unwrap());
            index.insert(slot, names.map(pair).into_iter(), |_| {});
        }
        index.begin_order(names[0]);
        // They were created in order.
        index.set_order(names[0], labels.x.clone());
        (symbols, index, labels)
    }

    #[track_caller]
    fn check(matchers: &[(varve_model::MatchOp, &str)], expect: &[&str], n_read_max: u32) {
        let (symbols, index, labels) = index_of_two_labels();
        labels.n_read.set(0);
        let matchers: Vec<_> = matchers
            .iter()
            .map(|&(op, value)| Matcher::new(op, "y", value).unwrap())
            .collect();
        let ctx = QueryContext::unbounded();
        let mut values = StringSet::of_first(&ctx, expect.len());
        index
            .label_values(&ctx, &symbols, &labels, "x", &matchers, &mut values)
            .unwrap();
        assert!(values.iter().take(expect.len()).eq(expect.iter().copied()));
        let n_read = labels.n_read.get();
        assert!(
            n_read <= n_read_max,
            "{matchers:?}: {n_read} labels were read"
        );
    }

    #[test]
    fn a_limit_bounds_the_tested_series() {
        use varve_model::MatchOp::{Equal, NotRegexp, Regexp};
        check(&[], &["0000", "0001"], 0);
        // Fewer series than values: all of them are read.
        check(&[(Equal, "0007")], &["0007", "0107", "0207"], 200);
        // Postponed, and passed by most series.
        check(&[(Regexp, ".*[1-9]")], &["0001", "0002", "0003"], 13);
        check(&[(NotRegexp, ".*0")], &["0001", "0002"], 12);
        // Too many series fail: the exact series are selected.
        check(&[(Regexp, "00(9.|88)")], &["0088", "0090", "0091"], 200);
    }
}
