//! Columns of start timestamps: the time since which a sample's value has been counted.
//!
//! Few series have start timestamps, and they rarely change. So a column has entries only for
//! changes: the index of a sample, and the start timestamp from that sample to the next entry. 0 is
//! unknown and applies before the first entry. Indexes ascend, and no entry repeats the start
//! timestamp of the previous entry.

use std::ops::Range;

/// An index in a column of samples, and the start timestamp from that index on.
pub type Change = (u32, i64);

/// The order of a new sample relative to the samples of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The sample is newer than all others. Later samples inherit its start timestamp.
    Newest,
    /// The sample is out of order. Its start timestamp applies only to this sample.
    OutOfOrder,
}

/// Returns the start timestamp of the sample at an index.
pub fn at(column: &[Change], idx: usize) -> i64 {
    let after = column.partition_point(|(from, _)| *from as usize <= idx);
    after.checked_sub(1).map_or(0, |idx| column[idx].1)
}

/// Sets the start timestamp from an index on.
pub fn push(column: &mut Vec<Change>, idx: usize, start_ms: i64) {
    column.truncate(column.partition_point(|(from, _)| (*from as usize) < idx));
    if column.last().map_or(0, |(_, before)| *before) != start_ms {
        column.push((idx as u32, start_ms));
    }
}

/// Sets the start timestamps of at least one sample from an index on. Indexes in `later` are
/// relative to that index.
pub fn append(column: &mut Vec<Change>, idx: usize, later: &[Change]) {
    // Fast path: no start timestamps.
    if column.is_empty() && later.is_empty() {
        return;
    }
    push(column, idx, 0);
    for &(from, start_ms) in later {
        push(column, idx + from as usize, start_ms);
    }
}

/// Returns the start timestamps of a range of samples, counted from the first of them.
pub fn slice(column: &[Change], indexes: Range<usize>) -> Vec<Change> {
    // Fast path: no start timestamps.
    if column.is_empty() || indexes.is_empty() {
        return Vec::new();
    }
    let mut slice = Vec::new();
    push(&mut slice, 0, at(column, indexes.start));
    for &(from, start_ms) in column {
        if indexes.contains(&(from as usize)) {
            push(&mut slice, from as usize - indexes.start, start_ms);
        }
    }
    slice
}

/// Removes the entries of a range of samples; `len` is the number of samples before.
pub fn drain(column: &mut Vec<Change>, indexes: Range<usize>, len: usize) {
    if column.is_empty() || indexes.is_empty() {
        return;
    }
    let later = slice(column, indexes.end..len);
    column.truncate(column.partition_point(|(from, _)| (*from as usize) < indexes.start));
    if indexes.end < len {
        append(column, indexes.start, &later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column(starts: &[i64]) -> Vec<Change> {
        let mut column = Vec::new();
        starts
            .iter()
            .enumerate()
            .for_each(|(idx, &start_ms)| push(&mut column, idx, start_ms));
        column
    }

    fn list(column: &[Change], len: usize) -> Vec<i64> {
        assert!(
            column.is_sorted_by(|a, b| a.0 < b.0)
                && column.iter().all(|(from, _)| (*from as usize) < len)
        );
        assert!(
            column.windows(2).all(|pair| pair[0].1 != pair[1].1)
                && column.first().is_none_or(|first| first.1 != 0)
        );
        (0..len).map(|idx| at(column, idx)).collect()
    }

    proptest! {
        #[test]
        fn a_column_is_a_list_of_start_timestamps(
            starts in proptest::collection::vec(0..3_i64, 0..20),
            later in proptest::collection::vec(0..3_i64, 1..20),
            a in 0..20_usize, b in 0..20_usize,
        ) {
            let indexes = a.min(b).min(starts.len())..a.max(b).min(starts.len());
            let whole = column(&starts);
            prop_assert_eq!(&list(&whole, starts.len()), &starts);
            prop_assert_eq!(list(&slice(&whole, indexes.clone()), indexes.len()), &starts[indexes.clone()]);
            let mut both = whole.clone();
            append(&mut both, starts.len(), &column(&later));
            prop_assert_eq!(list(&both, starts.len() + later.len()), [&starts[..], &later[..]].concat());
            let mut drained = whole;
            let mut rest = starts.clone();
            drain(&mut drained, indexes.clone(), starts.len());
            rest.drain(indexes);
            prop_assert_eq!(list(&drained, rest.len()), rest);
        }
    }
}
