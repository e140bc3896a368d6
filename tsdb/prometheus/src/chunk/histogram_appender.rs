//! Open histogram chunks: decides which histograms can be appended, and when a chunk must be recoded.
//!
//! A histogram with new buckets recodes the chunk: its samples are decoded and encoded again with the union of the
//! buckets. Source: `AppendHistogram` in Prometheus `tsdb/chunkenc/histogram.go` and `float_histogram.go`.

use std::sync::Arc;

use varve_tsdb::SampleColumns;
use varve_tsdb::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, ResetHint};
use varve_tsdb::staleness::is_stale_nan;

use super::bstream::BitWriter;
use super::histogram::{CountCodec, Counts, HistogramState};
use super::histogram_header::{CounterResetHeader, HEADER_SIZE};
use super::histogram_layout::HistogramLayout;
use super::spans::{self, Difference};
use super::start_timestamps::StartTimestampCodec;
use super::{Chunk, Encoding, decode};

/// A histogram with its timestamps.
#[derive(Debug)]
pub(super) struct HistogramSample {
    pub(super) timestamp_ms: i64,
    pub(super) start_ms: i64,
    pub(super) histogram: Arc<Histogram>,
}

/// Reason why a histogram starts a new chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutReason {
    /// A counter reset.
    Reset,
    /// Histograms that cannot be compared.
    Unknown,
    /// A counter after gauges.
    NotReset,
    /// A gauge with another layout.
    Gauge,
}

/// Whether a histogram can be appended to a chunk.
enum Appendable {
    /// The chunk has all buckets of the histogram.
    AsIs,
    /// The chunk must be recoded with these positive and negative spans.
    Recode(Vec<BucketSpan>, Vec<BucketSpan>),
    /// The histogram starts a new chunk.
    NewChunk(CutReason),
}

/// An open histogram chunk.
#[derive(Debug)]
pub(super) struct HistogramAppender<C: CountCodec> {
    encoding: Encoding,
    reset: CounterResetHeader,
    layout: HistogramLayout,
    n_samples: usize,
    min_ms: i64,
    max_ms: i64,
    last_counts: Counts<C::Value>,
    last_sum: f64,
    bits: BitWriter,
    state: HistogramState<C>,
    starts: StartTimestampCodec,
}

impl<C: CountCodec> HistogramAppender<C> {
    /// Starts the first chunk of a series, or the first after samples of another type.
    pub(super) fn start(encoding: Encoding, sample: HistogramSample) -> Self {
        let reset = match sample.histogram.reset_hint {
            ResetHint::Gauge => CounterResetHeader::Gauge,
            ResetHint::Reset => CounterResetHeader::Reset,
            ResetHint::Unknown | ResetHint::NoReset => CounterResetHeader::Unknown,
        };
        Self::with_header(encoding, reset, sample)
    }

    fn with_header(encoding: Encoding, reset: CounterResetHeader, sample: HistogramSample) -> Self {
        let mut run = Self {
            encoding,
            reset,
            layout: HistogramLayout::of(&sample.histogram),
            n_samples: 0,
            min_ms: sample.timestamp_ms,
            max_ms: sample.timestamp_ms,
            last_counts: Counts::default(),
            last_sum: 0.0,
            bits: BitWriter::with_header(HEADER_SIZE),
            state: HistogramState::default(),
            starts: StartTimestampCodec::default(),
        };
        run.put(&sample);
        run
    }

    /// Starts the chunk after this one, which is full.
    pub(super) fn cut(&self, sample: HistogramSample) -> Self {
        let reset = match (sample.histogram.reset_hint, self.appendable(&sample.histogram)) {
            (ResetHint::Gauge, _) => CounterResetHeader::Gauge,
            (_, Appendable::NewChunk(CutReason::Reset)) => CounterResetHeader::Reset,
            (_, Appendable::NewChunk(CutReason::Unknown)) if !C::IS_FLOAT => CounterResetHeader::Unknown,
            _ => CounterResetHeader::NotReset,
        };
        Self::with_header(self.encoding, reset, sample)
    }

    /// Appends a sample, or returns the new chunk that it starts.
    pub(super) fn push(&mut self, sample: HistogramSample) -> Option<Self> {
        match self.appendable(&sample.histogram) {
            Appendable::AsIs => {}
            Appendable::Recode(positive, negative) => self.recode(positive, negative),
            Appendable::NewChunk(reason) => {
                let reset = match reason {
                    CutReason::Gauge => CounterResetHeader::Gauge,
                    CutReason::Reset => CounterResetHeader::Reset,
                    CutReason::NotReset if !C::IS_FLOAT => CounterResetHeader::NotReset,
                    CutReason::NotReset | CutReason::Unknown => CounterResetHeader::Unknown,
                };
                return Some(Self::with_header(self.encoding, reset, sample));
            }
        }
        self.put(&sample);
        None
    }

