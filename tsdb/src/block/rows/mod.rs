//! A page of rows: the values of the series of a group in one slice of time.
//!
//! ```text
//! 0     1   flags   bit 0: start timestamps exist; any other bit set: a later version
//! 1     2   series  n, u16, 1 to 256
//! 3     n   kinds   the rows of each series: 0 floats; 1 some are histograms; any other: a later version
//! 3+n   3n  sizes   bytes of each series' rows, in three byte planes; 0: none
//! 3+4n  -   starts  the column of start timestamps ([`start_timestamps`]), if bit 0 of the flags is set
//!       -   rows    of the first series, of the second, ...
//! ```
//! A series has as many samples as its timestamp column has timestamps. Each row of the series
//! contains [`ROW_SAMPLES_MAX`] samples and is preceded by its size as a varint, except the last
//! row, which contains the rest and has no size. A row of floats is encoded by
//! [`varve_codec::values`], a row with histograms by [`histograms`].

mod bucket_columns;
pub(crate) mod histograms;
mod start_timestamps;

use std::ops::Range;

use varve_model::SampleColumns;
use varve_model::start_timestamps::Change;

use super::version::{Unreadable, take_flags};
use crate::error::Damaged;
use histograms::{RowSamples, SERIES_CELLS_MAX};
use start_timestamps::{StartTimestampsBuilder, StartTimestampsColumn};
use varve_codec::byte_planes::{BytePlanes, put_byte_planes};
use varve_codec::values::{ROW_SAMPLES_MAX, ValueEncoder, decode_values, may_have_nan};
use varve_codec::varint::{put_sized, take_bytes, take_sized};

/// Maximum number of series in a group.
pub(crate) const GROUP_SERIES_MAX: usize = 256;
/// Maximum number of samples of a series in one page of rows, and so in one timestamp column: about
/// one per half a second in a slice of 8 h.
pub(crate) const SERIES_SAMPLES_MAX: usize = 64 * ROW_SAMPLES_MAX;

const HAS_START_TIMESTAMPS: u8 = 1;
const KIND_FLOATS: u8 = 0;
const KIND_HISTOGRAMS: u8 = 1;
const N_SERIES_SIZE: usize = 2;
const SIZE_WIDTH: usize = 3;

/// Builds a page of rows.
#[derive(Default)]
pub(crate) struct RowsBuilder {
    kinds: Vec<u8>,
    sizes: Vec<u32>,
    rows: Vec<u8>,
    row: Vec<u8>,
    starts: StartTimestampsBuilder,
}

impl RowsBuilder {
    /// Returns the current size of the rows in bytes.
    pub(crate) fn size(&self) -> usize {
        self.rows.len() + self.starts.size()
    }

    /// Adds the start timestamps of the series that is pushed next.
    pub(crate) fn push_starts(&mut self, series_idx: usize, changes: &[Change]) {
        self.starts.push(series_idx, changes);
    }

    /// Adds the samples of the `series_idx`-th series of the group. Series in between have none.
    pub(crate) fn push(
        &mut self,
        series_idx: usize,
        samples: RowSamples<'_>,
        encoder: &mut ValueEncoder,
    ) {
        debug_assert!(
            (1..=SERIES_SAMPLES_MAX).contains(&samples.len()),
            "series are cut into slices before"
        );
        self.pad(series_idx);
        let kind = if samples.has_histograms() {
            KIND_HISTOGRAMS
        } else {
            KIND_FLOATS
        };
        let start = self.rows.len();
        let mut rest = samples;
        while rest.len() > ROW_SAMPLES_MAX {
            let (row, others) = rest.split_at(ROW_SAMPLES_MAX);
            self.row.clear();
            encode_row(kind, row, encoder, &mut self.row);
            put_sized(&mut self.rows, &self.row);
            rest = others;
        }
        encode_row(kind, rest, encoder, &mut self.rows);
        self.kinds.push(kind);
        self.sizes.push((self.rows.len() - start) as u32);
    }

