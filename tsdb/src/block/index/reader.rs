//! An open index.
//!
//! ```text
//! root   number of series, varint
//!        number of suffixes, varint
//!        number of symbols, varint
//!        number of symbols that are in no series, varint
//!        directories of dictionary, suffixes, series and postings: for each, number of pages, varint; their references
//! ```

use std::sync::Arc;

use roaring::RoaringBitmap;
use varve_codec::varint::{put_u64, take_int};

use super::dictionary::{Dictionary, DictionaryCursor};
use super::postings::{self, PostingsCursor};
use super::projection::Projection;
use super::series::{self, SERIES_MAX, SeriesCursor};
use super::suffixes;
use super::table::Table;
use crate::block::page::{Access, PageRef, Pages};
use crate::error::Result;
use crate::label_hint::LabelHint;

/// The root of an index.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) n_series: u32,
    pub(super) n_suffixes: u32,
    pub(super) n_symbols: u32,
    /// Number of symbols that no series has.
    pub(super) n_unused: u32,
    /// Pages of the directories.
    pub(super) dictionary: Vec<PageRef>,
    pub(super) suffixes: Vec<PageRef>,
    pub(super) series: Vec<PageRef>,
    pub(super) postings: Vec<PageRef>,
}

impl Root {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut dst = Vec::new();
        for n in [
            self.n_series,
            self.n_suffixes,
            self.n_symbols,
            self.n_unused,
        ] {
            put_u64(&mut dst, n.into());
        }
        for directory in [
            &self.dictionary,
            &self.suffixes,
            &self.series,
            &self.postings,
        ] {
            PageRef::encode_list(directory, &mut dst);
        }
        dst
    }

    fn decode(mut src: &[u8]) -> Option<Self> {
        let src = &mut src;
        let n_series = take_int(src).filter(|&n| n <= SERIES_MAX)?;
        let n_suffixes = take_int(src).filter(|&n| n <= n_series)?;
        let n_symbols = take_int(src)?;
        let n_unused = take_int(src).filter(|&n| n <= n_symbols)?;
        let dictionary = PageRef::decode_list(src)?;
        let suffixes = PageRef::decode_list(src)?;
        let series = PageRef::decode_list(src)?;
        let postings = PageRef::decode_list(src)?;
        let root = Self {
            n_series,
            n_suffixes,
            n_symbols,
            n_unused,
            dictionary,
            suffixes,
            series,
            postings,
        };
        src.is_empty().then_some(root)
    }
}

/// The index of a block: from matchers to series, from series to labels.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) n_series: u32,
    pub(super) n_unused: u32,
    pub(super) dictionary: Dictionary,
    pub(super) suffixes: Arc<Table>,
    pub(super) series: Arc<Table>,
    pub(super) postings: Arc<Table>,
}

impl Index {
    /// Opens an index: reads the root and the directories of the four tables, without the cache.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) or [`Error::Corrupt`](crate::Error::Corrupt) with path and
    /// offset. All methods of an index return these errors.
    pub(crate) fn open(pages: Arc<Pages>, root: PageRef) -> Result<Self> {
        let payload = pages.read_page(root)?;
        let Some(root) = Root::decode(&payload) else {
            return Err(pages.corrupt(root.offset, "the root of the index does not decode"));
        };
        Ok(Self {
            n_series: root.n_series,
            n_unused: root.n_unused,
            dictionary: Dictionary::open(&pages, root.n_symbols, &root.dictionary)?,
            suffixes: Table::open(
                &pages,
                suffixes::RESTART_INTERVAL,
                root.n_suffixes,
                &root.suffixes,
            )?,
            series: Table::open(
                &pages,
                series::RESTART_INTERVAL,
                root.n_series,
                &root.series,
            )?,
            postings: Table::open(
                &pages,
                postings::RESTART_INTERVAL,
                root.n_symbols,
                &root.postings,
            )?,
        })
    }

    /// Returns the number of symbols.
    pub(crate) fn n_symbols(&self) -> u32 {
        self.dictionary.len()
    }

    /// Returns a cursor over the labels of series.
    pub(crate) fn series_cursor(&self, access: Access) -> SeriesCursor {
        SeriesCursor::new(&self.series, &self.suffixes, &self.dictionary, access)
    }

    /// Returns a cursor over all symbols in ascending order that bypasses the cache, for merges.
    pub(crate) fn symbol_cursor(&self) -> DictionaryCursor {
        self.dictionary.cursor(Access::Scan)
    }

    /// Returns the requested labels as symbols, or `None` if all labels are requested.
    ///
    /// # Errors
    /// The errors of [`Index::open`].
    pub(crate) fn projection(&self, requested: &LabelHint) -> Result<Option<Projection>> {
        let (names, is_included) = match requested {
            LabelHint::All => return Ok(None),
            LabelHint::With(names) => (&names[..], true),
            LabelHint::Without(names) => (&names[..], false),
            LabelHint::None => (&[][..], true),
        };
        let listed = names
            .iter()
            .map(|name| self.dictionary.range(name, ""))
            .collect::<Result<_>>()?;
        Ok(Some(Projection {
            listed,
            is_included,
        }))
    }

    /// Returns `true` if a series may have a label of this name.
    ///
    /// # Errors
    /// The errors of [`Index::open`].
    pub(crate) fn has_label(&self, name: &str) -> Result<bool> {
        Ok(!self.dictionary.range(name, "")?.is_empty())
    }

    /// Returns the name and the value of a symbol.
    #[cfg(test)]
    pub(crate) fn pair(&self, symbol: crate::block::symbol::Symbol) -> Result<(String, String)> {
        let mut cursor = self.dictionary.cursor(Access::Cached);
        cursor.go_to(symbol)?;
        let (name, value) = cursor.name_and_value()?;
        Ok((name.to_owned(), value.to_owned()))
    }

    pub(super) fn postings_cursor(&self, access: Access) -> PostingsCursor {
        PostingsCursor::new(&self.postings, self.n_series, access)
    }

    /// Returns the ordinals of all series.
    pub(crate) fn all(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..self.n_series);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_roots_are_rejected_or_decode(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(root) = Root::decode(&bytes) {
                prop_assert_eq!(Root::decode(&root.encode()), Some(root));
            }
        }
    }
}
