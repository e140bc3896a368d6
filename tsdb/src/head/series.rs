//! The series table.

use hashbrown::HashTable;
use roaring::RoaringBitmap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::chunk::{Chunk, OpenChunk};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::index::{Index, SymbolId, Symbols, Texts};
use crate::labels::{Labels, LabelsBuilder};
use crate::matcher::Matcher;
use crate::sample::{SampleColumns, TimeRange};

/// The number of a series on disk: unique over all shards and never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeriesRef(pub(crate) u64);

/// All series of a shard.
#[derive(Debug)]
pub(crate) struct Head {
    symbols: Symbols,
    index: Index,
    /// Slots by hash of the packed labels.
    by_labels: HashTable<u32>,
    seed: u64,
    /// Where each slot's symbols begin in `label_symbols`; the last entry is where the next one will.
    label_starts: Vec<u64>,
    /// Names and values in turn, sorted by name.
    label_symbols: Vec<SymbolId>,
    pub(super) refs: Vec<SeriesRef>,
    pub(super) generations: Vec<u32>,
    pub(super) open: Vec<OpenChunk>,
    pub(super) closed: Vec<Vec<Chunk>>,
    pub(super) chunks_size: usize,
    pub(super) range: Option<TimeRange>,
}

/// Whether a look-up made the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSeries {
    /// It was not there before.
    Yes,
    /// It was there.
    No,
}

/// What the table takes per slot beside symbols, postings and chunks.
const SLOT_SIZE: usize =
    size_of::<u64>() + size_of::<SeriesRef>() + size_of::<u32>() + size_of::<OpenChunk>() + size_of::<Vec<Chunk>>() + 5;

impl Head {
    /// Starts empty; `seed` goes into all hashes.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            symbols: Symbols::new(seed),
            index: Index::default(),
            by_labels: HashTable::new(),
            seed,
            label_starts: vec![0],
            label_symbols: Vec::new(),
            refs: Vec::new(),
            generations: Vec::new(),
            open: Vec::new(),
            closed: Vec::new(),
            chunks_size: 0,
            range: None,
        }
    }

    /// Counts the series.
    pub(crate) fn len(&self) -> usize {
        self.refs.len()
    }

    /// Returns about how many bytes series and samples take.
    pub(crate) fn size(&self) -> usize {
        self.symbols.size()
            + self.index.size()
            + self.label_symbols.capacity() * size_of::<SymbolId>()
            + self.refs.capacity() * SLOT_SIZE
            + self.chunks_size
    }

    /// Returns the slot of a series, if it is here.
    pub(crate) fn find(&self, labels: &Labels) -> Option<u32> {
        self.by_labels.find(self.hash(labels), |&slot| self.has_labels(slot, labels)).copied()
    }

    /// Returns the slot of a series and makes it under `new_ref` if it is not here.
    ///
    /// # Errors
    /// [`Error::Limit`] when the shard's slots or symbols are used up.
    pub(crate) fn find_or_create(&mut self, labels: &Labels, new_ref: SeriesRef) -> Result<(u32, NewSeries)> {
        if let Some(slot) = self.find(labels) {
            return Ok((slot, NewSeries::No));
        }
        let slot = u32::try_from(self.len()).ok().filter(|&slot| slot < u32::MAX).ok_or_else(full)?;
        for (name, value) in labels {
            let (name, value) =
                (self.symbols.intern(name).ok_or_else(full)?, self.symbols.intern(value).ok_or_else(full)?);
            self.label_symbols.extend([name, value]);
        }
        self.label_starts.push(self.label_symbols.len() as u64);
        self.refs.push(new_ref);
        self.generations.push(0);
        self.open.push(OpenChunk::default());
        self.closed.push(Vec::new());
        let pairs = self.label_symbols[self.label_range(slot)].chunks_exact(2).map(|pair| (pair[0], pair[1]));
        self.index.insert(slot, pairs);
        let hash = self.hash(labels);
        let rehash =
            |&slot: &u32| hash_of(&labels_of(&self.symbols, &self.label_starts, &self.label_symbols, slot), self.seed);
        self.by_labels.insert_unique(hash, slot, rehash);
        Ok((slot, NewSeries::Yes))
    }

    /// Returns the range from the oldest to the newest sample; `None` while there is none.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        self.range
    }

    /// Returns the labels of a series.
    pub(crate) fn labels(&self, slot: u32) -> Labels {
        labels_of(&self.symbols, &self.label_starts, &self.label_symbols, slot)
    }

    /// Returns how a slot was given, counted from 0.
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.generations[slot as usize]
    }

    /// Returns the slots of the series that pass all matchers.
    ///
    /// # Errors
    /// When the request ends.
    pub(crate) fn select(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<RoaringBitmap> {
        self.index.select(ctx, &self.symbols, matchers)
    }

    /// Adds the label names of matching series (or all) to `names`.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn label_names(&self, ctx: &QueryContext, matchers: &[Matcher], names: &mut Texts) -> Result<()> {
        let slots = self.select_some(ctx, matchers)?;
        self.index.label_names(ctx, &self.symbols, slots.as_ref(), names)
    }

    /// Adds the values of a label of matching series (or all) to `values`.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        matchers: &[Matcher],
        values: &mut Texts,
    ) -> Result<()> {
        let slots = self.select_some(ctx, matchers)?;
        self.index.label_values(ctx, &self.symbols, name, slots.as_ref(), values)
    }

    fn select_some(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<Option<RoaringBitmap>> {
        if matchers.is_empty() { Ok(None) } else { self.select(ctx, matchers).map(Some) }
    }

    /// Returns a series' samples, for reading.
    pub(crate) fn view(&self, slot: u32) -> SeriesView<'_> {
        SeriesView { open: &self.open[slot as usize], closed: &self.closed[slot as usize] }
    }

    fn has_labels(&self, slot: u32, labels: &Labels) -> bool {
        let symbols = &self.label_symbols[self.label_range(slot)];
        let here = symbols.chunks_exact(2).map(|pair| (self.symbols.text(pair[0]), self.symbols.text(pair[1])));
        here.eq(labels.iter())
    }

    fn label_range(&self, slot: u32) -> std::ops::Range<usize> {
        let slot = slot as usize;
        self.label_starts[slot] as usize..self.label_starts[slot + 1] as usize
    }

    fn hash(&self, labels: &Labels) -> u64 {
        hash_of(labels, self.seed)
    }
}

