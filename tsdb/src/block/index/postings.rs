//! Postings: the series of each symbol.
//!
//! ```text
//! entry   number << 2 | kind, varint:
//!           0 one     the number is the only series
//!           1 runs    the number is the size in bytes of runs, which follow
//!           2 bitmap  the number is the size in bytes of a bitmap in the portable format of Roaring, which follows
//!           3 page    the number is the size in bytes of a bitmap that is the payload of a page, whose reference follows
//! run     gap << 1 | more, varint: number of series between the end of the run before (or 0) and the run; 1 if the run
//!         has more than one series
//!         number of series, less 2, varint (if more)
//! ```

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use roaring::RoaringBitmap;
use varve_codec::varint::{put_u64, take_bytes, take_int, take_u64};

use super::runs::Merge;
use super::table::{Table, TableCursor, TableWriter};
use crate::block::page::{Access, PageRef, PageWriter, Pages};
use crate::block::symbol::Symbol;
use crate::error::Result;

/// Number of entries from one restart point to the next: a look-up skips at most this many.
pub(super) const RESTART_INTERVAL: u32 = 16;

const ONE: u64 = 0;
const RUNS: u64 = 1;
const BITMAP: u64 = 2;
const PAGE: u64 = 3;

/// Runs of at most this size are never larger than a bitmap, whose header alone takes as much.
const BITMAP_SIZE_MIN: usize = 16;

/// Writes the postings of `n_symbols` symbols. Returns the pages of the directory and the number of
/// unused symbols.
///
/// # Errors
/// The errors of [`PageWriter::write`] and [`Merge::next`].
pub(super) fn write(
    pages: &mut PageWriter,
    n_symbols: u32,
    mut runs: Merge,
    page_size: usize,
) -> Result<(Vec<PageRef>, u32)> {
    let mut table = TableWriter::new(RESTART_INTERVAL, page_size);
    let mut list = ListEncoder::new(page_size);
    let mut n_unused = 0;
    let mut next = runs.next()?;
    for symbol in (0..n_symbols).map(Symbol) {
        while let Some(run) = next.filter(|run| run.symbol == symbol) {
            list.push(run.ordinals());
            next = runs.next()?;
        }
        n_unused += u32::from(list.is_empty());
        let entry = list.finish(pages)?;
        table.push(pages, &[], entry)?;
    }
    assert_eq!(next, None, "runs have symbols of this index");
    Ok((table.finish(pages)?, n_unused))
}

/// Encodes lists in sequence.
struct ListEncoder {
    /// Size of runs above which a list becomes a bitmap in a page of its own.
    size_max: usize,
    runs: Vec<u8>,
    first: u32,
    end: u32,
    n: u64,
    bitmap: Option<RoaringBitmap>,
    entry: Vec<u8>,
}

