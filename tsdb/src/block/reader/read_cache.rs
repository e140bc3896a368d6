//! A per-request cache of the parts of a block that were read last, for sequential reads of series.
//!
//! Neighboring series are in the same group, and the series of a scrape target share timestamp
//! columns. The map and the rows of a group are looked up in the page cache once. The rows of a
//! series are located from the rows of the previous series. A timestamp column is decoded once
//! instead of once per series. The cache is charged to the request. If the budget is exhausted or
//! the cache is full, reads work without it.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use varve_codec::timestamps::RegularTimestamps;
use varve_context::{CHECK_INTERVAL, Charge};
use varve_model::TimeRange;

use super::block::Block;
use crate::block::directory::Group;
use crate::block::directory::TimestampColumnId;
use crate::block::page::PageRef;
use crate::block::rows::RowsPlace;
use crate::block::timestamps::TimestampColumns;
use crate::error::Result;

/// Maximum size of cached pages in bytes: about a group.
pub(crate) const PAGES_SIZE_MAX: usize = 4 << 20;
/// Number of listed timestamps above which they are cleared: of a few hundred targets over two
/// hours.
pub(crate) const TIMES_MAX: usize = 128 << 10;
/// Number of timestamp columns at which they are cleared: of a few thousand targets over a day.
pub(crate) const COLUMNS_MAX: usize = 16 << 10;
/// Memory of a cached timestamp column besides its timestamps, in a table that is at least half
/// full.
pub(crate) const COLUMN_SIZE: usize = 2 * size_of::<(u32, CachedTimestamps)>();

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadCache {
    /// Charge for the cached data. Without a charge nothing is cached.
    charge: Option<Charge>,
    /// Values of floats are not needed.
    pub(super) skip_values: bool,
    group: CachedGroup,
    /// The page that was read last, if it did not fit the cache.
    uncached: Option<CachedPage>,
    pages_size: usize,
    timestamp_columns: HashMap<u32, CachedTimestamps>,
    /// The timestamps of listed columns. The last column may be uncached.
    times_ms: Vec<i64>,
    n_cached_times: usize,
    /// Work that may be done before the context of the request must be checked, in samples.
    unchecked_left: usize,
}

/// Cost of reading a series without its samples, in samples.
const SERIES_WORK: usize = 64;

#[derive(Debug, Default)]
struct CachedGroup {
    /// Index among the groups of the block.
    idx: usize,
    /// Empty before the first group.
    series: Range<u32>,
    /// The map, and then the pages of rows.
    pages: Vec<Option<CachedPage>>,
}

/// A cached page of the current group.
#[derive(Debug)]
pub(crate) struct CachedPage {
    pub(crate) payload: Arc<[u8]>,
    /// In a page of rows: the position of the rows that were read last.
    pub(crate) place: RowsPlace,
}

#[derive(Debug, Clone)]
enum CachedTimestamps {
    Regular(RegularTimestamps),
    /// A range of [`ReadCache::times_ms`].
    Listed(Range<usize>),
}

/// The timestamps of a timestamp column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Timestamps<'a> {
    Regular(RegularTimestamps),
    Listed(&'a [i64]),
}

impl ReadCache {
    /// Creates a cache that grows as far as the budget of `charge` allows. With `skip_values`,
    /// floats may be read as 0, unless they are NaN.
    pub(crate) fn new(charge: Charge, skip_values: bool) -> Self {
        Self {
            charge: Some(charge),
            skip_values,
            ..Self::default()
        }
    }

    /// Returns `true` if the caller must check the context of the request before it reads the next
    /// series: every [`CHECK_INTERVAL`] samples, and after a page was read.
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
    pub(crate) fn note_work(&mut self, n_samples: usize) {
        self.unchecked_left = self.unchecked_left.saturating_sub(n_samples);
    }

