//! Reading an open block: [`Block`], and here its samples by ordinal and time range.
//!
//! A [`ReadCache`] keeps what the previous reads have decoded.

mod block;
mod read_cache;

pub(crate) use block::Block;
pub(crate) use read_cache::ReadCache;
#[cfg(test)]
pub(super) use read_cache::{COLUMN_SIZE, COLUMNS_MAX, PAGES_SIZE_MAX, TIMES_MAX};

use read_cache::Timestamps;
use varve_model::{SampleColumns, TimeRange};

use super::directory::{Group, RowsRef, TimestampColumnId, TimestampColumnsRef};
use super::group::GroupMap;
use super::rows::{Needed, Rows};
use crate::error::Result;

impl Block {
    /// Returns `true` if a series has a sample in `range`. Reads only timestamps. `read_cache` must
    /// be used for this block only.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Corrupt`](crate::Error::Corrupt),
    /// [`Error::Version`](crate::Error::Version).
    ///
    /// # Panics
    /// If the block has no such series.
    pub(crate) fn overlaps(
        &self,
        read_cache: &mut ReadCache,
        ordinal: u32,
        range: TimeRange,
    ) -> Result<bool> {
        let group = read_cache.group(self, ordinal);
        for (i, _) in group.pages_in(range) {
            if self
                .times(read_cache, group, i, ordinal)?
                .is_some_and(|times| !times.cut(range).is_empty())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Appends the samples of a series in `range`. `read_cache` must be used for this block only.
    ///
    /// # Errors
    /// The errors of [`Block::overlaps`]. Nothing is appended then.
    ///
    /// # Panics
    /// If the block has no such series.
    pub(crate) fn read(
        &self,
        read_cache: &mut ReadCache,
        ordinal: u32,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<()> {
        let group = read_cache.group(self, ordinal);
        let start = out.len();
        for (page_idx, rows_ref) in group.pages_in(range) {
            if let Err(error) =
                self.read_rows(read_cache, group, page_idx, rows_ref, ordinal, range, out)
            {
                out.truncate(start);
                return Err(error);
            }
        }
        read_cache.note_work(out.len() - start);
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one caller; the page and the series are two arguments each"
    )]
    fn read_rows(
        &self,
        read_cache: &mut ReadCache,
        group: Group<'_>,
        page_idx: usize,
        rows_ref: RowsRef,
        ordinal: u32,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<()> {
        let Some(times) = self.times(read_cache, group, page_idx, ordinal)? else {
            return Ok(());
        };
        let n = times.len();
        let wanted = times.cut(range);
        if wanted.is_empty() {
            return Ok(());
        }
        times.append(wanted.clone(), &mut out.timestamps_ms);
        let needed = if read_cache.skip_values {
            Needed::Nan
        } else {
            Needed::All
        };
        let page = read_cache.rows(self, page_idx, rows_ref.page())?;
        let read = Rows::parse(&page.payload, group.n_series).and_then(|rows| {
            page.place = rows.place_of((ordinal - group.first) as usize, page.place);
            rows.decode(page.place, n, wanted, needed, out)
        });
        read.map_err(|why| self.pages.unreadable(rows_ref.page(), why))
    }

    /// Returns the timestamps of a series in a page of rows of its group, or `None` if it has none
    /// there.
    fn times<'a>(
        &self,
        read_cache: &'a mut ReadCache,
        group: Group<'_>,
        page_idx: usize,
        ordinal: u32,
    ) -> Result<Option<Timestamps<'a>>> {
        let map = self.map(group, &read_cache.map(self, group)?.payload)?;
        let Some(id) = map.timestamp_column(page_idx, (ordinal - group.first) as usize) else {
            return Ok(None);
        };
        read_cache.times(self, group, id).map(Some)
    }

    pub(super) fn map<'a>(&self, group: Group<'_>, payload: &'a [u8]) -> Result<GroupMap<'a>> {
        let map = GroupMap::parse(payload, group.n_series, group.n_pages());
        map.map_err(|why| self.pages.unreadable(group.map, why))
    }

    /// Returns the page of a timestamp column that the map of a group contains, and the index of
    /// the column there.
    pub(super) fn find_column(
        &self,
        group: Group<'_>,
        id: TimestampColumnId,
    ) -> Result<(TimestampColumnsRef, usize)> {
        self.timestamp_columns.find(id).ok_or_else(|| {
            let reason = format!("timestamp column {} of a series does not exist", id.0);
            self.pages.corrupt(group.map.offset, reason)
        })
    }
}
