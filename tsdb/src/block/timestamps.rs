//! Timestamp columns: the distinct lists of timestamps of a block, each stored once.
//!
//! The series of one scrape have the same timestamps, so a block has about one timestamp column per
//! target and slice. These columns take almost no space. A series with other timestamps has its own
//! column. Columns are numbered in order of first occurrence.
//!
//! ```text
//! 0     1   flags   0; any bit set: a later version
//! 1     2n  counts  timestamps of each column, in two byte planes, 1 to 61,440; n is in the directory, 1 to 256
//! 1+2n  3n  sizes   bytes of each, in three byte planes
//! 1+5n  -   the columns, see `varve_codec::timestamps`
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use varve_codec::byte_planes::{BytePlanes, put_byte_planes};
use varve_codec::timestamps::{RegularTimestamps, decode_timestamps, encode_timestamps};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::block::directory::{
    DIRECTORY_PAGE_SIZE, PAGE_COLUMNS_MAX, TimestampColumnId, put_timestamp_columns,
};
use crate::block::page::{ListWriter, PageRef, PageWriter};
use crate::block::rows::SERIES_SAMPLES_MAX;
use crate::block::version::{Unreadable, take_flags};
use crate::error::{Damaged, Error, Result};

/// Maximum number of timestamp columns that the writer remembers, 32 bytes each. After that, it
/// forgets all of them, and a column that recurs is stored again.
const KNOWN_MAX: usize = 1 << 18;
/// Encoded size at which a page is written: reading one timestamp column should be cheap.
const PAGE_SIZE: usize = 16 << 10;

const COUNT_WIDTH: usize = 2;
const SIZE_WIDTH: usize = 3;
const _: () = assert!(SERIES_SAMPLES_MAX < 1 << (8 * COUNT_WIDTH));

/// Writes timestamp columns.
pub(crate) struct TimestampColumnWriter {
    /// Ids by the hash of the timestamp column.
    known: HashMap<u128, TimestampColumnId>,
    /// Random, so that senders cannot choose timestamps with equal hashes.
    seed: u64,
    /// Number of timestamp columns, including those in the current page.
    n: u32,
    counts: Vec<u32>,
    sizes: Vec<u32>,
    timestamp_columns: Vec<u8>,
    scratch: Vec<u8>,
    /// Size of the written pages in bytes.
    size: u64,
    directory: ListWriter,
}

impl TimestampColumnWriter {
    /// Creates a writer without columns.
    pub(crate) fn new() -> Self {
        Self {
            known: HashMap::new(),
            seed: RandomState::new().hash_one(0),
            n: 0,
            counts: Vec::new(),
            sizes: Vec::new(),
            timestamp_columns: Vec::new(),
            scratch: Vec::new(),
            size: 0,
            directory: ListWriter::new(DIRECTORY_PAGE_SIZE),
        }
    }

    /// Returns the id of a timestamp column. Writes the column if it is new.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] after 2^32 - 1 timestamp columns.
    pub(crate) fn put(
        &mut self,
        pages: &mut PageWriter,
        times_ms: &[i64],
    ) -> Result<TimestampColumnId> {
        let hash = self.hash(times_ms);
        if let Some(&known) = self.known.get(&hash) {
            return Ok(known);
        }
        let id = TimestampColumnId(self.n);
        let too_many = Error::Limit {
            what: varve_context::Limit::Other("timestamp columns of a block"),
            used: 1 << 32,
            limit: u32::MAX.into(),
        };
        self.n = self.n.checked_add(1).ok_or(too_many)?;
        self.store(pages, times_ms)?;
        if self.known.len() == KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(hash, id);
        Ok(id)
    }

    /// Writes the remaining columns. Returns the size of all pages in bytes, and the pages of the
    /// directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn finish(mut self, pages: &mut PageWriter) -> Result<(u64, Vec<PageRef>)> {
        self.end_page(pages)?;
        Ok((self.size, self.directory.finish(pages)?))
    }

    fn hash(&mut self, times_ms: &[i64]) -> u128 {
        self.scratch.resize(size_of_val(times_ms), 0);
        for (bytes, time_ms) in self
            .scratch
            .chunks_exact_mut(size_of::<i64>())
            .zip(times_ms)
        {
            bytes.copy_from_slice(&time_ms.to_le_bytes());
        }
        xxh3_128_with_seed(&self.scratch, self.seed)
    }

    fn store(&mut self, pages: &mut PageWriter, times_ms: &[i64]) -> Result<()> {
        let start = self.timestamp_columns.len();
        encode_timestamps(times_ms, &mut self.timestamp_columns);
        self.counts.push(times_ms.len() as u32);
        self.sizes
            .push((self.timestamp_columns.len() - start) as u32);
        let is_full =
            self.sizes.len() == PAGE_COLUMNS_MAX || self.timestamp_columns.len() >= PAGE_SIZE;
        if is_full {
            self.end_page(pages)
        } else {
            Ok(())
        }
    }

    fn end_page(&mut self, pages: &mut PageWriter) -> Result<()> {
        if self.sizes.is_empty() {
            return Ok(());
        }
        self.scratch.clear();
        self.scratch.push(0);
        put_byte_planes(&self.counts, COUNT_WIDTH, &mut self.scratch);
        put_byte_planes(&self.sizes, SIZE_WIDTH, &mut self.scratch);
        self.scratch.extend_from_slice(&self.timestamp_columns);
        let page = pages.write(&self.scratch)?;
        self.size += u64::from(page.size);
        self.directory.push(pages, |dst| {
            put_timestamp_columns(dst, page, self.sizes.len())
        })?;
        self.counts.clear();
        self.sizes.clear();
        self.timestamp_columns.clear();
        Ok(())
    }
}