impl ListEncoder {
    fn new(size_max: usize) -> Self {
        Self {
            size_max,
            runs: Vec::new(),
            first: 0,
            end: 0,
            n: 0,
            bitmap: None,
            entry: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Adds series after the previous ones.
    fn push(&mut self, run: Range<u32>) {
        if self.is_empty() {
            self.first = run.start;
        }
        self.n += u64::from(run.end - run.start);
        match &mut self.bitmap {
            Some(bitmap) => insert(bitmap, run),
            None => self.push_run(run),
        }
    }

    fn push_run(&mut self, run: Range<u32>) {
        let gap = run.start - self.end;
        let n = run.end - run.start;
        put_u64(&mut self.runs, u64::from(gap) << 1 | u64::from(n > 1));
        if n > 1 {
            put_u64(&mut self.runs, u64::from(n) - 2);
        }
        self.end = run.end;
        if self.runs.len() > self.size_max {
            self.bitmap = Some(bitmap_of(&self.runs));
        }
    }

    /// Returns the entry of the list, after writing its page if it has one, and starts the next
    /// list.
    fn finish(&mut self, pages: &mut PageWriter) -> Result<&[u8]> {
        self.entry.clear();
        if let Some(mut bitmap) = self.bitmap.take() {
            bitmap.optimize();
            let bytes = serialized(&bitmap);
            put_u64(&mut self.entry, (bytes.len() as u64) << 2 | PAGE);
            pages.write(&bytes)?.encode(&mut self.entry);
        } else if self.n == 1 {
            put_u64(&mut self.entry, u64::from(self.first) << 2 | ONE);
        } else {
            let mut bitmap = RoaringBitmap::new();
            if self.runs.len() > BITMAP_SIZE_MIN {
                bitmap = bitmap_of(&self.runs);
                bitmap.optimize();
            }
            if !bitmap.is_empty() && bitmap.serialized_size() < self.runs.len() {
                put_kind(&mut self.entry, BITMAP, &serialized(&bitmap));
            } else {
                put_kind(&mut self.entry, RUNS, &self.runs);
            }
        }
        self.runs.clear();
        self.first = 0;
        self.end = 0;
        self.n = 0;
        Ok(&self.entry)
    }
}

fn put_kind(dst: &mut Vec<u8>, kind: u64, bytes: &[u8]) {
    put_u64(dst, (bytes.len() as u64) << 2 | kind);
    dst.extend_from_slice(bytes);
}

fn bitmap_of(runs: &[u8]) -> RoaringBitmap {
    let mut bitmap = RoaringBitmap::new();
    let decoded = decode_runs(runs, u32::MAX, |run| {
        insert(&mut bitmap, run);
        ControlFlow::Continue(())
    });
    decoded.expect("what was encoded decodes");
    bitmap
}

fn serialized(bitmap: &RoaringBitmap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bitmap.serialized_size());
    bitmap
        .serialize_into(&mut bytes)
        .expect("writing to memory does not fail");
    bytes
}

/// Maximum number of series of a run that are inserted one by one, which is faster than inserting a
/// short range.
const SHORT_RUN_MAX: u32 = 16;

fn insert(bitmap: &mut RoaringBitmap, run: Range<u32>) {
    if run.end - run.start > SHORT_RUN_MAX {
        bitmap.insert_range(run);
    } else {
        // Not `push`: it searches for the maximum, in a dense container word by word.
        for ordinal in run {
            bitmap.insert(ordinal);
        }
    }
}

/// Adds the intersection of `set` and a run to `kept`.
fn insert_common(set: &RoaringBitmap, run: Range<u32>, kept: &mut RoaringBitmap) {
    if set.contains_range(run.clone()) {
        // Fast path: `set` contains the run, such as the series of a metric with a single job.
        insert(kept, run);
    } else if run.end - run.start > SHORT_RUN_MAX {
        let mut common = RoaringBitmap::new();
        common.insert_range(run);
        common &= set;
        *kept |= common;
    } else {
        for ordinal in run.filter(|&ordinal| set.contains(ordinal)) {
            kept.insert(ordinal);
        }
    }
}

/// Decodes runs of series below `n_series` until `visit` breaks. Returns `None` if they are invalid
/// or do not ascend.
fn decode_runs(
    mut src: &[u8],
    n_series: u32,
    mut visit: impl FnMut(Range<u32>) -> ControlFlow<()>,
) -> Option<()> {
    let mut end = 0_u32;
    let mut is_first = true;
    while !src.is_empty() {
        let head = take_u64(&mut src)?;
        let gap = u32::try_from(head >> 1).ok()?;
        let n = if head & 1 == 1 {
            take_int::<u32>(&mut src)?.checked_add(2)?
        } else {
            1
        };
        if gap == 0 && !is_first {
            return None;
        }
        let start = end.checked_add(gap)?;
        end = start.checked_add(n).filter(|&end| end <= n_series)?;
        is_first = false;
        if visit(start..end).is_break() {
            break;
        }
    }
    Some(())
}

fn decode_bitmap(mut bytes: &[u8], n_series: u32) -> Option<RoaringBitmap> {
    let bitmap = RoaringBitmap::deserialize_from(&mut bytes).ok()?;
    (bytes.is_empty() && bitmap.max().is_none_or(|max| max < n_series)).then_some(bitmap)
}

/// The list of a symbol as stored in an entry.
enum List<'a> {
    One(u32),
    Runs(&'a [u8]),
    Bitmap(&'a [u8]),
    /// A page and the size of its payload.
    Page(PageRef, u64),
}

impl List<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Runs(bytes) | Self::Bitmap(bytes) => bytes.len() as u64,
            Self::Page(_, size) => *size,
        }
    }
}

