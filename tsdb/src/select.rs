//! Reading: the series that matchers select, in label order, and their samples.
//!
//! A selection first copies what it needs of the heads, a few hundred series under a lock, so that nothing that is
//! written or flushed later concerns it; then it merges the label-ordered streams of heads and blocks while the caller
//! reads. Samples of blocks are decoded when the caller asks for them. Whole label sets are needed to merge streams: where
//! there is one stream only, no more labels are made than the caller asks for.
//!
//! Invariants
//! 1. A selection sees every request that had ended when it began, whole, and nothing of any other.
//! 2. A series comes once, however many heads and blocks have samples of it.
//! 3. Where several have a sample at one time, the one that was accepted first stands.

mod heads;
mod hints;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roaring::RoaringBitmap;

use crate::block::{Recent, SeriesCursor};
use crate::blocks::StoredBlock;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::head::{HeadCopies, Visible};
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::memory::Charge;
use crate::requests::Reader;
use crate::sample::{SampleColumns, TimeRange};
use crate::store::Store;
use heads::HeadStream;
pub use hints::{LabelHint, SelectHints};

/// Series that are copied, or whose labels are looked up, under one lock.
const BATCH_SERIES: usize = 256;

/// The series of a selection, in label order. What it holds is charged to the request's memory budget. After an error
/// it is at its end.
pub struct SeriesSet {
    ctx: QueryContext,
    range: TimeRange,
    streams: Vec<Stream>,
    /// The next series of each stream that is not at its end.
    next: BinaryHeap<Reverse<(Labels, usize, Place)>>,
    /// The labels that the streams give: all, where there are several.
    labels: LabelHint,
    /// Series still to come from all streams, at most.
    left: u64,
    failed: bool,
    /// Keeps series in the heads that this selection may still look up.
    _reader: Reader,
    _charge: Charge,
}

/// What a selection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Labels and samples.
    Samples,
    /// Labels, and of the samples the newest.
    Newest,
    /// Only the labels of series that have samples in the range.
    Labels,
}

/// Where a stream has a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Which head.
    part: u32,
    /// The slot, or of a block the ordinal.
    at: u32,
}

/// What a selection asks of each head.
#[derive(Clone, Copy)]
struct Selection<'a> {
    ctx: &'a QueryContext,
    store: &'a Arc<Store>,
    matchers: &'a [Matcher],
    range: TimeRange,
    need: Need,
    visible: &'a Visible,
}

/// The selected series of all heads or of one block.
enum Stream {
    Heads(Box<HeadStream>),
    Block(Box<BlockStream>),
}

struct BlockStream {
    reads: Arc<BlockReads>,
    cursor: SeriesCursor,
    ordinals: roaring::bitmap::IntoIter,
    /// Whether every series of the block has samples in the range.
    all: bool,
}

/// A block, and what a selection read of it last: one for each thread that has read at the same time as others.
#[derive(Debug)]
struct BlockReads {
    stored: Arc<StoredBlock>,
    ctx: QueryContext,
    idle: Mutex<Vec<Recent>>,
}

impl BlockReads {
    /// Calls `read` with what was read last, by a thread that does not read now.
    fn with_recent<T>(&self, read: impl FnOnce(&mut Recent) -> T) -> T {
        let mut recent = self.idle().pop().unwrap_or_else(|| Recent::new(self.ctx.charge()));
        let result = read(&mut recent);
        self.idle().push(recent);
        result
    }

    // A panic while one was in use has taken it along; those that are idle are sound.
    fn idle(&self) -> MutexGuard<'_, Vec<Recent>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, ordinal: u32, range: TimeRange, out: &mut SampleColumns) -> Result<()> {
        self.with_recent(|recent| self.stored.read(recent, ordinal, range, out))
    }
}