/// A page of timestamp columns whose header was checked.
#[derive(Clone, Copy)]
pub(crate) struct TimestampColumns<'a> {
    n: usize,
    counts: BytePlanes<'a>,
    sizes: BytePlanes<'a>,
    timestamp_columns: &'a [u8],
}

impl<'a> TimestampColumns<'a> {
    /// Checks the header of a page of `n` timestamp columns.
    pub(crate) fn parse(mut payload: &'a [u8], n: usize) -> Result<Self, Unreadable> {
        take_flags(&mut payload, 0)?;
        let counts = BytePlanes::take(&mut payload, n, COUNT_WIDTH).ok_or(Damaged)?;
        let sizes = BytePlanes::take(&mut payload, n, SIZE_WIDTH).ok_or(Damaged)?;
        Ok(Self {
            n,
            counts,
            sizes,
            timestamp_columns: payload,
        })
    }

    /// Checks that the timestamp columns fill the page. Reading one column does not check that.
    pub(crate) fn check_sizes(self) -> Result<(), Damaged> {
        if self.sizes.sum(0..self.n) == self.timestamp_columns.len() {
            Ok(())
        } else {
            Err(Damaged)
        }
    }

    /// Appends the timestamps of the `i`-th timestamp column of the page.
    pub(crate) fn decode(self, i: usize, dst: &mut Vec<i64>) -> Result<(), Unreadable> {
        let (mut src, n) = self.encoded(i)?;
        Ok(decode_timestamps(&mut src, n, dst)
            .filter(|()| src.is_empty())
            .ok_or(Damaged)?)
    }

    /// Returns the `i`-th timestamp column of the page if its timestamps are regular.
    pub(crate) fn regular(self, i: usize) -> Option<RegularTimestamps> {
        let (src, n) = self.encoded(i).ok()?;
        RegularTimestamps::decode(src, n)
    }

    /// Returns the bytes of a timestamp column and its number of timestamps.
    fn encoded(self, i: usize) -> Result<(&'a [u8], usize), Damaged> {
        let n = self.counts.get(i) as usize;
        if n == 0 || n > SERIES_SAMPLES_MAX {
            return Err(Damaged);
        }
        let start = self.sizes.sum(0..i);
        let src = self
            .timestamp_columns
            .get(start..start + self.sizes.get(i) as usize);
        Ok((src.ok_or(Damaged)?, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_pages_are_rejected_or_decode_to_that_many_timestamps(
            lens in proptest::collection::vec((1..20_usize, 0..5_i64), 1..6), at: usize, byte: u8, cut: usize,
        ) {
            let mut counts = Vec::new();
            let mut sizes = Vec::new();
            let mut timestamp_columns = Vec::new();
            for (len, jitter) in lens {
                let start = timestamp_columns.len();
                encode_timestamps(&(0..len as i64).map(|i| i * 10 + jitter * (i % 3)).collect::<Vec<_>>(), &mut timestamp_columns);
                counts.push(len as u32);
                sizes.push((timestamp_columns.len() - start) as u32);
            }
            let mut page = vec![0];
            put_byte_planes(&counts, COUNT_WIDTH, &mut page);
            put_byte_planes(&sizes, SIZE_WIDTH, &mut page);
            page.extend_from_slice(&timestamp_columns);
            let n = counts.len();
            prop_assert!(TimestampColumns::parse(&page, n).unwrap().check_sizes().is_ok());
            let checked = TimestampColumns::parse(&page[..cut % page.len()], n).and_then(|page| Ok(page.check_sizes()?));
            prop_assert_eq!(checked, Err(Unreadable::Damaged));
            let at = at % page.len();
            page[at] = byte;
            let Ok(damaged) = TimestampColumns::parse(&page, n) else { return Ok(()) };
            for i in 0..n {
                let mut times_ms = vec![7];
                let decoded = damaged.decode(i, &mut times_ms).is_ok();
                let n_stored = damaged.counts.get(i) as usize;
                prop_assert!(!decoded || times_ms.len() == 1 + n_stored);
                prop_assert!(damaged.regular(i).is_none_or(|times| times.n_timestamps() == n_stored));
            }
        }
    }
}
