//! A per-request cache of the parts of a block that were read last, for sequential reads of series.
//!
//! Neighbouring series lie in one group, and those of a scrape target share timestamp columns. The map and the rows of
//! a group are looked up in the page cache once, rows are located from those of the series before, and a timestamp
//! column is decoded once instead of once per series. The cache is charged to the request. If the budget is exhausted
//! or the cache is full, reads work without it.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::block::Block;
use crate::block::directory::{Group, TimestampColumnsRef};
use crate::block::page::PageRef;
use crate::block::rows::RowsPlace;
use crate::block::timestamps::columns::TimestampColumns;
use crate::block::timestamps::{Line, TimestampColumnId};
use crate::context::{CHECK_INTERVAL, Charge};
use crate::error::Result;
use crate::sample::TimeRange;

/// Maximum size of cached pages in bytes: about a group.
pub(in crate::block) const PAGES_SIZE_MAX: usize = 4 << 20;
/// Listed timestamps that are cached before the cache is cleared: those of a few hundred targets over two hours.
pub(in crate::block) const TIMES_MAX: usize = 128 << 10;
/// Timestamp columns that are cached before the cache is cleared: those of a few thousand targets over a day.
pub(in crate::block) const COLUMNS_MAX: usize = 16 << 10;
/// Memory of a cached timestamp column besides its timestamps, in a table that is at least half full.
pub(in crate::block) const COLUMN_SIZE: usize = 2 * size_of::<(u32, CachedTimes)>();

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadCache {
    /// Charge for the cached data; without it nothing is cached.
    charge: Option<Charge>,
    group: CachedGroup,
    /// The last page that was read, if it is not cached.
    passing: Option<CachedPage>,
    pages_size: usize,
    timestamp_columns: HashMap<u32, CachedTimes>,
    /// The timestamps of listed columns one after the other; the last column may be one that is not cached.
    times_ms: Vec<i64>,
    n_kept_times: usize,
    /// Work that may be done before the request's context must be checked, in samples.
    unchecked_left: usize,
}

/// Work of reading a series besides its samples, in samples.
const SERIES_WORK: usize = 64;

#[derive(Debug, Default)]
struct CachedGroup {
    /// Its index among the groups of the block.
    idx: usize,
    /// Empty before the first group.
    series: Range<u32>,
    /// By index in the group; the map comes first.
    pages: Vec<Option<CachedPage>>,
}

/// A cached page of the current group.
#[derive(Debug)]
pub(in crate::block) struct CachedPage {
    pub(in crate::block) payload: Arc<[u8]>,
    /// For a page of rows: the rows that were read last.
    pub(in crate::block) place: RowsPlace,
}

#[derive(Debug, Clone)]
enum CachedTimes {
    Line(Line),
    /// A range of the list.
    Listed(Range<usize>),
}

/// The timestamps of a timestamp column.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) enum Times<'a> {
    Line(Line),
    Listed(&'a [i64]),
}

impl ReadCache {
    /// Creates a cache that holds what the budget allows.
    pub(crate) fn new(charge: Charge) -> Self {
        Self { charge: Some(charge), ..Self::default() }
    }

    /// Returns `true` if the request's context must be checked before the next series is read: every [`CHECK_INTERVAL`]
    /// samples, and after pages were read. The caller then checks it.
    #[inline]
    pub(crate) fn is_check_due(&mut self) -> bool {
        let is_due = self.unchecked_left == 0;
        if is_due {
            self.unchecked_left = CHECK_INTERVAL;
        }
        self.note_work(SERIES_WORK);
        is_due
    }

    /// Records `n` samples read.
    #[inline]
    pub(in crate::block) fn note_work(&mut self, n_samples: usize) {
        self.unchecked_left = self.unchecked_left.saturating_sub(n_samples);
    }

