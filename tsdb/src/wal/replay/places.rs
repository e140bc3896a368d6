//! Where the series of a log live.

use crate::head::SeriesRef;

/// Shard and slot of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) shard: u16,
    pub(super) slot: u32,
}

/// Places by the numbers of series: gathered, then sorted, then looked up.
///
/// Senders write their series in the same order in every request, mostly that in which they were first seen. So a look-up
/// tries the neighbour of the last one before it searches.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<(SeriesRef, Place)>);

/// Where the next look-up begins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hint(usize);

impl Places {
    /// Counts the series; after [`Places::sort`] each once.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a series.
    pub(super) fn push(&mut self, series: SeriesRef, place: Place) {
        self.0.push((series, place));
    }

    /// Adds all series of others.
    pub(super) fn extend(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Makes all that was added ready to be looked up. A series that was added twice has one place, whichever.
    pub(super) fn sort(&mut self) {
        // They come in this order, or in a few runs of it.
        self.0.sort_by_key(|&(series, _)| series);
        self.0.dedup_by_key(|&mut (series, _)| series);
        self.0.shrink_to_fit();
    }

    /// Returns the place of a series.
    #[inline]
    pub(super) fn find(&self, series: SeriesRef, hint: &mut Hint) -> Option<Place> {
        // Fast path: the next one.
        if let Some(&(at_hint, place)) = self.0.get(hint.0)
            && at_hint == series
        {
            hint.0 += 1;
            return Some(place);
        }
        let at = self.0.binary_search_by_key(&series, |&(series, _)| series).ok()?;
        hint.0 = at + 1;
        Some(self.0[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_in_any_order() {
        let place = |slot| Place { shard: 1, slot };
        let (mut places, mut others) = (Places::default(), Places::default());
        (0..50).rev().for_each(|i| places.push(SeriesRef(u64::from(i) * 4), place(i)));
        (25..100).for_each(|i| others.push(SeriesRef(u64::from(i) * 4), place(i)));
        places.extend(others);
        places.sort();
        assert_eq!(places.len(), 100);
        for step in [1, 3, 7, 99] {
            let mut hint = Hint::default();
            for i in (0..100).map(|i| i * step % 100) {
                assert_eq!(places.find(SeriesRef(u64::from(i) * 4), &mut hint), Some(place(i)));
                assert_eq!(places.find(SeriesRef(u64::from(i) * 4 + 1), &mut hint), None);
            }
        }
    }
}
