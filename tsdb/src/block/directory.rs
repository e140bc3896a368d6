//! The directory: the positions of groups and timestamp columns, and the time ranges of the pages
//! of rows.
//!
//! An open block holds its directory in memory, so that pages outside the range of a query are
//! skipped without being read. On disk the directory consists of two lists, one of groups, one of
//! pages of timestamp columns. Each list is stored in pages of whole entries, which the footer
//! refers to. All integers are varints, times are zigzag-encoded:
//! ```text
//! group            number of series, 1 to 256; reference of the map; number of pages of rows, at least 1; for each of them,
//!                  ascending in time: reference; oldest time; newest less oldest time; number of samples
//! columns          reference of the page; number of timestamp columns in it, 1 to 256
//! ```

use std::ops::Range;

use varve_codec::varint::{put_i64, put_u64, take_i64, take_int, take_u64};
use varve_model::TimeRange;

use super::footer::HEADER_SIZE;
use super::page::PageRef;
use super::rows::GROUP_SERIES_MAX;
use crate::error::Damaged;

/// Encoded size at which a page of the directory is written.
pub(crate) const DIRECTORY_PAGE_SIZE: usize = 64 << 10;
/// Maximum number of timestamp columns in a page.
pub(crate) const PAGE_COLUMNS_MAX: usize = 256;

/// The id of a timestamp column in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimestampColumnId(pub(crate) u32);

/// A page of rows: its position, and the number and time range of its samples. There are millions
/// of these, so there is no padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowsRef {
    offset: u64,
    start_ms: i64,
    end_ms: i64,
    size: u32,
    pub(crate) n_samples: u32,
}

impl RowsRef {
    pub(crate) fn new(PageRef { offset, size }: PageRef, range: TimeRange, n_samples: u32) -> Self {
        Self {
            offset,
            start_ms: range.start_ms,
            end_ms: range.end_ms,
            size,
            n_samples,
        }
    }

    /// Returns the position of the page.
    pub(crate) fn page(self) -> PageRef {
        PageRef {
            offset: self.offset,
            size: self.size,
        }
    }

    /// Returns the time range from the oldest to the newest sample.
    pub(crate) fn range(self) -> TimeRange {
        TimeRange {
            start_ms: self.start_ms,
            end_ms: self.end_ms,
        }
    }
}

/// Appends the entry of a group of `n` series.
pub(crate) fn put_group(dst: &mut Vec<u8>, n: usize, map: PageRef, rows: &[RowsRef]) {
    put_u64(dst, n as u64);
    map.encode(dst);
    put_u64(dst, rows.len() as u64);
    for rows in rows {
        rows.page().encode(dst);
        put_i64(dst, rows.start_ms);
        put_u64(dst, rows.end_ms.abs_diff(rows.start_ms));
        put_u64(dst, u64::from(rows.n_samples));
    }
}

/// Appends the entry of a page of `n` timestamp columns.
pub(crate) fn put_timestamp_columns(dst: &mut Vec<u8>, page: PageRef, n: usize) {
    page.encode(dst);
    put_u64(dst, n as u64);
}

/// The groups of an open block.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<GroupEntry>,
    rows: Vec<RowsRef>,
    n_series: u32,
    n_samples: u64,
}

#[derive(Debug, Clone, Copy)]
struct GroupEntry {
    map: PageRef,
    first_series: u32,
    first_rows: u32,
}

/// A group of an open block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a> {
    /// Ordinal of the first series of the group.
    pub(crate) first: u32,
    pub(crate) n_series: usize,
    pub(crate) map: PageRef,
    rows: &'a [RowsRef],
}

impl<'a> Group<'a> {
    /// Returns the number of pages of rows.
    pub(crate) fn n_pages(self) -> usize {
        self.rows.len()
    }

    /// Returns the pages of rows that may have samples in `range`, ascending in time, each with its
    /// index.
    pub(crate) fn pages_in(self, range: TimeRange) -> impl Iterator<Item = (usize, RowsRef)> + 'a {
        let first = self
            .rows
            .partition_point(|rows| rows.end_ms < range.start_ms);
        let rows = self.rows[first..]
            .iter()
            .take_while(move |rows| rows.start_ms <= range.end_ms);
        rows.enumerate().map(move |(i, rows)| (first + i, *rows))
    }
}

