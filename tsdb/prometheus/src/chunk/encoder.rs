//! Encodes samples of a series into chunks.

use std::sync::Arc;

use varve_tsdb::histogram::{Histogram, HistogramCounts};
use varve_tsdb::{Sample, SampleColumns};

use super::bstream::BitWriter;
use super::histogram_appender::{HistogramAppender, HistogramSample};
use super::start_timestamps::StartTimestampCodec;
use super::value_codec::{DeltaOfDelta, XorCodec};
use super::xor::XorState;
use super::xor2::Xor2State;
use super::{Chunk, Encoding};

/// Number of samples per chunk that Prometheus aims at.
pub const SAMPLES_PER_CHUNK: usize = 120;
/// Size in bytes from which a float chunk is full: another sample could make it larger than 1024 bytes.
const FLOAT_SIZE_FULL: usize = 1005;
/// Size in bytes from which a histogram chunk with [`HISTOGRAM_SAMPLES_MIN`] samples is full.
const HISTOGRAM_SIZE_FULL: usize = 1024;
const HISTOGRAM_SAMPLES_MIN: usize = 10;

/// Whether chunks keep start timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartTimestamps {
    /// Without start timestamps: encodings 1 to 3, which all versions of Prometheus read.
    #[default]
    Drop,
    /// With start timestamps: encodings 4 to 6, which Prometheus reads since version 3.12.
    Keep,
}

/// Cuts the samples of one series, in ascending order of time, into chunks.
///
/// A chunk ends after [`SAMPLES_PER_CHUNK`] samples or about a kilobyte, where the type of sample changes, and where
/// histograms cannot share a chunk.
#[derive(Debug, Default)]
pub struct Encoder {
    starts: StartTimestamps,
    open: Option<Appender>,
    chunks: Vec<Chunk>,
}

/// The open chunk.
#[derive(Debug)]
enum Appender {
    Float(FloatAppender),
    Histogram(Box<HistogramAppender<DeltaOfDelta>>),
    FloatHistogram(Box<HistogramAppender<XorCodec>>),
}

impl Encoder {
    /// Creates an encoder.
    #[must_use]
    pub fn new(starts: StartTimestamps) -> Self {
        Self { starts, ..Self::default() }
    }

    /// Returns whether chunks keep start timestamps.
    #[must_use]
    pub fn starts(&self) -> StartTimestamps {
        self.starts
    }

    /// Appends a float; a `start_ms` of 0 is unknown.
    pub fn push(&mut self, sample: Sample, start_ms: i64) {
        if let Some(Appender::Float(run)) = &mut self.open
            && !run.is_full()
        {
            return run.push(sample, start_ms);
        }
        self.close();
        self.open = Some(Appender::Float(FloatAppender::start(self.starts, sample, start_ms)));
    }

    /// Appends a histogram. Buckets without a span and spans without buckets are dropped.
    pub fn push_histogram(&mut self, timestamp_ms: i64, histogram: Arc<Histogram>, start_ms: i64) {
        let is_float = matches!(histogram.counts, HistogramCounts::Float { .. });
        let is_stale = histogram.is_stale();
        let sample = HistogramSample { timestamp_ms, start_ms, histogram };
        let next = match &mut self.open {
            Some(Appender::Histogram(run)) if is_stale || !is_float => {
                follow(run, sample).map(Box::new).map(Appender::Histogram)
            }
            Some(Appender::FloatHistogram(run)) if is_stale || is_float => {
                follow(run, sample).map(Box::new).map(Appender::FloatHistogram)
            }
            _ if is_float => {
                let encoding = [Encoding::FloatHistogram, Encoding::FloatHistogramSt][self.starts as usize];
                Some(Appender::FloatHistogram(Box::new(HistogramAppender::start(encoding, sample))))
            }
            _ => {
                let encoding = [Encoding::Histogram, Encoding::HistogramSt][self.starts as usize];
                Some(Appender::Histogram(Box::new(HistogramAppender::start(encoding, sample))))
            }
        };
        if let Some(next) = next {
            self.close();
            self.open = Some(next);
        }
    }

