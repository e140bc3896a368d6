//! From matchers to series.

use std::ops::Range;

use hashbrown::HashMap;
use roaring::RoaringBitmap;
use varve_context::QueryContext;
use varve_model::{MatchOp, Matcher};

use super::dictionary::DictionaryCursor;
use super::labels::is_cheaper_by_series;
use super::postings::PostingsCursor;
use super::reader::Index;
use super::series::SeriesCursor;
use crate::block::page::Access;
use crate::block::symbol::Symbol;
use crate::error::Result;
use crate::index::{TERMS_PER_CHECK, Terms, ValueTest, select, select_in};

/// If a matcher by equality has a list of at most this many bytes, all its series are found at
/// once.
const SHORT_LIST_SIZE: u64 = 4 << 10;

impl Index {
    /// Returns the ordinals of the series that pass all matchers.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit; the errors of [`Index::open`].
    pub(crate) fn select(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<RoaringBitmap> {
        select(ctx, &mut self.terms(0..self.n_series), matchers)
    }

    /// Returns the ordinals in `window`, which is not empty, of the series that pass all matchers.
    ///
    /// # Errors
    /// The errors of [`Index::select`].
    pub(crate) fn select_in(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        window: Range<u32>,
    ) -> Result<RoaringBitmap> {
        let mut terms = self.terms(window);
        let all = terms.all();
        select_in(ctx, &mut terms, matchers, all)
    }

    /// Returns `true` if a matcher has so few series that finding all series that pass costs about
    /// as much as finding the first ones.
    ///
    /// # Errors
    /// The errors of [`Index::open`].
    pub(crate) fn selects_few(&self, matchers: &[Matcher]) -> Result<bool> {
        let mut terms = self.terms(0..self.n_series);
        for matcher in matchers {
            if matcher.op() == MatchOp::Equal
                && !matcher.matches_empty()
                && terms.weight(matcher.name(), matcher.value())? <= SHORT_LIST_SIZE
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the terms with the series in `window` only.
    fn terms(&self, window: Range<u32>) -> BlockTerms<'_> {
        BlockTerms {
            index: self,
            window,
            postings: self.postings_cursor(Access::Cached),
            weighed: Vec::new(),
        }
    }
}

/// The label values and series of an index, on which matchers are evaluated.
struct BlockTerms<'a> {
    index: &'a Index,
    /// The ordinals of the series. The index may have others.
    window: Range<u32>,
    postings: PostingsCursor,
    /// The values whose cost was requested, at most one per matcher.
    weighed: Vec<Weighed>,
}

/// A value of the dictionary, and its cost.
struct Weighed {
    name: String,
    value: String,
    symbol: Symbol,
    /// Size of the list of its series in bytes.
    list_size: u64,
}

/// Cost of reading the labels of a series, relative to reading a byte of a list.
const SERIES_COST: u64 = 1024;

impl BlockTerms<'_> {
    fn weighed(&self, name: &str, value: &str) -> Option<&Weighed> {
        self.weighed
            .iter()
            .find(|weighed| weighed.name == name && weighed.value == value)
    }

    fn find(&self, name: &str, value: &str) -> Result<Option<Symbol>> {
        match self.weighed(name, value) {
            Some(weighed) => Ok(Some(weighed.symbol)),
            None => self.index.dictionary.find(name, value),
        }
    }

    /// Keeps in `set`, which must be small, only the series with a symbol.
    fn retain_with(&self, symbol: Symbol, set: &mut RoaringBitmap) -> Result<()> {
        let mut series = self.index.series_cursor(Access::Cached);
        let mut kept = RoaringBitmap::new();
        for ordinal in &*set {
            series.seek(ordinal)?;
            if series.symbols().binary_search(&symbol).is_ok() {
                kept.insert(ordinal);
            }
        }
        *set = kept;
        Ok(())
    }
}

