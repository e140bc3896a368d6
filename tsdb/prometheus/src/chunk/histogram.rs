//! Values of the histograms in a chunk: encodings 2 and 5 with integer counts, 3 and 6 with float counts.
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

use varve_tsdb::histogram::{Histogram, HistogramCounts, ResetHint};
use varve_tsdb::staleness::is_stale_nan;

use super::ChunkError;
use super::bstream::{BitReader, BitWriter};
use super::histogram_layout::HistogramLayout;
use super::spans;
use super::value_codec::{DeltaOfDelta, ValueCodec, XorCodec};

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

    /// Returns the counts of a histogram; a staleness marker has none.
    fn counts(histogram: &Histogram) -> Counts<Self::Value>;

    /// Converts counts to those of a histogram.
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

    fn counts(histogram: &Histogram) -> Counts<i64> {
        match &histogram.counts {
            HistogramCounts::Integer { count, zero_count, positive, negative } if !histogram.is_stale() => Counts {
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
            positive: counts.positive.into_iter().map(i64::cast_unsigned).collect(),
            negative: counts.negative.into_iter().map(i64::cast_unsigned).collect(),
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

    fn counts(histogram: &Histogram) -> Counts<f64> {
        match &histogram.counts {
            HistogramCounts::Float { count, zero_count, positive, negative } if !histogram.is_stale() => Counts {
                count: *count,
                zero_count: *zero_count,
                positive: positive.clone(),
                negative: negative.clone(),
            },
            _ => Counts::default(),
        }
    }

    fn into_histogram(counts: Counts<f64>) -> HistogramCounts {
        let Counts { count, zero_count, positive, negative } = counts;
        HistogramCounts::Float { count, zero_count, positive, negative }
    }

    fn to_written(_counts: &mut [f64]) {}

    fn from_written(_written: &mut [f64]) {}

    fn fell(before: f64, now: f64) -> bool {
        now < before
    }

    fn put_stale(&mut self, dst: &mut BitWriter) {
        self.put(dst, 0.0);
    }
}

/// State of a chunk after its samples so far.
#[derive(Debug, Default)]
pub(super) struct HistogramState<C> {
    n_samples: usize,
    timestamp: DeltaOfDelta,
    count: C,
    zero_count: C,
    sum: XorCodec,
    buckets: Vec<C>,
}

impl<C: CountCodec> HistogramState<C> {
    /// Returns the number of samples.
    pub(super) fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Returns the timestamp of the last sample, or `first_ms` if there is none.
    pub(super) fn timestamp_ms(&self, first_ms: i64) -> i64 {
        if self.n_samples == 0 { first_ms } else { self.timestamp.value() }
    }

    /// Appends a sample with the buckets of `layout`; the first sample writes the layout.
    pub(super) fn put(
        &mut self,
        dst: &mut BitWriter,
        layout: &HistogramLayout,
        timestamp_ms: i64,
        sum: f64,
        mut counts: Counts<C::Value>,
    ) {
        let is_first = self.n_samples == 0;
        self.n_samples += 1;
        C::to_written(&mut counts.positive);
        C::to_written(&mut counts.negative);
        let written = counts.positive.into_iter().chain(counts.negative);
        if is_first {
            layout.put(dst);
            self.timestamp.put_first(dst, timestamp_ms, false);
            self.count.put_first(dst, counts.count, true);
            self.zero_count.put_first(dst, counts.zero_count, true);
            self.sum.put_first(dst, sum, false);
            self.buckets = written.map(|count| first_codec(dst, count)).collect();
            return;
        }
        self.timestamp.put(dst, timestamp_ms);
        if is_stale_nan(sum) {
            self.count.put_stale(dst);
            self.zero_count.put_stale(dst);
            return self.sum.put(dst, sum);
        }
        self.count.put(dst, counts.count);
        self.zero_count.put(dst, counts.zero_count);
        self.sum.put(dst, sum);
        self.buckets.iter_mut().zip(written).for_each(|(codec, count)| codec.put(dst, count));
    }

    /// Reads a sample; the layout was read before the first one.
    pub(super) fn take(
        &mut self,
        src: &mut BitReader<'_>,
        layout: &HistogramLayout,
    ) -> Result<(i64, Histogram), ChunkError> {
        let is_first = self.n_samples == 0;
        self.n_samples += 1;
        let n_positive = spans::count(&layout.positive) as usize;
        let n_buckets = n_positive + spans::count(&layout.negative) as usize;
        let (timestamp_ms, count, zero_count, sum) = match is_first {
            true => {
                self.buckets.resize_with(n_buckets, C::default);
                let timestamp_ms = self.timestamp.take_first(src, false)?;
                let (count, zero_count) = (self.count.take_first(src, true)?, self.zero_count.take_first(src, true)?);
                (timestamp_ms, count, zero_count, self.sum.take_first(src, false)?)
            }
            false => {
                let (timestamp_ms, count) = (self.timestamp.take(src)?, self.count.take(src)?);
                (timestamp_ms, count, self.zero_count.take(src)?, self.sum.take(src)?)
            }
        };
        if is_stale_nan(sum) && !is_first {
            return Ok((timestamp_ms, stale::<C>(sum)));
        }
        let mut positive = Vec::with_capacity(n_buckets);
        for codec in &mut self.buckets {
            positive.push(if is_first { codec.take_first(src, false)? } else { codec.take(src)? });
        }
        if is_stale_nan(sum) {
            return Ok((timestamp_ms, stale::<C>(sum)));
        }
        let mut negative = positive.split_off(n_positive);
        C::from_written(&mut positive);
        C::from_written(&mut negative);
        let counts = C::into_histogram(Counts { count, zero_count, positive, negative });
        Ok((timestamp_ms, histogram(layout, sum, counts)))
    }
}

fn first_codec<C: ValueCodec>(dst: &mut BitWriter, value: C::Value) -> C {
    let mut codec = C::default();
    codec.put_first(dst, value, false);
    codec
}

fn stale<C: CountCodec>(sum: f64) -> Histogram {
    Histogram { sum, counts: C::into_histogram(Counts::default()), ..Histogram::default() }
}

fn histogram(layout: &HistogramLayout, sum: f64, counts: HistogramCounts) -> Histogram {
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: layout.schema,
        zero_threshold: layout.zero_threshold,
        sum,
        counts,
        positive_spans: layout.positive.clone(),
        negative_spans: layout.negative.clone(),
        custom_bounds: layout.bounds.clone(),
    }
}
