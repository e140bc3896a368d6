//! Reading: the series that matchers select, in label order unless no labels are requested, and
//! their samples.
//!
//! A selection first copies samples from the heads, a few hundred series per acquisition of a lock,
//! so that later writes and flushes do not affect it. Then it merges the label-ordered streams of
//! heads and blocks while the caller reads. Samples of blocks are decoded on demand. Merging needs
//! complete label sets. If there is only one stream, only requested labels are built.
//!
//! Invariants
//! 1. A selection sees every request that had finished when the selection began, completely, and no
//!    part of any other request.
//! 2. A series is returned once, even if several heads and blocks have samples of it.
//! 3. Of several samples at one timestamp, the one accepted first wins.

mod blocks;
mod heads;
mod label_projection;
mod selection;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::vec;

use varve_collections::prefetch;
use varve_context::{Charge, QueryContext};
use varve_model::labels::compare_packed;
use varve_model::{Labels, Matcher, SampleColumns, TimeRange};

use crate::error::{Error, Result};
use crate::isolation::Reader;
use crate::store::Store;
use blocks::{BlockReads, BlockStream};
use heads::{HeadReads, HeadStream};
pub use label_projection::LabelHint;
use label_projection::LabelProjection;
pub(crate) use selection::Need;
use selection::{BATCH_SERIES, Place, Selection};

/// Number of series in the first batch. Each batch is twice the previous one, up to
/// [`BATCH_SERIES`].
const FIRST_BATCH_SERIES: usize = 16;
/// Number of series whose memory is prefetched together.
const PREFETCHED_SERIES: usize = 64;
/// Maximum bytes of a batch that are allocated before they are charged.
const CHARGED_AT_ONCE: usize = 64 << 10;

/// Data that a selection may omit to be faster. The default omits nothing. A selection may return
/// more than requested.
#[derive(Debug, Clone, Default)]
pub struct SelectHints {
    /// Only the newest sample of each series in the range is needed.
    pub only_newest: bool,
    /// The requested labels. Series are still sorted by all their labels, unless none are
    /// requested, and series that differ only in other labels are not merged.
    pub labels: LabelHint,
    /// All labels are requested if a head or block has labels of these names.
    pub whole_where: &'static [&'static str],
}

/// The series of a selection, in label order unless [`LabelHint::None`] is requested. Its memory is
/// charged to the request. After an error, it returns no more series.
pub struct SeriesSet {
    reads: Arc<Reads>,
    streams: Vec<Stream>,
    /// The remaining series of the current batch, and its charge.
    ready: vec::IntoIter<Found>,
    batch: Arc<Batch>,
    n_batch: usize,
    /// The error to return after the current batch.
    failure: Option<Error>,
    /// `true` if there are no series after the current batch.
    is_last: bool,
    /// The streams at the next series, ascending.
    next: Vec<usize>,
    /// The labels that the streams return: all labels if there are several streams.
    labels: LabelHint,
    /// Reduces label sets to the requested labels.
    projection: Option<LabelProjection>,
    /// Labels that are added to each series.
    added: Arc<[(String, String)]>,
    /// Upper bound for the remaining series of all streams.
    left: u64,
    /// Prevents the eviction of series that this selection may still look up.
    _reader: Arc<Reader>,
    _charge: Charge,
}

/// Shared state for reading the samples of all series of a selection.
#[derive(Debug)]
struct Reads {
    ctx: QueryContext,
    range: TimeRange,
    /// Access to samples, by index of the stream.
    streams: Vec<StreamReads>,
}

/// Access to the samples of a stream.
#[derive(Debug)]
enum StreamReads {
    Heads(Vec<HeadReads>),
    Block(Arc<BlockReads>),
}

/// The charge shared by the series of a batch: charging and counting each series would take longer
/// than creating it.
#[derive(Debug)]
struct Batch {
    reads: Arc<Reads>,
    _charge: Charge,
}

/// A series, and the positions of its samples: index of the stream, and position in the stream.
#[derive(Debug)]
struct Found {
    labels: Labels,
    /// Position of the samples that were accepted first.
    first: (usize, Place),
    /// Further positions, in order of acceptance.
    others: Vec<(usize, Place)>,
}

impl Found {
    fn size(&self) -> usize {
        self.labels.size()
            + size_of::<Self>()
            + self.others.capacity() * size_of::<(usize, Place)>()
    }
}

/// The selected series of all heads, with the current one, or of one block.
enum Stream {
    Heads(Box<HeadStream>, Option<(Labels, Place)>),
    Block(Box<BlockStream>),
}

