//! A set of slots under construction, as plain bits.
//!
//! A Roaring bitmap stores slots that were added as ranges as a list of runs, and moves the rest of
//! the list for each slot that it adds. A union of hundreds of lists takes milliseconds that way,
//! and here one operation a slot.

use std::ops::Range;

use roaring::RoaringBitmap;

/// The slots below a bound that is fixed when the set is created.
#[derive(Debug)]
pub(super) struct SlotBits {
    bytes: Vec<u8>,
}

impl SlotBits {
    /// Creates an empty set for slots below `end`.
    pub(super) fn new(end: u32) -> Self {
        Self {
            bytes: vec![0; (end as usize).div_ceil(8)],
        }
    }

    /// Adds a slot.
    #[inline]
    pub(super) fn insert(&mut self, slot: u32) {
        self.bytes[slot as usize / 8] |= 1 << (slot % 8);
    }

    /// Adds a range of slots.
    pub(super) fn insert_range(&mut self, slots: Range<u32>) {
        let first_whole = slots.start.next_multiple_of(8).min(slots.end);
        let end_whole = (slots.end / 8 * 8).max(first_whole);
        for slot in slots.start..first_whole {
            self.insert(slot);
        }
        if first_whole < end_whole {
            self.bytes[first_whole as usize / 8..end_whole as usize / 8].fill(u8::MAX);
        }
        for slot in end_whole..slots.end {
            self.insert(slot);
        }
    }

    /// Returns the set as a bitmap.
    pub(super) fn into_bitmap(self) -> RoaringBitmap {
        RoaringBitmap::from_lsb0_bytes(0, &self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_a_set(
            slots in proptest::collection::vec(0..300_u32, 0..20),
            ranges in proptest::collection::vec((0..300_u32, 0..40_u32), 0..10),
            after in 0..20_u32,
        ) {
            let mut bits = SlotBits::new(340 + after);
            let mut model = RoaringBitmap::new();
            for slot in slots {
                bits.insert(slot);
                model.insert(slot);
            }
            for (start, len) in ranges {
                bits.insert_range(start..start + len);
                model.insert_range(start..start + len);
            }
            prop_assert_eq!(bits.into_bitmap(), model);
        }
    }
}
