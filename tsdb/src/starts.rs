//! Start timestamps as a column: since when what a sample counts has been counted.
//!
//! Few series have them and they change rarely, so a column has an entry only where the start changes: the place of a
//! sample and the start of that sample and those behind it, up to the next entry. 0 is unknown, and what samples before
//! the first entry have. Places ascend, and no entry repeats the start before it.

use std::ops::Range;

/// A place in a column of samples, and the start from there on.
pub(crate) type Change = (u32, i64);

/// Returns the start of the sample at a place.
pub(crate) fn at(column: &[Change], place: usize) -> i64 {
    let after = column.partition_point(|(from, _)| *from as usize <= place);
    after.checked_sub(1).map_or(0, |idx| column[idx].1)
}

/// Sets the start of the sample at a place and of all behind it.
pub(crate) fn push(column: &mut Vec<Change>, place: usize, start_ms: i64) {
    column.truncate(column.partition_point(|(from, _)| (*from as usize) < place));
    if column.last().map_or(0, |(_, before)| *before) != start_ms {
        column.push((place as u32, start_ms));
    }
}

/// Sets the starts of samples that follow each other from a place on, at least one; `later` counts from there.
pub(crate) fn append(column: &mut Vec<Change>, place: usize, later: &[Change]) {
    // Fast path: a series without starts.
    if column.is_empty() && later.is_empty() {
        return;
    }
    push(column, place, 0);
    later.iter().for_each(|&(from, start_ms)| push(column, place + from as usize, start_ms));
}

/// Returns the starts of some samples, counted from the first of them.
pub(crate) fn slice(column: &[Change], places: Range<usize>) -> Vec<Change> {
    // Fast path: a series without starts.
    if column.is_empty() || places.is_empty() {
        return Vec::new();
    }
    let mut of_slice = Vec::new();
    push(&mut of_slice, 0, at(column, places.start));
    let inside = column.iter().filter(|(from, _)| places.contains(&(*from as usize)));
    inside.for_each(|&(from, start_ms)| push(&mut of_slice, from as usize - places.start, start_ms));
    of_slice
}

/// Removes some samples of `len`.
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
        fn a_column_is_a_list_of_starts(
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