fn take_list<'a>(src: &mut &'a [u8]) -> Option<List<'a>> {
    let head = take_u64(src)?;
    let number = head >> 2;
    match head & 3 {
        ONE => Some(List::One(number.try_into().ok()?)),
        RUNS => Some(List::Runs(take_bytes(src, number.try_into().ok()?)?)),
        BITMAP => Some(List::Bitmap(take_bytes(src, number.try_into().ok()?)?)),
        _ => Some(List::Page(PageRef::decode(src)?, number)),
    }
}

/// Part of a list.
pub(super) enum Part {
    /// A run; more may follow.
    Run(Range<u32>),
    /// The whole list.
    Set(RoaringBitmap),
}

/// How far a list was visited.
enum Visited {
    /// All its parts, or those up to a break.
    Done,
    /// Not at all: it is a bitmap in a page of its own, whose payload has `size` bytes.
    InPage { page: PageRef, size: u64 },
}

/// Calls `visit` with the parts of a list until it breaks. Returns `None` if the list does not
/// decode.
fn visit_list(
    list: List<'_>,
    n_series: u32,
    visit: &mut impl FnMut(Part) -> ControlFlow<()>,
) -> Option<Visited> {
    match list {
        List::One(ordinal) => {
            let end = ordinal.checked_add(1).filter(|&end| end <= n_series)?;
            let _last = visit(Part::Run(ordinal..end));
        }
        List::Runs(bytes) => decode_runs(bytes, n_series, |run| visit(Part::Run(run)))?,
        List::Bitmap(bytes) => {
            let _last = visit(Part::Set(decode_bitmap(bytes, n_series)?));
        }
        List::Page(page, size) => return Some(Visited::InPage { page, size }),
    }
    Some(Visited::Done)
}

/// A cursor over the postings. Visiting symbols in ascending order is cheap.
#[derive(Debug)]
pub(super) struct PostingsCursor {
    entries: TableCursor,
    pages: Arc<Pages>,
    access: Access,
    n_series: u32,
}

impl PostingsCursor {
    /// Creates a cursor before the first symbol.
    pub(super) fn new(table: &Arc<Table>, n_series: u32, access: Access) -> Self {
        Self {
            entries: TableCursor::new(table, access),
            pages: Arc::clone(table.pages()),
            access,
            n_series,
        }
    }

    /// Calls `visit` with the series of a symbol, in order, until it breaks.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`]; [`Error::Corrupt`](crate::Error::Corrupt) if
    /// the list does not decode. Parts of it may have been visited then.
    pub(super) fn visit(
        &mut self,
        symbol: Symbol,
        mut visit: impl FnMut(Part) -> ControlFlow<()>,
    ) -> Result<()> {
        self.seek(symbol)?;
        let n_series = self.n_series;
        let visited = self
            .entries
            .step(|src| visit_list(take_list(src)?, n_series, &mut visit))?;
        let Visited::InPage { page, size } = visited else {
            return Ok(());
        };

        let payload = self.pages.page(page, self.access)?;
        let bitmap = if payload.len() as u64 == size {
            decode_bitmap(&payload, n_series)
        } else {
            None
        };
        let Some(bitmap) = bitmap else {
            let reason = "a bitmap of the index does not decode";
            return Err(self.pages.corrupt(page.offset, reason));
        };
        let _last = visit(Part::Set(bitmap));
        Ok(())
    }

    /// Moves to the entry of a symbol.
    fn seek(&mut self, symbol: Symbol) -> Result<()> {
        self.entries.seek_restart(symbol.0)?;
        while self.entries.next() < symbol.0 {
            self.entries.step(|src| take_list(src).map(|_| ()))?;
        }
        Ok(())
    }

    /// Returns the size of a symbol's list in bytes without decoding it.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`].
    pub(super) fn size(&mut self, symbol: Symbol) -> Result<u64> {
        self.seek(symbol)?;
        self.entries
            .step(|src| take_list(src).map(|list| list.size()))
    }