    /// Returns the group of a series, and makes it the current group.
    pub(crate) fn group<'a>(&mut self, block: &'a Block, ordinal: u32) -> Group<'a> {
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
    pub(crate) fn map(&mut self, block: &Block, group: Group<'_>) -> Result<&mut CachedPage> {
        self.page(block, 0, group.map)
    }

    /// Returns the `i`-th page of rows of the current group.
    pub(crate) fn rows(
        &mut self,
        block: &Block,
        i: usize,
        page: PageRef,
    ) -> Result<&mut CachedPage> {
        self.page(block, i + 1, page)
    }

    fn page(&mut self, block: &Block, idx: usize, page: PageRef) -> Result<&mut CachedPage> {
        let pages = &mut self.group.pages;
        if pages.get(idx).is_none_or(Option::is_none) {
            let payload = block.pages.cached_page(page)?;
            self.unchecked_left = 0;
            let size = payload.len();
            let page = CachedPage {
                payload,
                place: RowsPlace::default(),
            };
            if self.pages_size + size > PAGES_SIZE_MAX || !reserve(&mut self.charge, size) {
                return Ok(self.uncached.insert(page));
            }
            if idx >= pages.len() {
                pages.resize_with(idx + 1, || None);
            }
            pages[idx] = Some(page);
            self.pages_size += size;
        }
        Ok(pages[idx].as_mut().expect("the page was inserted above"))
    }

    /// Returns the timestamps of a timestamp column that the map of `group` contains.
    pub(crate) fn times(
        &mut self,
        block: &Block,
        group: Group<'_>,
        id: TimestampColumnId,
    ) -> Result<Timestamps<'_>> {
        let times = match self.timestamp_columns.get(&id.0) {
            Some(cached) => cached.clone(),
            None => self.read_times(block, group, id)?,
        };
        Ok(match times {
            CachedTimestamps::Regular(times) => Timestamps::Regular(times),
            CachedTimestamps::Listed(range) => Timestamps::Listed(&self.times_ms[range]),
        })
    }

    fn read_times(
        &mut self,
        block: &Block,
        group: Group<'_>,
        id: TimestampColumnId,
    ) -> Result<CachedTimestamps> {
        let (at, in_page) = block.find_column(group, id)?;
        self.times_ms.truncate(self.n_cached_times);
        if self.n_cached_times > TIMES_MAX || self.timestamp_columns.len() == COLUMNS_MAX {
            self.clear_times();
        }
        let payload = block.pages.cached_page(at.page)?;
        self.unchecked_left = 0;
        let unreadable = |why| block.pages.unreadable(at.page, why);
        let timestamp_columns = TimestampColumns::parse(&payload, at.n).map_err(unreadable)?;
        let times = match timestamp_columns.regular(in_page) {
            Some(times) => CachedTimestamps::Regular(times),
            None => {
                timestamp_columns
                    .decode(in_page, &mut self.times_ms)
                    .map_err(unreadable)?;
                CachedTimestamps::Listed(self.n_cached_times..self.times_ms.len())
            }
        };
        if reserve(
            &mut self.charge,
            COLUMN_SIZE + (self.times_ms.len() - self.n_cached_times) * size_of::<i64>(),
        ) {
            self.n_cached_times = self.times_ms.len();
            self.timestamp_columns.insert(id.0, times.clone());
        }
        Ok(times)
    }

    /// Returns the numbers of cached timestamp columns and listed timestamps, and the size of the
    /// cached pages.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (
            self.timestamp_columns.len(),
            self.n_cached_times,
            self.pages_size,
        )
    }

    fn clear_times(&mut self) {
        if let Some(charge) = &mut self.charge {
            charge.shrink(
                self.timestamp_columns.len() * COLUMN_SIZE + self.n_cached_times * size_of::<i64>(),
            );
        }
        self.n_cached_times = 0;
        self.times_ms.clear();
        self.timestamp_columns.clear();
    }
}

impl Timestamps<'_> {
    /// Returns the number of timestamps.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Regular(times) => times.n_timestamps(),
            Self::Listed(times_ms) => times_ms.len(),
        }
    }

    /// Returns the indexes of the timestamps in a time range.
    pub(crate) fn cut(self, range: TimeRange) -> Range<usize> {
        match self {
            Self::Regular(times) => times.cut(range.start_ms, range.end_ms),
            // Fast path: all of them.
            Self::Listed(times_ms @ ([start_ms, .., end_ms] | [start_ms @ end_ms]))
                if range.start_ms <= *start_ms && *end_ms <= range.end_ms =>
            {
                0..times_ms.len()
            }
            Self::Listed(times_ms) => {
                let start = times_ms.partition_point(|&time_ms| time_ms < range.start_ms);
                start..start + times_ms[start..].partition_point(|&time_ms| time_ms <= range.end_ms)
            }
        }
    }

    /// Appends the timestamps at `wanted`.
    pub(crate) fn append(self, wanted: Range<usize>, dst: &mut Vec<i64>) {
        match self {
            Self::Regular(times) => times.append(wanted, dst),
            Self::Listed(times_ms) => dst.extend_from_slice(&times_ms[wanted]),
        }
    }
}

/// Charges `size` bytes. Returns `false` if they cannot be cached.
fn reserve(charge: &mut Option<Charge>, size: usize) -> bool {
    charge
        .as_mut()
        .is_some_and(|charge| charge.grow_if_free(size))
}
