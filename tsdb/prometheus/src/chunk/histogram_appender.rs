//! Open histogram chunks: decides which histograms can be appended, and when a chunk must be
//! recoded.
//!
//! A histogram with new buckets recodes the chunk: its samples are decoded and encoded again with
//! the union of the buckets. Source: `AppendHistogram` in Prometheus `tsdb/chunkenc/histogram.go`
//! and `float_histogram.go`.

use std::sync::Arc;

use varve_model::SampleColumns;
use varve_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, ResetHint};
use varve_model::staleness::is_stale_nan;

use super::bstream::BitWriter;
use super::encoding::{Chunk, Encoding, SAMPLES_PER_CHUNK, n_samples_header};
use super::histogram::{CountCodec, CounterResetHeader, Counts, HEADER_SIZE, HistogramState};
use super::histogram_layout::HistogramLayout;
use super::spans::Buckets;
use super::start_timestamps::StartTimestamps;
use super::{decode, spans};

/// Size in bytes from which a chunk with [`SAMPLES_MIN`] samples is full.
const SIZE_FULL: usize = 1024;
const SAMPLES_MIN: u32 = 10;

/// A histogram with its timestamps.
#[derive(Debug)]
pub(super) struct HistogramSample {
    pub(super) timestamp_ms: i64,
    pub(super) start_ms: i64,
    pub(super) histogram: Arc<Histogram>,
}

/// Whether a histogram can be appended to a chunk.
enum Appendable {
    /// The chunk has all buckets of the histogram.
    AsIs,
    /// The chunk must be recoded with these positive and negative spans.
    Recode(Vec<BucketSpan>, Vec<BucketSpan>),
    /// The histogram starts a new chunk: after a counter reset, as a counter after gauges (not
    /// reset), as a gauge with another layout, or because it cannot be compared (unknown).
    NewChunk(CounterResetHeader),
}

/// An open histogram chunk.
#[derive(Debug)]
pub(super) struct HistogramAppender<C: CountCodec> {
    encoding: Encoding,
    reset: CounterResetHeader,
    layout: HistogramLayout,
    min_ms: i64,
    last_counts: Counts<C::Value>,
    bits: BitWriter,
    state: HistogramState<C>,
}

impl<C: CountCodec> HistogramAppender<C> {
    /// Starts the first chunk of a series, or the first after samples of another type.
    pub(super) fn start(starts: StartTimestamps, sample: HistogramSample) -> Self {
        let reset = match sample.histogram.reset_hint {
            ResetHint::Gauge => CounterResetHeader::Gauge,
            ResetHint::Reset => CounterResetHeader::Reset,
            ResetHint::Unknown | ResetHint::NoReset => CounterResetHeader::Unknown,
        };
        let has_starts = starts != StartTimestamps::Drop;
        Self::with_header(C::ENCODINGS[usize::from(has_starts)], reset, sample)
    }

    fn with_header(encoding: Encoding, reset: CounterResetHeader, sample: HistogramSample) -> Self {
        let mut appender = Self {
            encoding,
            reset,
            layout: HistogramLayout::of(&sample.histogram),
            min_ms: sample.timestamp_ms,
            last_counts: Counts::default(),
            bits: BitWriter::with_header(HEADER_SIZE),
            state: HistogramState::of(encoding, 0),
        };
        appender.put(&sample);
        appender
    }

    /// Appends a sample, or returns the next chunk, which starts with it.
    pub(super) fn push(&mut self, sample: HistogramSample) -> Option<Self> {
        let n_samples = self.state.n_samples();
        let is_large = self.bits.size() >= SIZE_FULL && n_samples >= SAMPLES_MIN;
        let is_full = is_large || n_samples >= SAMPLES_PER_CHUNK;
        let reset = match self.appendable(&sample.histogram) {
            Appendable::AsIs if !is_full => {
                self.put(&sample);
                return None;
            }
            Appendable::Recode(positive, negative) if !is_full => {
                self.recode(positive, negative);
                self.put(&sample);
                return None;
            }
            _ if sample.histogram.reset_hint == ResetHint::Gauge => CounterResetHeader::Gauge,
            // Prometheus treats the two types of counts differently.
            Appendable::NewChunk(CounterResetHeader::Unknown) if C::IS_FLOAT && is_full => {
                CounterResetHeader::NotReset
            }
            Appendable::NewChunk(CounterResetHeader::NotReset) if C::IS_FLOAT && !is_full => {
                CounterResetHeader::Unknown
            }
            Appendable::NewChunk(reset) => reset,
            Appendable::AsIs | Appendable::Recode(..) => CounterResetHeader::NotReset,
        };
        Some(Self::with_header(self.encoding, reset, sample))
    }

    /// Returns the number of samples.
    pub(super) fn n_samples(&self) -> u32 {
        self.state.n_samples()
    }