    /// Appends the page of a group of `n_series` to `dst`.
    pub(crate) fn encode(&mut self, n_series: usize, dst: &mut Vec<u8>) {
        self.pad(n_series);
        let flags_at = dst.len();
        dst.push(0);
        dst.extend_from_slice(&(n_series as u16).to_le_bytes());
        dst.extend_from_slice(&self.kinds);
        put_byte_planes(&self.sizes, SIZE_WIDTH, dst);
        if self.starts.encode(dst) {
            dst[flags_at] |= HAS_START_TIMESTAMPS;
        }
        dst.extend_from_slice(&self.rows);
    }

    fn pad(&mut self, n_series: usize) {
        self.kinds.resize(n_series, KIND_FLOATS);
        self.sizes.resize(n_series, 0);
    }
}

fn encode_row(kind: u8, row: RowSamples<'_>, encoder: &mut ValueEncoder, dst: &mut Vec<u8>) {
    match kind {
        KIND_FLOATS => encoder.encode(row.values, dst),
        _ => histograms::encode_row(row, encoder, dst),
    }
}

/// The values of floats that a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needed {
    All,
    /// Only NaN, among them the staleness marker. Other values may be read as 0.
    Nan,
}

/// The position of the rows of a series in a page. The default is the first series.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RowsPlace {
    series_idx: usize,
    start: usize,
}

/// A page of rows whose header was checked.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    kinds: &'a [u8],
    sizes: BytePlanes<'a>,
    starts: StartTimestampsColumn<'a>,
    rows: &'a [u8],
}

impl<'a> Rows<'a> {
    /// Checks the header of a page of a group of `n_series` series.
    pub(crate) fn parse(mut payload: &'a [u8], n_series: usize) -> Result<Self, Unreadable> {
        let src = &mut payload;
        let flags = take_flags(src, HAS_START_TIMESTAMPS)?;
        let n = take_bytes(src, N_SERIES_SIZE).ok_or(Damaged)?;
        if usize::from(u16::from_le_bytes([n[0], n[1]])) != n_series {
            return Err(Unreadable::Damaged);
        }
        let kinds = take_bytes(src, n_series).ok_or(Damaged)?;
        let sizes = BytePlanes::take(src, n_series, SIZE_WIDTH).ok_or(Damaged)?;
        let starts = match flags {
            0 => StartTimestampsColumn::default(),
            _ => StartTimestampsColumn::take(src).ok_or(Damaged)?,
        };
        Ok(Self {
            kinds,
            sizes,
            starts,
            rows: src,
        })
    }

    /// Checks that the rows of all series fill the page. Reading one series does not check that.
    pub(crate) fn check_sizes(self) -> Result<(), Damaged> {
        self.starts.check(self.kinds.len())?;
        if self.sizes.sum(0..self.kinds.len()) == self.rows.len() {
            Ok(())
        } else {
            Err(Damaged)
        }
    }

    /// Returns the size of the rows of a series in this page in bytes, or 0 if there are none.
    pub(crate) fn size(self, series_idx: usize) -> u64 {
        self.sizes.get(series_idx).into()
    }

    /// Finds the rows of a series, starting from `from` if that series comes before.
    pub(crate) fn place_of(self, series_idx: usize, from: RowsPlace) -> RowsPlace {
        let from = if from.series_idx <= series_idx {
            from
        } else {
            RowsPlace::default()
        };
        RowsPlace {
            series_idx,
            start: from.start + self.sizes.sum(from.series_idx..series_idx),
        }
    }

