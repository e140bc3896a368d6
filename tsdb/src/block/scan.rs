//! A sequential scan of all series of a block, for merges and verification: bypasses the cache and reads each page
//! about once.
//!
//! In memory: the pages of rows of one group, and a few dozen pages of timestamp columns.

use super::directory::Group;
use super::group::RowsRef;
use super::index::SeriesCursor;
use super::reader::Block;
use super::rows::{Rows, RowsPlace};
use super::timestamps::TimestampColumnId;
use super::timestamps::columns::TimestampColumns;
use super::{Damaged, Symbol};
use crate::error::Result;
use crate::sample::{SampleColumns, TimeRange};

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
        BlockScan::new(self)
    }
}

impl<'a> BlockScan<'a> {
    pub(in crate::block) fn new(block: &'a Block) -> Self {
        let (labels, timestamp_columns) = (block.index.series_scan(), RecentTimestampColumns::new(block));
        Self { block, labels, ordinal: 0, group_idx: 0, group: None, timestamp_columns }
    }

    /// Replaces `samples` by those of the next series and returns its symbols. Returns `None` after the last one.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Corrupt`](crate::Error::Corrupt),
    /// [`Error::Version`](crate::Error::Version); the scan is of no more use then.
    pub(crate) fn next(&mut self, samples: &mut SampleColumns) -> Result<Option<&[Symbol]>> {
        samples.clear();
        if self.group.as_ref().is_none_or(|group| group.end() == self.ordinal) {
            if self.group_idx == self.block.groups.len() {
                return Ok(None);
            }
            let mut buffers = self.group.take().map(|group| group.payloads).unwrap_or_default();
            buffers.clear();
            self.group = Some(LoadedGroup::load(self.block, self.block.groups.get(self.group_idx), buffers)?);
            self.group_idx += 1;
        }
        let group = self.group.as_mut().expect("loaded above");
        group.read(self.ordinal, &mut self.timestamp_columns, samples)?;
        self.block.check_times(group.group, &samples.timestamps_ms)?;
        self.labels.seek(self.ordinal)?;
        self.ordinal += 1;
        Ok(Some(self.labels.symbols()))
    }

    /// Returns the size of the values of the series that [`BlockScan::next`] returned last, in bytes.
    pub(crate) fn rows_size(&self) -> u64 {
        self.group.as_ref().map_or(0, |group| group.rows_size)
    }
}

impl Block {
    /// Checks what a writer assumes. Timestamp columns with correct checksums may still be those of other series.
    fn check_times(&self, group: Group<'_>, times_ms: &[i64]) -> Result<()> {
        let range = self.meta.range;
        let is_inside = times_ms
            .first()
            .zip(times_ms.last())
            .is_some_and(|(&first_ms, &last_ms)| range.start_ms <= first_ms && last_ms <= range.end_ms);
        if is_inside && times_ms.is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        Err(self
            .pages
            .corrupt(group.map.offset, "a series has no timestamps, or they do not ascend inside the block's range"))
    }
}

/// A group with its map and those pages of rows that were needed so far.
pub(in crate::block) struct LoadedGroup<'a> {
    block: &'a Block,
    group: Group<'a>,
    map: Vec<u8>,
    pages: Vec<RowsRef>,
    /// The pages of rows; empty if not read yet.
    payloads: Vec<Vec<u8>>,
    /// Size of the rows of the series that was read last.
    rows_size: u64,
}

impl<'a> LoadedGroup<'a> {
    pub(in crate::block) fn load(block: &'a Block, group: Group<'a>, mut payloads: Vec<Vec<u8>>) -> Result<Self> {
        let map = block.pages.read(group.map)?;
        block.map(group, &map)?;
        let pages: Vec<_> = group.pages_in(TimeRange::ALL).map(|(_, rows)| rows).collect();
        payloads.resize(pages.len(), Vec::new());
        Ok(Self { block, group, map, pages, payloads, rows_size: 0 })
    }

