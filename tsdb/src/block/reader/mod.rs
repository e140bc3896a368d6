//! An open block: its series, and their samples by ordinal and time range.
//!
//! Opening reads header, trailer, directory and the root of the index; everything else is read on demand through the
//! cache. Damage is found when a page is first decoded, and fails only reads that need that page.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use roaring::RoaringBitmap;

use super::Unreadable;
use super::directory::{Group, Groups, TimestampColumnPages};
use super::footer::{Footer, find_footer};
use super::group::{GroupMap, RowsRef};
use super::index::{Index, Projection, SeriesCursor, SymbolCursor};
use super::meta::{BlockId, BlockMeta};
use super::page::{PageCache, PageRef, Pages};
use super::read_cache::{ReadCache, Times};
use super::rows::Rows;
use super::timestamps::TimestampColumnId;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};
use crate::labels::{LabelHint, Matcher, StringSet};
use crate::sample::{SampleColumns, TimeRange};

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
    /// As [`Block::open`]; [`Error::Corrupt`] also if the file contains another id: it would take the place of that
    /// block in every list, and be removed instead of it.
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
    /// As [`Block::select`].
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
    /// As [`Block::select`].
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        ordinals: Option<&RoaringBitmap>,
        values: &mut StringSet,
    ) -> Result<()> {
        self.index.label_values(ctx, name, ordinals, values)
    }

    /// Finds the requested labels; `None` if all are requested.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn projection(&self, requested: &LabelHint) -> Result<Option<Projection>> {
        self.index.projection(requested)
    }

    /// Returns `true` if a series may have a label of this name.
    ///
    /// # Errors
    /// As [`Block::projection`].
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

    /// Returns `true` if a series has a sample in `range`. Reads timestamps only. `read_cache` belongs to this block.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::Version`].
    ///
    /// # Panics
    /// If the block has no such series.
    pub(crate) fn overlaps(&self, read_cache: &mut ReadCache, ordinal: u32, range: TimeRange) -> Result<bool> {
        let group = read_cache.group(self, ordinal);
        for (i, _) in group.pages_in(range) {
            if self.times(read_cache, group, i, ordinal)?.is_some_and(|times| !times.cut(range).is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Appends the samples of a series in `range`; appends nothing on an error. `read_cache` belongs to this block.
    ///
    /// # Errors
    /// As [`Block::overlaps`].
    ///
    /// # Panics
    /// As [`Block::overlaps`].
    pub(crate) fn read(
        &self,
        read_cache: &mut ReadCache,
        ordinal: u32,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<()> {
        let group = read_cache.group(self, ordinal);
        let start = out.len();
        for (i, rows) in group.pages_in(range) {
            if let Err(refused) = self.read_rows(read_cache, group, (i, rows), ordinal, range, out) {
                out.truncate(start);
                return Err(refused);
            }
        }
        read_cache.note_work(out.len() - start);
        Ok(())
    }

    fn read_rows(
        &self,
        read_cache: &mut ReadCache,
        group: Group<'_>,
        (i, rows): (usize, RowsRef),
        ordinal: u32,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<()> {
        let start = out.len();
        let Some(times) = self.times(read_cache, group, i, ordinal)? else { return Ok(()) };
        let (n, wanted) = (times.len(), times.cut(range));
        if wanted.is_empty() {
            return Ok(());
        }
        times.append(wanted.clone(), &mut out.timestamps_ms);
        let page = read_cache.rows(self, i, rows.page)?;
        let series_idx = (ordinal - group.first) as usize;
        let read = Rows::parse(&page.payload, group.n_series).and_then(|rows| {
            page.place = rows.place_of(series_idx, page.place);
            rows.decode(page.place, n, wanted.clone(), out)?;
            Ok(rows.starts(series_idx, n, wanted)?)
        });
        let starts = read.map_err(|why| self.pages.unreadable(rows.page, why))?;
        out.set_starts(start, &starts);
        Ok(())
    }

    /// Returns the timestamps of a series in the `i`-th page of rows of its group, if it has any.
    fn times<'a>(
        &self,
        read_cache: &'a mut ReadCache,
        group: Group<'_>,
        i: usize,
        ordinal: u32,
    ) -> Result<Option<Times<'a>>> {
        let map = self.map(group, &read_cache.map(self, group)?.payload)?;
        let Some(id) = map.timestamp_column(i, (ordinal - group.first) as usize) else { return Ok(None) };
        let times = read_cache.times(self, id).ok_or_else(|| self.no_column(group.map, id))?;
        times.map(Some)
    }

    pub(in crate::block) fn map<'a>(&self, group: Group<'_>, payload: &'a [u8]) -> Result<GroupMap<'a>> {
        let map = GroupMap::parse(payload, group.n_series, group.n_pages());
        map.map_err(|why| self.pages.unreadable(group.map, why))
    }

    pub(in crate::block) fn no_column(&self, map: PageRef, id: TimestampColumnId) -> Error {
        self.pages.corrupt(map.offset, format!("timestamp column {} of a series does not exist", id.0))
    }
}
