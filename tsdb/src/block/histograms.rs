//! Rows of a series that has histograms: runs of samples of one kind and layout, in columns.
//!
//! Used by pages of rows. Format: docs/format/block.md, "Rows with histograms".
//!
//! ```text
//! repeated until the row has all its samples:
//! run      varint: twice one less than its number of samples, and 1 more if they are histograms
//! floats   a row of values; that is all
//! layout   varint: 0: a new one follows (see `histogram::Layout`); k: the k-th last new one of the row
//! hints    repeated until all are there: varint, 4 times one less than how many histograms, and their reset hint
//! sum      a row of values
//! counts   whole numbers: columns of integers: the count less all that follow, the zero bucket, each bucket.
//!          Floats: rows of values: the count, the zero bucket, each bucket
//! ```
//! A bucket grows by about as much between any two samples, so its column needs the bits of what varies in that. What an
//! observation adds to a bucket it adds to the count, which costs nothing then.

use std::ops::Range;
use std::sync::Arc;

use super::Damaged;
use super::values::{ValueEncoder, decode_values, integers};
use crate::histogram::{Histogram, HistogramCounts, Layout, ResetHint};
use crate::sample::SampleColumns;
use crate::varint::{put_u64, take_u64};

/// Most cells ([`Histogram::n_cells`]) that a series has in one page of rows: its rows then stay below 2^24 bytes, as the
/// largest column takes 32 bytes a cell, and decode into a few MiB. One histogram has less.
pub(in crate::block) const SERIES_CELLS_MAX: usize = 1 << 18;

/// Some samples of a series, for a page of rows.
#[derive(Clone, Copy)]
pub(in crate::block) struct RowSamples<'a> {
    /// The floats, and the sums of histograms.
    values: &'a [f64],
    /// The samples that are histograms, by their places less `first`.
    histograms: &'a [(u32, Arc<Histogram>)],
    first: usize,
}

impl<'a> RowSamples<'a> {
    /// Returns the samples at some places of columns.
    pub(in crate::block) fn of(samples: &'a SampleColumns, places: Range<usize>) -> Self {
        let all = Self { values: &samples.values, histograms: &samples.histograms, first: 0 };
        all.split_at(places.end).0.split_at(places.start).1
    }

    /// Returns samples that are floats.
    #[cfg(test)]
    pub(in crate::block) fn floats(values: &'a [f64]) -> Self {
        Self { values, histograms: &[], first: 0 }
    }

    /// Counts the samples.
    pub(in crate::block) fn len(self) -> usize {
        self.values.len()
    }

    /// Tells whether some are histograms.
    pub(in crate::block) fn has_histograms(self) -> bool {
        !self.histograms.is_empty()
    }

    /// Returns the values.
    pub(in crate::block) fn values(self) -> &'a [f64] {
        self.values
    }

    /// Parts the samples before a place.
    pub(in crate::block) fn split_at(self, at: usize) -> (Self, Self) {
        let n_before = self.histograms.partition_point(|(place, _)| (*place as usize) < self.first + at);
        let (values, other_values) = self.values.split_at(at);
        let (histograms, others) = self.histograms.split_at(n_before);
        let rest = Self { values: other_values, histograms: others, first: self.first + at };
        (Self { values, histograms, first: self.first }, rest)
    }

    /// Counts the samples at the front that are of one kind, histograms of one layout.
    fn run_len(self) -> usize {
        let Some((first, histogram)) = self.histograms.first() else { return self.values.len() };
        if *first as usize > self.first {
            return *first as usize - self.first;
        }
        let layout = Layout::of(histogram);
        let in_run =
            |&(i, (place, of)): &(usize, &(u32, Arc<Histogram>))| *place as usize == self.first + i && layout.is_of(of);
        self.histograms.iter().enumerate().take_while(in_run).count()
    }
}

/// Returns how many of some samples one page of rows takes.
pub(in crate::block) fn n_fitting(samples: RowSamples<'_>) -> usize {
    let mut n_cells = 0;
    for (place, histogram) in samples.histograms {
        n_cells += histogram.n_cells();
        if n_cells > SERIES_CELLS_MAX {
            return (*place as usize - samples.first).max(1);
        }
    }
    samples.len()
}

