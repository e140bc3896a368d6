//! Sorting postings in bounded memory.
//!
//! Series arrive in order, and often share a symbol with the previous series. So the sorter handles
//! runs of series with the same symbol. Runs are collected in memory. When the memory is full, they
//! are sorted by symbol and spilled to a file. At the end the files are merged. The runs of a
//! symbol ascend from file to file.
//!
//! ```text
//! page of a spill file   runs: symbol less the symbol of the run before (or less 0), varint;
//!                              first series, less the end of the run before if the symbol is the same, varint;
//!                              number of series, varint
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_codec::varint::{put_u64, take_int};
use varve_env::Fs;

use crate::block::page::{ListWriter, PageCache, PageRef, PageWriter, Pages};
use crate::block::symbol::Symbol;
use crate::block::temporary_file::TemporaryFile;
use crate::error::{Error, Result};

/// Series with a symbol, from `first` up to, but not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PostingsRun {
    pub(super) symbol: Symbol,
    pub(super) first: u32,
    pub(super) end: u32,
}

impl PostingsRun {
    /// Returns the series.
    pub(super) fn ordinals(self) -> Range<u32> {
        self.first..self.end
    }
}

/// Builds runs from the symbols of series in order.
#[derive(Debug, Default)]
pub(super) struct OpenRuns {
    /// The symbols of the last series, ascending, and the first series of the run of each.
    row: Vec<(Symbol, u32)>,
    next_row: Vec<(Symbol, u32)>,
}

impl OpenRuns {
    /// Advances to a series with these symbols. Adds the runs that end before it to `sorter`.
    ///
    /// # Errors
    /// The errors of [`RunSorter::push`].
    pub(super) fn advance(
        &mut self,
        ordinal: u32,
        symbols: &[Symbol],
        sorter: &mut RunSorter,
    ) -> Result<()> {
        let mut before = self.row.iter().copied().peekable();
        self.next_row.clear();
        for &symbol in symbols {
            while let Some((symbol, first)) = before.next_if(|&(other, _)| other < symbol) {
                sorter.push(PostingsRun {
                    symbol,
                    first,
                    end: ordinal,
                })?;
            }
            let first = before
                .next_if(|&(other, _)| other == symbol)
                .map_or(ordinal, |(_, first)| first);
            self.next_row.push((symbol, first));
        }
        for (symbol, first) in before {
            sorter.push(PostingsRun {
                symbol,
                first,
                end: ordinal,
            })?;
        }
        std::mem::swap(&mut self.row, &mut self.next_row);
        Ok(())
    }
}

/// Sorts runs by symbol, then series.
pub(super) struct RunSorter {
    fs: Arc<dyn Fs>,
    /// Prefix of the names of spill files.
    prefix: PathBuf,
    page_size: usize,
    runs_max: usize,
    runs: Vec<PostingsRun>,
    /// In order of writing.
    spills: Vec<Spill>,
    n_files: u32,
}

/// Maximum number of spill files, each with a page in memory when they are merged. Before another
/// file is written, they are merged into one.
pub(super) const SPILLS_MAX: usize = 64;

impl RunSorter {
    /// Creates an empty sorter. Runs in memory take at most `memory_max` bytes.
    pub(super) fn new(fs: Arc<dyn Fs>, prefix: &Path, page_size: usize, memory_max: usize) -> Self {
        let runs_max = (memory_max / size_of::<PostingsRun>()).max(1);
        let runs = Vec::new();
        let spills = Vec::new();
        Self {
            fs,
            prefix: prefix.to_owned(),
            page_size,
            runs_max,
            runs,
            spills,
            n_files: 0,
        }
    }

    /// Adds a run after the previous runs of its symbol.
    ///
    /// # Errors
    /// [`Error::Io`] of a spill file.
    fn push(&mut self, run: PostingsRun) -> Result<()> {
        if self.runs.len() == self.runs_max {
            self.spill()?;
        }
        if self.runs.len() == self.runs.capacity() {
            // Doubles the capacity, but never beyond the limit.
            let room = self.runs_max - self.runs.len();
            self.runs
                .reserve_exact(self.runs.len().max(RUNS_MIN).min(room));
        }
        self.runs.push(run);
        Ok(())
    }

