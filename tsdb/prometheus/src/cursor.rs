//! Reads big-endian integers, varints and length-prefixed strings from a buffer.

use varve_codec::varint::{take_bytes, take_i64, take_u64};

/// A position in a buffer. Methods read what they name. After `None` the cursor must not be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn bytes(&mut self, size: usize) -> Option<&'a [u8]> {
        take_bytes(&mut self.rest, size)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(super) fn be_u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    #[inline]
    pub(super) fn be_u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_be_bytes(*bytes))
    }

    pub(super) fn f64(&mut self) -> Option<f64> {
        self.be_u64().map(f64::from_bits)
    }

    #[inline]
    pub(super) fn uvarint(&mut self) -> Option<u64> {
        take_u64(&mut self.rest)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Option<i64> {
        take_i64(&mut self.rest)
    }

    /// Reads a number of items, each of which takes at least one byte.
    pub(super) fn n_items(&mut self) -> Option<usize> {
        usize::try_from(self.uvarint()?)
            .ok()
            .filter(|&n| n <= self.rest.len())
    }

    pub(super) fn string(&mut self) -> Option<&'a str> {
        let size = self.n_items()?;
        std::str::from_utf8(self.bytes(size)?).ok()
    }
}