    fn end(&self) -> u32 {
        self.group.first + self.group.n_series as u32
    }

    fn read(
        &mut self,
        ordinal: u32,
        timestamp_columns: &mut RecentTimestampColumns<'a>,
        out: &mut SampleColumns,
    ) -> Result<()> {
        self.rows_size = 0;
        for i in 0..self.pages.len() {
            self.read_page(i, (ordinal - self.group.first) as usize, timestamp_columns, out)?;
        }
        Ok(())
    }

    /// Appends the samples of a series in the `i`-th page.
    pub(in crate::block) fn read_page(
        &mut self,
        i: usize,
        series_idx: usize,
        timestamp_columns: &mut RecentTimestampColumns<'a>,
        out: &mut SampleColumns,
    ) -> Result<()> {
        let unreadable = |why| self.block.pages.unreadable(self.pages[i].page, why);
        if self.payloads[i].is_empty() {
            let payload = self.block.pages.read(self.pages[i].page)?;
            let rows = Rows::parse(&payload, self.group.n_series).map_err(unreadable)?;
            rows.check_sizes().map_err(|damaged| unreadable(damaged.into()))?;
            self.payloads[i] = payload;
        }
        let map = self.block.map(self.group, &self.map)?;
        let rows = Rows::parse(&self.payloads[i], self.group.n_series).map_err(unreadable)?;
        let timestamp_column = map.timestamp_column(i, series_idx);
        self.rows_size += rows.size(series_idx);
        if rows.has(series_idx) != timestamp_column.is_some() {
            return Err(unreadable(Damaged.into()));
        }
        if let Some(id) = timestamp_column {
            let start = out.len();
            timestamp_columns
                .append(id, &mut out.timestamps_ms)
                .transpose()?
                .ok_or_else(|| self.block.no_column(self.group.map, id))?;
            let n = out.timestamps_ms.len() - start;
            let place = rows.place_of(series_idx, RowsPlace::default());
            rows.decode(place, n, 0..n, out).map_err(unreadable)?;
            let starts = rows.starts(series_idx, n, 0..n).map_err(|damaged| unreadable(damaged.into()))?;
            out.set_starts(start, &starts);
        }
        // A group of one series may have many large pages.
        if self.group.n_series == 1 {
            self.payloads[i] = Vec::new();
        }
        Ok(())
    }
}

/// The pages of timestamp columns that were used last.
pub(in crate::block) struct RecentTimestampColumns<'a> {
    block: &'a Block,
    /// A direct-mapped cache: a page is stored at its index modulo the length.
    pages: Vec<Option<(usize, Vec<u8>)>>,
}

/// Cached pages of timestamp columns, about 16 KiB each.
const RECENT_PAGES: usize = 64;

impl<'a> RecentTimestampColumns<'a> {
    pub(in crate::block) fn new(block: &'a Block) -> Self {
        Self { block, pages: vec![None; RECENT_PAGES] }
    }

    /// Appends the timestamps of a timestamp column. Returns `None` if the column does not exist.
    fn append(&mut self, id: TimestampColumnId, times_ms: &mut Vec<i64>) -> Option<Result<()>> {
        let (at, in_page) = self.block.timestamp_columns.find(id)?;
        let place = &mut self.pages[at.idx % RECENT_PAGES];
        if place.as_ref().is_none_or(|(idx, _)| *idx != at.idx) {
            match self.block.pages.read(at.page) {
                Ok(payload) => *place = Some((at.idx, payload)),
                Err(refused) => return Some(Err(refused)),
            }
        }
        let (_, payload) = place.as_ref().expect("read above");
        let decoded = TimestampColumns::parse(payload, at.n)
            .and_then(|timestamp_columns| timestamp_columns.decode(in_page, times_ms));
        Some(decoded.map_err(|why| self.block.pages.unreadable(at.page, why)))
    }
}
