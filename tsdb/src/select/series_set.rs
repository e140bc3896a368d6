//! The series of a selection: the merged streams of heads and blocks.

use std::fmt;
use std::sync::Arc;
use std::vec;

use varve_context::{Charge, QueryContext, scheduler};
use varve_model::{Labels, Matcher, Sample, TimeRange};

use super::blocks::BlockReads;
use super::heads::HeadStream;
use super::kept_selections::KeptSelections;
use super::label_projection::LabelProjection;
use super::selection::{BATCH_SERIES, Need, Selection};
use super::series::{BatchCharge, FoundSeries, Reads, Series};
use super::stream::{Sources, Stream};
use super::stream_order::StreamOrder;
use crate::error::{Error, Result};
use crate::isolation::Reader;
use crate::label_hint::LabelHint;
use crate::store::Store;

/// Number of series in the first batch. Each batch is twice the previous one, up to
/// [`BATCH_SERIES`].
const FIRST_BATCH_SERIES: usize = 16;
/// Maximum bytes of a batch that are allocated before they are charged.
const CHARGED_AT_ONCE: usize = 64 << 10;

/// Data that a selection may omit to be faster. The default omits nothing. A selection may return
/// more than requested.
#[derive(Debug, Clone, Default)]
pub struct SelectHints {
    /// Only the newest sample of each series in the range is needed.
    pub only_newest: bool,
    /// Only the times of samples are needed, and which of them are staleness markers. All other
    /// floats may be returned as 0.
    pub skip_values: bool,
    /// The requested labels. Series are still sorted by all their labels, unless none are
    /// requested, and series that differ only in other labels are not merged.
    pub labels: LabelHint,
    /// If a head or block has a label of one of these names, series have all their labels, unless
    /// none are requested.
    pub whole_where: &'static [&'static str],
}

/// What a selection reads, and what selections share.
#[derive(Clone, Copy)]
pub(crate) struct SelectionSource<'a> {
    pub(crate) store: &'a Arc<Store>,
    pub(crate) kept_selections: &'a KeptSelections,
    /// The registration of the request among [`Store::series_readers`].
    pub(crate) reader: &'a Arc<Reader>,
}