impl Groups {
    /// Decodes a page of the list. The pages of the block must end at or before `end`, its samples
    /// are in `range`.
    pub(crate) fn add(
        &mut self,
        mut entries: &[u8],
        end: u64,
        range: TimeRange,
    ) -> Result<(), Damaged> {
        while !entries.is_empty() {
            self.take_group(&mut entries, end, range).ok_or(Damaged)?;
        }
        Ok(())
    }

    fn take_group(&mut self, src: &mut &[u8], end: u64, range: TimeRange) -> Option<()> {
        let n_series = take_count(src, GROUP_SERIES_MAX)?;
        let map = take_page(src, end)?;
        let first_rows = u32::try_from(self.rows.len()).ok()?;
        let mut after_ms = None;
        for _ in 0..take_u64(src)? {
            let rows = take_rows(src, end)?;
            if after_ms.is_some_and(|ms| ms >= rows.start_ms) || !range.covers(rows.range()) {
                return None;
            }
            after_ms = Some(rows.end_ms);
            self.n_samples += u64::from(rows.n_samples);
            self.rows.push(rows);
        }
        after_ms?;
        let first_series = self.n_series;
        self.groups.push(GroupEntry {
            map,
            first_series,
            first_rows,
        });
        self.n_series = self.n_series.checked_add(n_series)?;
        Some(())
    }

    /// Returns the numbers of series and samples.
    pub(crate) fn totals(&self) -> (u32, u64) {
        (self.n_series, self.n_samples)
    }

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the `i`-th group.
    pub(crate) fn get(&self, i: usize) -> Group<'_> {
        let GroupEntry {
            map,
            first_series: first,
            first_rows,
        } = self.groups[i];
        let (series_end, rows_end) = match self.groups.get(i + 1) {
            Some(next) => (next.first_series, next.first_rows as usize),
            None => (self.n_series, self.rows.len()),
        };
        Group {
            first,
            n_series: (series_end - first) as usize,
            map,
            rows: &self.rows[first_rows as usize..rows_end],
        }
    }

    /// Returns the index of the group of a series.
    ///
    /// # Panics
    /// If there is no such series.
    pub(crate) fn idx_of(&self, ordinal: u32) -> usize {
        assert!(
            ordinal < self.n_series,
            "ordinals come from this block's index"
        );
        self.groups
            .partition_point(|group| group.first_series <= ordinal)
            - 1
    }
}

/// The pages of timestamp columns of an open block.
#[derive(Debug, Default)]
pub(crate) struct TimestampColumnPages {
    /// The pages, each with the id of its first timestamp column.
    pages: Vec<(PageRef, u32)>,
    n: u32,
}

/// A page of timestamp columns of an open block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimestampColumnsRef {
    /// Index of the page among the pages of timestamp columns.
    pub(crate) idx: usize,
    pub(crate) page: PageRef,
    /// Id of the first timestamp column of the page.
    pub(crate) first: u32,
    /// Number of timestamp columns.
    pub(crate) n: usize,
}

impl TimestampColumnPages {
    /// Decodes a page of the list. The pages of the block must end at or before `end`.
    pub(crate) fn add(&mut self, mut entries: &[u8], end: u64) -> Result<(), Damaged> {
        while !entries.is_empty() {
            let page = take_page(&mut entries, end).ok_or(Damaged)?;
            let n = take_count(&mut entries, PAGE_COLUMNS_MAX).ok_or(Damaged)?;
            self.pages.push((page, self.n));
            self.n = self.n.checked_add(n).ok_or(Damaged)?;
        }
        Ok(())
    }

    /// Returns the indexes of the pages.
    pub(crate) fn indexes(&self) -> Range<usize> {
        0..self.pages.len()
    }

    /// Returns the page at `idx`.
    pub(crate) fn get(&self, idx: usize) -> TimestampColumnsRef {
        let (page, first) = self.pages[idx];
        let end = self.pages.get(idx + 1).map_or(self.n, |(_, next)| *next);
        TimestampColumnsRef {
            idx,
            page,
            first,
            n: (end - first) as usize,
        }
    }

    /// Returns the page of a timestamp column and its index there, or `None` if the column does not
    /// exist.
    pub(crate) fn find(&self, id: TimestampColumnId) -> Option<(TimestampColumnsRef, usize)> {
        if id.0 >= self.n {
            return None;
        }
        let page = self.get(self.pages.partition_point(|(_, first)| *first <= id.0) - 1);
        Some((page, (id.0 - page.first) as usize))
    }
}

