//! Timelines: the distinct lists of timestamps of a block, each stored once.
//!
//! The series that one scrape brings have the same timestamps, so a block has about as many timelines as targets and
//! slices, and they cost next to nothing; a series with times of its own has a timeline of its own. Timelines are numbered
//! in the order in which they first come.
//!
//! ```text
//! 0     1   flags   0; any bit set: of a later version
//! 1     2n  counts  timestamps of each timeline, in two byte planes, 1 to 61,440; n is in the directory, 1 to 256
//! 1+2n  3n  sizes   bytes of each, in three byte planes
//! 1+5n  -   the timelines, see `timestamps`
//! ```

use std::collections::HashMap;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::directory::DirectoryWriter;
use super::page::{PageRef, PageWriter};
use super::planes::{Planes, put_planes};
use super::rows::SERIES_SAMPLES_MAX;
use super::timestamps::{Line, decode_timestamps, encode_timestamps};
use super::{Damaged, Unreadable};
use crate::error::{Error, Result};

/// The number of a timeline in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block) struct TimelineId(pub(in crate::block) u32);

/// Most timelines in a page.
pub(in crate::block) const PAGE_TIMELINES_MAX: usize = 256;
/// Timelines that the writer recognises at a time, 32 bytes each. One that comes again later is stored again.
const KNOWN_MAX: usize = 1 << 18;
/// Encoded bytes at which a page is written: one timeline out of a page shall cost little.
const PAGE_SIZE: usize = 16 << 10;

const COUNT_WIDTH: usize = 2;
const SIZE_WIDTH: usize = 3;
const _: () = assert!(SERIES_SAMPLES_MAX < 1 << (8 * COUNT_WIDTH));

/// Stores timelines.
pub(in crate::block) struct TimelineWriter {
    /// From the hash of a timeline to its number.
    known: HashMap<u128, TimelineId>,
    /// Unknown to those who choose timestamps, so that they cannot make two timelines look the same.
    seed: u64,
    /// Timelines stored, those in the unfinished page included.
    n: u32,
    counts: Vec<u32>,
    sizes: Vec<u32>,
    timelines: Vec<u8>,
    scratch: Vec<u8>,
    /// Bytes of the pages written.
    size: u64,
    directory: DirectoryWriter,
}

impl TimelineWriter {
    /// Starts without timelines; `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no randomness.
    pub(in crate::block) fn new(path: &Path) -> Result<Self> {
        let seed = getrandom::u64().map_err(|e| Error::io("seed", path)(e.into()))?;
        Ok(Self {
            known: HashMap::new(),
            seed,
            n: 0,
            counts: Vec::new(),
            sizes: Vec::new(),
            timelines: Vec::new(),
            scratch: Vec::new(),
            size: 0,
            directory: DirectoryWriter::default(),
        })
    }

    /// Returns the number of a timeline, and stores it if it is new.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] after 2^32 - 1 timelines.
    pub(in crate::block) fn put(&mut self, pages: &mut PageWriter, times_ms: &[i64]) -> Result<TimelineId> {
        let hash = self.hash(times_ms);
        if let Some(&known) = self.known.get(&hash) {
            return Ok(known);
        }
        let id = TimelineId(self.n);
        let too_many = Error::Limit { what: "timelines of a block", used: 1 << 32, limit: u32::MAX.into() };
        self.n = self.n.checked_add(1).ok_or(too_many)?;
        self.store(pages, times_ms)?;
        if self.known.len() == KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(hash, id);
        Ok(id)
    }

    /// Writes what is left and returns the pages of the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(in crate::block) fn finish(mut self, pages: &mut PageWriter) -> Result<(u64, Vec<PageRef>)> {
        self.end_page(pages)?;
        Ok((self.size, self.directory.finish(pages)?))
    }

    fn hash(&mut self, times_ms: &[i64]) -> u128 {
        self.scratch.resize(size_of_val(times_ms), 0);
        for (bytes, time_ms) in self.scratch.chunks_exact_mut(size_of::<i64>()).zip(times_ms) {
            bytes.copy_from_slice(&time_ms.to_le_bytes());
        }
        xxh3_128_with_seed(&self.scratch, self.seed)
    }

    fn store(&mut self, pages: &mut PageWriter, times_ms: &[i64]) -> Result<()> {
        let start = self.timelines.len();
        encode_timestamps(times_ms, &mut self.timelines);
        self.counts.push(times_ms.len() as u32);
        self.sizes.push((self.timelines.len() - start) as u32);
        let is_full = self.sizes.len() == PAGE_TIMELINES_MAX || self.timelines.len() >= PAGE_SIZE;
        if is_full { self.end_page(pages) } else { Ok(()) }
    }

    fn end_page(&mut self, pages: &mut PageWriter) -> Result<()> {
        if self.sizes.is_empty() {
            return Ok(());
        }
        self.scratch.clear();
        self.scratch.push(0);
        put_planes(&self.counts, COUNT_WIDTH, &mut self.scratch);
        put_planes(&self.sizes, SIZE_WIDTH, &mut self.scratch);
        self.scratch.extend_from_slice(&self.timelines);
        let page = pages.write(&self.scratch)?;
        self.size += u64::from(page.size);
        self.directory.timelines(pages, page, self.sizes.len())?;
        self.counts.clear();
        self.sizes.clear();
        self.timelines.clear();
        Ok(())
    }
}

