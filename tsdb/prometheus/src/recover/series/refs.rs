//! Lookup of series by ref.

use hashbrown::HashMap;

use super::labels::SeriesIdx;

/// Series by ref. Prometheus assigns refs consecutively, so most are found by index.
#[derive(Debug, Default)]
pub(crate) struct SeriesRefs {
    /// Indexed by ref. Unused entries are [`SeriesRefs::NONE`].
    dense: Vec<SeriesIdx>,
    /// Refs too far apart for the list.
    sparse: HashMap<u64, SeriesIdx>,
    len: usize,
}

/// Maximum list entries per ref, and the size that the list may always have.
const ENTRIES_PER_REF: usize = 4;
const ENTRIES_MIN: usize = 1 << 16;

impl SeriesRefs {
    /// Marks an unused ref.
    pub(crate) const NONE: SeriesIdx = SeriesIdx::MAX;

    /// Returns the series with a ref.
    #[inline]
    pub(crate) fn get(&self, series_ref: u64) -> Option<SeriesIdx> {
        // Fast path: in the list.
        match usize::try_from(series_ref)
            .ok()
            .and_then(|index| self.dense.get(index))
        {
            Some(&series) if series != Self::NONE => Some(series),
            _ => self.sparse.get(&series_ref).copied(),
        }
    }

    /// Sets the series of a ref.
    pub(crate) fn insert(&mut self, series_ref: u64, series: SeriesIdx) {
        self.len += usize::from(self.get(series_ref).is_none());
        let entries_max = self
            .len
            .saturating_mul(ENTRIES_PER_REF)
            .saturating_add(ENTRIES_MIN);
        match usize::try_from(series_ref)
            .ok()
            .filter(|&index| index < entries_max)
        {
            Some(index) => {
                if index >= self.dense.len() {
                    self.dense.resize(index + 1, Self::NONE);
                }
                self.dense[index] = series;
                self.sparse.remove(&series_ref);
            }
            None => _ = self.sparse.insert(series_ref, series),
        }
    }

    /// Estimates the memory in bytes.
    pub(crate) fn size(&self) -> usize {
        self.dense.capacity() * size_of::<SeriesIdx>() + self.sparse.capacity() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_and_sparse_refs_are_found() {
        let mut refs = SeriesRefs::default();
        let given = [
            5,
            0,
            70_000,
            u64::MAX,
            1 << 40,
            65_535,
            65_536 + 4 * 7,
            131_000,
        ];
        for (series, series_ref) in (0..).zip(given) {
            refs.insert(series_ref, series);
        }
        // Some sparse refs fit the list by now.
        (0..40_000).for_each(|series_ref| refs.insert(series_ref, 7));
        refs.insert(70_000, 8);
        for (series_ref, expect) in [
            (5, Some(7)),
            (70_000, Some(8)),
            (u64::MAX, Some(3)),
            (1 << 40, Some(4)),
            (40_000, None),
        ] {
            assert_eq!(refs.get(series_ref), expect, "{series_ref}");
        }
        assert!(refs.dense.len() <= 4 * refs.len + ENTRIES_MIN && refs.sparse.len() < given.len());
    }
}