    /// Returns all runs in order.
    ///
    /// # Errors
    /// The errors of [`Merge::next`].
    pub(super) fn finish(mut self) -> Result<Merge> {
        sort(&mut self.runs);
        Merge::new(self.spills, self.runs)
    }

    fn spill(&mut self) -> Result<()> {
        if self.spills.len() == SPILLS_MAX {
            let mut merge = Merge::new(std::mem::take(&mut self.spills), Vec::new())?;
            self.write(&mut || merge.next())?;
        }
        let mut runs = std::mem::take(&mut self.runs);
        sort(&mut runs);
        let mut sorted = runs.iter().copied();
        self.write(&mut || Ok(sorted.next()))?;
        runs.clear();
        self.runs = runs;
        Ok(())
    }

    /// Writes sorted runs to a new spill file.
    fn write(&mut self, next: &mut dyn FnMut() -> Result<Option<PostingsRun>>) -> Result<()> {
        let mut path = OsString::from(&self.prefix);
        path.push(format!(".{}.tmp", self.n_files));
        self.n_files += 1;
        let (file, append) = TemporaryFile::create(Arc::clone(&self.fs), path.into())?;
        let mut writer = PageWriter::new(file.location().1, append)?;
        let mut list = ListWriter::new(self.page_size);
        let mut last = BEFORE_FIRST;
        while let Some(run) = next()? {
            list.push(&mut writer, |dst| {
                let last = if dst.is_empty() { BEFORE_FIRST } else { last };
                put_run(dst, last, run);
            })?;
            last = run;
        }
        let pages = list.finish(&mut writer)?;
        writer.flush()?;
        self.spills.push(Spill { file, pages });
        Ok(())
    }
}

/// Sorts runs by symbol, then series. Runs of a symbol do not overlap.
fn sort(runs: &mut [PostingsRun]) {
    // One comparison of 64 bits instead of up to three.
    runs.sort_unstable_by_key(|run| u64::from(run.symbol.0) << 32 | u64::from(run.first));
}

/// Initial capacity in runs.
const RUNS_MIN: usize = 1024;

/// A file of sorted runs.
struct Spill {
    file: TemporaryFile,
    pages: Vec<PageRef>,
}

/// Precedes the first run of a page.
const BEFORE_FIRST: PostingsRun = PostingsRun {
    symbol: Symbol(0),
    first: 0,
    end: 0,
};

fn put_run(dst: &mut Vec<u8>, last: PostingsRun, run: PostingsRun) {
    put_u64(dst, (run.symbol.0 - last.symbol.0).into());
    let base = if run.symbol == last.symbol {
        last.end
    } else {
        0
    };
    put_u64(dst, (run.first - base).into());
    put_u64(dst, (run.end - run.first).into());
}

fn take_run(src: &mut &[u8], last: PostingsRun) -> Option<PostingsRun> {
    let symbol = Symbol(last.symbol.0.checked_add(take_int(src)?)?);
    let base = if symbol == last.symbol { last.end } else { 0 };
    let first = base.checked_add(take_int(src)?)?;
    Some(PostingsRun {
        symbol,
        first,
        end: first.checked_add(take_int(src)?)?,
    })
}

/// Sorted runs from spill files and memory.
pub(super) struct Merge {
    sources: Vec<Source>,
    /// The next run of each source. The runs of a symbol do not overlap, so their order does not
    /// depend on the source.
    heads: BinaryHeap<Reverse<(PostingsRun, usize)>>,
}

impl Merge {
    fn new(spills: Vec<Spill>, sorted: Vec<PostingsRun>) -> Result<Self> {
        let mut sources = spills
            .into_iter()
            .map(SpillReader::open)
            .collect::<Result<Vec<_>>>()?;
        sources.push(Source::Memory(sorted.into_iter()));
        let mut merge = Self {
            sources,
            heads: BinaryHeap::new(),
        };
        for source_idx in 0..merge.sources.len() {
            merge.refill(source_idx)?;
        }
        Ok(merge)
    }

    /// Returns the next run.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`] of a spill file.
    pub(super) fn next(&mut self) -> Result<Option<PostingsRun>> {
        let Some(Reverse((run, source_idx))) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(source_idx)?;
        Ok(Some(run))
    }