    /// Appends the samples at `wanted` of the `n_samples` samples that a series has in this page:
    /// values, histograms and start timestamps. Does not decode rows without wanted samples, or
    /// whose values are not needed.
    pub(crate) fn decode(
        self,
        RowsPlace { series_idx, start }: RowsPlace,
        n_samples: usize,
        wanted: Range<usize>,
        needed: Needed,
        dst: &mut SampleColumns,
    ) -> Result<(), Unreadable> {
        debug_assert!(
            !wanted.is_empty() && wanted.end <= n_samples,
            "range outside the series"
        );
        let n_before = dst.values.len();
        let src = self
            .rows
            .get(start..start + self.sizes.get(series_idx) as usize)
            .ok_or(Damaged);
        match self.kinds[series_idx] {
            KIND_FLOATS => decode_floats(src?, n_samples, &wanted, needed, &mut dst.values)?,
            KIND_HISTOGRAMS => decode_histograms(src?, n_samples, &wanted, dst)?,
            _ => return Err(Unreadable::Newer),
        }
        dst.set_starts(n_before, &self.starts.read(series_idx, n_samples, wanted)?);
        Ok(())
    }
}

fn decode_floats(
    src: &[u8],
    n_samples: usize,
    wanted: &Range<usize>,
    needed: Needed,
    dst: &mut Vec<f64>,
) -> Result<(), Damaged> {
    let start = dst.len();
    // Fast path: all samples are in one row and wanted.
    if n_samples <= ROW_SAMPLES_MAX && wanted.len() == n_samples {
        return decode_row(src, n_samples, needed, dst);
    }
    each_row(src, n_samples, wanted, |row, row_range| {
        decode_row(row, row_range.len(), needed, dst)
    })?;
    dst.drain(start..start + wanted.start % ROW_SAMPLES_MAX);
    dst.truncate(start + wanted.len());
    Ok(())
}

fn decode_histograms(
    src: &[u8],
    n_samples: usize,
    wanted: &Range<usize>,
    dst: &mut SampleColumns,
) -> Result<(), Damaged> {
    let mut n_cells_max = SERIES_CELLS_MAX;
    each_row(src, n_samples, wanted, |row, row_range| {
        let Range { start, end } = row_range;
        let wanted = wanted.start.clamp(start, end) - start..wanted.end.clamp(start, end) - start;
        histograms::decode_row(row, end - start, wanted, &mut n_cells_max, dst)
    })
}

/// Calls a function with each row that overlaps `wanted`, and the range of its samples.
fn each_row(
    mut src: &[u8],
    n_samples: usize,
    wanted: &Range<usize>,
    mut each: impl FnMut(&[u8], Range<usize>) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let mut n_visited = 0;
    while n_visited < wanted.end {
        let n = (n_samples - n_visited).min(ROW_SAMPLES_MAX);
        let end = n_visited + n;
        let is_last = end == n_samples;
        let row = if is_last {
            src
        } else {
            take_sized(&mut src).ok_or(Damaged)?
        };
        if wanted.start < end {
            each(row, n_visited..end)?;
        }
        n_visited = end;
    }
    Ok(())
}

