//! Writing a table: entries in pages, and the directory of these pages.

use varve_codec::varint::{put_sized, put_u64};

use crate::block::page::{ListWriter, PageRef, PageWriter};
use crate::error::Result;

/// Writes a table.
pub(crate) struct TableWriter {
    page_size: usize,
    restart_interval: u32,
    entries: Vec<u8>,
    restart_offsets: Vec<u32>,
    /// The number of the first entry in `entries`.
    first: u32,
    /// The number of the next entry.
    next: u32,
    key: Vec<u8>,
    directory: ListWriter,
    /// The number of the first entry of the last page in the directory.
    last_first: u32,
}

impl TableWriter {
    /// Creates an empty table with pages of `page_size` bytes and a restart point at every
    /// `restart_interval`-th entry of a page.
    pub(crate) fn new(restart_interval: u32, page_size: usize) -> Self {
        Self {
            page_size,
            restart_interval,
            entries: Vec::new(),
            restart_offsets: Vec::new(),
            first: 0,
            next: 0,
            key: Vec::new(),
            directory: ListWriter::new(page_size),
            last_first: 0,
        }
    }

    /// Returns the number of the next entry.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Returns `true` if the next entry is a restart point.
    pub(crate) fn is_restart_point(&self) -> bool {
        (self.next - self.first).is_multiple_of(self.restart_interval)
    }

    /// Returns `true` if the next entry is the first of a page.
    pub(crate) fn begins_page(&self) -> bool {
        self.next == self.first
    }

    /// Adds the next entry. If it begins a page, the directory contains `key`.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(crate) fn push(&mut self, pages: &mut PageWriter, key: &[u8], entry: &[u8]) -> Result<()> {
        if self.is_restart_point() {
            self.restart_offsets.push(
                u32::try_from(self.entries.len()).expect("a page is closed long before 4 GiB"),
            );
        }
        if self.begins_page() {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.entries.extend_from_slice(entry);
        self.next += 1;
        if self.entries.len() >= self.page_size {
            self.close_page(pages)
        } else {
            Ok(())
        }
    }

    /// Writes the remaining entries and returns the pages of the directory.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(crate) fn finish(mut self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        if !self.begins_page() {
            self.close_page(pages)?;
        }
        self.directory.finish(pages)
    }

    fn close_page(&mut self, pages: &mut PageWriter) -> Result<()> {
        for start in self.restart_offsets.drain(..) {
            self.entries.extend_from_slice(&start.to_le_bytes());
        }
        self.entries
            .extend_from_slice(&(self.next - self.first).to_le_bytes());
        let page = pages.write(&self.entries)?;
        self.entries.clear();
        let first = self.first;
        let last_first = self.last_first;
        (self.first, self.last_first) = (self.next, first);
        self.directory.push(pages, |dst| {
            let last = if dst.is_empty() { 0 } else { last_first };
            put_u64(dst, (first - last).into());
            page.encode(dst);
            put_sized(dst, &self.key);
        })
    }
}
