//! The directory: the positions of groups and timestamp columns, and the time ranges of the pages of rows.
//!
//! An open block holds its directory in memory, so pages outside the range of a query are skipped without being read.
//! On disk it is two lists of entries, one of groups, one of pages of timestamp columns, each in pages of whole entries
//! that the footer refers to. All integers are varints, times zigzag-encoded:
//! ```text
//! group            number of series, 1 to 256; reference of the map; number of pages of rows, at least 1; for each of them,
//!                  ascending in time: reference; oldest time; newest less oldest time; number of samples
//! columns          reference of the page; number of timestamp columns in it, 1 to 256
//! ```

use std::ops::Range;

use super::Damaged;
use super::footer::HEADER_SIZE;
use super::group::RowsRef;
use super::page::{PageRef, PageWriter};
use super::rows::GROUP_SERIES_MAX;
use super::timestamps::{PAGE_COLUMNS_MAX, TimestampColumnId};
use crate::chunk::varint::{put_i64, put_u64, take_i64, take_u64};
use crate::error::Result;
use crate::sample::TimeRange;

/// Encoded bytes at which a page of the directory is written.
const PAGE_SIZE: usize = 64 << 10;

/// Writes one of the lists.
#[derive(Default)]
pub(in crate::block) struct DirectoryWriter {
    entries: Vec<u8>,
    pages: Vec<PageRef>,
}

impl DirectoryWriter {
    /// Adds a group.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(in crate::block) fn group(
        &mut self,
        pages: &mut PageWriter,
        n_series: usize,
        map: PageRef,
        rows: &[RowsRef],
    ) -> Result<()> {
        put_u64(&mut self.entries, n_series as u64);
        map.encode(&mut self.entries);
        put_u64(&mut self.entries, rows.len() as u64);
        for RowsRef { page, range, n_samples } in rows {
            page.encode(&mut self.entries);
            put_i64(&mut self.entries, range.start_ms);
            put_u64(&mut self.entries, range.end_ms.abs_diff(range.start_ms));
            put_u64(&mut self.entries, u64::from(*n_samples));
        }
        self.end_entry(pages)
    }

    /// Adds a page of `n` timestamp columns.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(in crate::block) fn timestamp_columns(
        &mut self,
        pages: &mut PageWriter,
        page: PageRef,
        n: usize,
    ) -> Result<()> {
        page.encode(&mut self.entries);
        put_u64(&mut self.entries, n as u64);
        self.end_entry(pages)
    }

    /// Writes the remaining entries and returns the pages of the list.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(in crate::block) fn finish(mut self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        self.end_page(pages)?;
        Ok(self.pages)
    }

    fn end_entry(&mut self, pages: &mut PageWriter) -> Result<()> {
        if self.entries.len() >= PAGE_SIZE { self.end_page(pages) } else { Ok(()) }
    }

    fn end_page(&mut self, pages: &mut PageWriter) -> Result<()> {
        if !self.entries.is_empty() {
            self.pages.push(pages.write(&self.entries)?);
            self.entries.clear();
        }
        Ok(())
    }
}

/// The groups of an open block.
#[derive(Debug, Default)]
pub(in crate::block) struct Groups {
    groups: Vec<GroupEntry>,
    rows: Vec<RowsEntry>,
    n_series: u32,
    n_samples: u64,
}

#[derive(Debug)]
struct GroupEntry {
    map_offset: u64,
    map_size: u32,
    first_series: u32,
    first_rows: u32,
}

/// A [`RowsRef`] without padding: there are millions of these.
#[derive(Debug)]
struct RowsEntry {
    offset: u64,
    start_ms: i64,
    end_ms: i64,
    size: u32,
    n_samples: u32,
}

impl RowsEntry {
    fn get(&self) -> RowsRef {
        RowsRef {
            page: PageRef { offset: self.offset, size: self.size },
            range: TimeRange { start_ms: self.start_ms, end_ms: self.end_ms },
            n_samples: self.n_samples,
        }
    }
}

