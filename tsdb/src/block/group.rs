//! A group: up to 256 neighboring series, cut into slices of time, and the map from series to
//! timestamp columns.
//!
//! The map is separate from the rows, so that a reader can determine from the map and the timestamp
//! columns alone whether a series has samples in a range. Payload of a map:
//! ```text
//! 0   1   flags  0; any bit set: a later version
//! 1   4n  per page of rows, in order of time: the timestamp column of each of the n series, in four byte planes;
//!                2^32 - 1: none
//! ```

use std::collections::BTreeMap;

use varve_codec::byte_planes::{BytePlanes, put_byte_planes};
use varve_codec::values::ValueEncoder;
use varve_model::TimeRange;
use varve_model::start_timestamps::Change;

use super::directory::RowsRef;
use super::directory::TimestampColumnId;
use super::page::{PageRef, PageWriter};
use super::rows::histograms::RowSamples;
use super::rows::{GROUP_SERIES_MAX, RowsBuilder};
use super::version::{Unreadable, take_flags};
use crate::error::Result;

/// The key of a page of rows: a slice of time and, for a series with very many samples, a run of
/// its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SliceKey {
    pub(crate) slice: u64,
    pub(crate) run: u32,
}

/// Size of the rows at which a page is full: reading one series should take well under 100 us.
const PAGE_SIZE: usize = 64 << 10;
/// Size of the rows of all slices at which a group is full.
const GROUP_SIZE: usize = 4 << 20;
const NO_COLUMN: u32 = u32::MAX;
const MAP_WIDTH: usize = 4;

/// Builds a group.
#[derive(Default)]
pub(crate) struct GroupBuilder {
    encoder: ValueEncoder,
    n_series: usize,
    slices: BTreeMap<SliceKey, Slice>,
    payload: Vec<u8>,
}

struct Slice {
    rows: RowsBuilder,
    timestamp_columns: Vec<u32>,
    range: TimeRange,
    n_samples: u32,
}

impl GroupBuilder {
    /// Returns the number of series.
    pub(crate) fn n_series(&self) -> usize {
        self.n_series
    }

    /// Returns `true` if the group must be written before another series is added.
    pub(crate) fn is_full(&self) -> bool {
        let sizes = || self.slices.values().map(|slice| slice.rows.size());
        self.n_series == GROUP_SERIES_MAX
            || sizes().any(|size| size >= PAGE_SIZE)
            || sizes().sum::<usize>() >= GROUP_SIZE
    }

    /// Adds the samples of the current series in a slice.
    pub(crate) fn push(
        &mut self,
        key: SliceKey,
        timestamp_column: TimestampColumnId,
        times_ms: &[i64],
        samples: RowSamples<'_>,
        starts: &[Change],
    ) {
        let range = TimeRange {
            start_ms: times_ms[0],
            end_ms: times_ms[times_ms.len() - 1],
        };
        let slice = self.slices.entry(key).or_insert_with(|| Slice {
            rows: RowsBuilder::default(),
            timestamp_columns: Vec::new(),
            range,
            n_samples: 0,
        });
        slice.rows.push_starts(self.n_series, starts);
        slice.rows.push(self.n_series, samples, &mut self.encoder);
        slice.timestamp_columns.resize(self.n_series, NO_COLUMN);
        slice.timestamp_columns.push(timestamp_column.0);
        slice.range = slice.range.hull(range);
        slice.n_samples += times_ms.len() as u32;
    }

    /// Replaces the numbers of timestamp columns, which count the columns of this group, by their
    /// ids in the block.
    pub(crate) fn renumber_columns(&mut self, ids: &[TimestampColumnId]) {
        for slice in self.slices.values_mut() {
            for column in &mut slice.timestamp_columns {
                if *column != NO_COLUMN {
                    *column = ids[*column as usize].0;
                }
            }
        }
    }

    /// Ends the current series.
    pub(crate) fn end_series(&mut self) {
        self.n_series += 1;
    }

    /// Writes the group, which must have a series, and starts the next. Returns its map and its
    /// pages of rows.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(crate) fn write(&mut self, pages: &mut PageWriter) -> Result<(PageRef, Vec<RowsRef>)> {
        let n_series = std::mem::take(&mut self.n_series);
        let mut slices = std::mem::take(&mut self.slices);
        let mut rows = Vec::with_capacity(slices.len());
        for slice in slices.values_mut() {
            self.payload.clear();
            slice.rows.encode(n_series, &mut self.payload);
            rows.push(RowsRef::new(
                pages.write(&self.payload)?,
                slice.range,
                slice.n_samples,
            ));
        }
        self.payload.clear();
        self.payload.push(0);
        for slice in slices.values_mut() {
            slice.timestamp_columns.resize(n_series, NO_COLUMN);
            put_byte_planes(&slice.timestamp_columns, MAP_WIDTH, &mut self.payload);
        }
        Ok((pages.write(&self.payload)?, rows))
    }
}

/// The map of a group.
#[derive(Clone, Copy)]
pub(crate) struct GroupMap<'a> {
    n_series: usize,
    timestamp_columns: &'a [u8],
}

impl<'a> GroupMap<'a> {
    /// Checks the flags and the size of the map of a group of `n_series` series in `n_pages` pages
    /// of rows.
    pub(crate) fn parse(
        mut payload: &'a [u8],
        n_series: usize,
        n_pages: usize,
    ) -> Result<Self, Unreadable> {
        take_flags(&mut payload, 0)?;
        if n_pages.checked_mul(MAP_WIDTH * n_series) != Some(payload.len()) {
            return Err(Unreadable::Damaged);
        }
        Ok(Self {
            n_series,
            timestamp_columns: payload,
        })
    }

    /// Returns the timestamp column of a series in a page of rows, or `None` if the series has no
    /// samples there.
    pub(crate) fn timestamp_column(
        self,
        page_idx: usize,
        series_idx: usize,
    ) -> Option<TimestampColumnId> {
        let size = self.n_series * MAP_WIDTH;
        let mut planes = &self.timestamp_columns[page_idx * size..][..size];
        let timestamp_column =
            BytePlanes::take(&mut planes, self.n_series, MAP_WIDTH)?.get(series_idx);
        (timestamp_column != NO_COLUMN).then_some(TimestampColumnId(timestamp_column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn maps_round_trip_and_other_sizes_are_rejected(
            pages in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(NO_COLUMN), any::<u32>()], 5), 1..4,
            ),
            cut: usize,
        ) {
            let mut payload = vec![0];
            for timestamp_columns in pages.iter() { put_byte_planes(timestamp_columns, MAP_WIDTH, &mut payload); }
            let map = GroupMap::parse(&payload, 5, pages.len()).unwrap();
            for (i, timestamp_columns) in pages.iter().enumerate() {
                for (j, &timestamp_column) in timestamp_columns.iter().enumerate() {
                    let expected = (timestamp_column != NO_COLUMN).then_some(TimestampColumnId(timestamp_column));
                    prop_assert_eq!(map.timestamp_column(i, j), expected);
                }
            }
            let error = |payload: &[u8], n_series, n_pages| GroupMap::parse(payload, n_series, n_pages).err();
            prop_assert_eq!(error(&payload[..cut % payload.len()], 5, pages.len()), Some(Unreadable::Damaged));
            prop_assert_eq!(error(&payload, 4, pages.len()), Some(Unreadable::Damaged));
            prop_assert_eq!(error(&payload, 5, usize::MAX), Some(Unreadable::Damaged));
            payload[0] = 1;
            prop_assert_eq!(error(&payload, 5, pages.len()), Some(Unreadable::Newer));
        }
    }
}
