//! Values of the histograms in a chunk: encodings 2 and 5 with integer counts, 3 and 6 with float
//! counts.
//!
//! ```text
//! field        first sample                        later samples
//! layout       see `histogram_layout`              -
//! timestamp    varbit                              delta of delta
//! totals       count and zero count: unsigned      as buckets
//!              varbit or double
//! sum          double                              XOR
//! buckets      integer: delta to the bucket before integer: delta of delta between samples;
//!              float: double                       float: XOR; none for a staleness marker
//! ```

use varve_model::histogram::{Histogram, HistogramCounts, ResetHint};
use varve_model::staleness::is_stale_nan;

use super::bstream::{BitReader, BitWriter};
use super::encoding::Encoding;
use super::error::ChunkError;
use super::histogram_layout::HistogramLayout;
use super::spans;
use super::start_timestamps::StartTimestampCodec;
use super::value_codec::{DeltaOfDelta, Nth, ValueCodec, XorCodec};

/// Size of the header of a histogram chunk.
pub(super) const HEADER_SIZE: usize = 3;

/// Counter reset header: whether counters were reset before the first sample of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterResetHeader {
    Unknown = 0,
    NotReset = 0x40,
    Reset = 0x80,
    Gauge = 0xc0,
}

impl CounterResetHeader {
    /// The bits that the header occupies in its byte.
    pub(super) const MASK: u8 = 0xc0;
}

/// Counts of a histogram, absolute per bucket.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts<V> {
    pub(super) count: V,
    pub(super) zero_count: V,
    pub(super) positive: Vec<V>,
    pub(super) negative: Vec<V>,
}

impl<V: Copy + Default> Counts<V> {
    /// Returns the counts for the buckets of `layout`, 0 for buckets that `own` does not have.
    pub(super) fn spread(&self, own: &HistogramLayout, layout: &HistogramLayout) -> Self {
        Self {
            count: self.count,
            zero_count: self.zero_count,
            positive: spans::spread(&own.positive, &self.positive, &layout.positive),
            negative: spans::spread(&own.negative, &self.negative, &layout.negative),
        }
    }
}

/// Codec of the counts of a histogram.
pub(super) trait CountCodec: ValueCodec {
    /// `true` if counts are doubles.
    const IS_FLOAT: bool;
    /// Encodings without and with start timestamps.
    const ENCODINGS: [Encoding; 2];

    /// Returns the counts of a histogram. A staleness marker has none.
    fn counts(histogram: &Histogram) -> Counts<Self::Value>;

    /// Converts counts to the counts of a histogram.
    fn into_histogram(counts: Counts<Self::Value>) -> HistogramCounts;

    /// Converts absolute bucket counts to the values that are written.
    fn to_written(counts: &mut [Self::Value]);

    /// Reverts [`CountCodec::to_written`].
    fn from_written(written: &mut [Self::Value]);

    /// Returns `true` if a total is less than the one before.
    fn fell(before: Self::Value, now: Self::Value) -> bool;

    /// Appends a total of a staleness marker.
    fn put_stale(&mut self, dst: &mut BitWriter);
}

impl CountCodec for DeltaOfDelta {
    const IS_FLOAT: bool = false;
    const ENCODINGS: [Encoding; 2] = [Encoding::Histogram, Encoding::HistogramSt];

    fn counts(histogram: &Histogram) -> Counts<i64> {
        match &histogram.counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } if !histogram.is_stale() => Counts {
                count: count.cast_signed(),
                zero_count: zero_count.cast_signed(),
                positive: positive.iter().map(|count| count.cast_signed()).collect(),
                negative: negative.iter().map(|count| count.cast_signed()).collect(),
            },
            _ => Counts::default(),
        }
    }

    fn into_histogram(counts: Counts<i64>) -> HistogramCounts {
        HistogramCounts::Integer {
            count: counts.count.cast_unsigned(),
            zero_count: counts.zero_count.cast_unsigned(),
            positive: counts
                .positive
                .into_iter()
                .map(i64::cast_unsigned)
                .collect(),
            negative: counts
                .negative
                .into_iter()
                .map(i64::cast_unsigned)
                .collect(),
        }
    }

    fn to_written(counts: &mut [i64]) {
        let mut before = 0;
        for count in counts {
            before = std::mem::replace(count, count.wrapping_sub(before));
        }
    }

    fn from_written(written: &mut [i64]) {
        let mut before = 0_i64;
        for step in written {
            before = before.wrapping_add(*step);
            *step = before;
        }
    }

    fn fell(before: i64, now: i64) -> bool {
        now.cast_unsigned() < before.cast_unsigned()
    }

    fn put_stale(&mut self, dst: &mut BitWriter) {
        self.put_no_change(dst, 0);
    }
}

impl CountCodec for XorCodec {
    const IS_FLOAT: bool = true;
    const ENCODINGS: [Encoding; 2] = [Encoding::FloatHistogram, Encoding::FloatHistogramSt];

    fn counts(histogram: &Histogram) -> Counts<f64> {
        match &histogram.counts {
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } if !histogram.is_stale() => Counts {
                count: *count,
                zero_count: *zero_count,
                positive: positive.clone(),
                negative: negative.clone(),
            },
            _ => Counts::default(),
        }
    }

    fn into_histogram(counts: Counts<f64>) -> HistogramCounts {
        let Counts {
            count,
            zero_count,
            positive,
            negative,
        } = counts;
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        }
    }

    fn to_written(_counts: &mut [f64]) {}

    fn from_written(_written: &mut [f64]) {}

    fn fell(before: f64, now: f64) -> bool {
        now < before
    }

    fn put_stale(&mut self, dst: &mut BitWriter) {
        self.put_next(dst, 0.0);
    }
}