/// A group of an open block.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) struct Group<'a> {
    /// Ordinal of the first series of the group.
    pub(in crate::block) first: u32,
    pub(in crate::block) n_series: usize,
    pub(in crate::block) map: PageRef,
    rows: &'a [RowsEntry],
}

impl<'a> Group<'a> {
    /// Returns the number of pages of rows, in ascending order of time.
    pub(in crate::block) fn n_pages(self) -> usize {
        self.rows.len()
    }

    /// Returns the pages of rows that may have samples in `range`, each with its index.
    pub(in crate::block) fn pages_in(self, range: TimeRange) -> impl Iterator<Item = (usize, RowsRef)> + 'a {
        let first = self.rows.partition_point(|rows| rows.end_ms < range.start_ms);
        let rows = self.rows[first..].iter().take_while(move |rows| rows.start_ms <= range.end_ms);
        rows.enumerate().map(move |(i, rows)| (first + i, rows.get()))
    }
}

impl Groups {
    /// Decodes a page of the directory; `end` is where the pages of the block end, `range` is the range of its samples.
    pub(in crate::block) fn add(&mut self, mut entries: &[u8], end: u64, range: TimeRange) -> Result<(), Damaged> {
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
            let ascends = after_ms.is_none_or(|ms| ms < rows.start_ms);
            let is_inside = range.start_ms <= rows.start_ms && rows.end_ms <= range.end_ms;
            if !ascends || !is_inside {
                return None;
            }
            after_ms = Some(rows.end_ms);
            self.n_samples += u64::from(rows.n_samples);
            self.rows.push(rows);
        }
        after_ms?;
        let first_series = self.n_series;
        self.groups.push(GroupEntry { map_offset: map.offset, map_size: map.size, first_series, first_rows });
        self.n_series = self.n_series.checked_add(n_series)?;
        Some(())
    }

    /// Returns the numbers of series and samples.
    pub(in crate::block) fn totals(&self) -> (u32, u64) {
        (self.n_series, self.n_samples)
    }

    /// Returns the number of groups.
    pub(in crate::block) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the `i`-th group.
    pub(in crate::block) fn get(&self, i: usize) -> Group<'_> {
        let GroupEntry { map_offset, map_size, first_series, first_rows } = self.groups[i];
        let (series_end, rows_end) = match self.groups.get(i + 1) {
            Some(next) => (next.first_series, next.first_rows as usize),
            None => (self.n_series, self.rows.len()),
        };
        Group {
            first: first_series,
            n_series: (series_end - first_series) as usize,
            map: PageRef { offset: map_offset, size: map_size },
            rows: &self.rows[first_rows as usize..rows_end],
        }
    }

    /// Returns the index of the group of a series.
    ///
    /// # Panics
    /// If there is no such series.
    pub(in crate::block) fn idx_of(&self, ordinal: u32) -> usize {
        assert!(ordinal < self.n_series, "ordinals come from this block's index");
        self.groups.partition_point(|group| group.first_series <= ordinal) - 1
    }
}

/// The pages of timestamp columns of an open block.
#[derive(Debug, Default)]
pub(in crate::block) struct TimestampColumnPages {
    pages: Vec<TimestampColumnsEntry>,
    n: u32,
}

#[derive(Debug)]
struct TimestampColumnsEntry {
    offset: u64,
    size: u32,
    first: u32,
}

/// A page of timestamp columns of an open block.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) struct TimestampColumnsRef {
    /// Index of the page among these pages.
    pub(in crate::block) idx: usize,
    pub(in crate::block) page: PageRef,
    /// Id of the first timestamp column of the page.
    pub(in crate::block) first: u32,
    /// Number of timestamp columns.
    pub(in crate::block) n: usize,
}

impl TimestampColumnPages {
    /// Decodes a page of the directory; `end` is where the pages of the block end.
    pub(in crate::block) fn add(&mut self, mut entries: &[u8], end: u64) -> Result<(), Damaged> {
        while !entries.is_empty() {
            let page = take_page(&mut entries, end).ok_or(Damaged)?;
            let n = take_count(&mut entries, PAGE_COLUMNS_MAX).ok_or(Damaged)?;
            self.pages.push(TimestampColumnsEntry { offset: page.offset, size: page.size, first: self.n });
            self.n = self.n.checked_add(n).ok_or(Damaged)?;
        }
        Ok(())
    }

