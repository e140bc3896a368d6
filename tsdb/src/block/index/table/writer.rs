//! Writing a table: collects entries into pages, and page references into the directory.

use crate::block::page::{PageRef, PageWriter};
use crate::chunk::varint::put_u64;
use crate::error::Result;

/// Writes a table.
pub(in crate::block::index) struct TableWriter {
    page_size: usize,
    group: u32,
    entries: Vec<u8>,
    group_starts: Vec<u32>,
    /// The number of the first entry in `entries`.
    first: u32,
    /// The number of the next entry.
    next: u32,
    key: Vec<u8>,
    directory: DirectoryWriter,
}

impl TableWriter {
    /// Creates an empty table with pages of `page_size` bytes and groups of `group` entries.
    pub(in crate::block::index) fn new(group: u32, page_size: usize) -> Self {
        Self {
            page_size,
            group,
            entries: Vec::new(),
            group_starts: Vec::new(),
            first: 0,
            next: 0,
            key: Vec::new(),
            directory: DirectoryWriter { page_size, entries: Vec::new(), last: 0, pages: Vec::new() },
        }
    }

    /// Returns the number of the next entry.
    pub(in crate::block::index) fn next(&self) -> u32 {
        self.next
    }

    /// Returns `true` if the next entry is the first of a group.
    pub(in crate::block::index) fn begins_group(&self) -> bool {
        (self.next - self.first).is_multiple_of(self.group)
    }

    /// Returns `true` if the next entry is the first of a page.
    pub(in crate::block::index) fn begins_page(&self) -> bool {
        self.next == self.first
    }

    /// Adds the next entry; `key` is stored in the directory if it begins a page.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(in crate::block::index) fn push(&mut self, pages: &mut PageWriter, key: &[u8], entry: &[u8]) -> Result<()> {
        if self.begins_group() {
            self.group_starts.push(u32::try_from(self.entries.len()).expect("a page is cut long before 4 GiB"));
        }
        if self.begins_page() {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.entries.extend_from_slice(entry);
        self.next += 1;
        if self.entries.len() >= self.page_size { self.cut(pages) } else { Ok(()) }
    }

    /// Writes the remaining entries and returns the pages of the directory.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(in crate::block::index) fn finish(mut self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        if !self.begins_page() {
            self.cut(pages)?;
        }
        self.directory.finish(pages)
    }

    fn cut(&mut self, pages: &mut PageWriter) -> Result<()> {
        for start in self.group_starts.drain(..) {
            self.entries.extend_from_slice(&start.to_le_bytes());
        }
        self.entries.extend_from_slice(&(self.next - self.first).to_le_bytes());
        let page = pages.write(&self.entries)?;
        self.entries.clear();
        self.directory.push(pages, self.first, page, &self.key)?;
        self.first = self.next;
        Ok(())
    }
}

/// Collects the directory, which is written in pages.
struct DirectoryWriter {
    page_size: usize,
    entries: Vec<u8>,
    /// The last number in this page.
    last: u32,
    pages: Vec<PageRef>,
}

impl DirectoryWriter {
    fn push(&mut self, pages: &mut PageWriter, first: u32, page: PageRef, key: &[u8]) -> Result<()> {
        put_u64(&mut self.entries, (first - self.last).into());
        page.encode(&mut self.entries);
        put_u64(&mut self.entries, key.len() as u64);
        self.entries.extend_from_slice(key);
        self.last = first;
        if self.entries.len() >= self.page_size { self.cut(pages) } else { Ok(()) }
    }

    fn cut(&mut self, pages: &mut PageWriter) -> Result<()> {
        self.pages.push(pages.write(&self.entries)?);
        self.entries.clear();
        self.last = 0;
        Ok(())
    }

    fn finish(mut self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        if !self.entries.is_empty() {
            self.cut(pages)?;
        }
        Ok(self.pages)
    }
}