/// State of a chunk after its samples so far.
#[derive(Debug)]
pub(super) struct HistogramState<C> {
    /// `None` in encodings without start timestamps.
    starts: Option<StartTimestampCodec>,
    n_samples: u32,
    timestamp: DeltaOfDelta,
    count: C,
    zero_count: C,
    sum: XorCodec,
    buckets: Vec<C>,
}

impl<C: CountCodec> HistogramState<C> {
    /// Creates the state before the first sample, from the header of the start timestamps.
    pub(super) fn of(encoding: Encoding, starts_header: u8) -> Self {
        let starts = encoding
            .has_starts()
            .then(|| StartTimestampCodec::with_header(starts_header));
        Self {
            starts,
            n_samples: 0,
            timestamp: DeltaOfDelta::default(),
            count: C::default(),
            zero_count: C::default(),
            sum: XorCodec::default(),
            buckets: Vec::new(),
        }
    }

    /// Returns the number of samples.
    pub(super) fn n_samples(&self) -> u32 {
        self.n_samples
    }

    /// Returns the timestamp of the last sample.
    pub(super) fn timestamp_ms(&self) -> i64 {
        self.timestamp.value()
    }

    /// Returns the sum of the last sample.
    pub(super) fn sum(&self) -> f64 {
        self.sum.value()
    }

    /// Returns the header of the start timestamps, if the encoding has one.
    pub(super) fn starts_header(&self) -> Option<u8> {
        self.starts.as_ref().map(StartTimestampCodec::header)
    }

    /// Returns what the next value of a column is, for signed values and for totals.
    fn nth(&self) -> (Nth, Nth) {
        if self.n_samples == 0 {
            (Nth::First, Nth::FirstTotal)
        } else {
            (Nth::Later, Nth::Later)
        }
    }

    /// Appends a sample with the buckets of `layout`. The first sample writes the layout.
    pub(super) fn put(
        &mut self,
        dst: &mut BitWriter,
        layout: &HistogramLayout,
        timestamp_ms: i64,
        start_ms: i64,
        sum: f64,
        counts: Counts<C::Value>,
    ) {
        let before_ms = if self.n_samples == 0 {
            timestamp_ms
        } else {
            self.timestamp.value()
        };
        self.put_values(dst, layout, timestamp_ms, sum, counts);
        if let Some(starts) = &mut self.starts {
            starts.put(dst, self.n_samples, before_ms, start_ms);
        }
        self.n_samples += 1;
    }

    fn put_values(
        &mut self,
        dst: &mut BitWriter,
        layout: &HistogramLayout,
        timestamp_ms: i64,
        sum: f64,
        mut counts: Counts<C::Value>,
    ) {
        C::to_written(&mut counts.positive);
        C::to_written(&mut counts.negative);
        let (nth, total) = self.nth();
        if self.n_samples == 0 {
            layout.put(dst);
            self.buckets
                .resize_with(counts.positive.len() + counts.negative.len(), C::default);
        }
        self.timestamp.put(dst, timestamp_ms, nth);
        if is_stale_nan(sum) && self.n_samples > 0 {
            self.count.put_stale(dst);
            self.zero_count.put_stale(dst);
            return self.sum.put(dst, sum, nth);
        }
        self.count.put(dst, counts.count, total);
        self.zero_count.put(dst, counts.zero_count, total);
        self.sum.put(dst, sum, nth);
        let written = counts.positive.into_iter().chain(counts.negative);
        for (codec, count) in self.buckets.iter_mut().zip(written) {
            codec.put(dst, count, nth);
        }
    }

    /// Reads a sample: timestamp, start timestamp and histogram. The layout was read before the
    /// first one.
    pub(super) fn take(
        &mut self,
        src: &mut BitReader<'_>,
        layout: &HistogramLayout,
    ) -> Result<(i64, i64, Histogram), ChunkError> {
        let before_ms = self.timestamp.value();
        let histogram = self.take_values(src, layout)?;
        let timestamp_ms = self.timestamp.value();
        let before_ms = if self.n_samples == 0 {
            timestamp_ms
        } else {
            before_ms
        };
        let start_ms = match &mut self.starts {
            Some(starts) => starts.take(src, self.n_samples, before_ms)?,
            None => 0,
        };
        self.n_samples += 1;
        Ok((timestamp_ms, start_ms, histogram))
    }

    fn take_values(
        &mut self,
        src: &mut BitReader<'_>,
        layout: &HistogramLayout,
    ) -> Result<Histogram, ChunkError> {
        let (nth, total) = self.nth();
        let n_positive = spans::count(&layout.positive) as usize;
        let n_buckets = n_positive + spans::count(&layout.negative) as usize;
        self.buckets.resize_with(n_buckets, C::default);
        self.timestamp.take(src, nth)?;
        let count = self.count.take(src, total)?;
        let zero_count = self.zero_count.take(src, total)?;
        let sum = self.sum.take(src, nth)?;
        let mut positive = Vec::with_capacity(n_buckets);
        if self.n_samples == 0 || !is_stale_nan(sum) {
            for codec in &mut self.buckets {
                positive.push(codec.take(src, nth)?);
            }
        }
        if is_stale_nan(sum) {
            return Ok(Histogram {
                sum,
                counts: C::into_histogram(Counts::default()),
                ..Histogram::default()
            });
        }
        let mut negative = positive.split_off(n_positive);
        C::from_written(&mut positive);
        C::from_written(&mut negative);
        let counts = C::into_histogram(Counts {
            count,
            zero_count,
            positive,
            negative,
        });
        Ok(Histogram {
            reset_hint: ResetHint::Unknown,
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            sum,
            counts,
            positive_spans: layout.positive.clone(),
            negative_spans: layout.negative.clone(),
            custom_bounds: layout.bounds.clone(),
        })
    }
}