impl SeriesSet {
    /// Selects series. `reader` is the registration of the request among [`Store::series_readers`].
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit, and errors of reading blocks.
    pub(crate) fn new(
        ctx: &QueryContext,
        store: &Arc<Store>,
        reader: &Arc<Reader>,
        matchers: &[Matcher],
        range: TimeRange,
        need: Need,
        hints: SelectHints,
    ) -> Result<Self> {
        let mut charge = ctx.charge();
        // The order of these steps matters: see `isolation` and `flush`.
        let copying = store.block_list_readers.enter(ctx)?;
        let blocks = store.blocks.list();
        let copy = store.isolation.begin_read(ctx)?;
        // A block is merged by labels, so the heads must be in label order too.
        let has_blocks = blocks
            .iter()
            .any(|stored| stored.meta().range.overlaps(range));
        let any_order = matches!(hints.labels, LabelHint::None) && !has_blocks;
        let selection = Selection {
            ctx,
            store,
            matchers,
            range,
            need,
            view: &copy.view,
            any_order,
        };
        let heads = HeadStream::new(&selection, &mut charge)?;
        drop(copy);
        drop(copying);

        // Blocks come first: their samples were accepted first.
        let mut streams = Vec::new();
        let mut sources = Vec::new();
        for stored in blocks.iter() {
            if !stored.meta().range.overlaps(range) {
                continue;
            }
            ctx.check()?;
            let ordinals = stored.block.index.select(ctx, matchers)?;
            if !ordinals.is_empty() {
                charge.grow(ordinals.serialized_size())?;
                let stream = BlockStream::new(ctx, stored, ordinals, range);
                sources.push(StreamReads::Block(stream.reads()));
                streams.push(Stream::Block(Box::new(stream)));
            }
        }
        if let Some((heads, reads)) = heads {
            sources.push(StreamReads::Heads(reads));
            streams.push(Stream::Heads(Box::new(heads), None));
        }

        let left = streams.iter().map(Stream::len).sum();
        let (labels, projection) = labels_and_projection(&streams, hints)?;
        for stream in &mut streams {
            stream.request_labels(&labels)?;
            stream.advance(ctx, range, &labels)?;
        }

        let next = Vec::with_capacity(streams.len());
        let reads = Arc::new(Reads {
            ctx: ctx.clone(),
            range,
            streams: sources,
        });
        Ok(Self {
            batch: Arc::new(Batch {
                reads: Arc::clone(&reads),
                _charge: ctx.charge(),
            }),
            reads,
            streams,
            ready: Vec::new().into_iter(),
            n_batch: FIRST_BATCH_SERIES,
            failure: None,
            is_last: false,
            next,
            labels,
            projection,
            added: Arc::default(),
            left,
            _reader: Arc::clone(reader),
            _charge: charge,
        })
    }

    /// Adds `labels` to each series, or replaces the labels of these names. The order of the series
    /// does not change.
    #[must_use]
    pub fn with_labels(self, labels: Arc<[(String, String)]>) -> Self {
        Self {
            added: labels,
            ..self
        }
    }

    /// Returns an upper bound for the number of remaining series.
    #[must_use]
    pub fn len_max(&self) -> usize {
        usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .saturating_add(self.ready.len())
    }

