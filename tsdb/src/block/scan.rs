//! A sequential scan of all series of a block, for merges and verification. It bypasses the cache
//! and reads each page about once.
//!
//! In memory: the pages of rows of one group, and a few dozen pages of timestamp columns.

use std::sync::Arc;

use varve_model::{SampleColumns, TimeRange};

use super::directory::TimestampColumnId;
use super::directory::{Group, RowsRef};
use super::index::SeriesCursor;
use super::page::Access;
use super::reader::Block;
use super::rows::{Needed, Rows, RowsPlace};
use super::symbol::Symbol;
use super::timestamps::TimestampColumns;
use crate::error::{Damaged, Result};

/// Reads the series of a block in order.
pub(crate) struct BlockScan<'a> {
    block: &'a Block,
    labels: SeriesCursor,
    /// Ordinal of the next series.
    ordinal: u32,
    /// Index of the next group.
    group_idx: usize,
    group: Option<LoadedGroup<'a>>,
    timestamp_columns: RecentTimestampColumns<'a>,
}

impl Block {
    /// Starts a scan of all series.
    pub(crate) fn scan(&self) -> BlockScan<'_> {
        let labels = self.index.series_cursor(Access::Scan);
        let timestamp_columns = RecentTimestampColumns::new(self);
        BlockScan {
            block: self,
            labels,
            ordinal: 0,
            group_idx: 0,
            group: None,
            timestamp_columns,
        }
    }
}

impl BlockScan<'_> {
    /// Replaces `samples` by the samples of the next series, and returns its symbols. Returns
    /// `None` after the last series.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Corrupt`](crate::Error::Corrupt),
    /// [`Error::Version`](crate::Error::Version). The scan cannot be continued then.
    pub(crate) fn next(&mut self, samples: &mut SampleColumns) -> Result<Option<&[Symbol]>> {
        samples.clear();
        if self
            .group
            .as_ref()
            .is_none_or(|group| group.end() == self.ordinal)
        {
            if self.group_idx == self.block.groups.len() {
                return Ok(None);
            }
            // Drops the pages of the previous group before the next one is read.
            self.group = None;
            self.group = Some(LoadedGroup::load(self.block, self.group_idx)?);
            self.group_idx += 1;
        }
        let group = self.group.as_mut().expect("loaded above");
        let series_idx = (self.ordinal - group.group.first) as usize;
        group.rows_size = 0;
        for i in 0..group.pages.len() {
            group.read_series(i, series_idx, &mut self.timestamp_columns, samples)?;
        }
        self.block.check_times(group.group, samples)?;
        self.labels.seek(self.ordinal)?;
        self.ordinal += 1;
        Ok(Some(self.labels.symbols()))
    }

    /// Returns the size in bytes of the values of the series that [`BlockScan::next`] returned
    /// last.
    pub(crate) fn rows_size(&self) -> u64 {
        self.group.as_ref().map_or(0, |group| group.rows_size)
    }
}

impl Block {
    /// Checks the assumptions of a writer. A timestamp column with a correct checksum may still
    /// belong to other series.
    fn check_times(&self, group: Group<'_>, samples: &SampleColumns) -> Result<()> {
        let is_inside = samples
            .range()
            .is_some_and(|range| self.meta.range.covers(range));
        if is_inside && samples.timestamps_ms.is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        let reason =
            "a series has no timestamps, or they do not ascend inside the time range of the block";
        Err(self.pages.corrupt(group.map.offset, reason))
    }
}

/// A group with its map, and the pages of rows that were needed so far.
pub(crate) struct LoadedGroup<'a> {
    block: &'a Block,
    group: Group<'a>,
    map: Arc<[u8]>,
    pages: Vec<LoadedPage>,
    /// Size of the rows of the series that was read last.
    rows_size: u64,
}

/// A page of rows of a group.
struct LoadedPage {
    rows_ref: RowsRef,
    /// `None` until the page is read.
    payload: Option<Arc<[u8]>>,
    /// The rows that were read last. The next ones follow.
    place: RowsPlace,
}