    /// Returns the indexes of the pages.
    pub(in crate::block) fn indexes(&self) -> Range<usize> {
        0..self.pages.len()
    }

    /// Returns the page at `idx`.
    pub(in crate::block) fn get(&self, idx: usize) -> TimestampColumnsRef {
        let TimestampColumnsEntry { offset, size, first } = self.pages[idx];
        let end = self.pages.get(idx + 1).map_or(self.n, |next| next.first);
        TimestampColumnsRef { idx, page: PageRef { offset, size }, first, n: (end - first) as usize }
    }

    /// Returns the page of a timestamp column and its index there, or `None` if the column does not exist.
    pub(in crate::block) fn find(&self, id: TimestampColumnId) -> Option<(TimestampColumnsRef, usize)> {
        if id.0 >= self.n {
            return None;
        }
        let page = self.get(self.pages.partition_point(|page| page.first <= id.0) - 1);
        Some((page, (id.0 - page.first) as usize))
    }
}

fn take_rows(src: &mut &[u8], end: u64) -> Option<RowsEntry> {
    let PageRef { offset, size } = take_page(src, end)?;
    let start_ms = take_i64(src)?;
    let end_ms = start_ms.checked_add_unsigned(take_u64(src)?)?;
    let n_samples = u32::try_from(take_u64(src)?).ok().filter(|&n| n > 0)?;
    Some(RowsEntry { offset, start_ms, end_ms, size, n_samples })
}

fn take_page(src: &mut &[u8], end: u64) -> Option<PageRef> {
    let page = PageRef::decode(src)?;
    let page_end = page.offset.checked_add(page.size.into())?;
    (page.offset >= HEADER_SIZE as u64 && page_end <= end).then_some(page)
}

fn take_count(src: &mut &[u8], max: usize) -> Option<u32> {
    let n = take_u64(src)?;
    (n > 0 && n <= max as u64).then_some(n as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: u64 = 1 << 30;

    proptest! {
        #[test]
        fn any_bytes_are_rejected_or_make_a_directory(bytes in proptest::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..60)) {
            let (mut groups, mut timestamp_columns) = (Groups::default(), TimestampColumnPages::default());
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
                PageRef { offset: 16, size: 50 }.encode(&mut dst);
                put_i64(&mut dst, start_ms);
                put_u64(&mut dst, len_ms);
                put_u64(&mut dst, n_samples);
            }
            Groups::default().add(&dst, 1000, TimeRange { start_ms: 0, end_ms: 100 })
        };
        assert_eq!(entry(256, 980, &[(0, 10, 5), (11, 89, 5)]), Ok(()));
        assert_eq!(entry(0, 980, &[(0, 10, 5)]), Err(Damaged), "no series");
        assert_eq!(entry(257, 980, &[(0, 10, 5)]), Err(Damaged), "too many series");
        assert_eq!(entry(1, 981, &[(0, 10, 5)]), Err(Damaged), "a page in the footer");
        assert_eq!(entry(1, 15, &[(0, 10, 5)]), Err(Damaged), "a page in the header");
        assert_eq!(entry(1, u64::MAX, &[(0, 10, 5)]), Err(Damaged), "a page beyond all files");
        assert_eq!(entry(1, 16, &[]), Err(Damaged), "no pages");
        assert_eq!(entry(1, 16, &[(0, 10, 0)]), Err(Damaged), "no samples");
        assert_eq!(entry(1, 16, &[(0, 10, 5), (10, 10, 5)]), Err(Damaged), "pages overlap");
        assert_eq!(entry(1, 16, &[(0, 101, 5)]), Err(Damaged), "a page outside the range");
        assert_eq!(entry(1, 16, &[(50, u64::MAX, 5)]), Err(Damaged), "no time so late");
    }
}