fn take_rows(src: &mut &[u8], end: u64) -> Option<RowsRef> {
    let page = take_page(src, end)?;
    let start_ms = take_i64(src)?;
    let end_ms = start_ms.checked_add_unsigned(take_u64(src)?)?;
    let n_samples = take_int(src).filter(|&n| n > 0)?;
    Some(RowsRef::new(
        page,
        TimeRange { start_ms, end_ms },
        n_samples,
    ))
}

fn take_page(src: &mut &[u8], end: u64) -> Option<PageRef> {
    let page = PageRef::decode(src)?;
    let page_end = page.offset.checked_add(page.size.into())?;
    (page.offset >= HEADER_SIZE as u64 && page_end <= end).then_some(page)
}

fn take_count(src: &mut &[u8], max: usize) -> Option<u32> {
    take_int(src).filter(|&n: &u32| n > 0 && n as usize <= max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: u64 = 1 << 30;

    proptest! {
        #[test]
        fn any_bytes_are_rejected_or_decode_to_a_directory(bytes in proptest::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..60)) {
            let mut groups = Groups::default();
            let mut timestamp_columns = TimestampColumnPages::default();
            if groups.add(&bytes, END, TimeRange::ALL).is_ok() {
                for ordinal in 0..groups.totals().0 {
                    let group = groups.get(groups.idx_of(ordinal));
                    prop_assert!((group.first..group.first + group.n_series as u32).contains(&ordinal));
                    prop_assert!(group.n_pages() > 0 && group.pages_in(TimeRange::ALL).count() == group.n_pages());
                }
            }
            if timestamp_columns.add(&bytes, END).is_ok() {
                for idx in timestamp_columns.indexes() {
                    let page = timestamp_columns.get(idx);
                    let last = TimestampColumnId(page.first + page.n as u32 - 1);
                    prop_assert_eq!(timestamp_columns.find(last).map(|(at, i)| (at.idx, i)), Some((idx, page.n - 1)));
                }
            }
            prop_assert!(timestamp_columns.find(TimestampColumnId(u32::MAX)).is_none());
        }
    }

    #[test]
    fn contradictory_entries_are_rejected() {
        let entry = |n_series: u64, offset: u64, pages: &[(i64, u64, u64)]| {
            let mut dst = Vec::new();
            put_u64(&mut dst, n_series);
            PageRef { offset, size: 20 }.encode(&mut dst);
            put_u64(&mut dst, pages.len() as u64);
            for &(start_ms, len_ms, n_samples) in pages {
                PageRef {
                    offset: 16,
                    size: 50,
                }
                .encode(&mut dst);
                put_i64(&mut dst, start_ms);
                put_u64(&mut dst, len_ms);
                put_u64(&mut dst, n_samples);
            }
            Groups::default().add(
                &dst,
                1000,
                TimeRange {
                    start_ms: 0,
                    end_ms: 100,
                },
            )
        };
        assert_eq!(entry(256, 980, &[(0, 10, 5), (11, 89, 5)]), Ok(()));
        assert_eq!(entry(0, 980, &[(0, 10, 5)]), Err(Damaged), "no series");
        assert_eq!(
            entry(257, 980, &[(0, 10, 5)]),
            Err(Damaged),
            "too many series"
        );
        assert_eq!(
            entry(1, 981, &[(0, 10, 5)]),
            Err(Damaged),
            "a page in the footer"
        );
        assert_eq!(
            entry(1, 15, &[(0, 10, 5)]),
            Err(Damaged),
            "a page in the header"
        );
        assert_eq!(
            entry(1, u64::MAX, &[(0, 10, 5)]),
            Err(Damaged),
            "an offset that overflows"
        );
        assert_eq!(entry(1, 16, &[]), Err(Damaged), "no pages");
        assert_eq!(entry(1, 16, &[(0, 10, 0)]), Err(Damaged), "no samples");
        assert_eq!(
            entry(1, 16, &[(0, 10, 5), (10, 10, 5)]),
            Err(Damaged),
            "overlapping pages"
        );
        assert_eq!(
            entry(1, 16, &[(0, 101, 5)]),
            Err(Damaged),
            "a page outside the range"
        );
        assert_eq!(
            entry(1, 16, &[(50, u64::MAX, 5)]),
            Err(Damaged),
            "a time that overflows"
        );
    }
}