/// Appends a row of samples.
pub(in crate::block) fn encode_row(samples: RowSamples<'_>, encoder: &mut ValueEncoder, dst: &mut Vec<u8>) {
    let (mut layouts, mut rest) = (Vec::<Layout>::new(), samples);
    while rest.len() > 0 {
        let (run, others) = rest.split_at(rest.run_len());
        rest = others;
        let head = (run.len() as u64 - 1) << 1;
        let Some((_, first)) = run.histograms.first() else {
            put_u64(dst, head);
            encoder.encode(run.values, dst);
            continue;
        };
        put_u64(dst, head | 1);
        match layouts.iter().rev().position(|layout| layout.is_of(first)) {
            Some(back) => put_u64(dst, back as u64 + 1),
            None => {
                put_u64(dst, 0);
                let layout = Layout::of(first);
                layout.encode(dst);
                layouts.push(layout);
            }
        }
        encode_histograms(run, encoder, dst);
    }
}

/// Appends hints, sums and counts of histograms of one layout.
fn encode_histograms(run: RowSamples<'_>, encoder: &mut ValueEncoder, dst: &mut Vec<u8>) {
    for alike in run.histograms.chunk_by(|(_, a), (_, b)| a.reset_hint == b.reset_hint) {
        put_u64(dst, (alike.len() as u64 - 1) << 2 | u64::from(alike[0].1.reset_hint.code()));
    }
    encoder.encode(run.values, dst);
    let n_columns = run.histograms[0].1.n_buckets() + 2;
    if matches!(run.histograms[0].1.counts, HistogramCounts::Integer { .. }) {
        let mut column = Vec::with_capacity(run.len());
        for i in 0..n_columns {
            column.clear();
            column.extend(run.histograms.iter().map(|(_, of)| integer_cell(&of.counts, i).cast_signed()));
            encoder.encode_integers(&column, dst);
        }
    } else {
        let mut column = Vec::with_capacity(run.len());
        for i in 0..n_columns {
            column.clear();
            column.extend(run.histograms.iter().map(|(_, of)| float_cell(&of.counts, i)));
            encoder.encode(&column, dst);
        }
    }
}

/// Returns what the `i`-th column holds of whole counts.
fn integer_cell(counts: &HistogramCounts, i: usize) -> u64 {
    let HistogramCounts::Integer { count, zero_count, positive, negative } = counts else { return 0 };
    match i {
        0 => positive.iter().chain(negative).fold(count.wrapping_sub(*zero_count), |rest, of| rest.wrapping_sub(*of)),
        1 => *zero_count,
        i => *positive.get(i - 2).unwrap_or_else(|| &negative[i - 2 - positive.len()]),
    }
}

/// Returns what the `i`-th column holds of counts that are floats.
fn float_cell(counts: &HistogramCounts, i: usize) -> f64 {
    let HistogramCounts::Float { count, zero_count, positive, negative } = counts else { return 0.0 };
    match i {
        0 => *count,
        1 => *zero_count,
        i => *positive.get(i - 2).unwrap_or_else(|| &negative[i - 2 - positive.len()]),
    }
}

