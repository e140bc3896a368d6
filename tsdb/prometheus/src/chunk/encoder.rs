//! Samples of a series in, chunks out.

use std::sync::Arc;

use varve_tsdb::histogram::{Histogram, HistogramCounts};
use varve_tsdb::{Sample, SampleColumns};

use super::bits::BitWriter;
use super::cell::{Steps, Xor};
use super::run::{HistogramRun, HistogramSample};
use super::starts::Starts;
use super::xor::XorState;
use super::xor2::Xor2State;
use super::{Chunk, Encoding};

/// Samples of a chunk, as many as Prometheus aims at.
pub const SAMPLES_PER_CHUNK: usize = 120;
/// Bytes from which on a chunk of floats is full: another sample could bring it above 1024.
const FLOAT_SIZE_FULL: usize = 1005;
/// Bytes from which on a chunk of histograms is full, if it has enough samples.
const HISTOGRAM_SIZE_FULL: usize = 1024;
const HISTOGRAM_SAMPLES_MIN: usize = 10;

/// What becomes of start timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartTimes {
    /// They are left out: encodings 1 to 3, which everyone reads.
    #[default]
    Dropped,
    /// They are kept: encodings 4 to 6, which Prometheus reads since 3.12 and others do not.
    Kept,
}

/// Cuts the samples of one series after the other into chunks.
///
/// Samples of a series come in ascending order of time. A chunk ends after [`SAMPLES_PER_CHUNK`] samples or about a
/// kilobyte, where the kind of sample changes, and where histograms cannot share one.
#[derive(Debug, Default)]
pub struct Encoder {
    starts: StartTimes,
    open: Option<Run>,
    chunks: Vec<Chunk>,
}

/// The chunk that grows.
#[derive(Debug)]
enum Run {
    Floats(FloatRun),
    Integers(Box<HistogramRun<Steps>>),
    FloatHistograms(Box<HistogramRun<Xor>>),
}

impl Encoder {
    /// Makes an encoder.
    #[must_use]
    pub fn new(starts: StartTimes) -> Self {
        Self { starts, ..Self::default() }
    }

    /// Returns what becomes of start timestamps.
    #[must_use]
    pub fn starts(&self) -> StartTimes {
        self.starts
    }

    /// Appends a float; `start_ms` is 0 if it has no start.
    pub fn push(&mut self, sample: Sample, start_ms: i64) {
        if let Some(Run::Floats(run)) = &mut self.open
            && !run.is_full()
        {
            return run.push(sample, start_ms);
        }
        self.close();
        self.open = Some(Run::Floats(FloatRun::start(self.starts, sample, start_ms)));
    }

    /// Appends a histogram. Buckets without a span, and spans without buckets, are left out.
    pub fn push_histogram(&mut self, timestamp_ms: i64, histogram: Arc<Histogram>, start_ms: i64) {
        let is_float = matches!(histogram.counts, HistogramCounts::Float { .. });
        let is_stale = histogram.is_stale();
        let sample = HistogramSample { timestamp_ms, start_ms, histogram };
        let next = match &mut self.open {
            Some(Run::Integers(run)) if is_stale || !is_float => follow(run, sample).map(Box::new).map(Run::Integers),
            Some(Run::FloatHistograms(run)) if is_stale || is_float => {
                follow(run, sample).map(Box::new).map(Run::FloatHistograms)
            }
            _ if is_float => {
                let encoding = [Encoding::FloatHistogram, Encoding::FloatHistogramSt][self.starts as usize];
                Some(Run::FloatHistograms(Box::new(HistogramRun::start(encoding, sample))))
            }
            _ => {
                let encoding = [Encoding::Histogram, Encoding::HistogramSt][self.starts as usize];
                Some(Run::Integers(Box::new(HistogramRun::start(encoding, sample))))
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

    /// Takes the chunks that are finished, and their memory; one that grows stays.
    pub fn drain(&mut self) -> impl Iterator<Item = Chunk> + use<> {
        std::mem::take(&mut self.chunks).into_iter()
    }

    /// Tells whether there are chunks to drain.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Ends the series: takes all chunks that were not taken yet.
    pub fn finish(&mut self) -> Vec<Chunk> {
        self.close();
        std::mem::take(&mut self.chunks)
    }

    fn close(&mut self) {
        self.chunks.extend(self.open.take().map(|run| match run {
            Run::Floats(run) => run.finish(),
            Run::Integers(run) => run.finish(),
            Run::FloatHistograms(run) => run.finish(),
        }));
    }
}

/// Tells whether a chunk of floats is full.
#[inline]
pub(super) fn is_full(n_samples: usize, size: usize) -> bool {
    n_samples >= SAMPLES_PER_CHUNK || size > FLOAT_SIZE_FULL
}

/// Appends a histogram to a chunk; returns the next chunk if it does not go there.
fn follow<C: super::histogram::CountCell>(
    run: &mut HistogramRun<C>,
    sample: HistogramSample,
) -> Option<HistogramRun<C>> {
    let n_samples = run.n_samples();
    let is_large = run.size() >= HISTOGRAM_SIZE_FULL && n_samples >= HISTOGRAM_SAMPLES_MIN;
    if is_large || n_samples >= SAMPLES_PER_CHUNK {
        return Some(run.cut(sample));
    }
    run.push(sample)
}

/// A chunk of floats that grows.
#[derive(Debug)]
struct FloatRun {
    state: FloatState,
    bits: BitWriter,
    n_samples: usize,
    min_ms: i64,
    max_ms: i64,
}

/// The rarer one is boxed: there may be a million of them.
#[derive(Debug)]
enum FloatState {
    Xor(XorState),
    Xor2(Box<(Xor2State, Starts)>),
}

impl FloatRun {
    fn start(starts: StartTimes, sample: Sample, start_ms: i64) -> Self {
        let (state, header_size) = match starts {
            StartTimes::Dropped => (FloatState::Xor(XorState::default()), 2),
            StartTimes::Kept => (FloatState::Xor2(Box::default()), 3),
        };
        let (min_ms, max_ms) = (sample.timestamp_ms, sample.timestamp_ms);
        let mut run = Self { state, bits: BitWriter::behind(header_size), n_samples: 0, min_ms, max_ms };
        run.push(sample, start_ms);
        run
    }

    fn is_full(&self) -> bool {
        is_full(self.n_samples, self.bits.size())
    }

    fn push(&mut self, sample: Sample, start_ms: i64) {
        match &mut self.state {
            FloatState::Xor(state) => state.put(&mut self.bits, self.n_samples, sample),
            FloatState::Xor2(state_and_starts) => {
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
        // It was full long before that many.
        let [high, low] = u16::try_from(n_samples).unwrap_or(u16::MAX).to_be_bytes();
        let (encoding, bytes) = match self.state {
            FloatState::Xor(_) => (Encoding::Xor, self.bits.finish(&[high, low])),
            FloatState::Xor2(it) => (Encoding::Xor2, self.bits.finish(&[high, low, it.1.header()])),
        };
        Chunk { encoding, min_ms, max_ms, n_samples, bytes }
    }
}