fn decode_row(mut row: &[u8], n: usize, needed: Needed, dst: &mut Vec<f64>) -> Result<(), Damaged> {
    if needed == Needed::Nan && !may_have_nan(row) {
        dst.resize(dst.len() + n, 0.0);
        return Ok(());
    }
    decode_values(&mut row, n, dst)
        .filter(|()| row.is_empty())
        .ok_or(Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page_of(columns: &[Vec<f64>]) -> Vec<u8> {
        let mut builder = RowsBuilder::default();
        let mut encoder = ValueEncoder::default();
        let mut page = Vec::new();
        for (i, column) in columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.is_empty())
        {
            builder.push(i, RowSamples::floats(column), &mut encoder);
        }
        builder.encode(columns.len(), &mut page);
        page
    }

    /// Creates columns of these lengths with different values.
    fn columns(lens: &[usize]) -> Vec<Vec<f64>> {
        let column =
            |(i, &n): (usize, &usize)| (0..n).map(|k| k as f64 * (0.1 + i as f64)).collect();
        lens.iter().enumerate().map(column).collect()
    }

    #[test]
    fn any_range_of_any_series_round_trips() {
        let columns = columns(&[0, 1, 960, 961, 0, 1920, 2500, 0]);
        let page = page_of(&columns);
        let rows = Rows::parse(&page, columns.len()).unwrap();
        for (i, column) in columns.iter().enumerate() {
            assert_eq!(rows.size(i) > 0, !column.is_empty(), "series {i}");
            for (start, end) in [
                (0, 1),
                (0, 960),
                (1, 961),
                (959, 961),
                (960, 1920),
                (961, 962),
                (0, 2500),
                (2499, 2500),
            ] {
                if end <= column.len() {
                    let mut got = SampleColumns {
                        values: vec![7.0],
                        ..SampleColumns::default()
                    };
                    let place = rows.place_of(i, RowsPlace::default());
                    rows.decode(place, column.len(), start..end, Needed::All, &mut got)
                        .unwrap();
                    assert_eq!(
                        got.values[1..],
                        column[start..end],
                        "series {i}, {start}..{end}"
                    );
                    got.values.truncate(1);
                    rows.decode(place, column.len(), start..end, Needed::Nan, &mut got)
                        .unwrap();
                    assert_eq!(got.values.len(), 1 + end - start);
                }
            }
        }
    }

    #[test]
    fn nan_are_read_even_if_no_other_values_are_needed() {
        let stale = f64::from_bits(0x7ff0_0000_0000_0002);
        let plain: Vec<f64> = (0..2_500).map(|i| f64::from(i * i % 1009)).collect();
        let mut mixed = plain.clone();
        mixed[7] = stale;
        mixed[1_500] = f64::NAN;
        for column in [mixed, vec![stale; 3], vec![1.0, stale], plain] {
            let page = page_of(std::slice::from_ref(&column));
            let rows = Rows::parse(&page, 1).unwrap();
            let mut got = SampleColumns::default();
            let wanted = 0..column.len();
            rows.decode(
                RowsPlace::default(),
                column.len(),
                wanted,
                Needed::Nan,
                &mut got,
            )
            .unwrap();
            let nan = |values: &[f64]| {
                let bits = |&value: &f64| value.is_nan().then(|| value.to_bits());
                values.iter().map(bits).collect::<Vec<_>>()
            };
            assert_eq!(nan(&got.values), nan(&column));
        }
    }

    proptest! {
        #[test]
        fn damaged_pages_are_rejected_or_decode_to_that_many_values(
            lens in proptest::collection::vec(0..30_usize, 1..6), at: usize, byte: u8, n in 1..2_000_usize,
        ) {
            let mut page = page_of(&columns(&lens));
            let at = at % page.len();
            page[at] = byte;
            let Ok(rows) = Rows::parse(&page, lens.len()) else { return Ok(()) };
            for i in 0..lens.len() {
                let mut got = SampleColumns::default();
                let wanted = n / 3..n;
                let decoded = rows.decode(rows.place_of(i, RowsPlace::default()), n, wanted.clone(), Needed::All, &mut got);
                prop_assert!(decoded.is_err() || got.values.len() == wanted.len());
            }
        }
    }

    #[test]
    fn pages_of_later_versions_and_of_other_groups_are_rejected() {
        let page = page_of(&[vec![], vec![1.0, 2.0]]);
        let decode = |page: &[u8]| {
            let rows = Rows::parse(page, 2)?;
            rows.check_sizes()?;
            rows.decode(
                rows.place_of(1, RowsPlace::default()),
                2,
                0..2,
                Needed::All,
                &mut SampleColumns::default(),
            )
        };
        for (offset, flipped, error, what) in [
            (0, 1, Unreadable::Damaged, "missing start timestamps"),
            (0, 2, Unreadable::Newer, "flags"),
            (1, 1, Unreadable::Damaged, "number of series"),
            (4, 2, Unreadable::Newer, "kind"),
            (6, 1, Unreadable::Damaged, "size"),
        ] {
            let mut page = page.clone();
            page[offset] ^= flipped;
            assert_eq!(decode(&page), Err(error), "{what}");
        }
        for end in 0..page.len() {
            assert_eq!(
                decode(&page[..end]),
                Err(Unreadable::Damaged),
                "truncated to {end}"
            );
        }
    }
}