    fn refill(&mut self, source_idx: usize) -> Result<()> {
        let next = match &mut self.sources[source_idx] {
            Source::Memory(runs) => runs.next(),
            Source::Spill(reader) => reader.next()?,
        };
        self.heads
            .extend(next.map(|run| Reverse((run, source_idx))));
        Ok(())
    }
}

enum Source {
    Memory(std::vec::IntoIter<PostingsRun>),
    Spill(SpillReader),
}

struct SpillReader {
    pages: Pages,
    rest: std::vec::IntoIter<PageRef>,
    page: PageRef,
    payload: Arc<[u8]>,
    offset: usize,
    last: PostingsRun,
    /// Dropped after the reader, which has the file open.
    _file: TemporaryFile,
}

impl SpillReader {
    fn open(Spill { file, pages: refs }: Spill) -> Result<Source> {
        let (fs, path) = file.location();
        let pages = Pages::new(
            path,
            fs.open(path).map_err(Error::io("open", path))?,
            Arc::new(PageCache::new(0)),
        );
        let rest = refs.into_iter();
        let page = PageRef { offset: 0, size: 0 };
        let payload = Arc::from([]);
        Ok(Source::Spill(Self {
            pages,
            rest,
            page,
            payload,
            offset: 0,
            last: BEFORE_FIRST,
            _file: file,
        }))
    }

    fn next(&mut self) -> Result<Option<PostingsRun>> {
        if self.offset == self.payload.len() {
            let Some(page) = self.rest.next() else {
                return Ok(None);
            };
            self.payload = self.pages.read_page(page)?;
            self.page = page;
            self.offset = 0;
            self.last = BEFORE_FIRST;
        }
        let mut src = &self.payload[self.offset..];
        let Some(run) = take_run(&mut src, self.last) else {
            let reason = "a spilled run does not decode";
            return Err(self.pages.corrupt(self.page.offset, reason));
        };
        self.last = run;
        self.offset = self.payload.len() - src.len();
        Ok(Some(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_env::RealFs;

    fn sorted(rows: &[Vec<Symbol>], dir: &Path, memory_max: usize) -> Vec<PostingsRun> {
        let mut sorter = RunSorter::new(Arc::new(RealFs), &dir.join("x"), 30, memory_max);
        let mut open = OpenRuns::default();
        for (ordinal, row) in (0..).zip(rows) {
            open.advance(ordinal, row, &mut sorter).unwrap();
        }
        open.advance(rows.len() as u32, &[], &mut sorter).unwrap();
        let mut merge = sorter.finish().unwrap();
        std::iter::from_fn(|| merge.next().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn spilled_runs_equal_those_in_memory(
            rows in proptest::collection::vec(proptest::collection::btree_set(0_u32..6, 0..5), 0..60),
        ) {
            let rows: Vec<Vec<_>> = rows.into_iter().map(|row| row.into_iter().map(Symbol).collect()).collect();
            let dir = tempfile::tempdir().unwrap();
            let in_memory = sorted(&rows, dir.path(), 1 << 20);
            prop_assert!(in_memory.is_sorted());
            prop_assert_eq!(&sorted(&rows, dir.path(), 40), &in_memory);
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            let mut found = vec![Vec::new(); rows.len()];
            for run in in_memory {
                run.ordinals().for_each(|ordinal| found[ordinal as usize].push(run.symbol));
            }
            prop_assert_eq!(found, rows);
        }
    }

    #[test]
    fn too_many_spill_files_are_merged_in_between() {
        let dir = tempfile::tempdir().unwrap();
        let rows: Vec<_> = (0..3 * SPILLS_MAX as u32)
            .map(|i| vec![Symbol(i % 7), Symbol(10 + i % 3)])
            .collect();
        assert_eq!(
            sorted(&rows, dir.path(), 1),
            sorted(&rows, dir.path(), 1 << 20)
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_dropped_sorter_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = RunSorter::new(Arc::new(RealFs), &dir.path().join("x"), 30, 1);
        for first in 0..5 {
            sorter
                .push(PostingsRun {
                    symbol: Symbol(1),
                    first: 2 * first,
                    end: 2 * first + 1,
                })
                .unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
        drop(sorter);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
