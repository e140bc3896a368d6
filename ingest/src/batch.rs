//! The decoded form of a write request: places of label sets and flat columns of samples, reused between requests.
//!
//! Every version of the protocol decodes into it. It holds no text: a [`Span`] says where in the decompressed message
//! the bytes lie, so that a batch has no lifetime and can be pooled. `u32` is wide enough because a message is at most
//! `u32::MAX` bytes ([`Limits::decompressed_size_max`](crate::Limits::decompressed_size_max)).

use varve_tsdb::Sample;

use crate::route::RouteKey;

/// A decoded write request. Reused: decoding clears it first and keeps its memory.
#[derive(Debug, Default)]
pub struct DecodedBatch {
    pub(crate) series: Vec<SeriesEntry>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) families: Vec<FamilyEntry>,
    /// Where the histograms are.
    pub(crate) histograms: Vec<Span>,
    pub(crate) exemplars: Vec<ExemplarEntry>,
    /// Bytes of them in the message.
    pub(crate) exemplars_size: usize,
}

/// Bytes of the message, end excluded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// A series of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesEntry {
    /// Where its labels are. Other fields may lie between them if `key` is `None`.
    pub(crate) labels: Span,
    /// Where its samples end in [`DecodedBatch::samples`]; they begin where those of the series before end.
    samples_end: u32,
    /// Likewise of its histograms in [`DecodedBatch::histograms`].
    histograms_end: u32,
    /// Hash of the label bytes, or `None` if they do not lie together and the series takes the slow path.
    pub(crate) key: Option<RouteKey>,
}

/// An exemplar of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExemplarEntry {
    /// Its series.
    pub(crate) series_idx: u32,
    /// Where its fields are.
    pub(crate) fields: Span,
}

/// Metadata of a metric family.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FamilyEntry {
    pub(crate) name: Span,
    pub(crate) help: Span,
    pub(crate) unit: Span,
    /// The type as the protocol numbers it.
    pub(crate) kind: i32,
}

impl DecodedBatch {
    /// Counts the series.
    #[must_use]
    pub fn n_series(&self) -> usize {
        self.series.len()
    }

    /// Counts the float samples.
    #[must_use]
    pub fn n_samples(&self) -> usize {
        self.samples.len()
    }

    /// Adds a series whose samples are those pushed since the series before.
    pub(crate) fn push_series(&mut self, labels: Span, key: Option<RouteKey>) {
        let end = |len: usize| u32::try_from(len).expect("the decoder checks samples_per_request_max");
        let (samples_end, histograms_end) = (end(self.samples.len()), end(self.histograms.len()));
        self.series.push(SeriesEntry { labels, samples_end, histograms_end, key });
    }

    /// Adds an exemplar of the series that is pushed next.
    pub(crate) fn push_exemplar(&mut self, fields: Span) {
        let series_idx = u32::try_from(self.series.len()).expect("the decoder checks series_per_request_max");
        self.exemplars.push(ExemplarEntry { series_idx, fields });
        self.exemplars_size += (fields.end - fields.start) as usize;
    }

    /// Iterates over the series in the request's order, each with its samples.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&SeriesEntry, &[Sample])> {
        let mut start = 0;
        self.series.iter().map(move |series| {
            let end = series.samples_end as usize;
            (series, &self.samples[std::mem::replace(&mut start, end)..end])
        })
    }

    /// Returns where the histograms of a series are.
    pub(crate) fn histograms_of(&self, series_idx: usize) -> &[Span] {
        let end = |idx: usize| self.series[idx].histograms_end as usize;
        &self.histograms[series_idx.checked_sub(1).map_or(0, end)..end(series_idx)]
    }

    /// Empties the batch and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.series.clear();
        self.samples.clear();
        self.families.clear();
        self.histograms.clear();
        self.exemplars.clear();
        self.exemplars_size = 0;
    }

    /// Returns the bytes of memory that the batch holds, filled or not.
    pub(crate) fn size(&self) -> usize {
        self.series.capacity() * size_of::<SeriesEntry>()
            + self.samples.capacity() * size_of::<Sample>()
            + self.histograms.capacity() * size_of::<Span>()
            + self.families.capacity() * size_of::<FamilyEntry>()
            + self.exemplars.capacity() * size_of::<ExemplarEntry>()
    }
}

impl Span {
    /// Returns a span of positions in a message, which is at most `u32::MAX` bytes.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let position = |at: usize| u32::try_from(at).expect("decompressed_size_max is at most u32::MAX");
        Self { start: position(start), end: position(end) }
    }

    pub(crate) fn of(self, message: &[u8]) -> &[u8] {
        &message[self.start as usize..self.end as usize]
    }

    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }
}