/// A page of timelines whose frame is sound.
#[derive(Clone, Copy)]
pub(in crate::block) struct Timelines<'a> {
    n: usize,
    counts: Planes<'a>,
    sizes: Planes<'a>,
    timelines: &'a [u8],
}

impl<'a> Timelines<'a> {
    /// Checks the frame of a page of `n` timelines.
    pub(in crate::block) fn parse(payload: &'a [u8], n: usize) -> Result<Self, Unreadable> {
        let (&flags, mut src) = payload.split_first().ok_or(Damaged)?;
        if flags != 0 {
            return Err(Unreadable::Newer);
        }
        let counts = Planes::take(&mut src, n, COUNT_WIDTH).ok_or(Damaged)?;
        let sizes = Planes::take(&mut src, n, SIZE_WIDTH).ok_or(Damaged)?;
        Ok(Self { n, counts, sizes, timelines: src })
    }

    /// Checks that the timelines fill the page. Whoever reads one only sees that it is there.
    pub(in crate::block) fn check_sizes(self) -> Result<(), Damaged> {
        if self.sizes.sum(0..self.n) == self.timelines.len() { Ok(()) } else { Err(Damaged) }
    }

    /// Appends the timestamps of the `i`-th timeline of the page.
    pub(in crate::block) fn decode(self, i: usize, dst: &mut Vec<i64>) -> Result<(), Unreadable> {
        let (mut src, n) = self.encoded(i)?;
        decode_timestamps(&mut src, n, dst)?;
        if src.is_empty() { Ok(()) } else { Err(Unreadable::Damaged) }
    }

    /// Returns the `i`-th timeline of the page if its timestamps keep to a line.
    pub(in crate::block) fn line(self, i: usize) -> Option<Line> {
        let (src, n) = self.encoded(i).ok()?;
        Line::decode(src, n)
    }

    /// Returns the bytes of a timeline and the number of its timestamps.
    fn encoded(self, i: usize) -> Result<(&'a [u8], usize), Damaged> {
        let n = self.counts.get(i) as usize;
        if n == 0 || n > SERIES_SAMPLES_MAX {
            return Err(Damaged);
        }
        let start = self.sizes.sum(0..i);
        let src = self.timelines.get(start..start + self.sizes.get(i) as usize);
        Ok((src.ok_or(Damaged)?, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_pages_give_as_many_timestamps_as_they_say_or_none(
            lens in proptest::collection::vec((1..20_usize, 0..5_i64), 1..6), at: usize, byte: u8, cut: usize,
        ) {
            let (mut counts, mut sizes, mut timelines) = (Vec::new(), Vec::new(), Vec::new());
            for (len, jitter) in lens {
                let start = timelines.len();
                encode_timestamps(&(0..len as i64).map(|i| i * 10 + jitter * (i % 3)).collect::<Vec<_>>(), &mut timelines);
                counts.push(len as u32);
                sizes.push((timelines.len() - start) as u32);
            }
            let mut page = vec![0];
            put_planes(&counts, COUNT_WIDTH, &mut page);
            put_planes(&sizes, SIZE_WIDTH, &mut page);
            page.extend_from_slice(&timelines);
            let n = counts.len();
            prop_assert!(Timelines::parse(&page, n).unwrap().check_sizes().is_ok());
            let cut = &page[..cut % page.len()];
            prop_assert!(Timelines::parse(cut, n).is_err() || Timelines::parse(cut, n).unwrap().check_sizes().is_err());
            let at = at % page.len();
            page[at] = byte;
            let Ok(damaged) = Timelines::parse(&page, n) else { return Ok(()) };
            for i in 0..n {
                let mut times_ms = vec![7];
                let decoded = damaged.decode(i, &mut times_ms).is_ok();
                let told = damaged.counts.get(i) as usize;
                prop_assert!(!decoded || times_ms.len() == 1 + told);
                prop_assert!(damaged.line(i).is_none_or(|line| line.len() == told));
            }
        }
    }
}
