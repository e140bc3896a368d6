//! Encodes samples of a series into chunks.

use std::ops::Range;
use std::sync::Arc;

use varve_model::histogram::{Histogram, HistogramCounts};
use varve_model::{Sample, SampleColumns};

use super::bstream::BitWriter;
use super::encoding::{Chunk, Encoding, SAMPLES_PER_CHUNK, n_samples_header};
use super::histogram_appender::{HistogramAppender, HistogramSample};
use super::start_timestamps::StartTimestamps;
use super::value_codec::{DeltaOfDelta, XorCodec};
use super::xor::XorState;
use super::xor2::Xor2State;

/// Size in bytes from which a float chunk is full: another sample could make it larger than 1024
/// bytes.
const FLOAT_SIZE_FULL: usize = 1005;
/// Initial capacity of the buffer of a float chunk that is complete at once: most chunks have fewer
/// bytes.
const FLOAT_CAPACITY: usize = 640;
/// The longest period of a chunk of [`Encoder::push_aligned`]: two hours, as of Prometheus' blocks.
/// It can be halved eight times, to 28.125 s.
const PERIOD_MS: i64 = 2 * 3600 * 1000;

/// Cuts the samples of one series, in ascending order of time, into chunks.
///
/// A chunk ends after [`SAMPLES_PER_CHUNK`] samples or about a kilobyte, where the type of sample
/// changes, and where histograms cannot share a chunk.
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
        Self {
            starts,
            ..Self::default()
        }
    }

    /// Appends a float. A `start_ms` of 0 is unknown.
    pub fn push(&mut self, sample: Sample, start_ms: i64) {
        if let Some(Appender::Float(appender)) = &mut self.open
            && !is_full(appender.n_samples, appender.bits.size())
            && (start_ms == 0 || self.starts == StartTimestamps::Drop || appender.has_starts())
        {
            return appender.push(sample, start_ms);
        }
        self.close();
        self.open = Some(Appender::Float(FloatAppender::start(
            self.starts,
            sample,
            start_ms,
        )));
    }

    /// Appends a histogram. Buckets without a span and spans without buckets are dropped.
    pub fn push_histogram(&mut self, timestamp_ms: i64, histogram: Arc<Histogram>, start_ms: i64) {
        let is_float = matches!(histogram.counts, HistogramCounts::Float { .. });
        let is_stale = histogram.is_stale();
        let sample = HistogramSample {
            timestamp_ms,
            start_ms,
            histogram,
        };
        let next = match &mut self.open {
            Some(Appender::Histogram(appender)) if is_stale || !is_float => {
                let next = appender.push(sample);
                next.map(Box::new).map(Appender::Histogram)
            }
            Some(Appender::FloatHistogram(appender)) if is_stale || is_float => {
                let next = appender.push(sample);
                next.map(Box::new).map(Appender::FloatHistogram)
            }
            _ if is_float => Some(Appender::FloatHistogram(Box::new(
                HistogramAppender::start(self.starts, sample),
            ))),
            _ => Some(Appender::Histogram(Box::new(HistogramAppender::start(
                self.starts,
                sample,
            )))),
        };
        if let Some(next) = next {
            self.close();
            self.open = Some(next);
        }
    }

    /// Appends the samples of columns.
    pub fn push_columns(&mut self, columns: &SampleColumns) {
        self.push_rows(columns, 0..columns.len());
    }

    /// Appends the samples of columns, in chunks whose ends depend only on times near them: two
    /// stores with the same samples of a period have the same chunks of it, whatever they have of
    /// earlier times.
    ///
    /// A chunk does not cross a multiple of two hours. If a period has more than
    /// [`SAMPLES_PER_CHUNK`] samples, its halves have chunks of their own.
    pub fn push_aligned(&mut self, columns: &SampleColumns) {
        let mut rest = &columns.timestamps_ms[..];
        while let Some(first) = rest.first() {
            let mut period_ms = PERIOD_MS;
            let mut n_samples = len_in_period(rest, *first, PERIOD_MS);
            while n_samples > SAMPLES_PER_CHUNK as usize && period_ms % 2 == 0 {
                period_ms /= 2;
                n_samples = len_in_period(&rest[..n_samples], *first, period_ms);
            }
            let start = columns.len() - rest.len();
            self.push_rows(columns, start..start + n_samples);
            self.close();
            rest = &rest[n_samples..];
        }
    }

    fn push_rows(&mut self, columns: &SampleColumns, rows: Range<usize>) {
        // Fast path: only floats.
        if columns.histograms.is_empty()
            && self.open.is_none()
            && (self.starts == StartTimestamps::Drop
                || self.starts == StartTimestamps::KeepKnown && columns.starts_ms.is_empty())
        {
            return self.push_floats(&columns.timestamps_ms[rows.clone()], &columns.values[rows]);
        }
        for idx in rows {
            let sample = Sample {
                timestamp_ms: columns.timestamps_ms[idx],
                value: columns.values[idx],
            };
            let start_ms = columns.start_ms(idx);
            match columns.histogram(idx) {
                Some(histogram) => {
                    self.push_histogram(sample.timestamp_ms, Arc::clone(histogram), start_ms)
                }
                None => self.push(sample, start_ms),
            }
        }
    }

    /// Appends floats without start timestamps to an encoder without an open chunk: as
    /// [`Encoder::push`], but the state of the chunk stays in registers, and its buffer does not
    /// grow.
    fn push_floats(&mut self, timestamps_ms: &[i64], values: &[f64]) {
        let mut samples = timestamps_ms
            .iter()
            .zip(values)
            .map(|(&timestamp_ms, &value)| Sample {
                timestamp_ms,
                value,
            });
        let mut next = samples.next();
        while let Some(first) = next {
            let mut state = XorState::default();
            let mut bits = BitWriter::with_capacity(2, FLOAT_CAPACITY);
            let mut n_samples = 0;
            let mut last = first;
            while let Some(sample) = next
                && !is_full(n_samples, bits.size())
            {
                state.put(&mut bits, n_samples, sample);
                n_samples += 1;
                last = sample;
                next = samples.next();
            }
            let min_ms = first.timestamp_ms;
            let max_ms = last.timestamp_ms;
            let appender = FloatAppender {
                state: FloatState::Xor(state),
                bits,
                n_samples,
                min_ms,
                max_ms,
            };
            // The last chunk stays open.
            self.close();
            self.open = Some(Appender::Float(appender));
        }
    }

    /// Returns the number of samples in the open chunk.
    pub(crate) fn n_open(&self) -> u64 {
        let n_samples = match &self.open {
            None => 0,
            Some(Appender::Float(appender)) => appender.n_samples,
            Some(Appender::Histogram(appender)) => appender.n_samples(),
            Some(Appender::FloatHistogram(appender)) => appender.n_samples(),
        };
        u64::from(n_samples)
    }

    /// Returns and removes the finished chunks. The open chunk stays.
    pub fn drain(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }

    /// Ends the series and returns all remaining chunks.
    pub fn finish(&mut self) -> Vec<Chunk> {
        self.close();
        self.drain()
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.chunks.push(match open {
            Appender::Float(appender) => appender.finish(),
            Appender::Histogram(appender) => appender.finish(),
            Appender::FloatHistogram(appender) => appender.finish(),
        });
    }
}

