//! The open chunks of all series, by slot.
//!
//! Rows are stored in pages. A page is allocated with the first sample of one of its series. So
//! there are no pages after a freeze, growing moves no rows, and pages whose series have no new
//! samples cost nothing.

use std::hint::black_box;

use crate::chunk::{Chunk, ChunkRow};
use varve_collections::Column;

/// Number of rows per page.
const PAGE_ROWS: usize = 256;

type Page = Box<[ChunkRow; PAGE_ROWS]>;

/// A chunk per slot. Empty until it is set.
#[derive(Debug, Default)]
pub(in crate::head) struct Rows {
    pages: Column<Option<Page>>,
    n_pages: usize,
}

impl Rows {
    /// Returns the chunk of a slot.
    #[inline]
    pub(in crate::head) fn get(&self, slot: u32) -> Chunk {
        let slot = slot as usize;
        match self.pages.get(slot / PAGE_ROWS) {
            Some(Some(page)) => Chunk::from_row(page[slot % PAGE_ROWS]),
            _ => Chunk::default(),
        }
    }

    /// Sets the chunk of a slot.
    #[inline]
    pub(in crate::head) fn set(&mut self, slot: u32, chunk: Chunk) {
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
        let mut rows = Vec::with_capacity(PAGE_ROWS);
        // `black_box` hides the zeros from the compiler, which would otherwise ask for zeroed
        // memory and not write to it. The kernel maps each memory page of it twice: at the first
        // read, and at the first write. The second mapping interrupts all cores.
        rows.resize(PAGE_ROWS, black_box(ChunkRow::default()));
        self.pages[number].insert(
            rows.into_boxed_slice()
                .try_into()
                .expect("resized to PAGE_ROWS rows"),
        )
    }

    /// Updates all chunks that are not empty.
    pub(in crate::head) fn update(&mut self, change: impl Fn(&mut Chunk)) {
        for row in self
            .pages
            .iter_mut()
            .flatten()
            .flat_map(|page| page.iter_mut())
        {
            let mut chunk = Chunk::from_row(*row);
            if chunk.len() > 0 {
                change(&mut chunk);
                *row = chunk.to_row();
            }
        }
    }

    /// Returns one more than the highest slot with a row.
    #[cfg(test)]
    pub(in crate::head) fn end(&self) -> usize {
        self.pages.len() * PAGE_ROWS
    }

    /// Returns the size of the rows in bytes.
    pub(in crate::head) fn size(&self) -> usize {
        self.pages.size() + self.n_pages * PAGE_ROWS * size_of::<ChunkRow>()
    }
}
