//! [`CoveredTime`]: the times whose deltas are in a total.
//!
//! The deltas of a stream follow each other: each starts where the one before ended. So the times
//! that are covered are a few ranges, with gaps for the deltas that have not arrived yet. A delta
//! in a gap is late, and one in a range is a repetition.

/// Maximum number of ranges. Beyond it the oldest one is forgotten.
pub(super) const RANGES_MAX: usize = 32;

/// See the module documentation.
#[derive(Debug, Clone)]
pub(super) struct CoveredTime {
    /// Ascending, at least one. Neither overlapping nor touching.
    ranges: Vec<Range>,
    /// The end of the newest range that was forgotten, or 0.
    forgotten_ns: u64,
}

/// The times after `start_ns`, up to `end_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start_ns: u64,
    end_ns: u64,
}

impl CoveredTime {
    /// Returns the time of the first delta of a stream.
    pub(super) fn of_first(start_ns: u64, end_ns: u64) -> Self {
        Self {
            ranges: vec![Range::of_delta(start_ns, end_ns)],
            forgotten_ns: 0,
        }
    }

    /// Returns `true` if a delta that ends at a time is in the total.
    pub(super) fn contains(&self, end_ns: u64) -> bool {
        let idx = self.ranges.partition_point(|range| range.end_ns < end_ns);
        let found = self.ranges.get(idx);
        found.is_some_and(|range| range.start_ns < end_ns)
    }

    /// Returns the end of the newest delta.
    pub(super) fn newest_ns(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.end_ns)
    }

    /// Returns `false` if a delta that ends at a time may be in a range that was forgotten.
    pub(super) fn is_known(&self, end_ns: u64) -> bool {
        end_ns > self.forgotten_ns
    }

    /// Returns the covered time with that of another delta, whose end is not covered. Senders that
    /// set no start, or always the same, cover only the ends of their deltas.
    pub(super) fn with(&self, start_ns: u64, end_ns: u64) -> Self {
        let mut added = Range::of_delta(start_ns, end_ns);
        let idx = self.ranges.partition_point(|range| range.end_ns < end_ns);
        let (before, after) = self.ranges.split_at(idx);
        if before
            .last()
            .is_some_and(|last| last.end_ns > added.start_ns)
        {
            added = Range::of_delta(0, end_ns);
        }
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        for range in before.iter().chain([&added]).chain(after).copied() {
            match ranges.last_mut() {
                Some(Range { end_ns, .. }) if *end_ns == range.start_ns => *end_ns = range.end_ns,
                _ => ranges.push(range),
            }
        }
        let mut forgotten_ns = self.forgotten_ns;
        if ranges.len() > RANGES_MAX {
            forgotten_ns = ranges.remove(0).end_ns;
        }
        ranges.shrink_to_fit();
        Self {
            ranges,
            forgotten_ns,
        }
    }

    /// Returns the size on the heap in bytes.
    pub(super) fn size(&self) -> usize {
        size_of::<Range>() * self.ranges.capacity()
    }
}

impl Range {
    /// Returns the time of a delta; only its end without a start before it.
    fn of_delta(start_ns: u64, end_ns: u64) -> Self {
        let has_start = start_ns > 0 && start_ns < end_ns;
        Self {
            start_ns: if has_start {
                start_ns
            } else {
                end_ns.saturating_sub(1)
            },
            end_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges(covered: &CoveredTime) -> Vec<(u64, u64)> {
        let pair = |range: &Range| (range.start_ns, range.end_ns);
        covered.ranges.iter().map(pair).collect()
    }

    #[test]
    fn deltas_that_follow_each_other_are_one_range() {
        let mut covered = CoveredTime::of_first(10, 20);
        for start in [20, 40, 30, 60] {
            assert!(!covered.contains(start + 10));
            covered = covered.with(start, start + 10);
            assert!(covered.contains(start + 10));
        }
        assert_eq!(ranges(&covered), [(10, 50), (60, 70)]);
        assert_eq!(covered.newest_ns(), 70);
        assert!(!covered.contains(60) && !covered.contains(10) && covered.contains(35));
        assert_eq!(ranges(&covered.with(50, 60)), [(10, 70)]);
    }

    #[test]
    fn deltas_without_a_start_of_their_own_cover_their_end() {
        for start in [0, 5] {
            let mut covered = CoveredTime::of_first(start, 10);
            for end in [30, 20] {
                covered = covered.with(start, end);
            }
            assert!([10, 20, 30].iter().all(|&end| covered.contains(end)));
            assert!([15, 25, 29].iter().all(|&end| !covered.contains(end)));
        }
    }

    #[test]
    fn the_oldest_of_many_ranges_is_forgotten() {
        let mut covered = CoveredTime::of_first(0, 10);
        for i in 2..=RANGES_MAX as u64 {
            covered = covered.with(0, 10 * i);
        }
        assert!(covered.is_known(1) && covered.contains(10));
        covered = covered.with(0, 15);
        assert!(!covered.is_known(10) && covered.is_known(11) && covered.contains(15));
        assert_eq!(covered.ranges.len(), RANGES_MAX);
        assert_eq!(covered.size(), RANGES_MAX * 16);
    }

    proptest! {
        /// The ends of contiguous deltas are covered once they have arrived, in whatever order.
        #[test]
        fn arrived_deltas_are_covered(order in Just((0..30_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut arrived = BTreeSet::new();
            let mut covered: Option<CoveredTime> = None;
            for &i in &order {
                let range = (100 + 10 * i, 110 + 10 * i);
                covered = Some(match covered {
                    None => CoveredTime::of_first(range.0, range.1),
                    Some(covered) => covered.with(range.0, range.1),
                });
                arrived.insert(i);
                let covered = covered.as_ref().unwrap();
                for j in 0..30 {
                    prop_assert_eq!(covered.contains(110 + 10 * j), arrived.contains(&j));
                }
            }
            prop_assert_eq!(ranges(&covered.unwrap()), vec![(100, 400)]);
        }
    }
}
