//! Rows of series with histograms: runs of samples of one kind, in columns.
//!
//! Used by pages of rows. Format: docs/format/block.md, "Rows with histograms".
//!
//! ```text
//! repeated until the row has all its samples:
//! run      varint: twice (number of samples - 1), plus 1 if they are histograms
//! floats   a row of values; the following fields are only in runs of histograms
//! layouts  their number, from 1, as a varint, and each of them (see `histogram::Layout`)
//! uses     only with several layouts, repeated until all samples have a layout: index of a layout, and number of
//!          samples with it less 1, two varints
//! hints    repeated until all histograms have a hint: varint, 4 * (number of histograms - 1) + their reset hint
//! sum      a row of values
//! counts   integers: integer columns: the count less all buckets, the zero bucket, each bucket
//!          floats: rows of values: the count, the zero bucket, each bucket
//! ```
//! With several layouts, there is a column for each bucket of any layout, by index, positive
//! buckets first. A histogram without such a bucket has 0 in its column. So a new bucket costs only
//! its own column.
//!
//! A bucket grows by about the same amount between any two samples, so its column needs only the
//! bits that vary. An observation increases both a bucket and the count, so the count less all
//! buckets costs almost nothing.

use std::ops::Range;
use std::sync::Arc;

use varve_codec::integers;
use varve_codec::values::{ValueEncoder, decode_values};
use varve_codec::varint::{put_u64, take_int, take_u64};
use varve_model::SampleColumns;
use varve_model::histogram::{Histogram, HistogramCounts, ResetHint};

use super::bucket_columns::BucketColumns;
use crate::chunk::histogram::Layout;
use crate::error::Damaged;

/// Maximum number of cells ([`Histogram::n_cells`]) of a series in one page of rows. A column takes
/// less than 64 bytes per cell, so the rows of a series stay below 2^24 bytes and decode to a few
/// MiB. One histogram has fewer cells.
pub(crate) const SERIES_CELLS_MAX: usize = 1 << 18;

/// Samples of a series for a page of rows.
#[derive(Clone, Copy)]
pub(crate) struct RowSamples<'a> {
    /// The floats, and the sums of histograms.
    pub(crate) values: &'a [f64],
    /// The samples that are histograms, with their indexes plus `first`.
    histograms: &'a [(u32, Arc<Histogram>)],
    first: usize,
}

impl<'a> RowSamples<'a> {
    /// Returns a range of samples of columns.
    pub(crate) fn of(samples: &'a SampleColumns, places: Range<usize>) -> Self {
        let all = Self {
            values: &samples.values,
            histograms: &samples.histograms,
            first: 0,
        };
        all.split_at(places.end).0.split_at(places.start).1
    }

    /// Returns float samples.
    #[cfg(test)]
    pub(crate) fn floats(values: &'a [f64]) -> Self {
        Self {
            values,
            histograms: &[],
            first: 0,
        }
    }

    /// Returns the number of samples.
    pub(crate) fn len(self) -> usize {
        self.values.len()
    }

    /// Returns `true` if some samples are histograms.
    pub(crate) fn has_histograms(self) -> bool {
        !self.histograms.is_empty()
    }

    /// Splits the samples at an index.
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        let n_before = self
            .histograms
            .partition_point(|(position, _)| (*position as usize) < self.first + at);
        let (values, other_values) = self.values.split_at(at);
        let (histograms, others) = self.histograms.split_at(n_before);
        let rest = Self {
            values: other_values,
            histograms: others,
            first: self.first + at,
        };
        (
            Self {
                values,
                histograms,
                first: self.first,
            },
            rest,
        )
    }

    /// Returns the number of floats before the first histogram.
    fn n_floats(self) -> usize {
        self.histograms
            .first()
            .map_or(self.values.len(), |(first, _)| *first as usize - self.first)
    }

    /// Returns the number of histograms before the first float.
    fn n_histograms(self) -> usize {
        let mut n = 0;
        for (position, _) in self.histograms {
            if *position as usize != self.first + n {
                break;
            }
            n += 1;
        }
        n
    }
}

