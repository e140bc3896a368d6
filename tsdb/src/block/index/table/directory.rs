//! An open table: its directory, which finds the page of an entry.

use std::sync::Arc;

use varve_codec::varint::{take_int, take_sized};

use crate::block::page::{PageRef, Pages};
use crate::error::{Damaged, Result};

/// An open table: its directory.
#[derive(Debug)]
pub(in crate::block::index) struct Table {
    pub(super) pages: Arc<Pages>,
    /// Number of entries from one restart point to the next: a power of two, because every step
    /// divides by it.
    pub(super) restart_interval: u32,
    n: u32,
    /// The number of each page's first entry.
    pub(super) firsts: Vec<u32>,
    pub(super) refs: Vec<PageRef>,
    /// The key of each page's first entry.
    keys: Vec<Box<[u8]>>,
}

impl Table {
    /// Reads the directory of a table of `n` entries.
    ///
    /// # Errors
    /// The errors of [`Pages::read_page`]; [`Error::Corrupt`](crate::Error::Corrupt) if the
    /// directory is invalid.
    pub(in crate::block::index) fn open(
        pages: &Arc<Pages>,
        restart_interval: u32,
        n: u32,
        directory: &[PageRef],
    ) -> Result<Arc<Self>> {
        assert!(
            restart_interval.is_power_of_two(),
            "restart interval {restart_interval}"
        );
        let mut table = Self {
            pages: Arc::clone(pages),
            restart_interval,
            n,
            firsts: Vec::new(),
            refs: Vec::new(),
            keys: Vec::new(),
        };
        for &page in directory {
            let payload = pages.read_page(page)?;
            table.read_directory(&payload).map_err(|Damaged| {
                pages.corrupt(page.offset, "a directory of the index does not decode")
            })?;
        }
        if table.firsts.is_empty() != (n == 0) || table.firsts.last().is_some_and(|&last| last >= n)
        {
            let offset = directory.last().map_or(0, |page| page.offset);
            return Err(pages.corrupt(
                offset,
                format!("the directory does not fit a table of {n} entries"),
            ));
        }
        Ok(Arc::new(table))
    }

    /// Decodes one page of the directory.
    fn read_directory(&mut self, mut src: &[u8]) -> Result<(), Damaged> {
        let mut last = 0;
        while !src.is_empty() {
            let (first, page, key) = take_directory_entry(&mut src, last).ok_or(Damaged)?;
            if !self
                .firsts
                .last()
                .map_or(first == 0, |&before| first > before)
            {
                return Err(Damaged);
            }
            self.firsts.push(first);
            self.refs.push(page);
            self.keys.push(key.into());
            last = first;
        }
        Ok(())
    }

    /// Returns the number of entries.
    pub(in crate::block::index) fn len(&self) -> u32 {
        self.n
    }

    /// Returns the pages of the file.
    pub(in crate::block::index) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Returns the keys of the pages, in order.
    pub(in crate::block::index) fn keys(&self) -> &[Box<[u8]>] {
        &self.keys
    }

    /// Returns the page of an entry, or `None` if the entry does not exist.
    pub(super) fn page_of(&self, number: u32) -> Option<usize> {
        if number >= self.n {
            return None;
        }
        self.firsts
            .partition_point(|&first| first <= number)
            .checked_sub(1)
    }

    /// Returns the index of the restart point at or before the entry at an index of a page.
    pub(super) fn restart_of(&self, idx: u32) -> u32 {
        idx >> self.restart_interval.trailing_zeros()
    }

    /// Returns `true` if the entry at an index of a page is a restart point.
    pub(super) fn is_restart_point(&self, idx: u32) -> bool {
        idx & (self.restart_interval - 1) == 0
    }

    /// Returns the number after the last entry of a page.
    pub(super) fn end_of(&self, page_idx: usize) -> u32 {
        self.firsts.get(page_idx + 1).copied().unwrap_or(self.n)
    }
}

fn take_directory_entry<'a>(src: &mut &'a [u8], last: u32) -> Option<(u32, PageRef, &'a [u8])> {
    Some((
        last.checked_add(take_int(src)?)?,
        PageRef::decode(src)?,
        take_sized(src)?,
    ))
}
