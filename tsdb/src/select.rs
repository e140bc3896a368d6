//! Reading: the series that matchers select, and their samples.
//!
//! A selection first collects the slots of matching series, eight bytes each, and then yields series in batches: the
//! shard is locked to copy the labels and open chunks of a batch, not while the caller works on it. Sorted selections
//! hold all label sets at once, in runs that are merged as the caller reads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::chunk::Chunk;
use crate::context::{Charge, QueryContext};
use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::sample::{SampleColumns, TimeRange};
use crate::shard::Shard;

/// Series that are copied under one lock.
const BATCH_SERIES: usize = 128;
/// Label sets that are sorted in one go, between two looks at the deadline.
const RUN_SERIES: usize = 4096;
/// What a sorted label set takes besides its text.
const SORTED_SIZE: usize = size_of::<(Labels, Place)>();

/// In which order a selection comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Whatever is cheapest.
    Any,
    /// Ascending by labels.
    Labels,
}

/// Where a selected series lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    shard: u32,
    slot: u32,
}

/// The series of a selection that have samples in its range, one after the other. What it holds is charged to the
/// request's memory budget. After an error it is at its end.
pub struct SeriesSet {
    ctx: QueryContext,
    shards: Arc<[Shard]>,
    range: TimeRange,
    places: Places,
    batch: VecDeque<Series>,
    _charge: Charge,
}

/// The series that were selected and not yet read.
enum Places {
    Any(std::vec::IntoIter<Place>),
    Sorted(Runs),
}

impl SeriesSet {
    /// Selects series.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn new(
        ctx: &QueryContext,
        shards: Arc<[Shard]>,
        matchers: &[Matcher],
        range: TimeRange,
        order: Order,
    ) -> Result<Self> {
        let mut charge = ctx.charge();
        let mut places = Vec::new();
        for (shard, idx) in shards.iter().zip(0..) {
            ctx.check()?;
            let slots = shard.head().select(ctx, matchers)?;
            let n_slots = slots.len() as usize;
            charge.grow(n_slots * size_of::<Place>())?;
            places.reserve_exact(n_slots);
            places.extend(slots.into_iter().map(|slot| Place { shard: idx, slot }));
        }
        let places = match order {
            Order::Any => Places::Any(places.into_iter()),
            Order::Labels => Places::Sorted(Runs::new(ctx, &shards, places, range, &mut charge)?),
        };
        Ok(Self { ctx: ctx.clone(), shards, range, places, batch: VecDeque::new(), _charge: charge })
    }

    /// Returns an upper bound on the number of series that are still to come.
    #[must_use]
    pub fn len_max(&self) -> usize {
        self.batch.len()
            + match &self.places {
                Places::Any(places) => places.len(),
                Places::Sorted(runs) => runs.left,
            }
    }

    /// Copies the next series that have samples in range; none are left if the batch stays empty.
    fn fill_batch(&mut self) -> Result<()> {
        while self.batch.is_empty() && self.len_max() > 0 {
            self.ctx.check()?;
            match &mut self.places {
                Places::Any(places) => {
                    let places: Vec<_> = places.take(BATCH_SERIES).collect();
                    for of_shard in places.chunk_by(|a, b| a.shard == b.shard) {
                        self.copy(of_shard[0].shard, of_shard.iter().map(|place| (place.slot, None)))?;
                    }
                }
                Places::Sorted(runs) => {
                    let next: Vec<_> = std::iter::from_fn(|| runs.pop()).take(BATCH_SERIES).collect();
                    for (labels, place) in next {
                        self.copy(place.shard, std::iter::once((place.slot, Some(labels))))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies series of one shard into the batch, under one lock.
    fn copy(&mut self, shard: u32, slots: impl Iterator<Item = (u32, Option<Labels>)>) -> Result<()> {
        let head = self.shards[shard as usize].head();
        for (slot, labels) in slots {
            let chunks = head.view(slot).chunks(self.range);
            if chunks.is_empty() {
                continue;
            }
            let labels = labels.unwrap_or_else(|| head.labels(slot));
            let mut charge = self.ctx.charge();
            charge.grow(labels.size() + chunks.iter().map(|chunk| chunk.size() + size_of::<Chunk>()).sum::<usize>())?;
            self.batch.push_back(Series { labels, chunks, range: self.range, ctx: self.ctx.clone(), _charge: charge });
        }
        Ok(())
    }
}

impl Iterator for SeriesSet {
    type Item = Result<Series>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty()
            && let Err(ended) = self.fill_batch()
        {
            self.batch.clear();
            self.places = Places::Any(Vec::new().into_iter());
            return Some(Err(ended));
        }
        self.batch.pop_front().map(Ok)
    }
}

impl fmt::Debug for SeriesSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeriesSet(up to {} series)", self.len_max())
    }
}

/// Label sets in sorted runs, merged by a heap.
struct Runs {
    runs: Vec<std::vec::IntoIter<(Labels, Place)>>,
    /// The least of each run that is not used up.
    heads: BinaryHeap<Reverse<(Labels, Place, usize)>>,
    left: usize,
}

impl Runs {
    fn new(
        ctx: &QueryContext,
        shards: &[Shard],
        places: Vec<Place>,
        range: TimeRange,
        charge: &mut Charge,
    ) -> Result<Self> {
        let mut runs = Vec::new();
        let mut left = 0;
        for of_run in places.chunks(RUN_SERIES) {
            ctx.check()?;
            let mut run = Vec::with_capacity(of_run.len());
            for of_shard in of_run.chunk_by(|a, b| a.shard == b.shard) {
                let head = shards[of_shard[0].shard as usize].head();
                let in_range = of_shard.iter().filter(|place| head.view(place.slot).overlaps(range));
                run.extend(in_range.map(|&place| (head.labels(place.slot), place)));
            }
            charge.grow(run.iter().map(|(labels, _)| labels.size() + SORTED_SIZE).sum())?;
            run.sort_unstable();
            left += run.len();
            runs.push(run.into_iter());
        }
        let mut runs = Self { runs, heads: BinaryHeap::new(), left };
        (0..runs.runs.len()).for_each(|idx| runs.advance(idx));
        Ok(runs)
    }

    fn pop(&mut self) -> Option<(Labels, Place)> {
        let Reverse((labels, place, idx)) = self.heads.pop()?;
        self.left -= 1;
        self.advance(idx);
        Some((labels, place))
    }

    fn advance(&mut self, idx: usize) {
        if let Some((labels, place)) = self.runs[idx].next() {
            self.heads.push(Reverse((labels, place, idx)));
        }
    }
}

/// One series of a selection, with its encoded chunks that reach into the range asked for.
#[derive(Debug)]
pub struct Series {
    labels: Labels,
    chunks: Vec<Chunk>,
    range: TimeRange,
    ctx: QueryContext,
    _charge: Charge,
}

impl Series {
    /// Returns the series' labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns an upper bound on the number of samples inside the range.
    #[must_use]
    pub fn len_max(&self) -> usize {
        self.chunks.iter().map(Chunk::len).sum()
    }

    /// Appends the samples inside the range asked for to `out`, in order of time, staleness markers included. The
    /// caller owns and accounts for `out`; [`Series::len_max`] says how much it may grow.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when the request ends.
    pub fn read(&self, out: &mut SampleColumns) -> Result<()> {
        for chunk in &self.chunks {
            self.ctx.check()?;
            chunk.decode(self.range, out).map_err(|_damaged| Error::Corrupt {
                path: "head".into(),
                offset: 0,
                reason: format!("a chunk of {} in memory does not decode", self.labels),
            })?;
        }
        Ok(())
    }
}