/// Returns the number of samples from the start that fit one page of rows, at least one.
pub(crate) fn n_fitting(samples: RowSamples<'_>) -> usize {
    let mut n_cells = 0;
    for (position, histogram) in samples.histograms {
        n_cells += histogram.n_cells();
        if n_cells > SERIES_CELLS_MAX {
            return (*position as usize - samples.first).max(1);
        }
    }
    samples.len()
}

/// Appends a row of samples.
pub(crate) fn encode_row(samples: RowSamples<'_>, encoder: &mut ValueEncoder, dst: &mut Vec<u8>) {
    let mut rest = samples;
    while rest.len() > 0 {
        let n_floats = rest.n_floats();
        if n_floats > 0 {
            let (run, others) = rest.split_at(n_floats);
            rest = others;
            put_u64(dst, (n_floats as u64 - 1) << 1);
            encoder.encode(run.values, dst);
            continue;
        }
        let plan = RunPlan::new(&rest.histograms[..rest.n_histograms()]);
        let (run, others) = rest.split_at(plan.len());
        rest = others;
        put_u64(dst, (run.len() as u64 - 1) << 1 | 1);
        plan.encode(run, encoder, dst);
    }
}

/// The layouts of a run of histograms.
#[derive(Default)]
struct RunPlan {
    layouts: Vec<Layout>,
    /// Indexes of layouts, and the numbers of consecutive histograms with them.
    uses: Vec<(usize, usize)>,
    columns: BucketColumns,
}

impl RunPlan {
    /// Plans a run of the first histograms, at least one, as far as they combine well.
    fn new(histograms: &[(u32, Arc<Histogram>)]) -> Self {
        let mut plan = Self::default();
        let mut n_cells = 0;
        let mut n = 0;
        for (_, histogram) in histograms {
            n_cells += histogram.n_cells();
            n += 1;
            if !plan.add(histogram, n, n_cells) {
                break;
            }
        }
        plan
    }

    /// Adds the `n`-th histogram; with it, the histograms have `n_cells` cells. Returns `false` and
    /// adds nothing if too many cells would be empty.
    fn add(&mut self, histogram: &Histogram, n: usize, n_cells: usize) -> bool {
        let known = self
            .layouts
            .iter()
            .rposition(|layout| layout.is_of(histogram));
        let layout = match known {
            Some(layout)
                if self.columns.len() * n <= RUN_CELLS_FACTOR * n_cells
                    || self.layouts.len() == 1 =>
            {
                layout
            }
            Some(_) => return false,
            None => {
                let layout = Layout::of(histogram);
                let columns = match self.layouts.first() {
                    None => Some(BucketColumns::new(&layout)),
                    Some(first) if first.is_float != layout.is_float => None,
                    Some(_) if self.layouts.len() == RUN_LAYOUTS_MAX => None,
                    Some(first) => self.columns.with(first, &layout),
                };
                let Some(columns) = columns else {
                    return false;
                };
                if n > 1 && columns.len() * n > RUN_CELLS_FACTOR * n_cells {
                    return false;
                }
                self.columns = columns;
                self.layouts.push(layout);
                self.layouts.len() - 1
            }
        };
        match self.uses.last_mut() {
            Some((last, n)) if *last == layout => *n += 1,
            _ => self.uses.push((layout, 1)),
        }
        true
    }

    /// Returns the number of histograms.
    fn len(&self) -> usize {
        self.uses.iter().map(|(_, n)| n).sum()
    }

    /// Appends layouts, hints, sums and counts of the planned histograms.
    fn encode(&self, run: RowSamples<'_>, encoder: &mut ValueEncoder, dst: &mut Vec<u8>) {
        put_u64(dst, self.layouts.len() as u64);
        for layout in &self.layouts {
            layout.encode(dst);
        }
        if self.layouts.len() > 1 {
            for &(layout, n) in &self.uses {
                put_u64(dst, layout as u64);
                put_u64(dst, n as u64 - 1);
            }
        }
        let by_hint = run
            .histograms
            .chunk_by(|(_, a), (_, b)| a.reset_hint == b.reset_hint);
        for alike in by_hint {
            let code = u64::from(alike[0].1.reset_hint.code());
            put_u64(dst, (alike.len() as u64 - 1) << 2 | code);
        }
        encoder.encode(run.values, dst);
        if self.layouts[0].is_float {
            let cells = self.cells(run, float_cell);
            for column in cells.chunks_exact(run.len()) {
                encoder.encode(column, dst);
            }
        } else {
            let cells = self.cells(run, |counts, i| integer_cell(counts, i).cast_signed());
            for column in cells.chunks_exact(run.len()) {
                encoder.encode_integers(column, dst);
            }
        }
    }

