//! Histograms that go into one chunk: which one may follow, and what becomes of the buckets.
//!
//! A histogram with buckets that the chunk does not have widens the chunk: its samples are decoded and encoded again. Source: `AppendHistogram` in Prometheus `tsdb/chunkenc/histogram.go` and `float_histogram.go`.

use std::sync::Arc;

use varve_tsdb::SampleColumns;
use varve_tsdb::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, ResetHint};
use varve_tsdb::staleness::is_stale_nan;

use super::bits::BitWriter;
use super::buckets::{self, Difference};
use super::histogram::{CountCell, Counts, HistogramState};
use super::layout::ChunkLayout;
use super::starts::Starts;
use super::{Chunk, Encoding, decode};

/// Bytes of the header of a chunk of histograms.
pub(super) const HEADER_SIZE: usize = 3;

/// What is known of a reset before the first sample of a chunk: the upper two bits of a byte of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResetHeader {
    Unknown = 0,
    NotReset = 0x40,
    Reset = 0x80,
    Gauge = 0xc0,
}

impl ResetHeader {
    /// The bits of the byte that it takes.
    pub(super) const MASK: u8 = 0xc0;
}

/// A histogram at its time.
#[derive(Debug)]
pub(super) struct HistogramSample {
    pub(super) timestamp_ms: i64,
    pub(super) start_ms: i64,
    pub(super) histogram: Arc<Histogram>,
}

/// Why a histogram starts a new chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// The counters were reset.
    Reset,
    /// Histograms that cannot be compared.
    Unknown,
    /// A counter behind gauges.
    NotReset,
    /// A gauge that does not fit.
    Gauge,
}

/// How a histogram follows.
enum Follows {
    /// With buckets that are all there.
    AsItIs,
    /// With buckets that the chunk does not have; these are all of them.
    Wider(Vec<BucketSpan>, Vec<BucketSpan>),
    /// Not in this chunk.
    Apart(Break),
}

/// A chunk of histograms that grows.
#[derive(Debug)]
pub(super) struct HistogramRun<C: CountCell> {
    encoding: Encoding,
    reset: ResetHeader,
    layout: ChunkLayout,
    n_samples: usize,
    min_ms: i64,
    max_ms: i64,
    last_counts: Counts<C::Value>,
    last_sum: f64,
    bits: BitWriter,
    state: HistogramState<C>,
    starts: Starts,
}

impl<C: CountCell> HistogramRun<C> {
    /// Starts the first chunk of a series, or one behind samples of another kind.
    pub(super) fn start(encoding: Encoding, sample: HistogramSample) -> Self {
        let reset = match sample.histogram.reset_hint {
            ResetHint::Gauge => ResetHeader::Gauge,
            ResetHint::Reset => ResetHeader::Reset,
            ResetHint::Unknown | ResetHint::NoReset => ResetHeader::Unknown,
        };
        Self::with_header(encoding, reset, sample)
    }

    fn with_header(encoding: Encoding, reset: ResetHeader, sample: HistogramSample) -> Self {
        let mut run = Self {
            encoding,
            reset,
            layout: ChunkLayout::of(&sample.histogram),
            n_samples: 0,
            min_ms: sample.timestamp_ms,
            max_ms: sample.timestamp_ms,
            last_counts: Counts::default(),
            last_sum: 0.0,
            bits: BitWriter::behind(HEADER_SIZE),
            state: HistogramState::default(),
            starts: Starts::default(),
        };
        run.put(&sample);
        run
    }

    /// Starts the chunk behind this one, which is full.
    pub(super) fn cut(&self, sample: HistogramSample) -> Self {
        let reset = match (sample.histogram.reset_hint, self.follows(&sample.histogram)) {
            (ResetHint::Gauge, _) => ResetHeader::Gauge,
            (_, Follows::Apart(Break::Reset)) => ResetHeader::Reset,
            (_, Follows::Apart(Break::Unknown)) if !C::IS_FLOAT => ResetHeader::Unknown,
            _ => ResetHeader::NotReset,
        };
        Self::with_header(self.encoding, reset, sample)
    }

    /// Appends a sample, if it may follow; else returns the chunk that it starts.
    pub(super) fn push(&mut self, sample: HistogramSample) -> Option<Self> {
        match self.follows(&sample.histogram) {
            Follows::AsItIs => {}
            Follows::Wider(positive, negative) => self.widen(positive, negative),
            Follows::Apart(reason) => {
                let reset = match reason {
                    Break::Gauge => ResetHeader::Gauge,
                    Break::Reset => ResetHeader::Reset,
                    Break::NotReset if !C::IS_FLOAT => ResetHeader::NotReset,
                    Break::NotReset | Break::Unknown => ResetHeader::Unknown,
                };
                return Some(Self::with_header(self.encoding, reset, sample));
            }
        }
        self.put(&sample);
        None
    }

