//! An open block: its series, by index and directory.
//!
//! Opening reads header, trailer, directory and the root of the index; everything else is read on demand through the
//! cache. Damage is found when a page is first decoded, and fails only reads that need that page.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::block::Unreadable;
use crate::block::directory::{Groups, TimestampColumnPages};
use crate::block::footer::{Footer, find_footer};
use crate::block::index::{Index, Projection, SeriesCursor, SymbolCursor};
use crate::block::meta::{BlockId, BlockMeta};
use crate::block::page::{PageCache, PageRef, Pages};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};
use crate::labels::{LabelHint, Matcher, StringSet};

/// An open block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(in crate::block) path: PathBuf,
    pub(in crate::block) meta: BlockMeta,
    pub(in crate::block) pages: Arc<Pages>,
    pub(in crate::block) groups: Groups,
    pub(in crate::block) timestamp_columns: TimestampColumnPages,
    pub(in crate::block) index: Arc<Index>,
    /// The end of the pages.
    pub(in crate::block) footer: PageRef,
}

impl Block {
    /// Opens a block whose pages are read through `cache`.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] if header, footer, directory or index root are damaged; [`Error::Version`] if
    /// a later version wrote it.
    pub(crate) fn open(fs: &dyn Fs, path: &Path, cache: &Arc<PageCache>) -> Result<Self> {
        let file = fs.open(path).map_err(Error::io("open", path))?;
        Self::open_file(path, file, cache)
    }

    /// Opens the block with an id in a directory of blocks.
    ///
    /// # Errors
    /// The errors of [`Block::open`]; [`Error::Corrupt`] also if the file contains another id: it would take the place
    /// of that block in every list, and be removed instead of it.
    pub(crate) fn open_numbered(fs: &dyn Fs, dir: &Path, id: BlockId, cache: &Arc<PageCache>) -> Result<Self> {
        let block = Self::open(fs, &dir.join(id.file_name()), cache)?;
        let found = block.meta.origin.id;
        if found == id {
            return Ok(block);
        }
        let reason =
            format!("this is block {}, under the name of block {}: the file was renamed or copied", found.0, id.0);
        Err(block.pages.corrupt(block.footer.offset, reason))
    }

    pub(in crate::block) fn open_file(path: &Path, file: Arc<dyn ReadFile>, cache: &Arc<PageCache>) -> Result<Self> {
        let at = find_footer(path, &*file)?;
        let size = file.size().map_err(Error::io("read the size of", path))?;
        let pages = Arc::new(Pages::new(path, file, Arc::clone(cache)));
        let refused = |page| {
            let pages = &pages;
            move |why: Unreadable| pages.unreadable(page, why)
        };
        let footer = Footer::decode(&pages.read(at)?, size).map_err(refused(at))?;
        let (mut groups, mut timestamp_columns) = (Groups::default(), TimestampColumnPages::default());
        for &page in &footer.groups {
            let added = groups.add(&pages.read(page)?, at.offset, footer.meta.range);
            added.map_err(|damaged| refused(page)(damaged.into()))?;
        }
        for &page in &footer.timestamp_columns {
            timestamp_columns.add(&pages.read(page)?, at.offset).map_err(|damaged| refused(page)(damaged.into()))?;
        }
        let index = Index::open(Arc::clone(&pages), footer.index)?;
        let (n_series, n_samples) = groups.totals();
        let is_as_told = (u64::from(n_series), n_samples) == (footer.meta.n_series, footer.meta.n_samples);
        if !is_as_told || index.n_series() != n_series {
            return Err(pages.corrupt(at.offset, "footer, directory and index disagree on the number of series"));
        }
        let (path, meta, index) = (path.to_owned(), footer.meta, Arc::new(index));
        Ok(Self { path, meta, pages, groups, timestamp_columns, index, footer: at })
    }

    /// Returns the origin and the statistics.
    pub(crate) fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the ordinals of the series that all matchers select.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`], [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn select(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<RoaringBitmap> {
        self.index.select(ctx, matchers)
    }

    /// Adds the label names of some series, or of all.
    ///
    /// # Errors
    /// The errors of [`Block::select`].
    pub(crate) fn label_names(
        &self,
        ctx: &QueryContext,
        ordinals: Option<&RoaringBitmap>,
        names: &mut StringSet,
    ) -> Result<()> {
        self.index.label_names(ctx, ordinals, names)
    }

    /// Adds the values of a label in some series, or in all.
    ///
    /// # Errors
    /// The errors of [`Block::select`].
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        ordinals: Option<&RoaringBitmap>,
        values: &mut StringSet,
    ) -> Result<()> {
        self.index.label_values(ctx, name, ordinals, values)
    }

    /// Finds the requested labels. Returns `None` if all are requested.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn projection(&self, requested: &LabelHint) -> Result<Option<Projection>> {
        self.index.projection(requested)
    }

    /// Returns `true` if a series may have a label of this name.
    ///
    /// # Errors
    /// The errors of [`Block::projection`].
    pub(crate) fn has_label(&self, name: &str) -> Result<bool> {
        self.index.has_label(name)
    }

    /// Returns a cursor over the label sets.
    pub(crate) fn series_cursor(&self) -> SeriesCursor {
        self.index.series_cursor()
    }

    /// Returns a cursor over all label names and values.
    pub(crate) fn symbol_cursor(&self) -> SymbolCursor {
        self.index.symbol_cursor()
    }
}