    /// Finishes the chunk.
    pub(super) fn finish(self) -> Chunk {
        let header = self.header();
        let Self {
            encoding,
            min_ms,
            state,
            bits,
            ..
        } = self;
        Chunk {
            encoding,
            min_ms,
            max_ms: state.timestamp_ms(),
            n_samples: state.n_samples(),
            bytes: bits.finish(&header),
        }
    }

    fn header(&self) -> [u8; HEADER_SIZE] {
        let [high, low] = n_samples_header(self.state.n_samples());
        match self.state.starts_header() {
            Some(starts) => [high | self.reset as u8, low, starts],
            None => [high, low, self.reset as u8],
        }
    }

    fn put(&mut self, sample: &HistogramSample) {
        let own = HistogramLayout::of(&sample.histogram);
        let layout = if sample.histogram.is_stale() {
            &own
        } else {
            &self.layout
        };
        self.last_counts = C::counts(&sample.histogram).spread(&own, layout);
        self.state.put(
            &mut self.bits,
            &self.layout,
            sample.timestamp_ms,
            sample.start_ms,
            sample.histogram.sum,
            self.last_counts.clone(),
        );
    }

    fn recode(&mut self, positive: Vec<BucketSpan>, negative: Vec<BucketSpan>) {
        let header = self.header();
        let bytes =
            std::mem::replace(&mut self.bits, BitWriter::with_header(HEADER_SIZE)).finish(&header);
        let mut columns = SampleColumns::default();
        let decoded = decode::decode(self.encoding, &bytes, &mut columns);
        debug_assert_eq!(decoded, Ok(()), "what was just encoded");
        self.layout.positive = positive;
        self.layout.negative = negative;
        self.state = HistogramState::of(self.encoding, 0);
        for (idx, histogram) in &columns.histograms {
            self.put(&HistogramSample {
                timestamp_ms: columns.timestamps_ms[*idx as usize],
                start_ms: columns.start_ms(*idx as usize),
                histogram: Arc::clone(histogram),
            });
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
        let layout = &self.layout;
        let last = &self.last_counts;
        let counts = C::counts(histogram);
        let (positive, negative) = if is_gauge {
            (
                Some(spans::compare_spans(&layout.positive, &own.positive)),
                Some(spans::compare_spans(&layout.negative, &own.negative)),
            )
        } else {
            (
                spans::compare(
                    Buckets::new(&layout.positive, &last.positive),
                    Buckets::new(&own.positive, &counts.positive),
                ),
                spans::compare(
                    Buckets::new(&layout.negative, &last.negative),
                    Buckets::new(&own.negative, &counts.negative),
                ),
            )
        };
        let Some((positive, negative)) = positive.zip(negative) else {
            return Appendable::NewChunk(CounterResetHeader::Reset);
        };
        if !(positive.is_new || negative.is_new) {
            return Appendable::AsIs;
        }

        // Prometheus recodes gauges if either side misses a bucket, counters side by side.
        let recodes_both = is_gauge && (positive.is_missing || negative.is_missing);
        let mut merged = own;
        if positive.is_missing || recodes_both {
            merged.positive = spans::union(&layout.positive, &merged.positive);
        }
        if negative.is_missing || recodes_both {
            merged.negative = spans::union(&layout.negative, &merged.negative);
        }
        Appendable::Recode(merged.positive, merged.negative)
    }

    /// Returns why a histogram needs a new chunk, before its buckets are compared.
    fn cut_reason(&self, histogram: &Histogram, is_gauge: bool) -> Option<CounterResetHeader> {
        let unlike = if is_gauge {
            CounterResetHeader::Gauge
        } else {
            CounterResetHeader::Unknown
        };
        match (self.reset == CounterResetHeader::Gauge, is_gauge) {
            (true, false) => return Some(CounterResetHeader::NotReset),
            (false, true) => return Some(CounterResetHeader::Gauge),
            _ => {}
        }
        if histogram.reset_hint == ResetHint::Reset {
            return Some(CounterResetHeader::Reset);
        }
        if histogram.is_stale() {
            return None;
        }
        if is_stale_nan(self.state.sum()) {
            return Some(unlike);
        }
        let counts = C::counts(histogram);
        if !is_gauge && C::fell(self.last_counts.count, counts.count) {
            return Some(CounterResetHeader::Reset);
        }
        if histogram.schema != self.layout.schema
            || histogram.zero_threshold != self.layout.zero_threshold
        {
            return Some(unlike);
        }
        let is_custom = histogram.schema == CUSTOM_BUCKETS_SCHEMA;
        if is_custom && histogram.custom_bounds != self.layout.bounds {
            return Some(if is_gauge {
                CounterResetHeader::Gauge
            } else {
                CounterResetHeader::Reset
            });
        }
        (!is_gauge && C::fell(self.last_counts.zero_count, counts.zero_count))
            .then_some(CounterResetHeader::Reset)
    }
}