impl Terms for BlockTerms<'_> {
    fn all(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        all.insert_range(self.window.clone());
        all
    }

    fn n_series(&self) -> u64 {
        self.window.len() as u64
    }

    fn unite(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()> {
        match self.find(name, value)? {
            Some(symbol) => self.postings.unite(symbol, &self.window, set),
            None => Ok(()),
        }
    }

    fn intersect(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()> {
        // Fast path: few candidates and a long list, such as the series of a job. The number of
        // candidates bounds the work without a check of the context.
        if let Some(&Weighed {
            symbol, list_size, ..
        }) = self.weighed(name, value)
            && set.len() <= TERMS_PER_CHECK as u64
            && set.len() * SERIES_COST < list_size
        {
            return self.retain_with(symbol, set);
        }
        match self.find(name, value)? {
            Some(symbol) => self.postings.intersect(symbol, set),
            None => {
                set.clear();
                Ok(())
            }
        }
    }

    fn weight(&mut self, name: &str, value: &str) -> Result<u64> {
        let Some(symbol) = self.find(name, value)? else {
            return Ok(0);
        };
        let list_size = self.postings.size(symbol)?;
        self.weighed.push(Weighed {
            name: name.to_owned(),
            value: value.to_owned(),
            symbol,
            list_size,
        });
        Ok(list_size)
    }

    fn unite_where(&mut self, values: &ValueTest<'_>, set: &mut RoaringBitmap) -> Result<()> {
        let ValueTest {
            ctx,
            name,
            prefix,
            passes,
        } = *values;
        let mut cursor = self.index.dictionary.cursor(Access::Cached);
        let mut next = cursor.seek(name.as_bytes(), prefix.as_bytes())?;
        while let Some(symbol) = next {
            ctx.check_every(TERMS_PER_CHECK, symbol.0 as usize)?;
            let (found_name, value) = cursor.name_and_value()?;
            if found_name != name || !value.starts_with(prefix) {
                break;
            }
            if passes(value)? {
                self.postings.unite(symbol, &self.window, set)?;
            }
            next = cursor.next()?;
        }
        Ok(())
    }

    fn retain_where(&mut self, values: &ValueTest<'_>, set: &mut RoaringBitmap) -> Result<bool> {
        let ValueTest {
            ctx,
            name,
            prefix,
            passes,
        } = *values;
        if !is_cheaper_by_series(set, &self.index.dictionary.range(name, prefix)?) {
            return Ok(false);
        }
        let mut candidates = Candidates {
            series: self.index.series_cursor(Access::Cached),
            values: self.index.dictionary.cursor(Access::Cached),
            symbols: self.index.dictionary.range(name, "")?,
            verdicts: HashMap::new(),
        };
        let mut kept = RoaringBitmap::new();
        for (i, ordinal) in set.iter().enumerate() {
            ctx.check_every(TERMS_PER_CHECK, i)?;
            if candidates.passes(ordinal, passes)? {
                kept.insert(ordinal);
            }
        }
        *set = kept;
        Ok(true)
    }
}

/// Tests the value of one label, series by series.
struct Candidates {
    series: SeriesCursor,
    values: DictionaryCursor,
    /// The symbols of the label.
    symbols: Range<u32>,
    /// Results per symbol. There are few candidates, and so few results.
    verdicts: HashMap<Symbol, bool>,
}

impl Candidates {
    fn passes(&mut self, ordinal: u32, test: &dyn Fn(&str) -> Result<bool>) -> Result<bool> {
        self.series.seek(ordinal)?;
        let row = self.series.symbols();
        let idx = row.partition_point(|symbol| symbol.0 < self.symbols.start);
        let Some(&symbol) = row.get(idx).filter(|symbol| symbol.0 < self.symbols.end) else {
            return test("");
        };
        if let Some(&verdict) = self.verdicts.get(&symbol) {
            return Ok(verdict);
        }
        self.values.go_to(symbol)?;
        let verdict = test(self.values.name_and_value()?.1)?;
        self.verdicts.insert(symbol, verdict);
        Ok(verdict)
    }
}