/// Appends the samples at `wanted` of the `n_samples` of a row: values, and histograms at their places. `n_cells_max` is
/// what is left of [`SERIES_CELLS_MAX`].
pub(in crate::block) fn decode_row(
    mut src: &[u8],
    n_samples: usize,
    wanted: Range<usize>,
    n_cells_max: &mut usize,
    dst: &mut SampleColumns,
) -> Result<(), Damaged> {
    let src = &mut src;
    let (mut layouts, mut at) = (Vec::new(), 0);
    while at < n_samples {
        let head = take_u64(src).ok_or(Damaged)?;
        let more = usize::try_from(head >> 1).map_err(|_| Damaged)?;
        let n = more.checked_add(1).filter(|&n| n <= n_samples - at).ok_or(Damaged)?;
        let of_run = wanted.start.clamp(at, at + n) - at..wanted.end.clamp(at, at + n) - at;
        at += n;
        if head & 1 == 0 {
            let start = dst.values.len();
            decode_values(src, n, &mut dst.values)?;
            dst.values.truncate(start + of_run.end);
            dst.values.drain(start..start + of_run.start);
            continue;
        }
        let back = take_u64(src).ok_or(Damaged)?;
        if back == 0 {
            layouts.push(Layout::decode(src).ok_or(Damaged)?);
        }
        let back = usize::try_from(back.max(1)).map_err(|_| Damaged)?;
        let layout = layouts.len().checked_sub(back).map(|i| &layouts[i]).ok_or(Damaged)?;
        let left = layout.n_cells().checked_mul(n).and_then(|n_cells| n_cells_max.checked_sub(n_cells));
        *n_cells_max = left.ok_or(Damaged)?;
        let run = Run::decode(src, layout, n).ok_or(Damaged)?;
        for i in of_run {
            let place = u32::try_from(dst.values.len()).map_err(|_| Damaged)?;
            dst.values.push(run.sums[i]);
            dst.histograms.push((place, Arc::new(run.histogram(i))));
        }
    }
    if src.is_empty() { Ok(()) } else { Err(Damaged) }
}

/// Histograms of one layout, in columns of `n`.
struct Run<'a> {
    layout: &'a Layout,
    n: usize,
    hints: Vec<ResetHint>,
    sums: Vec<f64>,
    cells: Cells,
}

/// Column by column: the count (of whole numbers, less all others), the zero bucket, the buckets.
enum Cells {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
}

impl<'a> Run<'a> {
    fn decode(src: &mut &[u8], layout: &'a Layout, n: usize) -> Option<Self> {
        let mut hints = Vec::with_capacity(n);
        while hints.len() < n {
            let of = take_u64(src)?;
            let more = usize::try_from(of >> 2).ok()?;
            let n_alike = more.checked_add(1).filter(|&n_alike| n_alike <= n - hints.len())?;
            hints.resize(hints.len() + n_alike, ResetHint::from_code((of & 3) as u8)?);
        }
        let mut sums = Vec::with_capacity(n);
        decode_values(src, n, &mut sums).ok()?;
        let n_columns = layout.n_buckets() + 2;
        let cells = if layout.is_float() {
            let mut cells = Vec::with_capacity(n_columns * n);
            (0..n_columns).try_for_each(|_| decode_values(src, n, &mut cells).ok())?;
            Cells::Floats(cells)
        } else {
            let mut cells = vec![0; n_columns * n];
            cells.chunks_exact_mut(n).try_for_each(|column| integers::decode_integers(src, column))?;
            Cells::Integers(cells)
        };
        Some(Self { layout, n, hints, sums, cells })
    }

