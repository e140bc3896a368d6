//! Writes records as fragments in pages of a segment.

use super::compression::WalCompression;
use super::reader::{FIRST, FULL, HEADER_SIZE, LAST, MIDDLE, PAGE_SIZE, RawRecord, SNAPPY, ZSTD};

/// Writes records as fragments in pages.
#[derive(Debug, Default)]
pub(crate) struct PageWriter {
    /// Bytes that have not been written to the file.
    pub(crate) bytes: Vec<u8>,
    /// Bytes used in the open page.
    used: usize,
}

impl PageWriter {
    /// Appends a record.
    pub(crate) fn put(&mut self, record: &RawRecord) {
        let flag = match record.compression {
            WalCompression::None => 0,
            WalCompression::Snappy => SNAPPY,
            WalCompression::Zstd => ZSTD,
        };
        let mut rest = &record.bytes[..];
        let mut is_first = true;
        while is_first || !rest.is_empty() {
            let left = PAGE_SIZE - self.used;
            if left < HEADER_SIZE {
                self.bytes.resize(self.bytes.len() + left, 0);
                self.used = 0;
                continue;
            }
            let (data, behind) = rest.split_at(rest.len().min(left - HEADER_SIZE));
            let kind = match (is_first, behind.is_empty()) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            self.bytes.push(kind | flag);
            // The size fits, since a page is smaller than 64 KiB.
            self.bytes
                .extend_from_slice(&(data.len() as u16).to_be_bytes());
            self.bytes
                .extend_from_slice(&crc32c::crc32c(data).to_be_bytes());
            self.bytes.extend_from_slice(data);
            self.used = (self.used + HEADER_SIZE + data.len()) % PAGE_SIZE;
            rest = behind;
            is_first = false;
        }
    }
}