    /// Returns the cells of a run, column by column.
    fn cells<T: Default + Copy>(
        &self,
        run: RowSamples<'_>,
        cell: impl Fn(&HistogramCounts, usize) -> T,
    ) -> Vec<T> {
        let bucket_columns: Vec<Vec<usize>> = self
            .layouts
            .iter()
            .map(|layout| self.columns.columns_of(layout))
            .collect();
        let mut cells = vec![T::default(); (FIRST_BUCKETS + self.columns.len()) * run.len()];
        let layouts = self
            .uses
            .iter()
            .flat_map(|&(layout, n)| std::iter::repeat_n(layout, n));
        for (i, ((_, histogram), layout)) in run.histograms.iter().zip(layouts).enumerate() {
            let buckets = bucket_columns[layout].iter();
            let buckets = buckets.map(|column| FIRST_BUCKETS + column);
            for (idx, column) in (0..FIRST_BUCKETS).chain(buckets).enumerate() {
                cells[column * run.len() + i] = cell(&histogram.counts, idx);
            }
        }
        cells
    }
}

/// Number of columns before the buckets: the count, the zero bucket.
const FIRST_BUCKETS: usize = 2;
/// Maximum number of layouts of a run.
const RUN_LAYOUTS_MAX: usize = 64;
/// The columns of a run have at most this many times the cells of its histograms.
const RUN_CELLS_FACTOR: usize = 2;

/// Returns the value of the `i`-th column for integer counts.
fn integer_cell(counts: &HistogramCounts, i: usize) -> u64 {
    let HistogramCounts::Integer {
        count,
        zero_count,
        positive,
        negative,
    } = counts
    else {
        return 0;
    };
    match i {
        0 => positive
            .iter()
            .chain(negative)
            .fold(count.wrapping_sub(*zero_count), |rest, bucket| {
                rest.wrapping_sub(*bucket)
            }),
        1 => *zero_count,
        i => *positive
            .get(i - 2)
            .unwrap_or_else(|| &negative[i - 2 - positive.len()]),
    }
}

/// Returns the value of the `i`-th column for float counts.
fn float_cell(counts: &HistogramCounts, i: usize) -> f64 {
    let HistogramCounts::Float {
        count,
        zero_count,
        positive,
        negative,
    } = counts
    else {
        return 0.0;
    };
    match i {
        0 => *count,
        1 => *zero_count,
        i => *positive
            .get(i - 2)
            .unwrap_or_else(|| &negative[i - 2 - positive.len()]),
    }
}

/// Appends the samples at `wanted` of the `n_samples` samples of a row: values, and histograms with
/// their positions. `n_cells_max` is the remainder of [`SERIES_CELLS_MAX`].
pub(crate) fn decode_row(
    mut src: &[u8],
    n_samples: usize,
    wanted: Range<usize>,
    n_cells_max: &mut usize,
    dst: &mut SampleColumns,
) -> Result<(), Damaged> {
    let mut n_decoded = 0;
    while n_decoded < n_samples {
        let head = take_u64(&mut src).ok_or(Damaged)?;
        let run_len = run_len(head >> 1, n_samples - n_decoded).ok_or(Damaged)?;
        let wanted_of_run = part_of_run(&wanted, n_decoded, run_len);
        if head & 1 == 0 {
            decode_floats(&mut src, run_len, wanted_of_run, dst)?;
        } else {
            decode_histograms(&mut src, run_len, wanted_of_run, n_cells_max, dst)?;
        }
        n_decoded += run_len;
    }
    if src.is_empty() { Ok(()) } else { Err(Damaged) }
}

/// Returns the number of samples of a run, which is at most `n_left`, from its encoding.
fn run_len(encoded: u64, n_left: usize) -> Option<usize> {
    let len = usize::try_from(encoded).ok()?.checked_add(1)?;
    if len <= n_left { Some(len) } else { None }
}

