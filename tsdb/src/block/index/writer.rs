//! Writing an index.

use std::path::Path;
use std::sync::Arc;

use varve_env::Fs;

use super::dictionary::DictionaryWriter;
use super::runs::{OpenRuns, RunSorter};
use super::series::{SERIES_MAX, SeriesWriter};
use super::table::PAGE_SIZE;
use super::{postings, reader::Root};
use crate::block::page::{PageRef, PageWriter};
use crate::block::symbol::Symbol;
use crate::error::{Error, Result};

/// Writes the index of a block: all symbols, then all series, then [`IndexWriter::finish`].
///
/// Memory: `memory_max` bytes for postings and remembered suffixes, a few pages, and the references
/// of the pages of the directories.
pub(crate) struct IndexWriter {
    page_size: usize,
    dictionary: DictionaryWriter,
    series: SeriesWriter,
    open: OpenRuns,
    sorter: RunSorter,
}

impl IndexWriter {
    /// Creates a writer. If the postings exceed `memory_max` bytes, they are spilled to files whose
    /// names begin with `spill` and end in `.tmp`. The files are removed when the writer is
    /// finished or dropped.
    pub(crate) fn new(fs: Arc<dyn Fs>, spill: &Path, memory_max: usize) -> Self {
        Self::with_page_size(fs, spill, memory_max, PAGE_SIZE)
    }

    /// Creates a writer as [`IndexWriter::new`] does, with pages of `page_size` bytes.
    pub(super) fn with_page_size(
        fs: Arc<dyn Fs>,
        spill: &Path,
        memory_max: usize,
        page_size: usize,
    ) -> Self {
        Self {
            page_size,
            dictionary: DictionaryWriter::new(page_size),
            series: SeriesWriter::new(page_size, memory_max / 4),
            open: OpenRuns::default(),
            sorter: RunSorter::new(fs, spill, page_size, memory_max - memory_max / 4),
        }
    }

    /// Adds a label name with a value. Symbols ascend by name, then value, and come before the
    /// first series.
    ///
    /// # Errors
    /// [`Error::Limit`] after 2^32 - 1 symbols; the errors of [`PageWriter::write`].
    ///
    /// # Panics
    /// If name or value are empty, or symbols do not ascend.
    pub(crate) fn symbol(
        &mut self,
        pages: &mut PageWriter,
        name: &str,
        value: &str,
    ) -> Result<Symbol> {
        debug_assert!(self.series.len() == 0, "symbols come before series");
        self.dictionary.push(pages, name, value)
    }

    /// Adds a series by its symbols. Both symbols and series ascend.
    ///
    /// # Errors
    /// [`Error::Limit`] after [`SERIES_MAX`] series; [`Error::Io`] of the block or a spill file.
    ///
    /// # Panics
    /// If symbols or series do not ascend, or a symbol does not belong to this index.
    pub(crate) fn series(&mut self, pages: &mut PageWriter, labels: &[Symbol]) -> Result<()> {
        let ordinal = self.series.len();
        if ordinal == SERIES_MAX {
            let used = u64::from(ordinal) + 1;
            let limit = SERIES_MAX.into();
            return Err(Error::Limit {
                what: varve_context::Limit::Other("series of a block"),
                used,
                limit,
            });
        }
        assert!(
            labels
                .last()
                .is_none_or(|last| last.0 < self.dictionary.len()),
            "symbols belong to this index"
        );
        self.series.push(pages, labels)?;
        self.open.advance(ordinal, labels, &mut self.sorter)
    }

    /// Writes the remaining data and returns the root of the index.
    ///
    /// # Errors
    /// [`Error::Io`] of the block or a spill file.
    pub(crate) fn finish(mut self, pages: &mut PageWriter) -> Result<PageRef> {
        let n_series = self.series.len();
        let n_suffixes = self.series.n_suffixes();
        let n_symbols = self.dictionary.len();
        self.open.advance(n_series, &[], &mut self.sorter)?;
        let dictionary = self.dictionary.finish(pages)?;
        let (suffixes, series) = self.series.finish(pages)?;
        let (postings, n_unused) =
            postings::write(pages, n_symbols, self.sorter.finish()?, self.page_size)?;
        let root = Root {
            n_series,
            n_suffixes,
            n_symbols,
            n_unused,
            dictionary,
            suffixes,
            series,
            postings,
        };
        pages.write(&root.encode())
    }
}
