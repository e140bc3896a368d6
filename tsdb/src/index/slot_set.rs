//! Sets of slots that grow at their ends.
//!
//! Series created one after the other have consecutive slots and share many labels. The newest
//! consecutive slots of a set are stored as a range beside its bitmap, so that adding the next slot
//! only increments the end of the range.

use std::ops::Range;

use roaring::RoaringBitmap;

use super::slot_bits::SlotBits;
use super::slot_ranges::SlotRanges;

/// A set of slots.
#[derive(Debug, Default)]
pub(crate) struct SlotSet {
    bitmap: RoaringBitmap,
    /// Not in the bitmap, and above all slots that are, or ever were, in it.
    newest: Range<u32>,
}

/// Shorter runs of slots are added to a bitmap slot by slot.
const LONG_RUN: usize = 32;

impl SlotSet {
    /// Creates a set from ascending runs of slots.
    pub(crate) fn of(runs: &[Range<u32>]) -> Self {
        let Some((newest, older)) = runs.split_last() else {
            return Self::default();
        };
        let mut bitmap = RoaringBitmap::new();
        let is_long = |run: &Range<u32>| run.len() >= LONG_RUN;
        for alike in older.chunk_by(|a, b| is_long(a) == is_long(b)) {
            if is_long(&alike[0]) {
                for run in alike {
                    bitmap.insert_range(run.clone());
                }
            } else {
                let appended = bitmap.append(alike.iter().cloned().flatten());
                appended.expect("runs ascend");
            }
        }
        Self {
            bitmap,
            newest: newest.clone(),
        }
    }

    /// Adds a slot, which is less than `u32::MAX`. Returns `true` if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32) -> bool {
        // Fast path: the next slot.
        if slot == self.newest.end {
            self.newest.end += 1;
            return true;
        }
        if slot > self.newest.end {
            self.settle();
            self.newest = slot..slot + 1;
            return true;
        }
        !self.newest.contains(&slot) && self.bitmap.insert(slot)
    }

    /// Removes a slot.
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.newest.contains(&slot) {
            self.settle();
        }
        self.bitmap.remove(slot);
    }

    /// Moves the newest slots into the bitmap.
    fn settle(&mut self) {
        match self.newest.len() {
            0 => {}
            1 => _ = self.bitmap.insert(self.newest.start),
            _ => _ = self.bitmap.insert_range(self.newest.clone()),
        }
        self.newest.start = self.newest.end;
    }

    /// Returns the number of slots.
    pub(crate) fn len(&self) -> u64 {
        self.bitmap.len() + self.newest.len() as u64
    }

    /// Returns `true` if the set has a slot.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.newest.contains(&slot) || self.bitmap.contains(slot)
    }

    /// Iterates over the slots in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.bitmap.iter().chain(self.newest.clone())
    }

    /// Returns the slots as a bitmap.
    pub(crate) fn to_bitmap(&self) -> RoaringBitmap {
        let mut bitmap = self.bitmap.clone();
        bitmap.insert_range(self.newest.clone());
        bitmap
    }

    /// Adds the slots to `set`.
    pub(crate) fn union_into(&self, set: &mut RoaringBitmap) {
        *set |= &self.bitmap;
        set.insert_range(self.newest.clone());
    }

    /// Adds the slots to `bits`.
    pub(super) fn add_to(&self, bits: &mut SlotBits) {
        let mut ranges = SlotRanges::of(&self.bitmap);
        while let Some(slots) = ranges.next(usize::MAX) {
            bits.insert_range(slots);
        }
        bits.insert_range(self.newest.clone());
    }

    /// Returns a slot above all that are in the set.
    pub(super) fn end(&self) -> u32 {
        self.newest.end
    }

    /// Removes from `set` all slots that are not in this set.
    pub(crate) fn intersect_into(&self, set: &mut RoaringBitmap) {
        // Slots in the range pass and lie above all slots of the bitmap.
        let mut among_newest = std::mem::take(set);
        if self.newest.is_empty() {
            *set = among_newest & &self.bitmap;
            return;
        }
        *set = &among_newest & &self.bitmap;
        among_newest.remove_range(..self.newest.start);
        among_newest.remove_range(self.newest.end..);
        *set |= among_newest;
    }

    /// Returns `true` if one of the slots is in `set`.
    pub(crate) fn intersects(&self, set: &RoaringBitmap) -> bool {
        // Fast path: the first slot is.
        if self.bitmap.min().is_some_and(|first| set.contains(first)) {
            return true;
        }
        !self.bitmap.is_disjoint(set) || set.range_cardinality(self.newest.clone()) > 0
    }
}

impl FromIterator<u32> for SlotSet {
    fn from_iter<I: IntoIterator<Item = u32>>(slots: I) -> Self {
        let mut set = Self::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_is_a_set(
            steps in proptest::collection::vec((0..4_u8, 0_u32..60), 0..200),
            other in proptest::collection::btree_set(0_u32..100, 0..40),
        ) {
            let mut set = SlotSet::default();
            let mut model = BTreeSet::new();
            let mut next = 0;
            for (step, slot) in steps {
                match step {
                    // The next slot, one a little above, any, or one less.
                    0 | 1 => {
                        next += u32::from(step) * (1 + slot % 3);
                        prop_assert_eq!(set.insert(next), model.insert(next));
                        next += 1;
                    }
                    2 => prop_assert_eq!(set.insert(slot), model.insert(slot)),
                    _ => {
                        set.remove(slot);
                        model.remove(&slot);
                    }
                }
                next = next.max(model.last().map_or(0, |last| last + 1));
                let other: RoaringBitmap = other.iter().copied().collect();
                let bitmap: RoaringBitmap = model.iter().copied().collect();
                prop_assert_eq!(set.len(), model.len() as u64);
                prop_assert!(set.iter().eq(model.iter().copied()));
                prop_assert!((0..100).all(|slot| set.contains(slot) == model.contains(&slot)));
                prop_assert_eq!(set.to_bitmap(), bitmap.clone());
                let mut bits = SlotBits::new(set.end());
                set.add_to(&mut bits);
                prop_assert_eq!(bits.into_bitmap(), bitmap.clone());
                let mut union = other.clone();
                let mut both = other.clone();
                set.union_into(&mut union);
                set.intersect_into(&mut both);
                prop_assert_eq!(set.intersects(&other), !both.is_empty());
                prop_assert_eq!((union, both), (&other | &bitmap, &other & &bitmap));
            }
        }

        #[test]
        fn runs_become_the_set_of_their_slots(
            runs in proptest::collection::vec((1..3_u32, prop_oneof![1..4_u32, 25..40_u32, Just(70_000)]), 0..30),
        ) {
            let mut end = 0;
            let of = |(gap, n)| {
                let start = end + gap;
                end = start + n;
                start..end
            };
            let runs: Vec<_> = runs.into_iter().map(of).collect();
            let mut set = SlotSet::of(&runs);
            let mut one_by_one = SlotSet::default();
            runs.iter().cloned().flatten().for_each(|slot| _ = one_by_one.insert(slot));
            prop_assert!(set.to_bitmap() == one_by_one.to_bitmap() && set.len() == one_by_one.len());
            prop_assert!(set.insert(end + 1) && !set.insert(end + 1) && (end == 0 || !set.insert(end - 1)));
        }
    }
}