impl SeriesSet {
    /// Selects series.
    ///
    /// # Errors
    /// When the request ends or its memory is used up, and what reading a block says.
    pub(crate) fn new(
        ctx: &QueryContext,
        store: &Arc<Store>,
        matchers: &[Matcher],
        range: TimeRange,
        need: Need,
        hints: SelectHints,
    ) -> Result<Self> {
        let mut charge = ctx.charge();
        let reader = store.reading.enter();
        // The order matters: see `requests` and `flush`.
        let copying = store.copying.enter();
        let blocks = store.blocks.list();
        let copy = store.requests.copy();
        let selection = Selection { ctx, store, matchers, range, need, visible: &copy.visible };
        let heads = HeadStream::new(&selection, &mut charge)?;
        drop((copy, copying));
        // Blocks come first: they are the older ones.
        let mut streams = Vec::new();
        for stored in blocks.iter().filter(|stored| stored.meta().range.overlaps(range)) {
            ctx.check()?;
            let ordinals = stored.block.select(ctx, matchers)?;
            if !ordinals.is_empty() {
                charge.grow(ordinals.serialized_size())?;
                streams.push(Stream::Block(Box::new(BlockStream::new(ctx, stored, ordinals, range))));
            }
        }
        streams.extend(heads.map(|heads| Stream::Heads(Box::new(heads))));
        let left = streams.iter().map(Stream::len).sum();
        let n_streams = streams.len();
        let is_whole = n_streams > 1 || streams.iter().any(|stream| stream.has_label(hints.whole_where));
        let mut set = Self {
            ctx: ctx.clone(),
            range,
            streams,
            next: BinaryHeap::with_capacity(n_streams),
            labels: if is_whole { LabelHint::All } else { hints.labels },
            left,
            failed: false,
            _reader: reader,
            _charge: charge,
        };
        (0..n_streams).try_for_each(|idx| set.advance(idx))?;
        Ok(set)
    }

    /// Returns an upper bound on the number of series that are still to come.
    #[must_use]
    pub fn len_max(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    fn advance(&mut self, idx: usize) -> Result<()> {
        if let Some((labels, place)) = self.streams[idx].next(&self.ctx, self.range, &self.labels)? {
            self.next.push(Reverse((labels, idx, place)));
        }
        Ok(())
    }

    /// Takes the next series off all streams that have it.
    fn take_next(&mut self) -> Result<Option<Series>> {
        // The streams look at the context.
        let Some(Reverse((labels, idx, place))) = self.next.pop() else { return Ok(None) };
        let mut charge = self.ctx.charge();
        let (first, mut others) = (self.streams[idx].source(place), Vec::new());
        self.left = self.left.saturating_sub(1);
        // Fast path: only one stream is left, which has each series once.
        let is_alone = self.next.is_empty();
        self.advance(idx)?;
        while !is_alone
            && let Some(Reverse((same, _, _))) = self.next.peek()
            && *same == labels
        {
            let Some(Reverse((_, idx, place))) = self.next.pop() else { break };
            // Streams are numbered in order of acceptance, and the heap gives equal labels in order of the streams.
            others.push(self.streams[idx].source(place));
            self.left = self.left.saturating_sub(1);
            self.advance(idx)?;
        }
        charge.grow(labels.size() + size_of::<Series>() + size_of::<Source>() * others.len())?;
        self.ctx.count_series(1)?;
        Ok(Some(Series { labels, first, others, range: self.range, ctx: self.ctx.clone(), _charge: charge }))
    }
}

impl Iterator for SeriesSet {
    type Item = Result<Series>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.take_next();
        self.failed = next.is_err();
        if self.failed {
            self.left = 0;
            self.next.clear();
        }
        next.transpose()
    }
}

impl fmt::Debug for SeriesSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeriesSet(up to {} series)", self.left)
    }
}

impl Stream {
    fn len(&self) -> u64 {
        match self {
            Self::Heads(heads) => heads.len(),
            Self::Block(block) => block.ordinals.len() as u64,
        }
    }

