//! The series that have a label value.

use roaring::RoaringBitmap;

/// A set of slots, filled in ascending order. Most label values occur in a handful of series, so those stay inline.
#[derive(Debug)]
pub(crate) enum Postings {
    /// The first `n` of three slots.
    Inline {
        /// How many are there.
        n: u8,
        /// The slots, ascending.
        slots: [u32; 3],
    },
    /// Four slots and more.
    Bitmap(Box<RoaringBitmap>),
}

/// What a small bitmap takes: its box, room for four containers, the array in the first.
const BITMAP_SIZE: usize = 256;

impl Default for Postings {
    fn default() -> Self {
        Self::Inline { n: 0, slots: [0; 3] }
    }
}

impl Postings {
    /// Adds a slot greater than all that are there, and returns by about how many bytes the memory on the heap grew.
    pub(crate) fn push(&mut self, slot: u32) -> usize {
        match self {
            Self::Inline { n, slots } if usize::from(*n) < slots.len() => {
                slots[usize::from(*n)] = slot;
                *n += 1;
                0
            }
            Self::Inline { slots, .. } => {
                let mut bitmap: RoaringBitmap = slots.iter().copied().collect();
                bitmap.insert(slot);
                *self = Self::Bitmap(Box::new(bitmap));
                BITMAP_SIZE
            }
            Self::Bitmap(bitmap) => {
                bitmap.insert(slot);
                size_of::<u16>()
            }
        }
    }

    /// Counts the slots.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Inline { n, .. } => u64::from(*n),
            Self::Bitmap(bitmap) => bitmap.len(),
        }
    }

    /// Adds the slots to `set`.
    pub(crate) fn union_into(&self, set: &mut RoaringBitmap) {
        match self {
            Self::Inline { .. } => set.extend(self.inline().iter().copied()),
            Self::Bitmap(bitmap) => *set |= &**bitmap,
        }
    }

    /// Leaves in `set` only what is here too.
    pub(crate) fn intersect_into(&self, set: &mut RoaringBitmap) {
        match self {
            Self::Inline { .. } => {
                *set = self.inline().iter().copied().filter(|&slot| set.contains(slot)).collect();
            }
            Self::Bitmap(bitmap) => *set &= &**bitmap,
        }
    }

    /// Tells whether one of the slots is in `set`.
    pub(crate) fn intersects(&self, set: &RoaringBitmap) -> bool {
        match self {
            Self::Inline { .. } => self.inline().iter().any(|&slot| set.contains(slot)),
            Self::Bitmap(bitmap) => !bitmap.is_disjoint(set),
        }
    }

    fn inline(&self) -> &[u32] {
        match self {
            Self::Inline { n, slots } => &slots[..usize::from(*n)],
            Self::Bitmap(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bitmap(set: &BTreeSet<u32>) -> RoaringBitmap {
        set.iter().copied().collect()
    }

    proptest! {
        #[test]
        fn postings_are_sets(
            slots in proptest::collection::btree_set(0_u32..50, 0..10),
            other in proptest::collection::btree_set(0_u32..50, 0..20),
        ) {
            let mut postings = Postings::default();
            for &slot in &slots {
                postings.push(slot);
            }
            prop_assert_eq!(postings.len(), slots.len() as u64);
            let (mut union, mut both) = (bitmap(&other), bitmap(&other));
            postings.union_into(&mut union);
            postings.intersect_into(&mut both);
            prop_assert_eq!(union, bitmap(&(&slots | &other)));
            prop_assert_eq!(both, bitmap(&(&slots & &other)));
            prop_assert_eq!(postings.intersects(&bitmap(&other)), !slots.is_disjoint(&other));
        }
    }
}
