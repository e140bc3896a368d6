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

mod blocks;
mod heads;
mod hints;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::head::{HeadCopies, Visible};
use crate::labels::{Labels, compare_packed};
use crate::matcher::Matcher;
use crate::memory::Charge;
use crate::requests::Reader;
use crate::sample::{SampleColumns, TimeRange};
use crate::store::Store;
use blocks::{BlockReads, BlockStream};
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
    /// The streams that are at the series that comes next, ascending.
    next: Vec<usize>,
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

/// Where the heads have a series.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Which head.
    part: u32,
    /// The slot.
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

/// The selected series of all heads, with the one that it is at, or of one block.
enum Stream {
    Heads(Box<HeadStream>, Option<(Labels, Place)>),
    Block(Box<BlockStream>),
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
        streams.extend(heads.map(|heads| Stream::Heads(Box::new(heads), None)));
        let left = streams.iter().map(Stream::len).sum();
        let labels = labels_needed(&streams, hints)?;
        for stream in &mut streams {
            stream.ask_for(&labels)?;
            stream.advance(ctx, range, &labels)?;
        }
        let (ctx, next) = (ctx.clone(), Vec::with_capacity(streams.len()));
        Ok(Self { ctx, range, streams, next, labels, left, failed: false, _reader: reader, _charge: charge })
    }

    /// Returns an upper bound on the number of series that are still to come.
    #[must_use]
    pub fn len_max(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// Takes the next series off all streams that have it.
    fn take_next(&mut self) -> Result<Option<Series>> {
        find_next(&self.streams, &mut self.next);
        let Some(&first) = self.next.first() else { return Ok(None) };
        let labels = self.streams[first].labels();
        let mut sources = self.next.iter().filter_map(|&idx| self.streams[idx].source());
        let Some(first) = sources.next() else { return Ok(None) };
        let others: Vec<_> = sources.collect();
        self.left = self.left.saturating_sub(self.next.len() as u64);
        for &idx in &self.next {
            // The streams look at the context.
            self.streams[idx].advance(&self.ctx, self.range, &self.labels)?;
        }
        let mut charge = self.ctx.charge();
        charge.grow(labels.size() + size_of::<Series>() + size_of::<Source>() * others.len())?;
        self.ctx.count_series(1)?;
        Ok(Some(Series { labels, first, others, range: self.range, ctx: self.ctx.clone(), _charge: charge }))
    }
}

/// Finds the streams that are at the first of all series, in order of acceptance.
fn find_next(streams: &[Stream], next: &mut Vec<usize>) {
    next.clear();
    let mut least: Option<&str> = None;
    for (idx, stream) in streams.iter().enumerate() {
        let Some(packed) = stream.packed() else { continue };
        match least.map_or(Ordering::Less, |least| compare_packed(packed, least)) {
            Ordering::Greater => continue,
            Ordering::Equal => {}
            Ordering::Less => {
                next.clear();
                least = Some(packed);
            }
        }
        next.push(idx);
    }
}

/// Returns the labels that streams have to give: what is asked for of one stream, all if they are to be merged.
fn labels_needed(streams: &[Stream], hints: SelectHints) -> Result<LabelHint> {
    match (streams, hints.labels) {
        ([_], LabelHint::All) => Ok(LabelHint::All),
        ([alone], asked) if !alone.has_label(hints.whole_where)? => Ok(asked),
        _ => Ok(LabelHint::All),
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
            Self::Heads(heads, at) => heads.len() + u64::from(at.is_some()),
            Self::Block(block) => block.len(),
        }
    }

    fn ask_for(&mut self, labels: &LabelHint) -> Result<()> {
        match self {
            Self::Heads(..) => Ok(()),
            Self::Block(block) => block.ask_for(labels),
        }
    }

    /// Goes to the next series.
    fn advance(&mut self, ctx: &QueryContext, range: TimeRange, labels: &LabelHint) -> Result<()> {
        match self {
            Self::Heads(heads, at) => *at = heads.next(ctx, labels)?,
            Self::Block(block) => block.advance(ctx, range)?,
        }
        Ok(())
    }

    /// Returns the packed labels of the series that the stream is at; `None` behind the last.
    fn packed(&self) -> Option<&str> {
        match self {
            Self::Heads(_, at) => at.as_ref().map(|(labels, _)| labels.as_packed()),
            Self::Block(block) => block.packed(),
        }
    }

    /// Returns the labels of the series that the stream is at, the empty set behind the last.
    fn labels(&mut self) -> Labels {
        match self {
            Self::Heads(_, at) => at.as_ref().map(|(labels, _)| labels.clone()).unwrap_or_default(),
            Self::Block(block) => block.labels(),
        }
    }

    /// Returns where the samples of the series are that the stream is at; `None` behind the last.
    fn source(&self) -> Option<Source> {
        match self {
            Self::Heads(heads, at) => at.as_ref().map(|(_, place)| heads.source(*place)),
            Self::Block(block) => block.source().map(|(reads, ordinal)| Source::Block(reads, ordinal)),
        }
    }

    /// Tells whether any series, selected or not, may have a label of one of these names.
    fn has_label(&self, names: &[&str]) -> Result<bool> {
        match self {
            Self::Heads(heads, _) => Ok(heads.has_label(names)),
            Self::Block(block) => block.has_label(names),
        }
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