    /// Returns the number of samples.
    pub(super) fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        self.bits.size()
    }

    /// Finishes the chunk.
    pub(super) fn finish(self) -> Chunk {
        let header = self.header();
        let Self { encoding, min_ms, max_ms, n_samples, bits, .. } = self;
        Chunk { encoding, min_ms, max_ms, n_samples, bytes: bits.finish(&header) }
    }

    fn header(&self) -> [u8; HEADER_SIZE] {
        // A chunk is full long before that.
        let [high, low] = u16::try_from(self.n_samples).unwrap_or(u16::MAX).to_be_bytes();
        match self.encoding.has_starts() {
            true => [high | self.reset as u8, low, self.starts.header()],
            false => [high, low, self.reset as u8],
        }
    }

    fn put(&mut self, sample: &HistogramSample) {
        let own = HistogramLayout::of(&sample.histogram);
        let stale = is_stale_nan(sample.histogram.sum);
        let counts = C::counts(&sample.histogram).spread(&own, if stale { &own } else { &self.layout });
        self.last_counts.clone_from(&counts);
        let before_ms = self.state.timestamp_ms(sample.timestamp_ms);
        let idx = self.state.n_samples();
        self.state.put(&mut self.bits, &self.layout, sample.timestamp_ms, sample.histogram.sum, counts);
        if self.encoding.has_starts() {
            self.starts.put(&mut self.bits, idx, before_ms, sample.start_ms);
        }
        self.last_sum = sample.histogram.sum;
        self.max_ms = sample.timestamp_ms;
        self.n_samples += 1;
    }

    fn recode(&mut self, positive: Vec<BucketSpan>, negative: Vec<BucketSpan>) {
        let header = self.header();
        let bytes = std::mem::replace(&mut self.bits, BitWriter::with_header(HEADER_SIZE)).finish(&header);
        let mut columns = SampleColumns::default();
        let decoded = decode::decode(self.encoding, &bytes, &mut columns);
        debug_assert_eq!(decoded, Ok(()), "what was just encoded");
        (self.layout.positive, self.layout.negative) = (positive, negative);
        self.state = HistogramState::default();
        self.starts = StartTimestampCodec::default();
        self.n_samples = 0;
        for (place, histogram) in &columns.histograms {
            let timestamp_ms = columns.timestamps_ms[*place as usize];
            let (start_ms, histogram) = (columns.start_ms(*place as usize), Arc::clone(histogram));
            self.put(&HistogramSample { timestamp_ms, start_ms, histogram });
        }
    }

    fn appendable(&self, histogram: &Histogram) -> Appendable {
        let is_gauge = histogram.reset_hint == ResetHint::Gauge;
        if let Some(reason) = self.cut_reason(histogram, is_gauge) {
            return Appendable::NewChunk(reason);
        }
        if histogram.is_stale() {
            return Appendable::AsIs;
        }
        let own = HistogramLayout::of(histogram);
        let differences = match is_gauge {
            true => Some((
                spans::compare_spans(&self.layout.positive, &own.positive),
                spans::compare_spans(&self.layout.negative, &own.negative),
            )),
            false => self.compare(&own, &C::counts(histogram)),
        };
        let Some((positive, negative)) = differences else { return Appendable::NewChunk(CutReason::Reset) };
        if !(positive.is_new || negative.is_new) {
            return Appendable::AsIs;
        }
        // Prometheus recodes gauges if either side misses a bucket, counters side by side.
        let rewrites = |missing: bool| missing || is_gauge && (positive.is_missing || negative.is_missing);
        let merged = |rewrite, ours, theirs: Vec<_>| if rewrite { spans::union(ours, &theirs) } else { theirs };
        Appendable::Recode(
            merged(rewrites(positive.is_missing), &self.layout.positive, own.positive),
            merged(rewrites(negative.is_missing), &self.layout.negative, own.negative),
        )
    }

    fn compare(&self, own: &HistogramLayout, counts: &Counts<C::Value>) -> Option<(Difference, Difference)> {
        let (layout, last) = (&self.layout, &self.last_counts);
        Some((
            spans::compare((&layout.positive, &last.positive), (&own.positive, &counts.positive))?,
            spans::compare((&layout.negative, &last.negative), (&own.negative, &counts.negative))?,
        ))
    }

    /// Returns why a histogram needs a new chunk, before its buckets are compared.
    fn cut_reason(&self, histogram: &Histogram, is_gauge: bool) -> Option<CutReason> {
        let unlike = if is_gauge { CutReason::Gauge } else { CutReason::Unknown };
        match (self.reset == CounterResetHeader::Gauge, is_gauge) {
            (true, false) => return Some(CutReason::NotReset),
            (false, true) => return Some(CutReason::Gauge),
            _ => {}
        }
        if histogram.reset_hint == ResetHint::Reset {
            return Some(CutReason::Reset);
        }
        if histogram.is_stale() {
            return None;
        }
        if is_stale_nan(self.last_sum) {
            return Some(unlike);
        }
        let counts = C::counts(histogram);
        if !is_gauge && C::fell(self.last_counts.count, counts.count) {
            return Some(CutReason::Reset);
        }
        if histogram.schema != self.layout.schema || histogram.zero_threshold != self.layout.zero_threshold {
            return Some(unlike);
        }
        let is_custom = histogram.schema == CUSTOM_BUCKETS_SCHEMA;
        if is_custom && histogram.custom_bounds != self.layout.bounds {
            return Some(if is_gauge { CutReason::Gauge } else { CutReason::Reset });
        }
        (!is_gauge && C::fell(self.last_counts.zero_count, counts.zero_count)).then_some(CutReason::Reset)
    }
}
