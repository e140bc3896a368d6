//! Columns of start timestamps: the time since which a sample's value has been counted.
//!
//! Few series have them and they rarely change, so a column has entries only for changes: the index of a sample, and
//! the start timestamp from that sample to the next entry. 0 is unknown and applies before the first entry. Indexes
//! ascend, and no entry repeats the start timestamp before it.

use std::ops::Range;

/// An index in a column of samples, and the start timestamp from there on.
pub(crate) type Change = (u32, i64);

/// The order of a new sample relative to the samples of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is newer than all others; later samples inherit its start timestamp.
    Newest,
    /// It is out of order; its start timestamp applies to it alone.
    OutOfOrder,
}

/// Returns the start timestamp of the sample at an index.
pub(crate) fn at(column: &[Change], place: usize) -> i64 {
    let after = column.partition_point(|(from, _)| *from as usize <= place);
    after.checked_sub(1).map_or(0, |idx| column[idx].1)
}

/// Sets the start timestamp from an index on.
pub(crate) fn push(column: &mut Vec<Change>, place: usize, start_ms: i64) {
    column.truncate(column.partition_point(|(from, _)| (*from as usize) < place));
    if column.last().map_or(0, |(_, before)| *before) != start_ms {
        column.push((place as u32, start_ms));
    }
}

/// Sets the start timestamps of at least one sample from an index on; `later` counts from there.
pub(crate) fn append(column: &mut Vec<Change>, place: usize, later: &[Change]) {
    // Fast path: no start timestamps.
    if column.is_empty() && later.is_empty() {
        return;
    }
    push(column, place, 0);
    later.iter().for_each(|&(from, start_ms)| push(column, place + from as usize, start_ms));
}

/// Returns the start timestamps of a range of samples, counted from the first of them.
pub(crate) fn slice(column: &[Change], places: Range<usize>) -> Vec<Change> {
    // Fast path: no start timestamps.
    if column.is_empty() || places.is_empty() {
        return Vec::new();
    }
    let mut of_slice = Vec::new();
    push(&mut of_slice, 0, at(column, places.start));
    let inside = column.iter().filter(|(from, _)| places.contains(&(*from as usize)));
    inside.for_each(|&(from, start_ms)| push(&mut of_slice, from as usize - places.start, start_ms));
    of_slice
}

/// Removes the entries of a range of samples; `len` is the number of samples before.
pub(crate) fn drain(column: &mut Vec<Change>, places: Range<usize>, len: usize) {
    if column.is_empty() || places.is_empty() {
        return;
    }
    let later = slice(column, places.end..len);
    column.truncate(column.partition_point(|(from, _)| (*from as usize) < places.start));
    if places.end < len {
        append(column, places.start, &later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column(starts: &[i64]) -> Vec<Change> {
        let mut column = Vec::new();
        starts.iter().enumerate().for_each(|(place, &start_ms)| push(&mut column, place, start_ms));
        column
    }

    fn list(column: &[Change], len: usize) -> Vec<i64> {
        assert!(column.is_sorted_by(|a, b| a.0 < b.0) && column.iter().all(|(from, _)| (*from as usize) < len));
        assert!(
            column.windows(2).all(|pair| pair[0].1 != pair[1].1) && column.first().is_none_or(|first| first.1 != 0)
        );
        (0..len).map(|place| at(column, place)).collect()
    }

    proptest! {
        #[test]
        fn a_column_is_a_list_of_start_timestamps(
            starts in proptest::collection::vec(0..3_i64, 0..20),
            later in proptest::collection::vec(0..3_i64, 1..20),
            a in 0..20_usize, b in 0..20_usize,
        ) {
            let places = a.min(b).min(starts.len())..a.max(b).min(starts.len());
            let whole = column(&starts);
            prop_assert_eq!(&list(&whole, starts.len()), &starts);
            prop_assert_eq!(list(&slice(&whole, places.clone()), places.len()), &starts[places.clone()]);
            let mut both = whole.clone();
            append(&mut both, starts.len(), &column(&later));
            prop_assert_eq!(list(&both, starts.len() + later.len()), [&starts[..], &later[..]].concat());
            let (mut drained, mut rest) = (whole, starts.clone());
            drain(&mut drained, places.clone(), starts.len());
            rest.drain(places);
            prop_assert_eq!(list(&drained, rest.len()), rest);
        }
    }
}
