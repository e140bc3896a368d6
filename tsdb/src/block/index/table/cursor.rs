//! A cursor over a table.

use std::sync::Arc;

use super::directory::Table;
use crate::block::page::Access;
use crate::error::{Error, Result};

/// A cursor over a table.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    access: Access,
    page_idx: usize,
    payload: Arc<[u8]>,
    /// The end of the entries in the payload, where the offsets of the restart points begin.
    entries_size: usize,
    /// The page has the entries from `first` up to, but not including, `end`.
    first: u32,
    end: u32,
    /// The number of the next entry, and its position in the payload.
    next: u32,
    offset: usize,
}

impl TableCursor {
    /// Creates a cursor before the first entry.
    pub(crate) fn new(table: &Arc<Table>, access: Access) -> Self {
        Self {
            table: Arc::clone(table),
            access,
            page_idx: 0,
            payload: Arc::from([]),
            entries_size: 0,
            first: 0,
            end: 0,
            next: 0,
            offset: 0,
        }
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the number of the next entry. After the last entry, this is the length of the table.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Returns `true` if the next entry is a restart point.
    pub(crate) fn is_restart_point(&self) -> bool {
        self.next == self.end || self.table.is_restart_point(self.next - self.first)
    }

    /// Moves to `number`, or to the restart point before it. Returns `true` if it moved to a
    /// restart point, so that the caller must decode from there.
    ///
    /// # Errors
    /// The errors of [`Pages::page`](crate::block::page::Pages::page); [`Error::Corrupt`] if the
    /// entry does not exist or its page is invalid.
    pub(crate) fn seek_restart(&mut self, number: u32) -> Result<bool> {
        if !(self.first..self.end).contains(&number) {
            let Some(page_idx) = self.table.page_of(number) else {
                let reason = format!("the index has no entry {number}");
                return Err(self.table.pages.corrupt(0, reason));
            };
            self.load(page_idx)?;
        } else if self.next <= number
            && self.table.restart_of(self.next - self.first)
                == self.table.restart_of(number - self.first)
        {
            // Fast path: ascending numbers.
            return Ok(false);
        }
        self.go_to_restart(self.table.restart_of(number - self.first))?;
        Ok(true)
    }

    /// Moves to the beginning of a page.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`].
    pub(crate) fn load(&mut self, page_idx: usize) -> Result<()> {
        let page = self.table.refs[page_idx];
        let payload = self.table.pages.page(page, self.access)?;
        let first = self.table.firsts[page_idx];
        let end = self.table.end_of(page_idx);
        self.entries_size = entries_size(&payload, end - first, self.table.restart_interval)
            .ok_or_else(|| {
                self.table
                    .pages
                    .corrupt(page.offset, "a page of the index has unexpected entries")
            })?;
        self.page_idx = page_idx;
        self.payload = payload;
        self.first = first;
        self.end = end;
        self.next = first;
        self.offset = 0;
        Ok(())
    }

    /// Returns the number of restart points of the page.
    pub(crate) fn n_restarts(&self) -> u32 {
        (self.end - self.first).div_ceil(self.table.restart_interval)
    }

    /// Moves to a restart point of the page.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the restart point is not inside the page.
    pub(crate) fn go_to_restart(&mut self, restart_idx: u32) -> Result<()> {
        self.offset = self
            .restart_offset(restart_idx)
            .ok_or_else(|| self.damaged())?;
        self.next = self.first + restart_idx * self.table.restart_interval;
        Ok(())
    }

    /// Decodes the next entry, which must exist. `decode` decodes it from the front of its
    /// argument.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`]; [`Error::Corrupt`] if `decode` fails.
    pub(crate) fn step<T>(&mut self, decode: impl FnOnce(&mut &[u8]) -> Option<T>) -> Result<T> {
        if self.next == self.end {
            self.seek_restart(self.next)?;
        }
        let mut src = &self.payload[self.offset..self.entries_size];
        let decoded = decode(&mut src).ok_or_else(|| self.damaged())?;
        self.offset = self.entries_size - src.len();
        self.next += 1;
        let idx = self.next - self.first;
        let ends_at_next = if self.next == self.end {
            self.offset == self.entries_size
        } else {
            !self.table.is_restart_point(idx)
                || self.restart_offset(self.table.restart_of(idx)) == Some(self.offset)
        };
        if ends_at_next {
            Ok(decoded)
        } else {
            Err(self.damaged())
        }
    }

    /// Returns the key of the page if the entry decoded last is its first.
    pub(crate) fn key_of_first(&self) -> Option<&[u8]> {
        (self.next == self.first + 1).then(|| &*self.table.keys()[self.page_idx])
    }

    /// Returns the error for an invalid page.
    pub(crate) fn damaged(&self) -> Error {
        let offset = self
            .table
            .refs
            .get(self.page_idx)
            .map_or(0, |page| page.offset);
        self.table.pages.corrupt(
            offset,
            format!("entry {} of the index does not decode", self.next),
        )
    }

    fn restart_offset(&self, restart_idx: u32) -> Option<usize> {
        let offset = self.entries_size + restart_idx as usize * RESTART_OFFSET_SIZE;
        let start = u32::from_le_bytes(
            self.payload
                .get(offset..offset + RESTART_OFFSET_SIZE)?
                .try_into()
                .ok()?,
        ) as usize;
        (start <= self.entries_size).then_some(start)
    }
}

const RESTART_OFFSET_SIZE: usize = 4;

/// Returns the end of the entries in a page, or `None` if it does not have `n` of them.
fn entries_size(payload: &[u8], n: u32, restart_interval: u32) -> Option<usize> {
    let (rest, n_found) = payload.split_last_chunk()?;
    if u32::from_le_bytes(*n_found) != n {
        return None;
    }
    rest.len()
        .checked_sub(n.div_ceil(restart_interval) as usize * RESTART_OFFSET_SIZE)
}
