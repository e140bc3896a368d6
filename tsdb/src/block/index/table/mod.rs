//! Numbered entries in pages, and the directory that finds the page of a number.
//!
//! ```text
//! page        entries, one behind the other
//!             group starts, u32 each: where in the page every `group`-th entry begins
//!             number of entries, u32
//! directory   per page: number of its first entry (varint, less the one before), reference, key (size varint, bytes)
//! ```
//! What an entry is, and what the key of a page, is its table's business. The first entry of a group is encoded without
//! regard to those before it, so that reading one entry costs half a group, not half a page.

mod cursor;
mod writer;

use std::sync::Arc;

use crate::block::Damaged;
use crate::block::page::{PageRef, Pages};
use crate::error::Result;
use crate::varint::{take_bytes, take_u64};

pub(super) use cursor::{Access, Moved, TableCursor};
pub(super) use writer::TableWriter;

/// Bytes of entries after which a page is cut. Larger ones compress a little better and cost more to read one entry of.
pub(super) const PAGE_SIZE: usize = 16 << 10;

/// An open table: its directory.
#[derive(Debug)]
pub(super) struct Table {
    pages: Arc<Pages>,
    /// Entries of a group, a power of two: numbers are divided by it at every step.
    group: u32,
    n: u32,
    /// The number of each page's first entry.
    firsts: Vec<u32>,
    refs: Vec<PageRef>,
    keys: Vec<Box<[u8]>>,
}

impl Table {
    /// Reads the directory of a table of `n` entries.
    ///
    /// # Errors
    /// As [`Pages::read`]; [`Error::Corrupt`](crate::Error::Corrupt) if the directory makes no sense.
    pub(super) fn open(pages: &Arc<Pages>, group: u32, n: u32, directory: &[PageRef]) -> Result<Self> {
        assert!(group.is_power_of_two(), "groups of {group}");
        let mut table =
            Self { pages: Arc::clone(pages), group, n, firsts: Vec::new(), refs: Vec::new(), keys: Vec::new() };
        for &page in directory {
            let damaged = |Damaged| pages.corrupt(page.offset, "a directory of the index does not decode");
            table.read_directory(&pages.read(page)?).map_err(damaged)?;
        }
        if table.firsts.is_empty() != (n == 0) || table.firsts.last().is_some_and(|&last| last >= n) {
            let offset = directory.last().map_or(0, |page| page.offset);
            return Err(pages.corrupt(offset, format!("the directory does not fit a table of {n} entries")));
        }
        Ok(table)
    }

    /// Appends one page of the directory.
    fn read_directory(&mut self, mut src: &[u8]) -> Result<(), Damaged> {
        let mut last = 0;
        while !src.is_empty() {
            let (first, page, key) = take_directory_entry(&mut src, last).ok_or(Damaged)?;
            let follows = self.firsts.last().map_or(first == 0, |&before| first > before);
            if !follows {
                return Err(Damaged);
            }
            self.firsts.push(first);
            self.refs.push(page);
            self.keys.push(key.into());
            last = first;
        }
        Ok(())
    }

    /// Counts the entries.
    pub(super) fn len(&self) -> u32 {
        self.n
    }

    /// Returns the pages that the table lies in.
    pub(super) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Returns the keys of the pages, in their order.
    pub(super) fn keys(&self) -> &[Box<[u8]>] {
        &self.keys
    }

    /// Returns the page in which an entry lies; `None` if there is no such entry.
    fn page_of(&self, number: u32) -> Option<usize> {
        if number >= self.n {
            return None;
        }
        self.firsts.partition_point(|&first| first <= number).checked_sub(1)
    }

    /// Returns the group of a page in which its entry at a place is.
    fn group_of(&self, place: u32) -> u32 {
        place >> self.group.trailing_zeros()
    }

    /// Tells whether the entry of a page at a place begins a group.
    fn begins_group(&self, place: u32) -> bool {
        place & (self.group - 1) == 0
    }

    /// Returns the number behind the last entry of a page.
    fn end_of(&self, page_idx: usize) -> u32 {
        self.firsts.get(page_idx + 1).copied().unwrap_or(self.n)
    }
}

fn take_directory_entry<'a>(src: &mut &'a [u8], last: u32) -> Option<(u32, PageRef, &'a [u8])> {
    let first = last.checked_add(take_u64(src)?.try_into().ok()?)?;
    let page = PageRef::decode(src)?;
    let size = take_u64(src)?.try_into().ok()?;
    Some((first, page, take_bytes(src, size)?))
}
