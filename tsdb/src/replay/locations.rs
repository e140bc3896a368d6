//! Shard and slot of each series of a log.

use crate::batch::SeriesRef;

/// Shard and slot of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SeriesLocation {
    pub(super) shard: u16,
    pub(super) slot: u32,
}

/// Map from series ref to location. Locations are pushed first, then sorted, then looked up.
///
/// A sender writes its series in the same order in every request, mostly in order of creation. So a
/// lookup tries the entry after the last hit before it searches.
#[derive(Debug, Default)]
pub(super) struct SeriesLocations(Vec<(SeriesRef, SeriesLocation)>);

/// Index that the next lookup tries first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LookupHint(usize);

impl SeriesLocations {
    /// Returns the number of series; exact after [`SeriesLocations::sort`].
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a series.
    pub(super) fn push(&mut self, series: SeriesRef, location: SeriesLocation) {
        self.0.push((series, location));
    }

    /// Appends all series of `others`.
    pub(super) fn extend(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Sorts the locations; required before lookups. If a series was appended twice, keeps either
    /// location.
    pub(super) fn sort(&mut self) {
        // The stable sort is fast here: entries arrive sorted, or in a few sorted runs.
        self.0.sort_by_key(|&(series, _)| series);
        self.0.dedup_by_key(|&mut (series, _)| series);
        self.0.shrink_to_fit();
    }

    /// Returns the location of a series, or `None` if the series is unknown.
    #[inline]
    pub(super) fn find(&self, series: SeriesRef, hint: &mut LookupHint) -> Option<SeriesLocation> {
        // Fast path: the entry at the hint.
        if let Some(&(at_hint, location)) = self.0.get(hint.0)
            && at_hint == series
        {
            hint.0 += 1;
            return Some(location);
        }
        let idx = self
            .0
            .binary_search_by_key(&series, |&(series, _)| series)
            .ok()?;
        hint.0 = idx + 1;
        Some(self.0[idx].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_in_any_order() {
        let location = |slot| SeriesLocation { shard: 1, slot };
        let mut locations = SeriesLocations::default();
        let mut others = SeriesLocations::default();
        (0..50)
            .rev()
            .for_each(|i| locations.push(SeriesRef(u64::from(i) * 4), location(i)));
        (25..100).for_each(|i| others.push(SeriesRef(u64::from(i) * 4), location(i)));
        locations.extend(others);
        locations.sort();
        assert_eq!(locations.len(), 100);
        for step in [1, 3, 7, 99] {
            let mut hint = LookupHint::default();
            for i in (0..100).map(|i| i * step % 100) {
                assert_eq!(
                    locations.find(SeriesRef(u64::from(i) * 4), &mut hint),
                    Some(location(i))
                );
                assert_eq!(
                    locations.find(SeriesRef(u64::from(i) * 4 + 1), &mut hint),
                    None
                );
            }
        }
    }
}