    /// Adds the series of a symbol to `set`, as far as they are in `window`.
    ///
    /// # Errors
    /// The errors of [`PostingsCursor::visit`].
    pub(super) fn unite(
        &mut self,
        symbol: Symbol,
        window: &Range<u32>,
        set: &mut RoaringBitmap,
    ) -> Result<()> {
        let is_whole = *window == (0..self.n_series);
        self.visit(symbol, |part| {
            match part {
                Part::Run(run) if run.start >= window.end => return ControlFlow::Break(()),
                Part::Run(run) if run.end <= window.start => {}
                Part::Run(run) => {
                    insert(set, run.start.max(window.start)..run.end.min(window.end));
                }
                Part::Set(list) if is_whole => *set |= list,
                Part::Set(mut list) => {
                    list.remove_range(..window.start);
                    list.remove_range(window.end..);
                    *set |= list;
                }
            }
            ControlFlow::Continue(())
        })
    }

    /// Keeps in `set` only the series of a symbol.
    ///
    /// # Errors
    /// The errors of [`PostingsCursor::visit`].
    pub(super) fn intersect(&mut self, symbol: Symbol, set: &mut RoaringBitmap) -> Result<()> {
        let Some((min, max)) = set.min().zip(set.max()) else {
            return Ok(());
        };
        let mut kept = RoaringBitmap::new();
        self.visit(symbol, |part| {
            match part {
                // Most of the runs of a host or a job belong to other metrics than the series left
                // in `set`.
                Part::Run(run) if max < run.start => return ControlFlow::Break(()),
                Part::Run(run) if run.end <= min => {}
                // Cannot overflow: ordinals are below the number of series.
                Part::Run(run) => {
                    insert_common(set, run.start.max(min)..run.end.min(max + 1), &mut kept)
                }
                Part::Set(list) => kept = &*set & list,
            }
            ControlFlow::Continue(())
        })?;
        *set = kept;
        Ok(())
    }

    /// Returns `true` if a series of a symbol is in `set`.
    ///
    /// # Errors
    /// The errors of [`PostingsCursor::visit`].
    pub(super) fn intersects(&mut self, symbol: Symbol, set: &RoaringBitmap) -> Result<bool> {
        let mut found = false;
        self.visit(symbol, |part| {
            found = match part {
                Part::Run(run) if run.end - run.start == 1 => set.contains(run.start),
                Part::Run(run) => set.range(run).next().is_some(),
                Part::Set(list) => !list.is_disjoint(set),
            };
            if found {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_lists_are_rejected_or_ascend(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut last_end = None;
            let mut ascend = true;
            let mut visit = |part| {
                match part {
                    Part::Run(run) => {
                        ascend &= last_end.is_none_or(|last| last < run.start) && run.start < run.end && run.end <= 1000;
                        last_end = Some(run.end);
                    }
                    Part::Set(set) => ascend &= set.max().is_none_or(|max| max < 1000),
                }
                ControlFlow::Continue(())
            };
            take_list(&mut &bytes[..]).and_then(|list| visit_list(list, 1000, &mut visit));
            prop_assert!(ascend);
        }

        #[test]
        fn the_intersection_of_a_run_and_a_set_is_kept(
            set in proptest::collection::btree_set(0_u32..300, 0..200), dense: bool, start in 0_u32..300, n in 1_u32..300,
        ) {
            let set: RoaringBitmap = if dense { (0..150).collect() } else { set.into_iter().collect() };
            let mut kept = RoaringBitmap::new();
            insert_common(&set, start..start + n, &mut kept);
            prop_assert_eq!(kept, set.iter().filter(|ordinal| (start..start + n).contains(ordinal)).collect());
        }

        #[test]
        fn damaged_bitmaps_are_rejected_or_valid(
            ordinals in proptest::collection::btree_set(0_u32..200_000, 0..100), at: usize, byte: u8,
        ) {
            let mut bytes = serialized(&ordinals.into_iter().collect());
            prop_assert!(decode_bitmap(&bytes, 200_000).is_some());
            prop_assert!(decode_bitmap(&[&bytes[..], &[byte]].concat(), 200_000).is_none(), "excess bytes");
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some(bitmap) = decode_bitmap(&bytes, 200_000) {
                prop_assert!(bitmap.iter().is_sorted());
            }
        }
    }
}