    /// Appends the samples of columns.
    pub fn push_columns(&mut self, columns: &SampleColumns) {
        let mut histograms = columns.histograms.iter().peekable();
        for (idx, sample) in columns.iter().enumerate() {
            let start_ms = if columns.starts_ms.is_empty() { 0 } else { columns.start_ms(idx) };
            match histograms.next_if(|(place, _)| *place as usize == idx) {
                Some((_, histogram)) => self.push_histogram(sample.timestamp_ms, Arc::clone(histogram), start_ms),
                None => self.push(sample, start_ms),
            }
        }
    }

    /// Returns and removes the finished chunks; the open chunk stays.
    pub fn drain(&mut self) -> impl Iterator<Item = Chunk> + use<> {
        std::mem::take(&mut self.chunks).into_iter()
    }

    /// Returns `true` if there are finished chunks.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Ends the series and returns all remaining chunks.
    pub fn finish(&mut self) -> Vec<Chunk> {
        self.close();
        std::mem::take(&mut self.chunks)
    }

    fn close(&mut self) {
        self.chunks.extend(self.open.take().map(|run| match run {
            Appender::Float(run) => run.finish(),
            Appender::Histogram(run) => run.finish(),
            Appender::FloatHistogram(run) => run.finish(),
        }));
    }
}

/// Returns `true` if a float chunk is full.
#[inline]
pub(super) fn is_full(n_samples: usize, size: usize) -> bool {
    n_samples >= SAMPLES_PER_CHUNK || size > FLOAT_SIZE_FULL
}

/// Appends a histogram to a chunk, or returns the next chunk, which starts with it.
fn follow<C: super::histogram::CountCodec>(
    run: &mut HistogramAppender<C>,
    sample: HistogramSample,
) -> Option<HistogramAppender<C>> {
    let n_samples = run.n_samples();
    let is_large = run.size() >= HISTOGRAM_SIZE_FULL && n_samples >= HISTOGRAM_SAMPLES_MIN;
    if is_large || n_samples >= SAMPLES_PER_CHUNK {
        return Some(run.cut(sample));
    }
    run.push(sample)
}

/// An open float chunk.
#[derive(Debug)]
struct FloatAppender {
    state: FloatEncoding,
    bits: BitWriter,
    n_samples: usize,
    min_ms: i64,
    max_ms: i64,
}

/// The rarer variant is boxed: recovery may hold a million encoders.
#[derive(Debug)]
enum FloatEncoding {
    Xor(XorState),
    Xor2(Box<(Xor2State, StartTimestampCodec)>),
}

impl FloatAppender {
    fn start(starts: StartTimestamps, sample: Sample, start_ms: i64) -> Self {
        let (state, header_size) = match starts {
            StartTimestamps::Drop => (FloatEncoding::Xor(XorState::default()), 2),
            StartTimestamps::Keep => (FloatEncoding::Xor2(Box::default()), 3),
        };
        let (min_ms, max_ms) = (sample.timestamp_ms, sample.timestamp_ms);
        let mut run = Self { state, bits: BitWriter::with_header(header_size), n_samples: 0, min_ms, max_ms };
        run.push(sample, start_ms);
        run
    }

    fn is_full(&self) -> bool {
        is_full(self.n_samples, self.bits.size())
    }

    fn push(&mut self, sample: Sample, start_ms: i64) {
        match &mut self.state {
            FloatEncoding::Xor(state) => state.put(&mut self.bits, self.n_samples, sample),
            FloatEncoding::Xor2(state_and_starts) => {
                let (state, starts) = &mut **state_and_starts;
                state.put(&mut self.bits, sample);
                starts.put(&mut self.bits, self.n_samples, self.max_ms, start_ms);
            }
        }
        self.n_samples += 1;
        self.max_ms = sample.timestamp_ms;
    }

    fn finish(self) -> Chunk {
        let Self { min_ms, max_ms, n_samples, .. } = self;
        // A chunk is full long before that.
        let [high, low] = u16::try_from(n_samples).unwrap_or(u16::MAX).to_be_bytes();
        let (encoding, bytes) = match self.state {
            FloatEncoding::Xor(_) => (Encoding::Xor, self.bits.finish(&[high, low])),
            FloatEncoding::Xor2(it) => (Encoding::Xor2, self.bits.finish(&[high, low, it.1.header()])),
        };
        Chunk { encoding, min_ms, max_ms, n_samples, bytes }
    }
}
