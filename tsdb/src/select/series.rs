//! One series of a selection, and how its samples are read.

use std::sync::Arc;

use varve_collections::prefetch;
use varve_context::{Charge, QueryContext};
use varve_model::{Labels, Sample, SampleColumns, TimeRange};

use super::blocks::BlockReads;
use super::selection::Place;
use crate::error::{Error, Result};
use crate::head::HeadCopies;

/// Number of series whose memory is prefetched together.
const PREFETCHED_SERIES: usize = 64;

/// One series of a selection, with access to its samples.
#[derive(Debug)]
pub struct Series {
    pub(super) found: FoundSeries,
    pub(super) batch: Arc<BatchCharge>,
    /// The request and the range for which samples are read, if they are not those of the
    /// selection.
    pub(super) narrowed: Option<(QueryContext, TimeRange)>,
}

/// Shared state for reading the samples of all series of a selection.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) ctx: QueryContext,
    pub(super) range: TimeRange,
    /// Access to samples, by index of the stream.
    pub(super) streams: Vec<StreamReads>,
}

/// Access to the samples of a stream.
#[derive(Debug)]
pub(super) enum StreamReads {
    Heads(Arc<[HeadCopies]>),
    Block(Arc<BlockReads>),
}

/// The charge shared by the series of a batch: charging and counting each series would take longer
/// than creating it.
#[derive(Debug)]
pub(super) struct BatchCharge {
    pub(super) reads: Arc<Reads>,
    pub(super) _charge: Charge,
}

/// A series, and the positions of its samples: index of the stream, and position in the stream.
#[derive(Debug)]
pub(super) struct FoundSeries {
    pub(super) labels: Labels,
    /// Position of the samples that are read first.
    pub(super) first: (usize, Place),
    /// Further positions: in order of time, and of acceptance where blocks overlap.
    pub(super) others: Vec<(usize, Place)>,
}

impl FoundSeries {
    pub(super) fn size(&self) -> usize {
        self.labels.size()
            + size_of::<Self>()
            + self.others.capacity() * size_of::<(usize, Place)>()
    }
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
    /// [`Error::Interrupted`] if the request is interrupted, and the first error of `visit`.
    pub fn try_for_each<E: From<Error>>(
        batch: &[Self],
        mut visit: impl FnMut(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        for series in batch.chunks(PREFETCHED_SERIES) {
            if let Some(first) = series.first() {
                first.ctx().check().map_err(Error::from)?;
            }
            // Two passes: the first loads the positions of the samples, the second the samples.
            let mut runs = [None; PREFETCHED_SERIES];
            for (run, series) in runs.iter_mut().zip(series) {
                *run = series.in_head().map(|(head, at)| head.first_run(at));
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

    /// Returns the context of the request that reads the series.
    fn ctx(&self) -> &QueryContext {
        match &self.narrowed {
            Some((ctx, _)) => ctx,
            None => &self.batch.reads.ctx,
        }
    }

    /// Returns the copies that have the first samples of the series, and its index in them.
    fn in_head(&self) -> Option<(&HeadCopies, usize)> {
        let (stream, place) = self.found.first;
        match self.batch.reads.streams.get(stream)? {
            StreamReads::Heads(heads) => Some((heads.get(place.head as usize)?, place.at as usize)),
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
        let FoundSeries {
            labels,
            first,
            others,
        } = &self.found;
        let found = FoundSeries {
            labels: labels.clone(),
            first: *first,
            others: others.clone(),
        };
        Ok(Self {
            found,
            batch: Arc::clone(&self.batch),
            narrowed: Some((ctx.clone(), range)),
        })
    }

    /// Returns the newest sample in the selected range, possibly a staleness marker, if it can be had
    /// without decoding: the selection needs only the newest sample of each series, and all samples
    /// of this series are floats in the heads. The caller counts the samples that it reads so
    /// ([`QueryContext::count_samples`]).
    #[inline]
    #[must_use]
    pub fn newest_float(&self) -> Option<Sample> {
        if self.narrowed.is_some() || !self.found.others.is_empty() {
            return None;
        }
        let (copies, at) = self.in_head()?;
        copies.newest_float(at)
    }

    /// Appends the samples in the selected range to `out`, in order of time, including staleness
    /// markers. The caller owns and accounts for `out`, and checks the context of the request every
    /// few hundred series, as [`SeriesSet`](super::SeriesSet) and [`Series::try_for_each`] do.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the request is interrupted,
    /// [`Error::Limit`] if it has read too many samples, and errors of reading blocks.
    pub fn read(&self, out: &mut SampleColumns) -> Result<()> {
        let n_before = out.len();
        let range = match &self.narrowed {
            Some((_, range)) => *range,
            None => self.batch.reads.range,
        };
        let read = self
            .read_all(range, out)
            .and_then(|()| Ok(self.ctx().count_samples(out.len() - n_before)?));
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
            StreamReads::Heads(heads) => heads[place.head as usize]
                .read(place.at as usize, range, out)
                .map_err(|_damaged| Error::Corrupt {
                    path: "head".into(),
                    offset: 0,
                    reason: "a chunk in memory does not decode".to_owned(),
                }),
            StreamReads::Block(block) => block.read(place.at, range, out),
        }
    }
}
