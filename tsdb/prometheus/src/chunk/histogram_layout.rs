//! The layout that all histograms of a chunk share, written once before them. Source: Prometheus
//! `tsdb/chunkenc/histogram_meta.go`.
//!
//! ```text
//! u8      zero threshold: 0; 1 to 254: 2^(byte - 244); 255: followed by a double
//! varbit  schema
//! spans   positive, then negative: number of spans, then length and offset of each
//! bounds  custom buckets only: number of bounds, then each as thousandths + 1, or 0 and a double
//! ```

use varve_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, Histogram};

use super::bstream::{BitReader, BitSink, BitWriter};
use super::error::ChunkError;
use super::spans;

/// Maximum thousandths of a bound. Larger bounds are doubles.
const THOUSANDTHS_MAX: f64 = 33_554_430.0;
/// The code of a zero threshold that is written as a double.
const THRESHOLD_DOUBLE: u8 = 255;
/// Exponents of the powers of two that are zero thresholds with a code of their own.
const EXPONENTS: std::ops::RangeInclusive<i32> = -243..=10;
/// The code less the exponent.
const EXPONENT_BIAS: i32 = 244;
/// Bias of the exponent of a double.
const DOUBLE_BIAS: i32 = 1023;
const MANTISSA_BITS: u32 = 52;

/// Schema, zero threshold, buckets and bounds.
#[derive(Debug, Clone, Default)]
pub(super) struct HistogramLayout {
    pub(super) schema: i8,
    pub(super) zero_threshold: f64,
    pub(super) positive: Vec<BucketSpan>,
    pub(super) negative: Vec<BucketSpan>,
    pub(super) bounds: Vec<f64>,
}

impl HistogramLayout {
    /// Returns the layout of a histogram, with spans that end at the last bucket that has a count.
    /// The layout of a staleness marker is empty.
    pub(super) fn of(histogram: &Histogram) -> Self {
        if histogram.is_stale() {
            return Self::default();
        }
        let (n_positive, n_negative) = histogram.counts.n_buckets();
        Self {
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            positive: spans::first(&histogram.positive_spans, n_positive),
            negative: spans::first(&histogram.negative_spans, n_negative),
            bounds: histogram.custom_bounds.clone(),
        }
    }

    /// Returns the number of values of a histogram with this layout.
    pub(super) fn n_values(&self) -> usize {
        // A layout read from a chunk has at most HISTOGRAM_BUCKETS_MAX of each.
        let n_buckets = spans::count(&self.positive) + spans::count(&self.negative);
        4 + n_buckets as usize + self.positive.len() + self.negative.len() + self.bounds.len()
    }

    /// Appends the layout.
    pub(super) fn put(&self, dst: &mut BitWriter) {
        put_threshold(dst, self.zero_threshold);
        dst.put_varbit(i64::from(self.schema));
        put_spans(dst, &self.positive);
        put_spans(dst, &self.negative);
        if self.schema == CUSTOM_BUCKETS_SCHEMA {
            dst.put_varbit_unsigned(self.bounds.len() as u64);
            for &bound in &self.bounds {
                put_bound(dst, bound);
            }
        }
    }

    /// Reads a layout.
    pub(super) fn take(src: &mut BitReader<'_>) -> Result<Self, ChunkError> {
        let zero_threshold = take_threshold(src)?;
        let schema = src.take_varbit()?;
        let known = i8::try_from(schema)
            .ok()
            .filter(|&known| known == CUSTOM_BUCKETS_SCHEMA || (-4..=8).contains(&known));
        let schema = known.ok_or(ChunkError::Schema(schema))?;
        let positive = take_spans(src)?;
        let negative = take_spans(src)?;
        // Every bucket of the first sample takes at least one bit.
        if spans::count(&positive) + spans::count(&negative) > src.n_left() as u64 {
            return Err(ChunkError::Truncated);
        }
        let mut bounds = Vec::new();
        if schema == CUSTOM_BUCKETS_SCHEMA {
            for _ in 0..take_len(src)? {
                bounds.push(take_bound(src)?);
            }
        }
        Ok(Self {
            schema,
            zero_threshold,
            positive,
            negative,
            bounds,
        })
    }
}

fn put_threshold(dst: &mut BitWriter, threshold: f64) {
    let bits = threshold.to_bits();
    // A sign bit makes the exponent too large.
    let exponent = (bits >> MANTISSA_BITS) as i32 - DOUBLE_BIAS;
    if threshold == 0.0 {
        dst.put(0, 8);
    } else if bits.trailing_zeros() >= MANTISSA_BITS && EXPONENTS.contains(&exponent) {
        dst.put(u64::from((exponent + EXPONENT_BIAS).unsigned_abs()), 8);
    } else {
        dst.put(u64::from(THRESHOLD_DOUBLE), 8);
        dst.put(bits, 64);
    }
}

fn take_threshold(src: &mut BitReader<'_>) -> Result<f64, ChunkError> {
    let byte = src.take(8)? as u8;
    let bits = match byte {
        0 => 0,
        THRESHOLD_DOUBLE => src.take(64)?,
        _ => {
            u64::from((i32::from(byte) - EXPONENT_BIAS + DOUBLE_BIAS).unsigned_abs())
                << MANTISSA_BITS
        }
    };
    Ok(f64::from_bits(bits))
}

fn put_spans(dst: &mut BitWriter, spans: &[BucketSpan]) {
    dst.put_varbit_unsigned(spans.len() as u64);
    for span in spans {
        dst.put_varbit_unsigned(u64::from(span.length));
        dst.put_varbit(i64::from(span.offset));
    }
}

fn take_spans(src: &mut BitReader<'_>) -> Result<Vec<BucketSpan>, ChunkError> {
    let mut spans = Vec::new();
    let mut n_buckets = 0_u64;
    for _ in 0..take_len(src)? {
        let length = u32::try_from(src.take_varbit_unsigned()?).map_err(|_| ChunkError::Invalid)?;
        let offset = i32::try_from(src.take_varbit()?).map_err(|_| ChunkError::Invalid)?;
        n_buckets += u64::from(length);
        spans.push(BucketSpan { offset, length });
    }
    if n_buckets > HISTOGRAM_BUCKETS_MAX as u64 {
        return Err(ChunkError::TooLarge);
    }
    Ok(spans)
}

/// Reads a number of items, each of which takes at least one bit.
fn take_len(src: &mut BitReader<'_>) -> Result<usize, ChunkError> {
    let len = src.take_varbit_unsigned()?;
    if len > src.n_left() as u64 {
        return Err(ChunkError::Truncated);
    }
    if len > HISTOGRAM_BUCKETS_MAX as u64 {
        return Err(ChunkError::TooLarge);
    }
    Ok(len as usize)
}

fn put_bound(dst: &mut BitWriter, bound: f64) {
    let thousandths = (bound * 1000.0).round();
    if (0.0..=THOUSANDTHS_MAX).contains(&(bound * 1000.0)) && thousandths / 1000.0 == bound {
        dst.put_varbit_unsigned(thousandths as u64 + 1);
    } else {
        dst.put(0, 1);
        dst.put(bound.to_bits(), 64);
    }
}

fn take_bound(src: &mut BitReader<'_>) -> Result<f64, ChunkError> {
    Ok(match src.take_varbit_unsigned()? {
        0 => f64::from_bits(src.take(64)?),
        thousandths => (thousandths - 1) as f64 / 1000.0,
    })
}