    fn next(&mut self, ctx: &QueryContext, range: TimeRange, labels: &LabelHint) -> Result<Option<(Labels, Place)>> {
        match self {
            Self::Heads(heads) => heads.next(ctx, labels),
            Self::Block(block) => block.next(ctx, range),
        }
    }

    /// Tells whether any series, selected or not, may have a label of one of these names.
    fn has_label(&self, names: &[&str]) -> bool {
        match self {
            Self::Heads(heads) => heads.has_label(names),
            Self::Block(_) => true,
        }
    }

    fn source(&self, place: Place) -> Source {
        match self {
            Self::Heads(heads) => heads.source(place),
            Self::Block(block) => Source::Block(Arc::clone(&block.reads), place.at),
        }
    }
}

impl BlockStream {
    fn new(ctx: &QueryContext, stored: &Arc<StoredBlock>, ordinals: RoaringBitmap, range: TimeRange) -> Self {
        let all = range.covers(stored.meta().range);
        let cursor = stored.block.series_cursor();
        let reads = BlockReads { stored: Arc::clone(stored), ctx: ctx.clone(), idle: Mutex::default() };
        let reads = Arc::new(reads);
        Self { reads, cursor, ordinals: ordinals.into_iter(), all }
    }

    fn next(&mut self, ctx: &QueryContext, range: TimeRange) -> Result<Option<(Labels, Place)>> {
        while let Some(ordinal) = self.ordinals.next() {
            ctx.check()?;
            if self.has_samples(ordinal, range)? {
                self.cursor.seek(ordinal)?;
                return Ok(Some((self.cursor.labels()?, Place { part: 0, at: ordinal })));
            }
        }
        Ok(None)
    }

    fn has_samples(&self, ordinal: u32, range: TimeRange) -> Result<bool> {
        let stored = &self.reads.stored;
        if stored.deleted(ordinal).next().is_some() {
            let mut samples = SampleColumns::default();
            self.reads.read(ordinal, range, &mut samples)?;
            return Ok(!samples.is_empty());
        }
        if self.all {
            return Ok(true);
        }
        self.reads.with_recent(|recent| stored.block.overlaps(recent, ordinal, range))
    }
}

/// One series of a selection, and where its samples are.
#[derive(Debug)]
pub struct Series {
    labels: Labels,
    /// Where samples were accepted first.
    first: Source,
    /// In order of acceptance.
    others: Vec<Source>,
    range: TimeRange,
    ctx: QueryContext,
    _charge: Charge,
}

/// Where samples of a series are.
#[derive(Debug)]
enum Source {
    Head(Arc<HeadCopies>, usize),
    Block(Arc<BlockReads>, u32),
}

impl Series {
    /// Returns the series' labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Appends the samples inside the range asked for to `out`, in order of time, staleness markers included. The
    /// caller owns and accounts for `out`.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted) when the request ends; what reading a block says.
    pub fn read(&self, out: &mut SampleColumns) -> Result<()> {
        let n_before = out.len();
        self.read_all(out)?;
        self.ctx.count_samples(out.len() - n_before);
        Ok(())
    }

    fn read_all(&self, out: &mut SampleColumns) -> Result<()> {
        // Fast path: one source.
        if self.others.is_empty() {
            self.ctx.check()?;
            return self.first.read(self.range, out);
        }
        let (mut merged, mut next) = (SampleColumns::default(), SampleColumns::default());
        for source in [&self.first].into_iter().chain(&self.others) {
            self.ctx.check()?;
            next.clear();
            source.read(self.range, &mut next)?;
            merged.merge(&next);
        }
        out.append(&mut merged);
        Ok(())
    }
}

impl Source {
    fn read(&self, range: TimeRange, out: &mut SampleColumns) -> Result<()> {
        match self {
            Self::Head(copies, place) => copies.read(*place, range, out).map_err(|_damaged| Error::Corrupt {
                path: "head".into(),
                offset: 0,
                reason: "a chunk in memory does not decode".to_owned(),
            }),
            Self::Block(reads, ordinal) => reads.read(*ordinal, range, out),
        }
    }
}
