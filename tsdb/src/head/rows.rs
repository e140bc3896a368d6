//! The open chunks of all series, by slot.
//!
//! Rows lie in pages that are made when the first of their series gets a sample. So a freeze starts with nothing at all,
//! growing moves no rows, and series that no longer get samples cost none.

use crate::chunk::{Chunk, ChunkRow};
use crate::index::Column;

/// Rows of a page.
const PAGE_ROWS: usize = 256;

type Page = Box<[ChunkRow; PAGE_ROWS]>;

/// A chunk per slot, empty where nothing was set.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pages: Column<Option<Page>>,
    n_pages: usize,
}

impl Rows {
    /// Returns the chunk of a slot.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> Chunk {
        let slot = slot as usize;
        match self.pages.get(slot / PAGE_ROWS) {
            Some(Some(page)) => Chunk::from_row(page[slot % PAGE_ROWS]),
            _ => Chunk::default(),
        }
    }

    /// Sets the chunk of a slot.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, chunk: Chunk) {
        let slot = slot as usize;
        let row = match self.pages.get_mut(slot / PAGE_ROWS) {
            Some(Some(page)) => &mut page[slot % PAGE_ROWS],
            _ => &mut self.new_page(slot / PAGE_ROWS)[slot % PAGE_ROWS],
        };
        *row = chunk.to_row();
    }

    #[cold]
    fn new_page(&mut self, number: usize) -> &mut Page {
        while self.pages.len() <= number {
            self.pages.push(None);
        }
        self.n_pages += 1;
        let rows = vec![ChunkRow::default(); PAGE_ROWS].into_boxed_slice();
        self.pages[number].insert(rows.try_into().expect("a page has as many rows as were asked for"))
    }

    /// Changes all chunks that are not empty.
    pub(super) fn update(&mut self, change: impl Fn(&mut Chunk)) {
        for row in self.pages.iter_mut().flatten().flat_map(|page| page.iter_mut()) {
            let mut chunk = Chunk::from_row(*row);
            if chunk.len() > 0 {
                change(&mut chunk);
                *row = chunk.to_row();
            }
        }
    }

    /// Returns one more than the highest slot that has a row.
    #[cfg(test)]
    pub(super) fn end(&self) -> usize {
        self.pages.len() * PAGE_ROWS
    }

    /// Returns the bytes that the rows take.
    pub(super) fn size(&self) -> usize {
        self.pages.size() + self.n_pages * PAGE_ROWS * size_of::<ChunkRow>()
    }
}