/// Returns the wanted samples of a run that starts at `start`, relative to its start.
fn part_of_run(wanted: &Range<usize>, start: usize, run_len: usize) -> Range<usize> {
    let end = start + run_len;
    wanted.start.clamp(start, end) - start..wanted.end.clamp(start, end) - start
}

/// Decodes a run of floats.
fn decode_floats(
    src: &mut &[u8],
    run_len: usize,
    wanted: Range<usize>,
    dst: &mut SampleColumns,
) -> Result<(), Damaged> {
    let start = dst.values.len();
    decode_values(src, run_len, &mut dst.values).ok_or(Damaged)?;
    dst.values.truncate(start + wanted.end);
    dst.values.drain(start..start + wanted.start);
    Ok(())
}

/// Decodes a run of histograms.
fn decode_histograms(
    src: &mut &[u8],
    run_len: usize,
    wanted: Range<usize>,
    n_cells_max: &mut usize,
    dst: &mut SampleColumns,
) -> Result<(), Damaged> {
    let run = HistogramRun::decode(src, run_len, n_cells_max).ok_or(Damaged)?;
    for i in wanted {
        let position = u32::try_from(dst.values.len()).map_err(|_| Damaged)?;
        dst.values.push(run.sums[i]);
        dst.histograms.push((position, Arc::new(run.histogram(i))));
    }
    Ok(())
}

/// Decoded columns of `n` histograms.
struct HistogramRun {
    n: usize,
    layouts: Vec<Layout>,
    /// By layout: the columns of its buckets.
    bucket_columns: Vec<Vec<usize>>,
    /// By histogram: the index of its layout.
    uses: Vec<usize>,
    hints: Vec<ResetHint>,
    sums: Vec<f64>,
    cells: Cells,
}

/// Cells column by column: the count (for integers, less all buckets), the zero bucket, the
/// buckets.
enum Cells {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
}

impl HistogramRun {
    fn decode(src: &mut &[u8], n: usize, n_cells_max: &mut usize) -> Option<Self> {
        let n_layouts = take_int(src).filter(|n| (1..=RUN_LAYOUTS_MAX).contains(n))?;
        let layouts = (0..n_layouts)
            .map(|_| Layout::decode(src))
            .collect::<Option<Vec<_>>>()?;
        let uses = if n_layouts == 1 {
            vec![0; n]
        } else {
            take_uses(src, n, n_layouts)?
        };
        // The sizes of histograms and columns are checked before anything is allocated.
        let n_cells: usize = uses.iter().map(|&layout| layouts[layout].n_cells()).sum();
        *n_cells_max = n_cells_max.checked_sub(n_cells)?;
        let is_float = layouts[0].is_float;
        if !(0..n_layouts).all(|i| uses.contains(&i))
            || layouts.iter().any(|layout| layout.is_float != is_float)
        {
            return None;
        }
        let mut columns = BucketColumns::new(&layouts[0]);
        for layout in &layouts[1..] {
            columns = columns.with(&layouts[0], layout)?;
        }
        if n_layouts > 1 && columns.len() * n > RUN_CELLS_FACTOR * n_cells {
            return None;
        }
        let hints = take_hints(src, n)?;
        let mut sums = Vec::with_capacity(n);
        decode_values(src, n, &mut sums)?;
        let cells = Cells::decode(src, is_float, FIRST_BUCKETS + columns.len(), n)?;
        let bucket_columns = layouts
            .iter()
            .map(|layout| columns.columns_of(layout))
            .collect();
        Some(Self {
            n,
            layouts,
            bucket_columns,
            uses,
            hints,
            sums,
            cells,
        })
    }

