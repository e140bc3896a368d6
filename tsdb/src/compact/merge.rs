//! Merges several blocks into one, series by series.
//!
//! A merge holds a page of each source, the samples of one series, and four bytes per label value
//! of the sources in memory. Its memory does not grow with the number of series. Sources stay in
//! use until the result is verified and in place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roaring::RoaringBitmap;
use varve_env::Fs;
use varve_model::SampleColumns;

use super::throttle::Throttle;
use crate::block::{
    BlockMeta, BlockOrigin, BlockScan, BlockWriter, DictionaryCursor, StoredBlock, Symbol,
};
use crate::error::{Error, Result};

/// The environment of a merge.
pub(crate) struct Merging<'a> {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: &'a std::path::Path,
    pub(crate) throttle: &'a Throttle,
    /// Ends the merge when set.
    pub(crate) stop: &'a AtomicBool,
}

/// The result of a merge.
#[derive(Debug)]
pub(crate) struct Merged {
    /// The block; `None` if deletions left no samples.
    pub(crate) meta: Option<BlockMeta>,
    /// Samples whose value differs from the value of an earlier source at the same timestamp.
    pub(crate) n_conflicts: u64,
}

/// Merges `sources`, given in order of acceptance, into the block that `origin` describes.
///
/// # Errors
/// [`Error::Io`] and [`Error::Corrupt`] name the file; [`Error::Interrupted`] after a stop. No file
/// remains then.
pub(crate) fn merge(
    sources: &[Arc<StoredBlock>],
    origin: BlockOrigin,
    merging: &Merging<'_>,
) -> Result<Merged> {
    let mut writer = BlockWriter::create(Arc::clone(&merging.fs), merging.dir, origin)?;
    let symbols = merge_symbols(sources, &mut writer)?;
    let mut inputs: Vec<Input<'_>> = sources
        .iter()
        .zip(&symbols)
        .map(|(s, map)| Input::new(s, map))
        .collect();
    let mut heap = BinaryHeap::new();
    for (idx, input) in inputs.iter_mut().enumerate() {
        heap.extend(input.next(Vec::new())?.map(|labels| Reverse((labels, idx))));
    }
    let mut samples = SampleColumns::default();
    let mut n_series = 0_u64;
    let mut n_conflicts = 0;
    // The memory of the labels that were written last.
    let mut spare = Vec::new();
    while let Some(Reverse((labels, idx))) = heap.pop() {
        if merging.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted(varve_context::Interrupt::Shutdown));
        }
        samples.clear();
        samples.append(&mut inputs[idx].samples);
        if let Some(labels) = inputs[idx].next(spare)? {
            heap.push(Reverse((labels, idx)));
        }
        while let Some(Reverse((same, _))) = heap.peek()
            && *same == labels
        {
            let Some(Reverse((same, idx))) = heap.pop() else {
                break;
            };
            n_conflicts += samples.merge(&inputs[idx].samples);
            if let Some(labels) = inputs[idx].next(same)? {
                heap.push(Reverse((labels, idx)));
            }
        }
        writer.series(&labels, &samples)?;
        spare = labels;
        n_series += 1;
        merging.throttle.spend(writer.size());
    }
    let meta = if n_series > 0 {
        Some(writer.finish()?)
    } else {
        None
    };
    Ok(Merged { meta, n_conflicts })
}

/// Writes the names and values of all sources, and returns the new symbols of each source.
fn merge_symbols(
    sources: &[Arc<StoredBlock>],
    writer: &mut BlockWriter,
) -> Result<Vec<Vec<Symbol>>> {
    let mut used = Vec::with_capacity(sources.len());
    for stored in sources {
        used.push(if stored.has_deleted() {
            Some(used_symbols(stored)?)
        } else {
            None
        });
    }
    let mut cursors: Vec<DictionaryCursor> = sources
        .iter()
        .map(|stored| stored.block.index.symbol_cursor())
        .collect();
    let mut symbols: Vec<Vec<Symbol>> = Vec::with_capacity(sources.len());
    for stored in sources {
        symbols.push(Vec::with_capacity(stored.block.index.n_symbols() as usize));
    }
    let mut heap = BinaryHeap::new();
    for (idx, cursor) in cursors.iter_mut().enumerate() {
        heap.extend(
            copied(cursor.next_pair()?, Default::default()).map(|pair| Reverse((pair, idx))),
        );
    }
    // The last pair, and its symbol once it was written.
    let mut last = (String::new(), String::new());
    let mut written = None;
    while let Some(Reverse((mut pair, idx))) = heap.pop() {
        let ordinal = symbols[idx].len() as u32;
        if last != pair {
            std::mem::swap(&mut last, &mut pair);
            written = None;
        }
        if used[idx].as_ref().is_none_or(|used| used.contains(ordinal)) && written.is_none() {
            written = Some(writer.symbol(&last.0, &last.1)?);
        }
        // A symbol used only by deleted series is never looked up.
        symbols[idx].push(written.unwrap_or(Symbol(u32::MAX)));
        if let Some(pair) = copied(cursors[idx].next_pair()?, pair) {
            heap.push(Reverse((pair, idx)));
        }
    }
    Ok(symbols)
}

/// Copies a name and value into the memory of `out`.
fn copied(pair: Option<(&str, &str)>, mut out: (String, String)) -> Option<(String, String)> {
    let (name, value) = pair?;
    name.clone_into(&mut out.0);
    value.clone_into(&mut out.1);
    Some(out)
}

/// Finds the symbols of the series with remaining samples.
fn used_symbols(stored: &StoredBlock) -> Result<RoaringBitmap> {
    let mut used = RoaringBitmap::new();
    let mut scan = stored.block.scan();
    let mut samples = SampleColumns::default();
    let mut ordinal = 0;
    loop {
        samples.clear();
        let Some(labels) = scan.next(&mut samples)? else {
            return Ok(used);
        };
        for range in stored.deleted(ordinal) {
            samples.remove(range);
        }
        if !samples.is_empty() {
            used.extend(labels.iter().map(|symbol| symbol.0));
        }
        ordinal += 1;
    }
}

/// A source of a running merge: its next series with samples.
struct Input<'a> {
    stored: &'a StoredBlock,
    symbols: &'a [Symbol],
    scan: BlockScan<'a>,
    next_ordinal: u32,
    samples: SampleColumns,
}

impl<'a> Input<'a> {
    fn new(stored: &'a StoredBlock, symbols: &'a [Symbol]) -> Self {
        let scan = stored.block.scan();
        Self {
            stored,
            symbols,
            scan,
            next_ordinal: 0,
            samples: SampleColumns::default(),
        }
    }

    /// Advances to the next series with remaining samples, and returns its labels as symbols of the
    /// result, in the memory of `out`.
    fn next(&mut self, mut out: Vec<Symbol>) -> Result<Option<Vec<Symbol>>> {
        loop {
            self.samples.clear();
            let Some(labels) = self.scan.next(&mut self.samples)? else {
                return Ok(None);
            };
            let ordinal = self.next_ordinal;
            self.next_ordinal += 1;
            for range in self.stored.deleted(ordinal) {
                self.samples.remove(range);
            }
            if !self.samples.is_empty() {
                out.clear();
                out.extend(labels.iter().map(|symbol| self.symbols[symbol.0 as usize]));
                return Ok(Some(out));
            }
        }
    }
}
