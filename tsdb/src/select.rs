//! Reading: the series that matchers select, in label order, and their samples.
//!
//! A selection first copies what it needs of the heads, a few hundred series under a lock, so that nothing that is
//! written or flushed later concerns it; then it merges the label-ordered streams of heads and blocks while the caller
//! reads. Samples of blocks are decoded when the caller asks for them. Whole label sets are needed to merge streams; where
//! there are only heads, no more labels are made than the caller asks for.
//!
//! Invariants
//! 1. A selection sees every request that had ended when it began, whole, and nothing of any other.
//! 2. A series comes once, however many heads and blocks have samples of it.
//! 3. Where several have a sample at one time, the one that was accepted first stands.

mod heads;
mod hints;
mod narrow;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;

use roaring::RoaringBitmap;

use crate::block::{Recent, SeriesCursor};
use crate::blocks::StoredBlock;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::head::Visible;
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::memory::Charge;
use crate::requests::Reader;
use crate::sample::{SampleColumns, TimeRange};
use crate::store::Store;
use heads::{HeadReads, HeadStream};
pub use hints::{LabelHint, SelectHints};
use narrow::Narrow;

/// Series that are copied, or whose labels are looked up, under one lock.
const BATCH_SERIES: usize = 256;
/// Series of the first batch that is made ready; each is twice the one before, up to [`BATCH_SERIES`].
const FIRST_BATCH_SERIES: usize = 16;
/// Bytes that a batch may take before they are charged.
const CHARGED_AT_ONCE: usize = 64 << 10;

/// The series of a selection, in label order. What it holds is charged to the request's memory budget. After an error
/// it is at its end.
pub struct SeriesSet {
    reads: Arc<Reads>,
    streams: Vec<Stream>,
    /// The series of a batch that are still to be handed out, and what the batch holds.
    ready: vec::IntoIter<Found>,
    batch: Arc<Batch>,
    n_batch: usize,
    /// What comes behind them.
    failure: Option<Error>,
    /// The next series of each stream that is not at its end.
    next: BinaryHeap<Reverse<(Labels, usize, Place)>>,
    /// The labels that the streams give: all, where there are several, or a block.
    labels: LabelHint,
    /// Leaves those of them that are asked for.
    narrow: Option<Narrow>,
    /// Series still to come from all streams, at most.
    left: u64,
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

/// What all series of a selection need to read their samples.
#[derive(Debug)]
struct Reads {
    ctx: QueryContext,
    range: TimeRange,
    /// By the number of the stream.
    streams: Vec<StreamReads>,
}

/// Where the samples of a stream's series are.
#[derive(Debug)]
enum StreamReads {
    Heads(Vec<HeadReads>),
    Block(Arc<BlockReads>),
}

/// What series that were made ready at once hold in common: charging and counting each by itself takes longer than making it.
#[derive(Debug)]
struct Batch {
    reads: Arc<Reads>,
    _charge: Charge,
}

/// A series, and where its samples are: the number of the stream, and the place there.
#[derive(Debug)]
struct Found {
    labels: Labels,
    /// Where samples were accepted first.
    first: (usize, Place),
    /// In order of acceptance.
    others: Vec<(usize, Place)>,
}

impl Found {
    fn size(&self) -> usize {
        self.labels.size() + size_of::<Self>() + self.others.capacity() * size_of::<(usize, Place)>()
    }
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
        let (mut streams, mut sources) = (Vec::new(), Vec::new());
        for stored in blocks.iter().filter(|stored| stored.meta().range.overlaps(range)) {
            ctx.check()?;
            let ordinals = stored.block.select(ctx, matchers)?;
            if !ordinals.is_empty() {
                charge.grow(ordinals.serialized_size())?;
                let stream = BlockStream::new(ctx, stored, ordinals, range);
                sources.push(StreamReads::Block(Arc::clone(&stream.reads)));
                streams.push(Stream::Block(Box::new(stream)));
            }
        }
        if let Some((heads, reads)) = heads {
            sources.push(StreamReads::Heads(reads));
            streams.push(Stream::Heads(Box::new(heads)));
        }
        let left = streams.iter().map(Stream::len).sum();
        let n_streams = streams.len();
        let (labels, narrow) = labels_and_narrow(hints, &streams)?;
        let reads = Arc::new(Reads { ctx: ctx.clone(), range, streams: sources });
        let mut set = Self {
            batch: Arc::new(Batch { reads: Arc::clone(&reads), _charge: ctx.charge() }),
            reads,
            streams,
            ready: Vec::new().into_iter(),
            n_batch: FIRST_BATCH_SERIES,
            failure: None,
            next: BinaryHeap::with_capacity(n_streams),
            labels,
            narrow,
            left,
            _reader: reader,
            _charge: charge,
        };
        (0..n_streams).try_for_each(|idx| set.advance(idx))?;
        Ok(set)
    }