    fn histogram(&self, i: usize) -> Histogram {
        let layout = &self.layouts[self.uses[i]];
        let columns = &self.bucket_columns[self.uses[i]];
        let (positive, negative) = columns.split_at(layout.n_positive);
        let counts = match &self.cells {
            Cells::Integers(cells) => {
                let cell = |column: usize| cells[column * self.n + i].cast_unsigned();
                let buckets = |columns: &[usize]| -> Vec<u64> {
                    let cells = columns.iter().map(|column| cell(FIRST_BUCKETS + column));
                    cells.collect()
                };
                let zero_count = cell(1);
                let positive = buckets(positive);
                let negative = buckets(negative);
                // The first column has the count less the zero bucket and all other buckets.
                let mut count = cell(0).wrapping_add(zero_count);
                for bucket in positive.iter().chain(&negative) {
                    count = count.wrapping_add(*bucket);
                }
                HistogramCounts::Integer {
                    count,
                    zero_count,
                    positive,
                    negative,
                }
            }
            Cells::Floats(cells) => {
                let cell = |column: usize| cells[column * self.n + i];
                let buckets = |columns: &[usize]| -> Vec<f64> {
                    let cells = columns.iter().map(|column| cell(FIRST_BUCKETS + column));
                    cells.collect()
                };
                HistogramCounts::Float {
                    count: cell(0),
                    zero_count: cell(1),
                    positive: buckets(positive),
                    negative: buckets(negative),
                }
            }
        };
        Histogram {
            reset_hint: self.hints[i],
            ..layout.histogram(self.sums[i], counts)
        }
    }
}

impl Cells {
    fn decode(src: &mut &[u8], is_float: bool, n_columns: usize, n: usize) -> Option<Self> {
        if is_float {
            let mut cells = Vec::with_capacity(n_columns * n);
            for _ in 0..n_columns {
                decode_values(src, n, &mut cells)?;
            }
            return Some(Self::Floats(cells));
        }
        let mut cells = vec![0; n_columns * n];
        for column in cells.chunks_exact_mut(n) {
            integers::decode_integers(src, column)?;
        }
        Some(Self::Integers(cells))
    }
}

/// Decodes the layout indexes of `n` histograms.
fn take_uses(src: &mut &[u8], n: usize, n_layouts: usize) -> Option<Vec<usize>> {
    repeat(n, || {
        Some((
            take_int(src).filter(|&layout| layout < n_layouts)?,
            take_u64(src)?,
        ))
    })
}

/// Decodes the reset hints of `n` histograms.
fn take_hints(src: &mut &[u8], n: usize) -> Option<Vec<ResetHint>> {
    repeat(n, || {
        let head = take_u64(src)?;
        Some((ResetHint::from_code((head & 3) as u8)?, head >> 2))
    })
}

