//! Layouts: the part of histograms that those of a run share, stored once in heads, logs and blocks.
//!
//! ```text
//! byte     bit 0: the counts are floats; other bits zero
//! byte     schema, i8
//! number   zero threshold (see `codec`)
//! spans    of positive buckets: their number (varint), then offset (zigzag) and length (varint) of each
//! varint   positive buckets: mostly, not necessarily, as many as the spans say
//! spans    of negative buckets, and their number, likewise
//! bounds   their number (varint), then each as a number
//! ```

use super::{put_number, take_number};
use crate::chunk::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};
use crate::sample::histogram::{
    BucketSpan, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts, ResetHint, all_same, same,
};

const FLOAT: u8 = 1;

/// All of a histogram except hint, sum and counts.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The counts are floats.
    pub(super) is_float: bool,
    pub(super) schema: i8,
    pub(super) zero_threshold: f64,
    pub(super) positive_spans: Vec<BucketSpan>,
    pub(super) n_positive: usize,
    pub(super) negative_spans: Vec<BucketSpan>,
    pub(super) n_negative: usize,
    pub(super) custom_bounds: Vec<f64>,
}

impl Layout {
    /// Returns the layout of a histogram.
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let (is_float, n_positive, n_negative) = shape(&histogram.counts);
        Self {
            is_float,
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            positive_spans: histogram.positive_spans.clone(),
            n_positive,
            negative_spans: histogram.negative_spans.clone(),
            n_negative,
            custom_bounds: histogram.custom_bounds.clone(),
        }
    }

    /// Returns `true` if a histogram has this layout, bit for bit.
    pub(crate) fn is_of(&self, histogram: &Histogram) -> bool {
        shape(&histogram.counts) == (self.is_float, self.n_positive, self.n_negative)
            && self.schema == histogram.schema
            && same(self.zero_threshold, histogram.zero_threshold)
            && self.positive_spans == histogram.positive_spans
            && self.negative_spans == histogram.negative_spans
            && all_same(&self.custom_bounds, &histogram.custom_bounds)
    }

    /// Returns `true` if the counts are floats.
    pub(crate) fn is_float(&self) -> bool {
        self.is_float
    }

    /// Returns the number of buckets without the zero bucket.
    pub(crate) fn n_buckets(&self) -> usize {
        self.n_positive + self.n_negative
    }

    /// Returns the number of values in a histogram of this layout, as [`Histogram::n_cells`] does.
    pub(crate) fn n_cells(&self) -> usize {
        4 + self.n_buckets() + self.positive_spans.len() + self.negative_spans.len() + self.custom_bounds.len()
    }

    /// Creates a histogram of this layout, with counts as integers or floats: of all observations, in the zero bucket,
    /// and in each bucket.
    pub(crate) fn histogram(&self, sum: f64, counts: HistogramCounts) -> Histogram {
        debug_assert_eq!(shape(&counts), (self.is_float, self.n_positive, self.n_negative), "counts of this layout");
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            sum,
            counts,
            positive_spans: self.positive_spans.clone(),
            negative_spans: self.negative_spans.clone(),
            custom_bounds: self.custom_bounds.clone(),
        }
    }

    /// Returns the number of positive buckets; the negative ones follow them.
    pub(crate) fn n_positive(&self) -> usize {
        self.n_positive
    }

    /// Returns the spans of positive and of negative buckets.
    pub(crate) fn spans(&self) -> (&[BucketSpan], &[BucketSpan]) {
        (&self.positive_spans, &self.negative_spans)
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>()
            + (self.positive_spans.len() + self.negative_spans.len()) * size_of::<BucketSpan>()
            + self.custom_bounds.len() * size_of::<f64>()
    }

    /// Appends the layout.
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) {
        dst.push(if self.is_float { FLOAT } else { 0 });
        dst.push(self.schema.cast_unsigned());
        put_number(dst, self.zero_threshold);
        put_spans(dst, &self.positive_spans);
        put_u64(dst, self.n_positive as u64);
        put_spans(dst, &self.negative_spans);
        put_u64(dst, self.n_negative as u64);
        put_u64(dst, self.custom_bounds.len() as u64);
        self.custom_bounds.iter().for_each(|&bound| put_number(dst, bound));
    }

    /// Decodes a layout from the front of `src`. Returns `None` if it is damaged.
    pub(crate) fn decode(src: &mut &[u8]) -> Option<Self> {
        let &[flags, schema] = take_bytes(src, 2)? else { return None };
        if flags & !FLOAT != 0 {
            return None;
        }
        let zero_threshold = take_number(src)?;
        let (positive_spans, n_positive) = (take_spans(src)?, take_len(src, HISTOGRAM_BUCKETS_MAX)?);
        let (negative_spans, n_negative) = (take_spans(src)?, take_len(src, HISTOGRAM_BUCKETS_MAX)?);
        if n_positive + n_negative > HISTOGRAM_BUCKETS_MAX {
            return None;
        }
        // A bound takes at least a byte: the reserved memory is bounded by the input.
        let n_bounds = take_len(src, src.len().min(HISTOGRAM_BUCKETS_MAX))?;
        let mut custom_bounds = Vec::with_capacity(n_bounds);
        for _ in 0..n_bounds {
            custom_bounds.push(take_number(src)?);
        }
        Some(Self {
            is_float: flags & FLOAT != 0,
            schema: schema.cast_signed(),
            zero_threshold,
            positive_spans,
            n_positive,
            negative_spans,
            n_negative,
            custom_bounds,
        })
    }
}

/// Returns whether counts are floats, and the numbers of positive and negative buckets.
fn shape(counts: &HistogramCounts) -> (bool, usize, usize) {
    match counts {
        HistogramCounts::Integer { positive, negative, .. } => (false, positive.len(), negative.len()),
        HistogramCounts::Float { positive, negative, .. } => (true, positive.len(), negative.len()),
    }
}

fn put_spans(dst: &mut Vec<u8>, spans: &[BucketSpan]) {
    put_u64(dst, spans.len() as u64);
    for span in spans {
        put_i64(dst, span.offset.into());
        put_u64(dst, span.length.into());
    }
}

fn take_spans(src: &mut &[u8]) -> Option<Vec<BucketSpan>> {
    // A span takes at least two bytes: the reserved memory is bounded by the input.
    let n_spans = take_len(src, (src.len() / 2).min(HISTOGRAM_BUCKETS_MAX))?;
    let mut spans = Vec::with_capacity(n_spans);
    for _ in 0..n_spans {
        let offset = i32::try_from(take_i64(src)?).ok()?;
        spans.push(BucketSpan { offset, length: u32::try_from(take_u64(src)?).ok()? });
    }
    Some(spans)
}

fn take_len(src: &mut &[u8], max: usize) -> Option<usize> {
    usize::try_from(take_u64(src)?).ok().filter(|&len| len <= max)
}