    /// Returns an upper bound on the number of series that are still to come.
    #[must_use]
    pub fn len_max(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX).saturating_add(self.ready.len())
    }

    /// Tells whether the series come with all their labels.
    #[must_use]
    pub fn has_all_labels(&self) -> bool {
        matches!(self.labels, LabelHint::All) && self.narrow.is_none()
    }

    fn advance(&mut self, idx: usize) -> Result<()> {
        let Reads { ctx, range, .. } = &*self.reads;
        if let Some((labels, place)) = self.streams[idx].next(ctx, *range, &self.labels)? {
            self.next.push(Reverse((labels, idx, place)));
        }
        Ok(())
    }

    /// Makes the next series ready; none at the end. Those before an error are handed out before it.
    fn fill(&mut self) -> Result<()> {
        let reads = Arc::clone(&self.reads);
        let mut charge = reads.ctx.charge();
        let (mut found, mut uncharged) = (Vec::with_capacity(self.n_batch), 0);
        while found.len() < self.n_batch && self.failure.is_none() {
            match self.take_next() {
                Ok(Some(next)) => {
                    uncharged += next.size();
                    found.push(next);
                    if uncharged > CHARGED_AT_ONCE {
                        charge.grow(std::mem::take(&mut uncharged))?;
                    }
                }
                Ok(None) => break,
                Err(error) => self.failure = Some(error),
            }
        }
        charge.grow(uncharged)?;
        self.ready = found.into_iter();
        self.batch = Arc::new(Batch { reads, _charge: charge });
        self.n_batch = (2 * self.n_batch).min(BATCH_SERIES);
        Ok(())
    }

    /// Takes the next series off all streams that have it.
    fn take_next(&mut self) -> Result<Option<Found>> {
        // The streams look at the context.
        let Some(Reverse((labels, idx, place))) = self.next.pop() else { return Ok(None) };
        let mut others = Vec::new();
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
            others.push((idx, place));
            self.left = self.left.saturating_sub(1);
            self.advance(idx)?;
        }
        self.reads.ctx.count_series(1)?;
        let labels = match &mut self.narrow {
            Some(narrow) => narrow.labels(&labels),
            None => labels,
        };
        Ok(Some(Found { labels, first: (idx, place), others }))
    }
}

/// Returns the labels that streams are to give, and what leaves those of them that are asked for.
fn labels_and_narrow(hints: SelectHints, streams: &[Stream]) -> Result<(LabelHint, Option<Narrow>)> {
    let SelectHints { labels, whole_where, .. } = hints;
    // Fast path: nobody asks for less.
    if matches!(labels, LabelHint::All) {
        return Ok((labels, None));
    }
    for stream in streams {
        if stream.has_label(whole_where)? {
            return Ok((LabelHint::All, None));
        }
    }
    Ok(match streams {
        [Stream::Heads(_)] => (labels, None),
        _ => (LabelHint::All, Some(Narrow::new(labels))),
    })
}

impl Iterator for SeriesSet {
    type Item = Result<Series>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.len() == 0
            && !self.next.is_empty()
            && self.failure.is_none()
            && let Err(error) = self.fill()
        {
            self.failure = Some(error);
        }
        if let Some(found) = self.ready.next() {
            return Some(Ok(Series { found, batch: Arc::clone(&self.batch) }));
        }
        let error = self.failure.take()?;
        self.left = 0;
        self.next.clear();
        Some(Err(error))
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
    fn has_label(&self, names: &[&str]) -> Result<bool> {
        match self {
            Self::Heads(heads) => Ok(heads.has_label(names)),
            Self::Block(block) => {
                let block = &block.reads.stored.block;
                names.iter().try_fold(false, |found, name| Ok(found || block.has_label(name)?))
            }
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
    found: Found,
    batch: Arc<Batch>,
}

impl Series {
    /// Returns the series' labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.found.labels
    }

    /// Appends the samples inside the range asked for to `out`, in order of time, staleness markers included. The
    /// caller owns and accounts for `out`.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted) when the request ends; what reading a block says.
    pub fn read(&self, out: &mut SampleColumns) -> Result<()> {
        let n_before = out.len();
        self.read_all(out)?;
        self.batch.reads.ctx.count_samples(out.len() - n_before);
        Ok(())
    }

    fn read_all(&self, out: &mut SampleColumns) -> Result<()> {
        let Found { first, others, .. } = &self.found;
        let reads = &*self.batch.reads;
        // Fast path: one source.
        if others.is_empty() {
            reads.ctx.check()?;
            return reads.read(*first, out);
        }
        let (mut merged, mut next) = (SampleColumns::default(), SampleColumns::default());
        for source in [first].into_iter().chain(others) {
            reads.ctx.check()?;
            next.clear();
            reads.read(*source, &mut next)?;
            merged.merge(&next);
        }
        out.append(&mut merged);
        Ok(())
    }
}

impl Reads {
    fn read(&self, (stream, place): (usize, Place), out: &mut SampleColumns) -> Result<()> {
        match &self.streams[stream] {
            StreamReads::Heads(heads) => {
                heads[place.part as usize].read(place.at, self.range, out).map_err(|_damaged| Error::Corrupt {
                    path: "head".into(),
                    offset: 0,
                    reason: "a chunk in memory does not decode".to_owned(),
                })
            }
            StreamReads::Block(block) => block.read(place.at, self.range, out),
        }
    }
}