/// Returns a list of `n` values from a run-length encoding. `take` returns a value, and its number
/// of repetitions.
fn repeat<T: Clone>(n: usize, mut take: impl FnMut() -> Option<(T, u64)>) -> Option<Vec<T>> {
    let mut values = Vec::with_capacity(n);
    while values.len() < n {
        let (value, n_repeated) = take()?;
        let len = usize::try_from(n_repeated)
            .ok()?
            .checked_add(values.len() + 1)
            .filter(|&len| len <= n)?;
        values.resize(len, value);
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::histogram::tests::{any_histogram, is_identical};
    use proptest::prelude::*;
    use varve_model::Sample;
    use varve_model::histogram::BucketSpan;

    /// Generates columns of floats and histograms; repeated ones form runs.
    fn any_columns() -> impl Strategy<Value = SampleColumns> {
        let of = prop_oneof![
            any::<u64>().prop_map(|bits| Err(f64::from_bits(bits))),
            any_histogram().prop_map(Ok)
        ];
        proptest::collection::vec((of, 1..30_usize), 1..12).prop_map(|runs| {
            let mut columns = SampleColumns::default();
            for (of, n) in runs {
                for _ in 0..n {
                    let timestamp_ms = columns.len() as i64;
                    match &of {
                        Err(value) => columns.push(Sample {
                            timestamp_ms,
                            value: *value,
                        }),
                        Ok(histogram) => {
                            let mut histogram = histogram.clone();
                            if let HistogramCounts::Integer {
                                count, positive, ..
                            } = &mut histogram.counts
                            {
                                *count = count.wrapping_add(columns.values.len() as u64);
                                for of in positive.iter_mut() {
                                    *of = of.wrapping_add(columns.values.len() as u64)
                                }
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
        encode_row(
            RowSamples::of(columns, 0..columns.len()),
            &mut ValueEncoder::default(),
            &mut bytes,
        );
        bytes
    }

    fn decode(bytes: &[u8], n: usize, wanted: Range<usize>) -> Result<SampleColumns, Damaged> {
        let mut decoded = SampleColumns::default();
        let mut n_cells = SERIES_CELLS_MAX;
        decode_row(bytes, n, wanted, &mut n_cells, &mut decoded).map(|()| decoded)
    }

    proptest! {
        #[test]
        fn any_part_of_a_row_round_trips(columns in any_columns(), a in any::<usize>(), b in any::<usize>()) {
            let a = a % columns.len();
            let b = b % columns.len();
            let wanted = a.min(b)..a.max(b) + 1;
            let decoded = decode(&row(&columns), columns.len(), wanted.clone()).unwrap();
            prop_assert_eq!(decoded.values.len(), wanted.len());
            for (i, place) in wanted.enumerate() {
                prop_assert_eq!(decoded.values[i].to_bits(), columns.values[place].to_bits());
                let found = decoded.histogram(i);
                let expected = columns.histogram(place);
                prop_assert_eq!(found.is_some(), expected.is_some());
                prop_assert!(found.zip(expected).is_none_or(|(a, b)| is_identical(a, b)), "{found:?} for {expected:?}");
            }
        }

        #[test]
        fn truncated_and_random_rows_never_panic(
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

    /// Creates histograms from the index of the first bucket and the number of buckets.
    fn with_buckets(buckets: impl Iterator<Item = (i32, u64)>) -> SampleColumns {
        let mut columns = SampleColumns::default();
        for (t, (offset, n)) in (0_u64..).zip(buckets) {
            let counts = HistogramCounts::Integer {
                count: t,
                zero_count: 0,
                positive: (0..n).map(|i| t * (100 - i.min(100))).collect(),
                negative: vec![],
            };
            let positive_spans = vec![BucketSpan {
                offset,
                length: n as u32,
            }];
            let histogram = Histogram {
                counts,
                positive_spans,
                ..Histogram::default()
            };
            columns.push_histogram(t.cast_signed(), Arc::new(histogram));
        }
        columns
    }

    fn check(columns: &SampleColumns) -> usize {
        let row = row(columns);
        let decoded = decode(&row, columns.len(), 0..columns.len()).unwrap();
        let pairs = decoded.histograms.iter().zip(&columns.histograms);
        assert_eq!(
            (decoded.len(), decoded.histograms.len()),
            (0, columns.histograms.len())
        );
        assert!(
            pairs
                .into_iter()
                .all(|(found, sent)| found.0 == sent.0 && is_identical(&found.1, &sent.1))
        );
        row.len()
    }

    #[test]
    fn new_buckets_start_no_new_run() {
        let growing = with_buckets((0..240).map(|t| (0, 10 + t / 24)));
        check(&growing);
        assert_eq!(take_u64(&mut &row(&growing)[..]), Some(239 << 1 | 1));
    }

    #[test]
    fn runs_end_when_layouts_are_too_many_or_too_different() {
        check(&with_buckets(
            (0..RUN_LAYOUTS_MAX as u64 * 2 + 1).map(|t| (0, t)),
        ));
        let apart = check(&with_buckets((0..200).map(|t| (t * 1000, 50))));
        assert!(apart < 200 * 50 * 16, "{apart} bytes");
        let mut bytes = vec![1];
        let layout = row(&with_buckets([(0, 1)].into_iter()));
        put_u64(&mut bytes, RUN_LAYOUTS_MAX as u64 + 1);
        (0..=RUN_LAYOUTS_MAX).for_each(|_| bytes.extend_from_slice(&layout[2..]));
        assert!(decode(&bytes, 1, 0..1).is_err());
    }

    #[test]
    fn small_rows_that_decode_to_large_data_are_rejected() {
        let wide = HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive: vec![0; 5_000],
            negative: vec![],
        };
        let mut columns = SampleColumns::default();
        let histogram = Arc::new(Histogram {
            counts: wide,
            ..Histogram::default()
        });
        (0..60).for_each(|t| columns.push_histogram(t, Arc::clone(&histogram)));
        assert_eq!(
            n_fitting(RowSamples::of(&columns, 0..60)),
            SERIES_CELLS_MAX / 5_004
        );
        assert!(decode(&row(&columns), 60, 0..1).is_err());
        columns.truncate(SERIES_CELLS_MAX / 5_004);
        assert!(decode(&row(&columns), columns.len(), 0..1).is_ok());
    }
}