impl<'a> LoadedGroup<'a> {
    /// Reads the map of the group at an index.
    pub(crate) fn load(block: &'a Block, group_idx: usize) -> Result<Self> {
        let group = block.groups.get(group_idx);
        let map = block.pages.read_page(group.map)?;
        block.map(group, &map)?;
        let pages = group
            .pages_in(TimeRange::ALL)
            .map(|(_, rows_ref)| LoadedPage {
                rows_ref,
                payload: None,
                place: RowsPlace::default(),
            })
            .collect();
        Ok(Self {
            block,
            group,
            map,
            pages,
            rows_size: 0,
        })
    }

    /// Returns the ordinal after the last series.
    fn end(&self) -> u32 {
        self.group.first + self.group.n_series as u32
    }

    /// Appends the samples of a series in the `i`-th page.
    pub(crate) fn read_series(
        &mut self,
        i: usize,
        series_idx: usize,
        timestamp_columns: &mut RecentTimestampColumns<'a>,
        out: &mut SampleColumns,
    ) -> Result<()> {
        let Self {
            block,
            group,
            map,
            pages,
            rows_size,
        } = self;
        let LoadedPage {
            rows_ref,
            payload,
            place,
        } = &mut pages[i];
        let page = rows_ref.page();
        let unreadable = |why| block.pages.unreadable(page, why);
        if payload.is_none() {
            let read = block.pages.read_page(page)?;
            Rows::parse(&read, group.n_series)
                .and_then(|rows| Ok(rows.check_sizes()?))
                .map_err(unreadable)?;
            *payload = Some(read);
        }
        let rows = Rows::parse(payload.as_ref().expect("read above"), group.n_series)
            .map_err(unreadable)?;
        let timestamp_column = block.map(*group, map)?.timestamp_column(i, series_idx);
        *rows_size += rows.size(series_idx);
        if (rows.size(series_idx) > 0) != timestamp_column.is_some() {
            return Err(block.pages.unreadable(page, Damaged));
        }
        if let Some(id) = timestamp_column {
            let start = out.len();
            timestamp_columns.append(*group, id, &mut out.timestamps_ms)?;
            let n = out.timestamps_ms.len() - start;
            *place = rows.place_of(series_idx, *place);
            rows.decode(*place, n, 0..n, Needed::All, out)
                .map_err(unreadable)?;
        }
        // A group of one series may have many large pages.
        if group.n_series == 1 {
            *payload = None;
        }
        Ok(())
    }
}

/// The pages of timestamp columns that were used last.
pub(crate) struct RecentTimestampColumns<'a> {
    block: &'a Block,
    /// A direct-mapped cache: a page is stored at its index modulo the length.
    pages: Vec<Option<(usize, Arc<[u8]>)>>,
}

/// Number of cached pages of timestamp columns, of about 16 KiB each.
const RECENT_PAGES: usize = 64;

impl<'a> RecentTimestampColumns<'a> {
    pub(crate) fn new(block: &'a Block) -> Self {
        Self {
            block,
            pages: vec![None; RECENT_PAGES],
        }
    }

    /// Appends the timestamps of a timestamp column that the map of `group` contains.
    fn append(
        &mut self,
        group: Group<'_>,
        id: TimestampColumnId,
        times_ms: &mut Vec<i64>,
    ) -> Result<()> {
        let (at, in_page) = self.block.find_column(group, id)?;
        let cached = &mut self.pages[at.idx % RECENT_PAGES];
        if cached.as_ref().is_none_or(|(idx, _)| *idx != at.idx) {
            *cached = Some((at.idx, self.block.pages.read_page(at.page)?));
        }
        let (_, payload) = cached.as_ref().expect("read above");
        let decoded = TimestampColumns::parse(payload, at.n)
            .and_then(|columns| columns.decode(in_page, times_ms));
        decoded.map_err(|why| self.block.pages.unreadable(at.page, why))
    }
}
