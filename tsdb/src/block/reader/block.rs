//! Opening a block.
//!
//! Opening reads header, trailer, footer, directory and the directories of the index. Everything
//! else is read on demand. A damaged page is found when it is first read, and fails only reads that
//! need it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use varve_env::Fs;
use varve_model::TimeRange;
use varve_model::labels::NAME_LABELS;

use crate::block::directory::{Groups, TimestampColumnPages};
use crate::block::footer::{Footer, find_footer};
use crate::block::index::Index;
use crate::block::meta::{BlockId, BlockMeta};
use crate::block::page::{PageCache, PageRef, Pages};
use crate::error::{Error, Result};

/// An open block.
#[derive(Debug)]
pub(crate) struct Block {
    path: PathBuf,
    pub(crate) index: Index,
    pub(crate) meta: BlockMeta,
    pub(crate) pages: Arc<Pages>,
    pub(crate) groups: Groups,
    pub(crate) timestamp_columns: TimestampColumnPages,
    /// The footer, at the end of the pages.
    pub(crate) footer: PageRef,
    /// The result of [`Block::has_name_labels`].
    name_labels: OnceLock<bool>,
}

impl Block {
    /// Opens a block, to be read through `cache`.
    ///
    /// # Errors
    /// - [`Error::Io`].
    /// - [`Error::Corrupt`] if header, footer or a directory are damaged.
    /// - [`Error::Version`] if a later version wrote the block.
    pub(crate) fn open(fs: &dyn Fs, path: &Path, cache: &Arc<PageCache>) -> Result<Self> {
        let (pages, footer_page, footer) = open_footer(fs, path, cache)?;
        let mut groups = Groups::default();
        let mut timestamp_columns = TimestampColumnPages::default();
        for &page in &footer.groups {
            let added = groups.add(
                &pages.read_page(page)?,
                footer_page.offset,
                footer.meta.range,
            );
            added.map_err(|damaged| pages.unreadable(page, damaged))?;
        }
        for &page in &footer.timestamp_columns {
            let added = timestamp_columns.add(&pages.read_page(page)?, footer_page.offset);
            added.map_err(|damaged| pages.unreadable(page, damaged))?;
        }
        let index = Index::open(Arc::clone(&pages), footer.index)?;
        let (n_series, n_samples) = groups.totals();
        let in_directory = (u64::from(n_series), n_samples);
        if in_directory != (footer.meta.n_series, footer.meta.n_samples)
            || index.n_series != n_series
        {
            let reason = "footer, directory and index disagree on the number of series or samples";
            return Err(pages.corrupt(footer_page.offset, reason));
        }
        let path = path.to_owned();
        let name_labels = OnceLock::new();
        Ok(Self {
            path,
            index,
            meta: footer.meta,
            pages,
            groups,
            timestamp_columns,
            footer: footer_page,
            name_labels,
        })
    }

    /// Returns `true` if a series may have one of [`NAME_LABELS`]. Reads the index at the first
    /// call.
    pub(crate) fn has_name_labels(&self) -> bool {
        *self.name_labels.get_or_init(|| {
            let mut names = NAME_LABELS.iter();
            names.any(|name| self.index.has_label(name).unwrap_or(true))
        })
    }

    /// Opens the block with an id in a directory of blocks.
    ///
    /// # Errors
    /// The errors of [`Block::open`]; [`Error::Corrupt`] also if the file contains a block with
    /// another id. Such a file would take the place of the other block in every list, and be
    /// removed instead of it.
    pub(crate) fn open_numbered(
        fs: &dyn Fs,
        dir: &Path,
        id: BlockId,
        cache: &Arc<PageCache>,
    ) -> Result<Self> {
        let block = Self::open(fs, &dir.join(id.file_name()), cache)?;
        let found = block.meta.origin.id;
        if found == id {
            return Ok(block);
        }
        let reason = format!(
            "this is block {}, under the name of block {}: the file was renamed or copied",
            found.0, id.0
        );
        Err(block.pages.corrupt(block.footer.offset, reason))
    }

    /// Returns the time range of the block with an id in a directory of blocks, as far as its footer
    /// says it: damage behind it does not matter.
    pub(crate) fn range_of(
        fs: &dyn Fs,
        dir: &Path,
        id: BlockId,
        cache: &Arc<PageCache>,
    ) -> Option<TimeRange> {
        let (_, _, footer) = open_footer(fs, &dir.join(id.file_name()), cache).ok()?;
        (footer.meta.origin.id == id).then_some(footer.meta.range)
    }

    /// Reads the footer again.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::Version`].
    pub(in crate::block) fn read_footer(&self) -> Result<Footer> {
        let payload = self.pages.read_page(self.footer)?;
        Footer::decode(&payload, self.meta.size)
            .map_err(|why| self.pages.unreadable(self.footer, why))
    }

    /// Returns the origin and the statistics.
    pub(crate) fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a file and reads its footer.
fn open_footer(
    fs: &dyn Fs,
    path: &Path,
    cache: &Arc<PageCache>,
) -> Result<(Arc<Pages>, PageRef, Footer)> {
    let file = fs.open(path).map_err(Error::io("open", path))?;
    let page = find_footer(path, &*file)?;
    let size = file.size().map_err(Error::io("read the size of", path))?;
    let pages = Arc::new(Pages::new(path, file, Arc::clone(cache)));
    let footer =
        Footer::decode(&pages.read_page(page)?, size).map_err(|why| pages.unreadable(page, why))?;
    Ok((pages, page, footer))
}
