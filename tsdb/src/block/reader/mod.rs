//! Reads an open block: [`Block`] finds its series, and the functions here their samples by ordinal and time range.
//!
//! [`ReadCache`] keeps what the series before have decoded.

mod block;
mod read_cache;

pub(crate) use block::Block;
pub(crate) use read_cache::ReadCache;
#[cfg(test)]
pub(in crate::block) use read_cache::{COLUMN_SIZE, COLUMNS_MAX, PAGES_SIZE_MAX, TIMES_MAX};

use read_cache::Times;

use super::directory::Group;
use super::group::{GroupMap, RowsRef};
use super::page::PageRef;
use super::rows::Rows;
use super::timestamps::TimestampColumnId;
use crate::error::{Error, Result};
use crate::sample::{SampleColumns, TimeRange};

impl Block {
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
    /// The errors of [`Block::overlaps`].
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