/// The series of a selection, in label order unless [`LabelHint::None`] is requested. Its memory is
/// charged to the request. After an error, it returns no more series.
pub struct SeriesSet {
    reads: Arc<Reads>,
    streams: Vec<Stream>,
    order: StreamOrder,
    /// The remaining series of the current batch, and its charge.
    ready: vec::IntoIter<FoundSeries>,
    batch: Arc<BatchCharge>,
    n_batch: usize,
    /// The error to return after the current batch.
    failure: Option<Error>,
    /// `true` if there are no series after the current batch.
    is_last: bool,
    /// The streams at the series that was taken last, ascending.
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

impl SeriesSet {
    /// Selects series.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit, and errors of reading blocks.
    pub(crate) fn new(
        ctx: &QueryContext,
        source: SelectionSource<'_>,
        matchers: &[Matcher],
        range: TimeRange,
        need: Need,
        hints: SelectHints,
    ) -> Result<Self> {
        let mut charge = ctx.charge();
        let Sources {
            mut streams,
            reads,
            labels_of_heads,
        } = open_sources(ctx, source, matchers, range, need, &hints, &mut charge)?;
        let left = streams.iter().map(Stream::len).sum();
        let (labels, projection) = labels_and_projection(ctx, &streams, &labels_of_heads, hints)?;
        for stream in &mut streams {
            stream.request_labels(&labels)?;
            stream.advance(ctx, range, &labels)?;
        }

        let mut order = StreamOrder::new(streams.len());
        let next: Vec<usize> = (0..streams.len()).collect();
        order.add(&next, |idx| streams[idx].packed());
        let reads = Arc::new(Reads {
            ctx: ctx.clone(),
            range,
            streams: reads,
        });
        Ok(Self {
            batch: Arc::new(BatchCharge {
                reads: Arc::clone(&reads),
                _charge: ctx.charge(),
            }),
            reads,
            streams,
            order,
            ready: Vec::new().into_iter(),
            n_batch: FIRST_BATCH_SERIES,
            failure: None,
            is_last: false,
            next,
            labels,
            projection,
            added: Arc::default(),
            left,
            _reader: Arc::clone(source.reader),
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

    /// Calls `visit` with the labels and the newest sample, possibly a staleness marker, of all
    /// series of the set, in their order. Returns `false` without a call if only their reads tell:
    /// unless the selection needs only the newest samples, and all of them are floats in the heads.
    /// The set must not have been iterated over.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`] if the request selects too many series or samples,
    /// and the first error of `visit`.
    pub fn each_newest_float<E: From<Error>>(
        &self,
        mut visit: impl FnMut(&Labels, Sample) -> Result<(), E>,
    ) -> Result<bool, E> {
        let [Stream::Heads(heads, _)] = &self.streams[..] else {
            return Ok(false);
        };
        if self.projection.is_some() || !self.added.is_empty() {
            return Ok(false);
        }
        let Some(series) = heads.newest_floats() else {
            return Ok(false);
        };
        let ctx = &self.reads.ctx;
        let mut n_uncounted = 0;
        series.each_newest_float(|labels, newest| {
            n_uncounted += 1;
            if n_uncounted == BATCH_SERIES {
                count_and_check(ctx, std::mem::take(&mut n_uncounted))?;
            }
            visit(labels, newest)
        })?;
        count_and_check(ctx, n_uncounted)?;
        Ok(true)
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
        if let Err(error) = reads.ctx.count_series(found.len() as u64) {
            self.failure = Some(error.into());
            self.is_last = true;
        }
        self.ready = found.into_iter();
        self.batch = Arc::new(BatchCharge {
            reads,
            _charge: charge,
        });
        self.n_batch = (2 * self.n_batch).min(BATCH_SERIES);
        Ok(())
    }

    /// Takes the next series from all streams that have it.
    fn take_next(&mut self) -> Result<Option<FoundSeries>> {
        self.order.take_first(&mut self.next);
        let Some(&first) = self.next.first() else {
            return Ok(None);
        };
        let labels = self.streams[first].take_labels();
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
        self.order.add(&self.next, |idx| self.streams[idx].packed());
        let labels = match &mut self.projection {
            Some(projection) => projection.labels(&labels)?,
            None => labels,
        };
        let labels = self
            .added
            .iter()
            .fold(labels, |labels, (name, value)| labels.with(name, value));
        Ok(Some(FoundSeries {
            labels,
            first,
            others,
        }))
    }
}

/// Counts series of which one sample each was read, and checks the request.
fn count_and_check(ctx: &QueryContext, n_series: usize) -> Result<()> {
    ctx.count_series(n_series as u64)?;
    ctx.count_samples(n_series)?;
    ctx.check()?;
    scheduler::pause();
    Ok(())
}

/// Copies the samples of the heads, and opens the streams of a selection.
fn open_sources(
    ctx: &QueryContext,
    source: SelectionSource<'_>,
    matchers: &[Matcher],
    range: TimeRange,
    need: Need,
    hints: &SelectHints,
    charge: &mut Charge,
) -> Result<Sources> {
    let SelectionSource {
        store,
        kept_selections,
        ..
    } = source;
    // 1. Registers as a reader of the block list, so that a flush leaves in the heads what it
    // writes to blocks. 2. Reads the block list. 3. Begins the read of the heads. If a flush comes
    // between 2 and 3, the samples are still in the heads.
    let list_reader = store.block_list_readers.enter(ctx)?;
    let blocks = store.blocks.list();
    let open_read = store.isolation.begin_read(ctx)?;
    // A block is merged by labels, so the heads must be in label order too.
    let has_blocks = blocks
        .iter()
        .any(|stored| stored.meta().range.overlaps(range));
    let selection = Selection {
        ctx,
        store,
        matchers,
        range,
        need,
        view: &open_read.view,
        any_order: matches!(hints.labels, LabelHint::None) && !has_blocks,
    };
    let labels_of_heads = labels_of_heads(store, has_blocks, hints);
    let heads = HeadStream::new(&selection, kept_selections, &labels_of_heads, charge)?;
    drop(open_read);
    drop(list_reader);

    let n_first = match need {
        Need::FirstLabels(n_first) => n_first,
        Need::Samples | Need::Newest | Need::Labels => usize::MAX,
    };
    let mut sources = Sources {
        labels_of_heads,
        ..Sources::default()
    };
    let ranges: Vec<_> = blocks.iter().map(|stored| stored.meta().range).collect();
    for idx in reading_order(&ranges) {
        if ranges[idx].overlaps(range) {
            let block = BlockReads::new(ctx, &blocks[idx], hints.skip_values);
            sources.add_block(block, matchers, range, n_first)?;
        }
    }
    if let Some((heads, reads)) = heads {
        sources.add_heads(heads, reads);
    }
    Ok(sources)
}

/// Returns the labels that the heads must return: all labels, if blocks are merged with them or if
/// the heads have a label that requires it.
fn labels_of_heads(store: &Store, has_blocks: bool, hints: &SelectHints) -> LabelHint {
    let needs_all = match hints.labels {
        LabelHint::All => true,
        LabelHint::None => has_blocks,
        LabelHint::With(_) | LabelHint::Without(_) => {
            has_blocks || store.heads_have_label(hints.whole_where)
        }
    };
    if needs_all {
        LabelHint::All
    } else {
        hints.labels.clone()
    }
}

/// Returns the indexes of blocks in the order in which their samples are read. `ranges` are those of
/// the blocks, in order of acceptance.
///
/// The order is that of time: samples of a later block are appended to those of earlier ones. Only
/// samples of blocks that overlap are merged, and of these the block accepted first comes first.
fn reading_order(ranges: &[TimeRange]) -> Vec<usize> {
    let mut order: Vec<_> = (0..ranges.len()).collect();
    order.sort_by_key(|&idx| ranges[idx].start_ms);
    // Restores the order of acceptance among blocks that overlap, directly or through others.
    let mut first = 0;
    let mut end_ms = i64::MIN;
    for next in 0..order.len() {
        let range = ranges[order[next]];
        if range.start_ms > end_ms {
            order[first..next].sort_unstable();
            first = next;
        }
        end_ms = end_ms.max(range.end_ms);
    }
    order[first..].sort_unstable();
    order
}

/// Returns the labels that streams must return (all labels if streams are merged), and the
/// projection to the requested labels. `labels_of_heads` are those that the heads return anyway.
fn labels_and_projection(
    ctx: &QueryContext,
    streams: &[Stream],
    labels_of_heads: &LabelHint,
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
        [Stream::Block(_)] => (labels, None),
        [Stream::Heads(..)] if *labels_of_heads == labels => (labels, None),
        _ => {
            let projection = LabelProjection::new(labels, ctx.charge());
            (LabelHint::All, Some(projection))
        }
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
                narrowed: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ranges: &[(i64, i64)], expect: &[usize]) {
        let ranges: Vec<_> = ranges
            .iter()
            .map(|&(start_ms, end_ms)| TimeRange { start_ms, end_ms })
            .collect();
        assert_eq!(reading_order(&ranges), expect, "{ranges:?}");
    }

    #[test]
    fn blocks_are_read_in_order_of_time_and_overlapping_ones_in_order_of_acceptance() {
        check(&[], &[]);
        check(&[(0, 9)], &[0]);
        // Merged blocks of late windows come before parts of earlier ones in the list.
        check(&[(20, 29), (10, 19), (0, 9)], &[2, 1, 0]);
        check(&[(0, 9), (5, 9), (0, 3)], &[0, 1, 2]);
        // The first and the last overlap only through the one in the middle.
        check(
            &[(16, 30), (0, 10), (8, 20), (40, 50), (31, 39)],
            &[0, 1, 2, 4, 3],
        );
        // They share a millisecond.
        check(&[(10, 20), (0, 10)], &[0, 1]);
    }
}
