//! A group: up to 256 neighbouring series, cut into slices of time, and the map that says what each series has where.
//!
//! The map lies apart from the rows, so that whether a series has samples in a range is told from it and the timelines
//! alone. Payload of a map:
//! ```text
//! 0   1   flags  0; any bit set: of a later version
//! 1   4n  per page of rows, in order of time: the timeline of each of the n series, in four byte planes; 2^32 - 1: none
//! ```

use std::collections::BTreeMap;

use super::histograms::RowSamples;
use super::page::{PageRef, PageWriter};
use super::planes::{Planes, put_planes};
use super::rows::{GROUP_SERIES_MAX, RowsBuilder};
use super::timelines::TimelineId;
use super::values::ValueEncoder;
use super::{Damaged, Unreadable};
use crate::error::Result;
use crate::sample::TimeRange;
use crate::starts::Change;

/// Where a page of rows belongs: a slice of time, and of a series with very many samples there, a run of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::block) struct SliceKey {
    pub(in crate::block) slice: u64,
    pub(in crate::block) run: u32,
}

/// Where a page of rows lies and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block) struct RowsRef {
    pub(in crate::block) page: PageRef,
    /// From the oldest to the newest sample.
    pub(in crate::block) range: TimeRange,
    pub(in crate::block) n_samples: u32,
}

/// Bytes of rows at which a page is full: a series out of it shall be read in well under 100 us.
const PAGE_SIZE: usize = 64 << 10;
/// Bytes of rows at which a group is full, however many slices they are in.
const GROUP_SIZE: usize = 4 << 20;
const NO_TIMELINE: u32 = u32::MAX;
const MAP_WIDTH: usize = 4;

/// Gathers a group.
#[derive(Default)]
pub(in crate::block) struct GroupBuilder {
    encoder: ValueEncoder,
    n_series: usize,
    slices: BTreeMap<SliceKey, Slice>,
    payload: Vec<u8>,
}

struct Slice {
    rows: RowsBuilder,
    timelines: Vec<u32>,
    range: TimeRange,
    n_samples: u32,
}

impl GroupBuilder {
    /// Counts the series.
    pub(in crate::block) fn n_series(&self) -> usize {
        self.n_series
    }

    /// Tells whether the group is to be written before another series comes.
    pub(in crate::block) fn is_full(&self) -> bool {
        let sizes = || self.slices.values().map(|slice| slice.rows.size());
        self.n_series == GROUP_SERIES_MAX
            || sizes().any(|size| size >= PAGE_SIZE)
            || sizes().sum::<usize>() >= GROUP_SIZE
    }

    /// Adds what the series that is being gathered has in a slice.
    pub(in crate::block) fn push(
        &mut self,
        key: SliceKey,
        timeline: TimelineId,
        times_ms: &[i64],
        samples: RowSamples<'_>,
        starts: &[Change],
    ) {
        let range = TimeRange { start_ms: times_ms[0], end_ms: times_ms[times_ms.len() - 1] };
        let slice = self.slices.entry(key).or_insert_with(|| Slice {
            rows: RowsBuilder::default(),
            timelines: Vec::new(),
            range,
            n_samples: 0,
        });
        slice.rows.push_starts(self.n_series, starts);
        slice.rows.push(self.n_series, samples, &mut self.encoder);
        slice.timelines.resize(self.n_series, NO_TIMELINE);
        slice.timelines.push(timeline.0);
        slice.range.start_ms = slice.range.start_ms.min(range.start_ms);
        slice.range.end_ms = slice.range.end_ms.max(range.end_ms);
        slice.n_samples += times_ms.len() as u32;
    }

    /// Ends the series that is being gathered.
    pub(in crate::block) fn end_series(&mut self) {
        self.n_series += 1;
    }

    /// Writes the group, which has a series, and starts another; returns its map and its pages of rows.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(in crate::block) fn write(&mut self, pages: &mut PageWriter) -> Result<(PageRef, Vec<RowsRef>)> {
        let n_series = std::mem::take(&mut self.n_series);
        let mut slices = std::mem::take(&mut self.slices);
        let mut rows = Vec::with_capacity(slices.len());
        for slice in slices.values_mut() {
            self.payload.clear();
            slice.rows.encode(n_series, &mut self.payload);
            let page = pages.write(&self.payload)?;
            rows.push(RowsRef { page, range: slice.range, n_samples: slice.n_samples });
        }
        self.payload.clear();
        self.payload.push(0);
        for slice in slices.values_mut() {
            slice.timelines.resize(n_series, NO_TIMELINE);
            put_planes(&slice.timelines, MAP_WIDTH, &mut self.payload);
        }
        Ok((pages.write(&self.payload)?, rows))
    }
}

/// The map of a group.
#[derive(Clone, Copy)]
pub(in crate::block) struct GroupMap<'a> {
    n_series: usize,
    timelines: &'a [u8],
}

impl<'a> GroupMap<'a> {
    /// Checks the frame of the map of a group of `n_series` in `n_pages` pages of rows.
    pub(in crate::block) fn parse(payload: &'a [u8], n_series: usize, n_pages: usize) -> Result<Self, Unreadable> {
        let (&flags, timelines) = payload.split_first().ok_or(Damaged)?;
        if flags != 0 {
            return Err(Unreadable::Newer);
        }
        if n_pages.checked_mul(MAP_WIDTH * n_series) != Some(timelines.len()) {
            return Err(Unreadable::Damaged);
        }
        Ok(Self { n_series, timelines })
    }

    /// Returns the timeline that a series has in a page of rows, if it has samples there.
    pub(in crate::block) fn timeline(self, page_idx: usize, series_idx: usize) -> Option<TimelineId> {
        let size = self.n_series * MAP_WIDTH;
        let mut planes = &self.timelines[page_idx * size..][..size];
        let timeline = Planes::take(&mut planes, self.n_series, MAP_WIDTH)?.get(series_idx);
        (timeline != NO_TIMELINE).then_some(TimelineId(timeline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn maps_come_back_and_other_sizes_are_refused(
            pages in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(NO_TIMELINE), any::<u32>()], 5), 1..4,
            ),
            cut: usize,
        ) {
            let mut payload = vec![0];
            pages.iter().for_each(|timelines| put_planes(timelines, MAP_WIDTH, &mut payload));
            let map = GroupMap::parse(&payload, 5, pages.len()).unwrap();
            for (i, timelines) in pages.iter().enumerate() {
                for (j, &timeline) in timelines.iter().enumerate() {
                    let expected = (timeline != NO_TIMELINE).then_some(TimelineId(timeline));
                    prop_assert_eq!(map.timeline(i, j), expected);
                }
            }
            let refused = |payload: &[u8], n_series, n_pages| GroupMap::parse(payload, n_series, n_pages).err();
            prop_assert_eq!(refused(&payload[..cut % payload.len()], 5, pages.len()), Some(Unreadable::Damaged));
            prop_assert_eq!(refused(&payload, 4, pages.len()), Some(Unreadable::Damaged));
            prop_assert_eq!(refused(&payload, 5, usize::MAX), Some(Unreadable::Damaged));
            payload[0] = 1;
            prop_assert_eq!(refused(&payload, 5, pages.len()), Some(Unreadable::Newer));
        }
    }
}