    /// Counts the samples.
    pub(super) fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Counts the bytes.
    pub(super) fn size(&self) -> usize {
        self.bits.size()
    }

    /// Returns the chunk.
    pub(super) fn finish(self) -> Chunk {
        let header = self.header();
        let Self { encoding, min_ms, max_ms, n_samples, bits, .. } = self;
        Chunk { encoding, min_ms, max_ms, n_samples, bytes: bits.finish(&header) }
    }

    fn header(&self) -> [u8; HEADER_SIZE] {
        // The encoder cuts long before that many.
        let [high, low] = u16::try_from(self.n_samples).unwrap_or(u16::MAX).to_be_bytes();
        match self.encoding.has_starts() {
            true => [high | self.reset as u8, low, self.starts.header()],
            false => [high, low, self.reset as u8],
        }
    }

    fn put(&mut self, sample: &HistogramSample) {
        let own = ChunkLayout::of(&sample.histogram);
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

    fn widen(&mut self, positive: Vec<BucketSpan>, negative: Vec<BucketSpan>) {
        let header = self.header();
        let bytes = std::mem::replace(&mut self.bits, BitWriter::behind(HEADER_SIZE)).finish(&header);
        let mut columns = SampleColumns::default();
        let decoded = decode::decode(self.encoding, &bytes, &mut columns);
        debug_assert_eq!(decoded, Ok(()), "what was just encoded");
        (self.layout.positive, self.layout.negative) = (positive, negative);
        self.state = HistogramState::default();
        self.starts = Starts::default();
        self.n_samples = 0;
        for (place, histogram) in &columns.histograms {
            let timestamp_ms = columns.timestamps_ms[*place as usize];
            let (start_ms, histogram) = (columns.start_ms(*place as usize), Arc::clone(histogram));
            self.put(&HistogramSample { timestamp_ms, start_ms, histogram });
        }
    }

    fn follows(&self, histogram: &Histogram) -> Follows {
        let is_gauge = histogram.reset_hint == ResetHint::Gauge;
        if let Some(reason) = self.apart(histogram, is_gauge) {
            return Follows::Apart(reason);
        }
        if histogram.is_stale() {
            return Follows::AsItIs;
        }
        let own = ChunkLayout::of(histogram);
        let differences = match is_gauge {
            true => Some((
                buckets::compare_spans(&self.layout.positive, &own.positive),
                buckets::compare_spans(&self.layout.negative, &own.negative),
            )),
            false => self.compare(&own, &C::counts(histogram)),
        };
        let Some((positive, negative)) = differences else { return Follows::Apart(Break::Reset) };
        if !(positive.is_new || negative.is_new) {
            return Follows::AsItIs;
        }
        // Prometheus rewrites the spans of gauges as soon as one side misses a bucket, those of counters side by side.
        let rewrites = |missing: bool| missing || is_gauge && (positive.is_missing || negative.is_missing);
        let merged = |rewrite, ours, theirs: Vec<_>| if rewrite { buckets::union(ours, &theirs) } else { theirs };
        Follows::Wider(
            merged(rewrites(positive.is_missing), &self.layout.positive, own.positive),
            merged(rewrites(negative.is_missing), &self.layout.negative, own.negative),
        )
    }

    fn compare(&self, own: &ChunkLayout, counts: &Counts<C::Value>) -> Option<(Difference, Difference)> {
        let (layout, last) = (&self.layout, &self.last_counts);
        Some((
            buckets::compare((&layout.positive, &last.positive), (&own.positive, &counts.positive))?,
            buckets::compare((&layout.negative, &last.negative), (&own.negative, &counts.negative))?,
        ))
    }

    /// Tells why a histogram cannot follow, as far as that shows without its buckets.
    fn apart(&self, histogram: &Histogram, is_gauge: bool) -> Option<Break> {
        let unlike = if is_gauge { Break::Gauge } else { Break::Unknown };
        match (self.reset == ResetHeader::Gauge, is_gauge) {
            (true, false) => return Some(Break::NotReset),
            (false, true) => return Some(Break::Gauge),
            _ => {}
        }
        if histogram.reset_hint == ResetHint::Reset {
            return Some(Break::Reset);
        }
        if histogram.is_stale() {
            return None;
        }
        if is_stale_nan(self.last_sum) {
            return Some(unlike);
        }
        let counts = C::counts(histogram);
        if !is_gauge && C::fell(self.last_counts.count, counts.count) {
            return Some(Break::Reset);
        }
        if histogram.schema != self.layout.schema || histogram.zero_threshold != self.layout.zero_threshold {
            return Some(unlike);
        }
        let is_custom = histogram.schema == CUSTOM_BUCKETS_SCHEMA;
        if is_custom && histogram.custom_bounds != self.layout.bounds {
            return Some(if is_gauge { Break::Gauge } else { Break::Reset });
        }
        (!is_gauge && C::fell(self.last_counts.zero_count, counts.zero_count)).then_some(Break::Reset)
    }
}
