//! Series by the numbers that records give them.

use hashbrown::HashMap;

use super::series::SeriesIdx;

/// Series by the numbers that records give them. Prometheus counts them up, so most are found by their place in a list.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// By number; [`Numbers::NONE`] where there is none.
    dense: Vec<SeriesIdx>,
    /// Numbers that would make the list mostly empty.
    sparse: HashMap<u64, SeriesIdx>,
    len: usize,
}

/// Places of the list for each number that is given, at most, and those that it may have in any case.
const PLACES_OF_NUMBER: usize = 4;
const PLACES_MIN: usize = 1 << 16;

impl Numbers {
    /// Stands for a number that no series has.
    pub(super) const NONE: SeriesIdx = SeriesIdx::MAX;

    /// Returns the series of a number.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<SeriesIdx> {
        // Fast path: in the list. What is not there is behind its end or not given, but for the few of the table.
        match usize::try_from(number).ok().and_then(|place| self.dense.get(place)) {
            Some(&series) if series != Self::NONE => Some(series),
            _ => self.sparse.get(&number).copied(),
        }
    }

    /// Gives a number to a series.
    pub(super) fn insert(&mut self, number: u64, series: SeriesIdx) {
        self.len += usize::from(self.get(number).is_none());
        let places_max = self.len.saturating_mul(PLACES_OF_NUMBER).saturating_add(PLACES_MIN);
        match usize::try_from(number).ok().filter(|&place| place < places_max) {
            Some(place) => {
                if place >= self.dense.len() {
                    self.dense.resize(place + 1, Self::NONE);
                }
                self.dense[place] = series;
                self.sparse.remove(&number);
            }
            None => _ = self.sparse.insert(number, series),
        }
    }

    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.dense.capacity() * size_of::<SeriesIdx>() + self.sparse.capacity() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_again_whatever_they_are() {
        let mut numbers = Numbers::default();
        let given = [5, 0, 70_000, u64::MAX, 1 << 40, 65_535, 65_536 + 4 * 7, 131_000];
        for (series, number) in (0..).zip(given) {
            numbers.insert(number, series);
        }
        // Some that were sparse are dense by now, and are given to others.
        (0..40_000).for_each(|number| numbers.insert(number, 7));
        numbers.insert(70_000, 8);
        for (number, expect) in
            [(5, Some(7)), (70_000, Some(8)), (u64::MAX, Some(3)), (1 << 40, Some(4)), (40_000, None)]
        {
            assert_eq!(numbers.get(number), expect, "{number}");
        }
        assert!(numbers.dense.len() <= 4 * numbers.len + PLACES_MIN && numbers.sparse.len() < given.len());
    }
}
