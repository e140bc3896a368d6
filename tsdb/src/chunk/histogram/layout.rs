//! Histogram layouts: the fields that consecutive histograms share, stored once in heads, the WAL
//! and blocks.
//!
//! ```text
//! byte     bit 0: the counts are floats; other bits are zero
//! byte     schema, i8
//! number   zero threshold (a number as defined in the parent module)
//! spans    of positive buckets: their number (varint), then the offset (zigzag) and length (varint) of each span
//! varint   number of positive buckets: usually, but not necessarily, the sum of the lengths
//! spans    of negative buckets, in the same form
//! varint   number of negative buckets
//! bounds   of custom buckets: their number (varint), then each as a number
//! ```

use varve_codec::varint::{put_i64, put_u64, take_bytes, take_i64, take_int};
use varve_model::histogram::{
    BucketSpan, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts, ResetHint, all_same, same,
};

use super::number::{put_number, take_n, take_number};

const FLOAT: u8 = 1;

/// All fields of a histogram except reset hint, sum and counts.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// `true` if the counts are floats.
    pub(crate) is_float: bool,
    schema: i8,
    zero_threshold: f64,
    pub(crate) positive_spans: Vec<BucketSpan>,
    pub(crate) n_positive: usize,
    pub(crate) negative_spans: Vec<BucketSpan>,
    pub(crate) n_negative: usize,
    custom_bounds: Vec<f64>,
}

impl Layout {
    /// Returns the layout of a histogram.
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let (n_positive, n_negative) = histogram.counts.n_buckets();
        Self {
            is_float: is_float(&histogram.counts),
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
        self.fits(&histogram.counts)
            && self.schema == histogram.schema
            && same(self.zero_threshold, histogram.zero_threshold)
            && self.positive_spans == histogram.positive_spans
            && self.negative_spans == histogram.negative_spans
            && all_same(&self.custom_bounds, &histogram.custom_bounds)
    }

    /// Returns `true` if counts have the type and the numbers of buckets of this layout.
    fn fits(&self, counts: &HistogramCounts) -> bool {
        is_float(counts) == self.is_float
            && counts.n_buckets() == (self.n_positive, self.n_negative)
    }

    /// Returns the number of buckets, without the zero bucket.
    pub(crate) fn n_buckets(&self) -> usize {
        self.n_positive + self.n_negative
    }

    /// Returns [`Histogram::n_cells`] of a histogram with this layout.
    pub(crate) fn n_cells(&self) -> usize {
        4 + self.n_buckets()
            + self.positive_spans.len()
            + self.negative_spans.len()
            + self.custom_bounds.len()
    }

    /// Creates a histogram of this layout with an unknown reset hint. The counts must fit the
    /// layout.
    pub(crate) fn histogram(&self, sum: f64, counts: HistogramCounts) -> Histogram {
        debug_assert!(self.fits(&counts), "counts of this layout");
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

    /// Returns the size in memory in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>()
            + (self.positive_spans.len() + self.negative_spans.len()) * size_of::<BucketSpan>()
            + self.custom_bounds.len() * size_of::<f64>()
    }

    /// Appends the encoded layout.
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) {
        dst.push(if self.is_float { FLOAT } else { 0 });
        dst.push(self.schema.cast_unsigned());
        put_number(dst, self.zero_threshold);
        put_spans(dst, &self.positive_spans);
        put_u64(dst, self.n_positive as u64);
        put_spans(dst, &self.negative_spans);
        put_u64(dst, self.n_negative as u64);
        put_u64(dst, self.custom_bounds.len() as u64);
        for &bound in &self.custom_bounds {
            put_number(dst, bound);
        }
    }

    /// Decodes a layout from the front of `src`. Returns `None` if it is damaged.
    pub(crate) fn decode(src: &mut &[u8]) -> Option<Self> {
        let &[flags, schema] = take_bytes(src, 2)? else {
            return None;
        };
        if flags & !FLOAT != 0 {
            return None;
        }
        let zero_threshold = take_number(src)?;
        let positive_spans = take_spans(src)?;
        let n_positive = take_len(src, HISTOGRAM_BUCKETS_MAX)?;
        let negative_spans = take_spans(src)?;
        let n_negative = take_len(src, HISTOGRAM_BUCKETS_MAX)?;
        if n_positive + n_negative > HISTOGRAM_BUCKETS_MAX {
            return None;
        }
        // A bound takes at least one byte: the input bounds the reserved memory.
        let n_bounds = take_len(src, src.len().min(HISTOGRAM_BUCKETS_MAX))?;
        let custom_bounds = take_n(n_bounds, || take_number(src))?;
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

fn is_float(counts: &HistogramCounts) -> bool {
    matches!(counts, HistogramCounts::Float { .. })
}

fn put_spans(dst: &mut Vec<u8>, spans: &[BucketSpan]) {
    put_u64(dst, spans.len() as u64);
    for span in spans {
        put_i64(dst, span.offset.into());
        put_u64(dst, span.length.into());
    }
}

fn take_spans(src: &mut &[u8]) -> Option<Vec<BucketSpan>> {
    // A span takes at least two bytes: the input bounds the reserved memory.
    let n_spans = take_len(src, (src.len() / 2).min(HISTOGRAM_BUCKETS_MAX))?;
    take_n(n_spans, || {
        Some(BucketSpan {
            offset: take_i64(src)?.try_into().ok()?,
            length: take_int(src)?,
        })
    })
}

fn take_len(src: &mut &[u8], max: usize) -> Option<usize> {
    take_int(src).filter(|&len| len <= max)
}