/// Returns the number of timestamps, which ascend from `first_ms`, in the aligned period of
/// `first_ms`.
fn len_in_period(timestamps_ms: &[i64], first_ms: i64, period_ms: i64) -> usize {
    let period = first_ms.div_euclid(period_ms);
    timestamps_ms.partition_point(|time_ms| time_ms.div_euclid(period_ms) == period)
}

/// Returns `true` if a float chunk is full.
#[inline]
pub(super) fn is_full(n_samples: u32, size: usize) -> bool {
    n_samples >= SAMPLES_PER_CHUNK || size > FLOAT_SIZE_FULL
}

/// An open float chunk.
#[derive(Debug)]
struct FloatAppender {
    state: FloatState,
    bits: BitWriter,
    n_samples: u32,
    min_ms: i64,
    max_ms: i64,
}

#[derive(Debug)]
enum FloatState {
    Xor(XorState),
    Xor2(Xor2State),
}

impl FloatAppender {
    fn start(starts: StartTimestamps, sample: Sample, start_ms: i64) -> Self {
        let has_starts = match starts {
            StartTimestamps::Drop => false,
            StartTimestamps::Keep => true,
            StartTimestamps::KeepKnown => start_ms != 0,
        };
        let (state, header_size) = if has_starts {
            (FloatState::Xor2(Xor2State::default()), 3)
        } else {
            (FloatState::Xor(XorState::default()), 2)
        };
        let mut appender = Self {
            state,
            bits: BitWriter::with_header(header_size),
            n_samples: 0,
            min_ms: sample.timestamp_ms,
            max_ms: sample.timestamp_ms,
        };
        appender.push(sample, start_ms);
        appender
    }

    /// Returns `true` if the chunk can have start timestamps.
    fn has_starts(&self) -> bool {
        matches!(self.state, FloatState::Xor2(_))
    }

    fn push(&mut self, sample: Sample, start_ms: i64) {
        match &mut self.state {
            FloatState::Xor(state) => state.put(&mut self.bits, self.n_samples, sample),
            FloatState::Xor2(state) => state.put(&mut self.bits, sample, start_ms),
        }
        self.n_samples += 1;
        self.max_ms = sample.timestamp_ms;
    }

    fn finish(self) -> Chunk {
        let Self {
            state,
            bits,
            n_samples,
            min_ms,
            max_ms,
        } = self;
        let [high, low] = n_samples_header(n_samples);
        let (encoding, bytes) = match state {
            FloatState::Xor(_) => (Encoding::Xor, bits.finish(&[high, low])),
            FloatState::Xor2(state) => (
                Encoding::Xor2,
                bits.finish(&[high, low, state.starts.header()]),
            ),
        };
        Chunk {
            encoding,
            min_ms,
            max_ms,
            n_samples,
            bytes,
        }
    }
}