/// The samples of one series.
#[derive(Debug)]
pub(crate) struct SeriesView<'a> {
    open: &'a OpenChunk,
    closed: &'a [Chunk],
}

impl SeriesView<'_> {
    /// Tells whether a chunk reaches into `range`.
    pub(crate) fn overlaps(&self, range: TimeRange) -> bool {
        self.overlapping(range).next().is_some() || self.open.range().is_some_and(|open| open.overlaps(range))
    }

    /// Returns the chunks that reach into `range`, in order of time. The open one is copied.
    pub(crate) fn chunks(&self, range: TimeRange) -> Vec<Chunk> {
        let open = self.open.range().filter(|open| open.overlaps(range)).and_then(|_| self.open.snapshot());
        self.overlapping(range).cloned().chain(open).collect()
    }

    /// Returns the value of the sample at a time, if there is one. Decodes a chunk.
    pub(crate) fn value_at(&self, timestamp_ms: i64) -> Option<f64> {
        let at = TimeRange { start_ms: timestamp_ms, end_ms: timestamp_ms };
        let mut found = SampleColumns::default();
        self.chunks(at).iter().try_for_each(|chunk| chunk.decode(at, &mut found)).ok()?;
        found.values.first().copied()
    }

    fn overlapping(&self, range: TimeRange) -> impl Iterator<Item = &Chunk> {
        let first = self.closed.partition_point(|chunk| chunk.range().end_ms < range.start_ms);
        self.closed[first..].iter().take_while(move |chunk| chunk.range().start_ms <= range.end_ms)
    }
}

fn labels_of(symbols: &Symbols, starts: &[u64], label_symbols: &[SymbolId], slot: u32) -> Labels {
    let slot = slot as usize;
    let mine = &label_symbols[starts[slot] as usize..starts[slot + 1] as usize];
    let size = mine.iter().map(|&id| symbols.text(id).len() + 1).sum();
    let mut builder = LabelsBuilder::with_capacity(size);
    for pair in mine.chunks_exact(2) {
        builder.push(symbols.text(pair[0]), symbols.text(pair[1]));
    }
    builder.finish()
}

fn hash_of(labels: &Labels, seed: u64) -> u64 {
    xxh3_64_with_seed(labels.as_packed().as_bytes(), seed)
}

fn full() -> Error {
    Error::Limit { what: "series or label values of a shard", used: 1 << 32, limit: u64::from(u32::MAX) }
}
