//! The column of start timestamps in a page of rows, for the series that have them.
//!
//! ```text
//! varint  size of the rest in bytes
//! for each series with start timestamps, ascending:
//!   varint  index of the series, less the one before
//!   varint  n, its changes, at least 1
//!   n times, ascending: varint, position less the one before; zigzag, start timestamp less the one before, wrapping
//! ```
//! A position is the index of a sample among those of the series in this page. That sample and
//! later ones have the start timestamp, up to the next change; samples before the first change have
//! none.

use std::ops::Range;

use varve_codec::varint::{put_i64, put_sized, put_u64, take_i64, take_int, take_sized, take_u64};
use varve_model::start_timestamps::{Change, slice};

use crate::error::Damaged;

/// Builds the column.
#[derive(Default)]
pub(crate) struct StartTimestampsBuilder {
    bytes: Vec<u8>,
    last_idx: usize,
}

impl StartTimestampsBuilder {
    /// Returns the current size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the changes of a series, if it has any.
    pub(crate) fn push(&mut self, series_idx: usize, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        put_u64(
            &mut self.bytes,
            (series_idx - std::mem::replace(&mut self.last_idx, series_idx)) as u64,
        );
        put_u64(&mut self.bytes, changes.len() as u64);
        let mut before = (0, 0_i64);
        for &(place, start_ms) in changes {
            put_u64(&mut self.bytes, u64::from(place - before.0));
            put_i64(&mut self.bytes, start_ms.wrapping_sub(before.1));
            before = (place, start_ms);
        }
    }

    /// Appends the column to `dst`. Returns `true` if it is not empty.
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) -> bool {
        if self.bytes.is_empty() {
            return false;
        }
        put_sized(dst, &self.bytes);
        true
    }
}

/// The column of a page, which may be empty.
#[derive(Clone, Copy, Default)]
pub(crate) struct StartTimestampsColumn<'a>(&'a [u8]);

impl<'a> StartTimestampsColumn<'a> {
    /// Decodes the column from the front of `src`.
    pub(crate) fn take(src: &mut &'a [u8]) -> Option<Self> {
        take_sized(src)
            .filter(|column| !column.is_empty())
            .map(Self)
    }

    /// Returns the start timestamps at `wanted` of the `n_samples` samples that a series has in
    /// this page. Positions are relative to the first wanted sample.
    pub(crate) fn read(
        self,
        series_idx: usize,
        n_samples: usize,
        wanted: Range<usize>,
    ) -> Result<Vec<Change>, Damaged> {
        let mut src = self.0;
        let mut next_idx = 0_usize;
        while !src.is_empty() {
            next_idx = next_idx.saturating_add(take_int(&mut src).ok_or(Damaged)?);
            if next_idx > series_idx {
                break;
            }
            let is_wanted = next_idx == series_idx;
            let changes = take_changes(&mut src, is_wanted.then_some(n_samples)).ok_or(Damaged)?;
            if is_wanted {
                return Ok(slice(&changes, wanted));
            }
        }
        Ok(Vec::new())
    }

    /// Checks that the column contains only series of a group of `n_series` series.
    pub(crate) fn check(self, n_series: usize) -> Result<(), Damaged> {
        let mut src = self.0;
        let mut last = None;
        while !src.is_empty() {
            let step = take_int(&mut src).ok_or(Damaged)?;
            let idx = match last {
                None => step,
                // The indexes ascend.
                Some(_) if step == 0 => return Err(Damaged),
                Some(last) => usize::checked_add(last, step).ok_or(Damaged)?,
            };
            if idx >= n_series {
                return Err(Damaged);
            }
            last = Some(idx);
            take_changes(&mut src, None).ok_or(Damaged)?;
        }
        Ok(())
    }
}

/// Decodes the changes of a series. If its number of samples is given, checks and returns the
/// changes.
fn take_changes(src: &mut &[u8], n_samples: Option<usize>) -> Option<Vec<Change>> {
    let n = take_u64(src)?;
    let mut changes = Vec::new();
    let mut position = 0_u64;
    let mut start_ms = 0_i64;
    for i in 0..n {
        let step = take_u64(src)?;
        if i > 0 && step == 0 {
            return None;
        }
        position = position.checked_add(step)?;
        start_ms = start_ms.wrapping_add(take_i64(src)?);
        if let Some(n_samples) = n_samples {
            let position = u32::try_from(position).ok()?;
            if position as usize >= n_samples {
                return None;
            }
            changes.push((position, start_ms));
        }
    }
    (n > 0).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_model::start_timestamps::push;

    proptest! {
        #[test]
        fn any_part_of_any_series_round_trips(
            all in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(0), 1..4_i64, any::<i64>()], 1..30), 1..9),
            a in 0..30_usize, b in 0..30_usize,
        ) {
            let columns: Vec<Vec<Change>> = all.iter().map(|starts| {
                let mut column = Vec::new();
                starts.iter().enumerate().for_each(|(place, &start)| push(&mut column, place, start));
                column
            }).collect();
            let mut builder = StartTimestampsBuilder::default();
            let mut bytes = Vec::new();
            columns.iter().enumerate().for_each(|(idx, column)| builder.push(idx, column));
            let is_there = builder.encode(&mut bytes);
            prop_assert_eq!(is_there, columns.iter().any(|column| !column.is_empty()));
            let read = if is_there { StartTimestampsColumn::take(&mut &bytes[..]).unwrap() } else { StartTimestampsColumn::default() };
            read.check(all.len()).unwrap();
            prop_assert!(!is_there || read.check(0).is_err());
            for (idx, starts) in all.iter().enumerate() {
                let wanted = a.min(b).min(starts.len())..a.max(b).min(starts.len());
                let got = read.read(idx, starts.len(), wanted.clone()).unwrap();
                prop_assert_eq!(got, slice(&columns[idx], wanted));
            }
            for size in 0..bytes.len() {
                prop_assert!(StartTimestampsColumn::take(&mut &bytes[..size]).is_none());
            }
        }

        #[test]
        fn damaged_columns_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let column = StartTimestampsColumn(&bytes);
            let _ = (column.check(4), column.read(2, 5, 1..3));
        }
    }
}
