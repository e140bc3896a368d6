//! Looks up the label names and values of series.
//!
//! Reads either the labels of each series or the series of each value, whichever is estimated to be
//! cheaper.

use std::ops::Range;

use roaring::RoaringBitmap;
use varve_context::{CHECK_INTERVAL, QueryContext};
use varve_model::StringSet;

use super::dictionary::after;
use super::postings::PostingsCursor;
use super::reader::Index;
use crate::block::page::Access;
use crate::block::symbol::Symbol;
use crate::error::Result;
use crate::index::TERMS_PER_CHECK;

/// Cost of reading the labels of a series, relative to visiting a value of the dictionary.
const SERIES_COST: u64 = 16;

impl Index {
    /// Adds the label names of the series in `ordinals` to `names`, or of all series.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit; the errors of [`Index::open`].
    pub(crate) fn label_names(
        &self,
        ctx: &QueryContext,
        ordinals: Option<&RoaringBitmap>,
        names: &mut StringSet,
    ) -> Result<()> {
        match (ordinals, self.all_if_unused()) {
            (None, None) => self.insert_names(ctx, names, |_| Ok(true)),
            (None, Some(all)) => self.names_of(ctx, &all, names),
            (Some(ordinals), _) => self.names_of(ctx, ordinals, names),
        }
    }

    /// Adds the values of a label in the series in `ordinals` to `values`, or in all series.
    ///
    /// # Errors
    /// The errors of [`Index::label_names`].
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        ordinals: Option<&RoaringBitmap>,
        values: &mut StringSet,
    ) -> Result<()> {
        let range = self.dictionary.range(name, "")?;
        match (ordinals, self.all_if_unused()) {
            (None, None) => self.insert_values(ctx, range, values),
            (None, Some(all)) => self.values_by_postings(ctx, range, &all, values),
            (Some(ordinals), _) if is_cheaper_by_series(ordinals, &range) => {
                let symbols = self.symbols_of(ctx, ordinals, &range)?;
                self.insert_values(ctx, symbols.into_iter(), values)
            }
            (Some(ordinals), _) => self.values_by_postings(ctx, range, ordinals, values),
        }
    }

    /// Returns all series if the dictionary has unused symbols, so that looking up the dictionary
    /// is not enough.
    fn all_if_unused(&self) -> Option<RoaringBitmap> {
        (self.n_unused > 0).then(|| self.all())
    }

    /// Adds the label names whose symbols pass a test, in ascending order, as long as names are
    /// needed.
    fn insert_names(
        &self,
        ctx: &QueryContext,
        names: &mut StringSet,
        mut passes: impl FnMut(Range<u32>) -> Result<bool>,
    ) -> Result<()> {
        let mut names = names.ascending();
        let mut cursor = self.dictionary.cursor(Access::Cached);
        let mut next = cursor.next()?;
        while let Some(first) = next {
            ctx.check()?;
            let name = cursor.name_and_value()?.0.to_owned();
            if !names.needs(&name) {
                break;
            }
            next = cursor.seek(&after(&name), &[])?;
            let end = next.map_or(self.dictionary.len(), |next| next.0);
            if end <= first.0 {
                return Err(cursor.damaged());
            }
            if passes(first.0..end)? {
                names.insert(&name)?;
            }
        }
        Ok(())
    }

    fn names_of(
        &self,
        ctx: &QueryContext,
        ordinals: &RoaringBitmap,
        names: &mut StringSet,
    ) -> Result<()> {
        let all = 0..self.dictionary.len();
        if is_cheaper_by_series(ordinals, &all) {
            let symbols = self.symbols_of(ctx, ordinals, &all)?;
            return self.insert_names(ctx, names, |range| Ok(symbols.range_cardinality(range) > 0));
        }
        let mut postings = self.postings_cursor(Access::Cached);
        self.insert_names(ctx, names, |range| {
            let found = first_that_intersects(ctx, &mut postings, range, ordinals)?;
            Ok(found.is_some())
        })
    }

    /// Returns the symbols of `range` that series in `ordinals` have, from the series table.
    fn symbols_of(
        &self,
        ctx: &QueryContext,
        ordinals: &RoaringBitmap,
        range: &Range<u32>,
    ) -> Result<RoaringBitmap> {
        let mut found = RoaringBitmap::new();
        let mut series = self.series_cursor(Access::Cached);
        for (i, ordinal) in ordinals.iter().enumerate() {
            ctx.check_every(TERMS_PER_CHECK, i)?;
            series.seek(ordinal)?;
            found.extend(
                series
                    .symbols()
                    .iter()
                    .map(|symbol| symbol.0)
                    .filter(|symbol| range.contains(symbol)),
            );
        }
        Ok(found)
    }

    fn values_by_postings(
        &self,
        ctx: &QueryContext,
        range: Range<u32>,
        ordinals: &RoaringBitmap,
        values: &mut StringSet,
    ) -> Result<()> {
        let mut postings = self.postings_cursor(Access::Cached);
        let mut dictionary = self.dictionary.cursor(Access::Cached);
        let mut values = values.ascending();
        let mut rest = range;
        while !values.is_full()
            && let Some(symbol) = first_that_intersects(ctx, &mut postings, rest.clone(), ordinals)?
        {
            dictionary.go_to(symbol)?;
            let value = dictionary.name_and_value()?.1;
            if !values.needs(value) {
                break;
            }
            values.insert(value)?;
            rest.start = symbol.0 + 1;
        }
        Ok(())
    }

    /// Adds the values of ascending symbols, as long as values are needed.
    fn insert_values(
        &self,
        ctx: &QueryContext,
        symbols: impl Iterator<Item = u32>,
        values: &mut StringSet,
    ) -> Result<()> {
        let mut values = values.ascending();
        let mut cursor = self.dictionary.cursor(Access::Cached);
        for (i, symbol) in symbols.enumerate() {
            ctx.check_every(CHECK_INTERVAL, i)?;
            cursor.go_to(Symbol(symbol))?;
            let value = cursor.name_and_value()?.1;
            if !values.needs(value) {
                break;
            }
            values.insert(value)?;
        }
        Ok(())
    }
}

/// Returns `true` if reading the series costs less than visiting the symbols.
pub(super) fn is_cheaper_by_series(ordinals: &RoaringBitmap, symbols: &Range<u32>) -> bool {
    ordinals.len().saturating_mul(SERIES_COST) < symbols.len() as u64
}

/// Returns the first of `symbols` that a series in `ordinals` has.
fn first_that_intersects(
    ctx: &QueryContext,
    postings: &mut PostingsCursor,
    symbols: Range<u32>,
    ordinals: &RoaringBitmap,
) -> Result<Option<Symbol>> {
    for symbol in symbols {
        ctx.check_every(TERMS_PER_CHECK, symbol as usize)?;
        if postings.intersects(Symbol(symbol), ordinals)? {
            return Ok(Some(Symbol(symbol)));
        }
    }
    Ok(None)
}