    /// Returns the group of a series of the block and makes it the current one.
    pub(in crate::block) fn group<'a>(&mut self, block: &'a Block, ordinal: u32) -> Group<'a> {
        // Fast path: the next series.
        if self.group.series.contains(&ordinal) {
            return block.groups.get(self.group.idx);
        }
        let idx = block.groups.idx_of(ordinal);
        let group = block.groups.get(idx);
        if let Some(charge) = &mut self.charge {
            charge.shrink(std::mem::take(&mut self.pages_size));
        }
        self.group.idx = idx;
        // A group has at most 256 series of fewer than 2^32.
        self.group.series = group.first..group.first + group.n_series as u32;
        self.group.pages.clear();
        group
    }

    /// Returns the map of the current group.
    pub(in crate::block) fn map(&mut self, block: &Block, group: Group<'_>) -> Result<&mut CachedPage> {
        self.page(block, 0, group.map)
    }

    /// Returns the `i`-th page of rows of the current group.
    pub(in crate::block) fn rows(&mut self, block: &Block, i: usize, page: PageRef) -> Result<&mut CachedPage> {
        self.page(block, i + 1, page)
    }

    fn page(&mut self, block: &Block, place: usize, page: PageRef) -> Result<&mut CachedPage> {
        let pages = &mut self.group.pages;
        if pages.get(place).is_none_or(Option::is_none) {
            let payload = block.pages.get(page)?;
            self.unchecked_left = 0;
            let size = payload.len();
            let page = CachedPage { payload, place: RowsPlace::default() };
            if self.pages_size + size > PAGES_SIZE_MAX || !hold(&mut self.charge, size) {
                return Ok(self.passing.insert(page));
            }
            if place >= pages.len() {
                pages.resize_with(place + 1, || None);
            }
            pages[place] = Some(page);
            self.pages_size += size;
        }
        Ok(pages[place].as_mut().expect("the page was inserted above"))
    }

    /// Returns the timestamps of a timestamp column, or `None` if the column does not exist.
    pub(in crate::block) fn times(&mut self, block: &Block, id: TimestampColumnId) -> Option<Result<Times<'_>>> {
        let kept = match self.timestamp_columns.get(&id.0) {
            Some(kept) => kept.clone(),
            None => {
                let (at, in_page) = block.timestamp_columns.find(id)?;
                match self.read_times(block, id, at, in_page) {
                    Ok(kept) => kept,
                    Err(refused) => return Some(Err(refused)),
                }
            }
        };
        Some(Ok(match kept {
            CachedTimes::Line(line) => Times::Line(line),
            CachedTimes::Listed(range) => Times::Listed(&self.times_ms[range]),
        }))
    }

    fn read_times(
        &mut self,
        block: &Block,
        id: TimestampColumnId,
        at: TimestampColumnsRef,
        in_page: usize,
    ) -> Result<CachedTimes> {
        self.times_ms.truncate(self.n_kept_times);
        if self.n_kept_times > TIMES_MAX || self.timestamp_columns.len() == COLUMNS_MAX {
            self.forget_times();
        }
        let payload = block.pages.get(at.page)?;
        self.unchecked_left = 0;
        let unreadable = |why| block.pages.unreadable(at.page, why);
        let timestamp_columns = TimestampColumns::parse(&payload, at.n).map_err(unreadable)?;
        let kept = match timestamp_columns.line(in_page) {
            Some(line) => CachedTimes::Line(line),
            None => {
                timestamp_columns.decode(in_page, &mut self.times_ms).map_err(unreadable)?;
                CachedTimes::Listed(self.n_kept_times..self.times_ms.len())
            }
        };
        if hold(&mut self.charge, COLUMN_SIZE + (self.times_ms.len() - self.n_kept_times) * size_of::<i64>()) {
            self.n_kept_times = self.times_ms.len();
            self.timestamp_columns.insert(id.0, kept.clone());
        }
        Ok(kept)
    }

    /// Returns the numbers of cached timestamp columns and listed timestamps, and the size of the cached pages.
    #[cfg(test)]
    pub(in crate::block) fn kept(&self) -> (usize, usize, usize) {
        (self.timestamp_columns.len(), self.n_kept_times, self.pages_size)
    }

    fn forget_times(&mut self) {
        if let Some(charge) = &mut self.charge {
            charge.shrink(self.timestamp_columns.len() * COLUMN_SIZE + self.n_kept_times * size_of::<i64>());
        }
        self.n_kept_times = 0;
        self.times_ms.clear();
        self.timestamp_columns.clear();
    }
}

impl Times<'_> {
    /// Returns the number of timestamps.
    pub(in crate::block) fn len(self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Listed(times_ms) => times_ms.len(),
        }
    }

    /// Returns the indexes of the timestamps in a time range.
    pub(in crate::block) fn cut(self, range: TimeRange) -> Range<usize> {
        match self {
            // Fast path: all of them.
            _ if self.ends().is_some_and(|(start_ms, end_ms)| range.covers(TimeRange { start_ms, end_ms })) => {
                0..self.len()
            }
            Self::Line(line) => line.cut(range),
            Self::Listed(times_ms) => {
                let start = times_ms.partition_point(|&time_ms| time_ms < range.start_ms);
                start..start + times_ms[start..].partition_point(|&time_ms| time_ms <= range.end_ms)
            }
        }
    }

    /// Appends the timestamps at `wanted`.
    pub(in crate::block) fn append(self, wanted: Range<usize>, dst: &mut Vec<i64>) {
        match self {
            Self::Line(line) => line.append(wanted, dst),
            Self::Listed(times_ms) => dst.extend_from_slice(&times_ms[wanted]),
        }
    }

    fn ends(self) -> Option<(i64, i64)> {
        match self {
            Self::Line(line) => Some(line.ends()),
            Self::Listed(times_ms) => times_ms.first().copied().zip(times_ms.last().copied()),
        }
    }
}

fn hold(charge: &mut Option<Charge>, size: usize) -> bool {
    charge.as_mut().is_some_and(|charge| charge.grow_if_free(size))
}
