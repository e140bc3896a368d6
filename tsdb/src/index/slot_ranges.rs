//! The slots of a set as ranges of consecutive slots.
//!
//! Series that were created one after the other have consecutive slots and share many labels, so a
//! large set consists of far fewer ranges than slots.

use std::ops::Range;

use roaring::RoaringBitmap;
use roaring::bitmap::Iter;

/// An iterator over ranges of consecutive slots.
pub(crate) struct SlotRanges<'a> {
    current: Range<u32>,
    later: Option<Iter<'a>>,
}

impl<'a> SlotRanges<'a> {
    /// Creates an iterator over the slots of a set, which are less than `u32::MAX`.
    pub(crate) fn of(set: &'a RoaringBitmap) -> Self {
        Self {
            current: 0..0,
            later: Some(set.iter()),
        }
    }

    /// Creates an iterator over one range.
    pub(crate) fn one(slots: Range<u32>) -> Self {
        Self {
            current: slots,
            later: None,
        }
    }

    /// Returns the next range, or the first `n_max` slots of it. Returns `None` after the last one.
    pub(crate) fn next(&mut self, n_max: usize) -> Option<Range<u32>> {
        if self.current.is_empty() {
            let next = self.later.as_mut()?.next_range()?;
            self.current = *next.start()..*next.end() + 1;
        }
        let start = self.current.start;
        let n_slots = self.current.len().min(n_max);
        // At most the length of the range.
        self.current.start += n_slots as u32;
        Some(start..self.current.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_have_each_slot_once(
            starts in proptest::collection::vec((0..200_000_u32, prop_oneof![1..4_u32, 1..300_u32, Just(70_000)]), 0..30),
            is_optimized: bool, n_max in 1..1000_usize,
        ) {
            let mut set = RoaringBitmap::new();
            for (start, n) in starts {
                set.insert_range(start..start + n);
            }
            if is_optimized {
                set.optimize();
            } else {
                set.remove_run_compression();
            }
            let mut ranges = SlotRanges::of(&set);
            let mut slots = Vec::new();
            while let Some(range) = ranges.next(n_max) {
                prop_assert!(!range.is_empty() && range.len() <= n_max);
                slots.extend(range);
            }
            prop_assert!(set.iter().eq(slots));
        }
    }

    #[test]
    fn one_range_is_taken_in_parts() {
        let mut ranges = SlotRanges::one(3..10);
        assert_eq!(ranges.next(5), Some(3..8));
        assert_eq!(ranges.next(5), Some(8..10));
        assert_eq!(ranges.next(5), None);
        assert_eq!(SlotRanges::one(0..0).next(5), None);
    }
}