    /// Returns `true` if any series of the heads and blocks that are read, selected or not, may
    /// have a label of one of these names.
    ///
    /// # Errors
    /// Errors of reading blocks.
    pub fn may_have_label(&self, names: &[&str]) -> Result<bool> {
        for stream in &self.streams {
            if stream.has_label(names)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns `true` if the series have all their labels.
    #[must_use]
    pub fn has_all_labels(&self) -> bool {
        matches!(self.labels, LabelHint::All) && self.projection.is_none()
    }

    /// Prepares the next batch. A batch is small, so the context is checked once per batch. Streams
    /// check it while searching. Series found before an error are returned before the error.
    fn fill(&mut self) -> Result<()> {
        let reads = Arc::clone(&self.reads);
        reads.ctx.check()?;
        let mut charge = reads.ctx.charge();
        let mut found = Vec::with_capacity(self.n_batch);
        let mut uncharged = 0;
        while found.len() < self.n_batch && !self.is_last {
            match self.take_next() {
                Ok(Some(next)) => {
                    uncharged += next.size();
                    found.push(next);
                    if uncharged > CHARGED_AT_ONCE {
                        charge.grow(std::mem::take(&mut uncharged))?;
                    }
                }
                Ok(None) => self.is_last = true,
                Err(error) => {
                    self.failure = Some(error);
                    self.is_last = true;
                }
            }
        }
        charge.grow(uncharged)?;
        self.ready = found.into_iter();
        self.batch = Arc::new(Batch {
            reads,
            _charge: charge,
        });
        self.n_batch = (2 * self.n_batch).min(BATCH_SERIES);
        Ok(())
    }

    /// Takes the next series from all streams that have it.
    fn take_next(&mut self) -> Result<Option<Found>> {
        find_next(&self.streams, &mut self.next);
        let Some(&first) = self.next.first() else {
            return Ok(None);
        };
        let labels = self.streams[first].labels();
        let mut places = self
            .next
            .iter()
            .filter_map(|&idx| Some((idx, self.streams[idx].place()?)));
        let Some(first) = places.next() else {
            return Ok(None);
        };
        let others: Vec<_> = places.collect();
        self.left = self.left.saturating_sub(self.next.len() as u64);
        for &idx in &self.next {
            self.streams[idx].advance(&self.reads.ctx, self.reads.range, &self.labels)?;
        }
        self.reads.ctx.count_series(1)?;
        let labels = match &mut self.projection {
            Some(projection) => projection.labels(&labels),
            None => labels,
        };
        let labels = self
            .added
            .iter()
            .fold(labels, |labels, (name, value)| labels.with(name, value));
        Ok(Some(Found {
            labels,
            first,
            others,
        }))
    }
}

/// Finds the streams whose current series is the first in label order. Lists them in order of
/// acceptance.
fn find_next(streams: &[Stream], next: &mut Vec<usize>) {
    next.clear();
    let mut least: Option<&str> = None;
    for (idx, stream) in streams.iter().enumerate() {
        let Some(packed) = stream.packed() else {
            continue;
        };
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

/// Returns the labels that streams must return (all labels if streams are merged), and the
/// projection to the requested labels.
fn labels_and_projection(
    streams: &[Stream],
    hints: SelectHints,
) -> Result<(LabelHint, Option<LabelProjection>)> {
    let SelectHints {
        labels,
        whole_where,
        ..
    } = hints;
    // Fast path: all labels are requested.
    if matches!(labels, LabelHint::All) {
        return Ok((labels, None));
    }
    if !matches!(labels, LabelHint::None) {
        for stream in streams {
            if stream.has_label(whole_where)? {
                return Ok((LabelHint::All, None));
            }
        }
    }
    Ok(match streams {
        [_] => (labels, None),
        _ => (LabelHint::All, Some(LabelProjection::new(labels))),
    })
}

impl Iterator for SeriesSet {
    type Item = Result<Series>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.len() == 0
            && !self.is_last
            && let Err(error) = self.fill()
        {
            self.failure = Some(error);
            self.is_last = true;
        }
        if let Some(found) = self.ready.next() {
            return Some(Ok(Series {
                found,
                batch: Arc::clone(&self.batch),
                part: None,
            }));
        }
        let error = self.failure.take()?;
        self.left = 0;
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
            Self::Heads(heads, at) => heads.len() + u64::from(at.is_some()),
            Self::Block(block) => block.len(),
        }
    }

    fn request_labels(&mut self, labels: &LabelHint) -> Result<()> {
        match self {
            Self::Heads(..) => Ok(()),
            Self::Block(block) => block.request_labels(labels),
        }
    }

    /// Advances to the next series.
    fn advance(&mut self, ctx: &QueryContext, range: TimeRange, labels: &LabelHint) -> Result<()> {
        match self {
            Self::Heads(heads, at) => *at = heads.next(ctx, labels)?,
            Self::Block(block) => block.advance(ctx, range)?,
        }
        Ok(())
    }

    /// Returns the packed labels of the current series, or `None` after the last series.
    fn packed(&self) -> Option<&str> {
        match self {
            Self::Heads(_, at) => at.as_ref().map(|(labels, _)| labels.as_packed()),
            Self::Block(block) => block.packed(),
        }
    }

    /// Returns the labels of the current series, or an empty set after the last series.
    fn labels(&mut self) -> Labels {
        match self {
            Self::Heads(_, at) => at
                .as_ref()
                .map(|(labels, _)| labels.clone())
                .unwrap_or_default(),
            Self::Block(block) => block.labels(),
        }
    }

    /// Returns the position of the current series, or `None` after the last series.
    fn place(&self) -> Option<Place> {
        match self {
            Self::Heads(_, at) => at.as_ref().map(|(_, place)| *place),
            Self::Block(block) => block.ordinal().map(|at| Place { part: 0, at }),
        }
    }

    /// Returns `true` if any series, selected or not, may have a label of one of these names.
    fn has_label(&self, names: &[&str]) -> Result<bool> {
        match self {
            Self::Heads(heads, _) => Ok(heads.has_label(names)),
            Self::Block(block) => block.has_label(names),
        }
    }
}

/// One series of a selection, with access to its samples.
#[derive(Debug)]
pub struct Series {
    found: Found,
    batch: Arc<Batch>,
    /// The request and the range for which samples are read, if they are not those of the
    /// selection.
    part: Option<(QueryContext, TimeRange)>,
}

impl Series {
    /// Returns the labels of the series.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.found.labels
    }

    /// Calls `visit` with each series, which reads its samples. In label order, each series of the
    /// heads is at another place in memory. Therefore the memory of several series is prefetched
    /// before they are visited.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub fn try_for_each<E>(
        batch: &[Self],
        mut visit: impl FnMut(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        for series in batch.chunks(PREFETCHED_SERIES) {
            // Two passes: the first loads the positions of the samples, the second the samples.
            let mut runs = [None; PREFETCHED_SERIES];
            for (run, series) in runs.iter_mut().zip(series) {
                *run = series.in_head().map(|(head, slot)| head.first_run(slot));
            }
            let first_bytes = series.iter().zip(runs).filter_map(|(series, run)| {
                let (head, _) = series.in_head()?;
                Some(head.first_byte(run?))
            });
            prefetch(first_bytes);
            for series in series {
                visit(series)?;
            }
        }
        Ok(())
    }

    /// Returns the head that has the first samples of the series, and its slot.
    fn in_head(&self) -> Option<(&HeadReads, u32)> {
        let (stream, place) = self.found.first;
        match self.batch.reads.streams.get(stream)? {
            StreamReads::Heads(heads) => Some((heads.get(place.part as usize)?, place.at)),
            StreamReads::Block(_) => None,
        }
    }

    /// Returns the series for another request, which reads only the samples in a part of the
    /// selected range. The selection stays charged to its own request.
    ///
    /// # Errors
    /// [`Error::Limit`] if the other request selects too many series.
    pub fn within(&self, ctx: &QueryContext, range: TimeRange) -> Result<Self> {
        ctx.count_series(1)?;
        let Found {
            labels,
            first,
            others,
        } = &self.found;
        let found = Found {
            labels: labels.clone(),
            first: *first,
            others: others.clone(),
        };
        Ok(Self {
            found,
            batch: Arc::clone(&self.batch),
            part: Some((ctx.clone(), range)),
        })
    }

    /// Appends the samples in the selected range to `out`, in order of time, including staleness
    /// markers. The caller owns and accounts for `out`.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the request is interrupted,
    /// [`Error::Limit`] if it has read too many samples, and errors of reading blocks.
    pub fn read(&self, out: &mut SampleColumns) -> Result<()> {
        let n_before = out.len();
        let reads = &*self.batch.reads;
        let (ctx, range) = self
            .part
            .as_ref()
            .map_or((&reads.ctx, reads.range), |(ctx, range)| (ctx, *range));
        let read = self
            .read_all(range, out)
            .and_then(|()| Ok(ctx.count_samples(out.len() - n_before)?));
        if read.is_err() {
            out.truncate(n_before);
        }
        read
    }

    fn read_all(&self, range: TimeRange, out: &mut SampleColumns) -> Result<()> {
        let start = out.len();
        let reads = &*self.batch.reads;
        for &(stream, place) in [&self.found.first].into_iter().chain(&self.found.others) {
            let from = out.len();
            reads.read(stream, place, range, out)?;
            out.merge_from(start, from);
        }
        Ok(())
    }
}

impl Reads {
    fn read(
        &self,
        stream: usize,
        place: Place,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<()> {
        match &self.streams[stream] {
            StreamReads::Heads(heads) => {
                self.ctx.check()?;
                heads[place.part as usize]
                    .read(place.at, range, out)
                    .map_err(|_damaged| Error::Corrupt {
                        path: "head".into(),
                        offset: 0,
                        reason: "a chunk in memory does not decode".to_owned(),
                    })
            }
            StreamReads::Block(block) => block.read(place.at, range, out),
        }
    }
}