    fn histogram(&self, i: usize) -> Histogram {
        let n_positive = self.layout.n_positive();
        let counts = match &self.cells {
            Cells::Integers(cells) => {
                let mut row = cells[i..].iter().step_by(self.n).map(|cell| cell.cast_unsigned());
                let (rest, zero_count) = (row.next().unwrap_or(0), row.next().unwrap_or(0));
                let positive: Vec<u64> = row.by_ref().take(n_positive).collect();
                let negative: Vec<u64> = row.collect();
                let buckets = positive.iter().chain(&negative);
                let count = buckets.fold(rest.wrapping_add(zero_count), |sum, of| sum.wrapping_add(*of));
                HistogramCounts::Integer { count, zero_count, positive, negative }
            }
            Cells::Floats(cells) => {
                let mut row = cells[i..].iter().step_by(self.n).copied();
                let (count, zero_count) = (row.next().unwrap_or(0.0), row.next().unwrap_or(0.0));
                let positive = row.by_ref().take(n_positive).collect();
                HistogramCounts::Float { count, zero_count, positive, negative: row.collect() }
            }
        };
        Histogram { reset_hint: self.hints[i], ..self.layout.histogram(self.sums[i], counts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::tests::{any_histogram, is_identical};
    use crate::sample::Sample;
    use proptest::prelude::*;

    /// Makes columns of which some samples are floats; repeated ones make runs.
    fn any_columns() -> impl Strategy<Value = SampleColumns> {
        let of = prop_oneof![any::<u64>().prop_map(|bits| Err(f64::from_bits(bits))), any_histogram().prop_map(Ok)];
        proptest::collection::vec((of, 1..30_usize), 1..12).prop_map(|runs| {
            let mut columns = SampleColumns::default();
            for (of, n) in runs {
                for _ in 0..n {
                    let timestamp_ms = columns.len() as i64;
                    match &of {
                        Err(value) => columns.push(Sample { timestamp_ms, value: *value }),
                        Ok(histogram) => {
                            let mut histogram = histogram.clone();
                            if let HistogramCounts::Integer { count, positive, .. } = &mut histogram.counts {
                                *count = count.wrapping_add(columns.values.len() as u64);
                                positive.iter_mut().for_each(|of| *of = of.wrapping_add(columns.values.len() as u64));
                            }
                            columns.push_histogram(timestamp_ms, Arc::new(histogram));
                        }
                    }
                }
            }
            columns
        })
    }

    fn row(columns: &SampleColumns) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_row(RowSamples::of(columns, 0..columns.len()), &mut ValueEncoder::default(), &mut bytes);
        bytes
    }

    fn decode(bytes: &[u8], n: usize, wanted: Range<usize>) -> Result<SampleColumns, Damaged> {
        let (mut decoded, mut n_cells) = (SampleColumns::default(), SERIES_CELLS_MAX);
        decode_row(bytes, n, wanted, &mut n_cells, &mut decoded).map(|()| decoded)
    }

    proptest! {
        #[test]
        fn any_part_of_a_row_comes_back(columns in any_columns(), a in any::<usize>(), b in any::<usize>()) {
            let (a, b) = (a % columns.len(), b % columns.len());
            let wanted = a.min(b)..a.max(b) + 1;
            let decoded = decode(&row(&columns), columns.len(), wanted.clone()).unwrap();
            prop_assert_eq!(decoded.values.len(), wanted.len());
            for (i, place) in wanted.enumerate() {
                prop_assert_eq!(decoded.values[i].to_bits(), columns.values[place].to_bits());
                match (decoded.histogram(i), columns.histogram(place)) {
                    (None, None) => {}
                    (Some(found), Some(expected)) => prop_assert!(is_identical(found, expected), "{found:?}"),
                    (found, expected) => prop_assert!(false, "{found:?} for {expected:?}"),
                }
            }
        }

        #[test]
        fn cut_and_random_rows_never_panic(
            columns in any_columns(), at in any::<usize>(), flip in 1..=255_u8,
            bytes in proptest::collection::vec(any::<u8>(), 0..100), n in 1..960_usize,
        ) {
            let mut row = row(&columns);
            prop_assert!(decode(&row[..at % row.len()], columns.len(), 0..columns.len()).is_err());
            let at = at % row.len();
            row[at] ^= flip;
            let _ = decode(&row, columns.len(), 0..columns.len());
            let _ = decode(&bytes, n, 0..n);
        }
    }

    #[test]
    fn small_rows_that_decode_into_much_are_refused() {
        let wide = HistogramCounts::Integer { count: 0, zero_count: 0, positive: vec![0; 5_000], negative: vec![] };
        let mut columns = SampleColumns::default();
        let histogram = Arc::new(Histogram { counts: wide, ..Histogram::default() });
        (0..60).for_each(|t| columns.push_histogram(t, Arc::clone(&histogram)));
        assert_eq!(n_fitting(RowSamples::of(&columns, 0..60)), SERIES_CELLS_MAX / 5_004);
        assert!(decode(&row(&columns), 60, 0..1).is_err());
        columns.truncate(SERIES_CELLS_MAX / 5_004);
        assert!(decode(&row(&columns), columns.len(), 0..1).is_ok());
    }
}
