//! Which series have which value of a label.
//!
//! Most values occur in one series or in a handful: an entry of the table is eight bytes, and has room for one slot.
//! What has more lies in a pool: some as a sorted array, many as a roaring bitmap.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use roaring::RoaringBitmap;

use super::column::Column;
use super::numbers::Numbers;
use super::symbols::SymbolId;
use super::value_order::ValueOrder;

/// Slots are less than this: the highest bit says that an entry names an element of the pool.
pub(crate) const SLOTS_MAX: u32 = 1 << 31;

/// The largest sorted array. Beyond, a bitmap is smaller.
const FEW_MAX: usize = 64;
/// What a small bitmap takes besides its slots: room for four containers and the first array.
const BITMAP_SIZE: usize = 192;

/// The values of one label and the series that have them.
#[derive(Debug, Default)]
pub(crate) struct Values {
    table: HashTable<Entry>,
    hasher: DefaultHashBuilder,
    pool: Column<Many>,
    numbers: Numbers,
    /// Bytes that elements of the pool take on the heap, about.
    pool_size: usize,
    /// The order of their texts.
    pub(super) order: ValueOrder,
}

/// A value, and its slot or, with [`SLOTS_MAX`] added, the number of its slots in the pool.
#[derive(Debug, Clone, Copy)]
struct Entry {
    value: SymbolId,
    slots: u32,
}

/// Two slots and more.
#[derive(Debug)]
enum Many {
    /// Ascending.
    Few(Vec<u32>),
    Bitmap(Box<RoaringBitmap>),
}

/// The series that have a label value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Postings<'a> {
    /// One slot.
    One(u32),
    /// Some slots, ascending.
    Few(&'a [u32]),
    /// Many slots.
    Bitmap(&'a RoaringBitmap),
}

impl Values {
    /// Adds a series to a value's.
    pub(crate) fn insert(&mut self, value: SymbolId, slot: u32) {
        debug_assert!(slot < SLOTS_MAX, "the head gives no such slot");
        let hash = self.hasher.hash_one(value);
        let Some(entry) = self.table.find_mut(hash, |entry| entry.value == value) else {
            let hasher = &self.hasher;
            self.table.insert_unique(hash, Entry { value, slots: slot }, |entry| hasher.hash_one(entry.value));
            self.order.add(value);
            return;
        };
        if entry.slots < SLOTS_MAX {
            if entry.slots == slot {
                return;
            }
            let few = vec![slot.min(entry.slots), slot.max(entry.slots)];
            self.pool_size += few.capacity() * size_of::<u32>();
            let number = self.numbers.take(SLOTS_MAX).expect("there are fewer values than slots");
            match self.pool.get_mut(number as usize) {
                Some(free) => *free = Many::Few(few),
                None => self.pool.push(Many::Few(few)),
            }
            entry.slots = SLOTS_MAX + number;
            return;
        }
        let many = &mut self.pool[(entry.slots - SLOTS_MAX) as usize];
        self.pool_size -= many.size();
        many.insert(slot);
        self.pool_size += many.size();
    }

    /// Removes a series from a value's; with the last one the value is gone.
    pub(crate) fn remove(&mut self, value: SymbolId, slot: u32) {
        let hash = self.hasher.hash_one(value);
        let Ok(mut entry) = self.table.find_entry(hash, |entry| entry.value == value) else {
            return;
        };
        let slots = entry.get().slots;
        if slots < SLOTS_MAX {
            if slots == slot {
                entry.remove();
                self.order.remove();
            }
            return;
        }
        let number = slots - SLOTS_MAX;
        let many = &mut self.pool[number as usize];
        self.pool_size -= many.size();
        if let Some(last) = many.remove(slot) {
            entry.get_mut().slots = last;
            *many = Many::Few(Vec::new());
            self.numbers.give_back(number);
        }
        self.pool_size += self.pool[number as usize].size();
    }

    /// Gives memory back if much of it is not needed any more.
    pub(crate) fn shrink(&mut self) {
        self.pool.truncate(self.numbers.end());
        if self.table.capacity() / 4 > self.table.len() {
            let hasher = &self.hasher;
            self.table.shrink_to(0, |entry| hasher.hash_one(entry.value));
        }
    }

    /// Returns the series that have a value.
    pub(crate) fn get(&self, value: SymbolId) -> Option<Postings<'_>> {
        let entry = self.table.find(self.hasher.hash_one(value), |entry| entry.value == value)?;
        Some(self.postings(*entry))
    }

    /// Iterates over all values and their series, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SymbolId, Postings<'_>)> {
        self.table.iter().map(|entry| (entry.value, self.postings(*entry)))
    }

    /// Counts the values.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns about how many bytes the table takes.
    pub(crate) fn size(&self) -> usize {
        self.table.allocation_size() + self.pool.size() + self.pool_size + self.order.size()
    }

    fn postings(&self, entry: Entry) -> Postings<'_> {
        if entry.slots < SLOTS_MAX {
            return Postings::One(entry.slots);
        }
        match &self.pool[(entry.slots - SLOTS_MAX) as usize] {
            Many::Few(slots) => Postings::Few(slots),
            Many::Bitmap(bitmap) => Postings::Bitmap(bitmap),
        }
    }
}

/// Adds a slot to a set.
pub(super) fn insert_into(set: &mut RoaringBitmap, slot: u32) {
    // Fast path: slots are mostly given in ascending order.
    if set.try_push(slot).is_err() {
        set.insert(slot);
    }
}

impl Many {
    fn insert(&mut self, slot: u32) {
        match self {
            Self::Few(slots) => {
                let Err(at) = slots.binary_search(&slot) else { return };
                if slots.len() < FEW_MAX {
                    if slots.len() == slots.capacity() {
                        slots.reserve_exact(slots.len() / 2);
                    }
                    slots.insert(at, slot);
                } else {
                    let mut bitmap: RoaringBitmap = slots.iter().copied().collect();
                    bitmap.insert(slot);
                    *self = Self::Bitmap(Box::new(bitmap));
                }
            }
            Self::Bitmap(bitmap) => insert_into(bitmap, slot),
        }
    }

    /// Removes a slot; if one is left, that is returned.
    fn remove(&mut self, slot: u32) -> Option<u32> {
        match self {
            Self::Few(slots) => {
                if let Ok(at) = slots.binary_search(&slot) {
                    slots.remove(at);
                }
                if slots.capacity() / 2 > slots.len() {
                    slots.shrink_to_fit();
                }
                if let [last] = slots[..] { Some(last) } else { None }
            }
            Self::Bitmap(bitmap) => {
                bitmap.remove(slot);
                // Half of what made it a bitmap: one that comes and goes does not change it each time.
                if bitmap.len() <= FEW_MAX as u64 / 2 {
                    *self = Self::Few(bitmap.iter().collect());
                }
                None
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Few(slots) => slots.capacity() * size_of::<u32>(),
            Self::Bitmap(bitmap) => BITMAP_SIZE + bitmap.len() as usize * size_of::<u16>(),
        }
    }
}

impl Postings<'_> {
    /// Counts the slots.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Few(slots) => slots.len() as u64,
            Self::Bitmap(bitmap) => bitmap.len(),
        }
    }

    /// Adds the slots to `set`.
    pub(crate) fn union_into(&self, set: &mut RoaringBitmap) {
        match self {
            Self::One(slot) => {
                set.insert(*slot);
            }
            Self::Few(slots) => set.extend(*slots),
            Self::Bitmap(bitmap) => *set |= *bitmap,
        }
    }

    /// Leaves in `set` only what is here too.
    pub(crate) fn intersect_into(&self, set: &mut RoaringBitmap) {
        match self {
            Self::One(slot) => *set = std::iter::once(*slot).filter(|&slot| set.contains(slot)).collect(),
            Self::Few(slots) => *set = slots.iter().copied().filter(|&slot| set.contains(slot)).collect(),
            Self::Bitmap(bitmap) => *set &= *bitmap,
        }
    }

    /// Tells whether one of the slots is in `set`.
    pub(crate) fn intersects(&self, set: &RoaringBitmap) -> bool {
        match self {
            Self::One(slot) => set.contains(*slot),
            Self::Few(slots) => slots.iter().any(|&slot| set.contains(slot)),
            Self::Bitmap(bitmap) => !bitmap.is_disjoint(set),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn bitmap(set: &BTreeSet<u32>) -> RoaringBitmap {
        set.iter().copied().collect()
    }

    proptest! {
        #[test]
        fn postings_are_sets(
            steps in proptest::collection::vec((any::<bool>(), 0..3_u32, 0_u32..100), 0..800),
            other in proptest::collection::btree_set(0_u32..100, 0..20),
        ) {
            let (mut values, mut model) = (Values::default(), BTreeMap::<u32, BTreeSet<u32>>::new());
            let n_adds = steps.len() / 2;
            for (i, (add, value, slot)) in steps.into_iter().enumerate() {
                // First mostly additions, then mostly removals, so that all forms come and go.
                if add || i < n_adds {
                    values.insert(SymbolId(value), slot);
                    model.entry(value).or_default().insert(slot);
                } else {
                    values.remove(SymbolId(value), slot);
                    model.entry(value).or_default().remove(&slot);
                }
            }
            values.shrink();
            model.retain(|_, slots| !slots.is_empty());
            prop_assert_eq!(values.len(), model.len());
            prop_assert_eq!(values.iter().map(|(value, _)| value.0).collect::<BTreeSet<_>>(), model.keys().copied().collect());
            for value in 0..3 {
                let Some(postings) = values.get(SymbolId(value)) else {
                    prop_assert!(!model.contains_key(&value));
                    continue;
                };
                let slots = &model[&value];
                prop_assert_eq!(postings.len(), slots.len() as u64);
                let (mut union, mut both) = (bitmap(&other), bitmap(&other));
                postings.union_into(&mut union);
                postings.intersect_into(&mut both);
                prop_assert_eq!(union, bitmap(&(slots | &other)));
                prop_assert_eq!(both, bitmap(&(slots & &other)));
                prop_assert_eq!(postings.intersects(&bitmap(&other)), !slots.is_disjoint(&other));
            }
        }
    }

    #[test]
    fn what_is_removed_is_given_back() {
        let mut values = Values::default();
        let pairs = || (0..2000).flat_map(|value| (0..value % 100).map(move |slot| (SymbolId(value), slot)));
        pairs().for_each(|(value, slot)| values.insert(value, slot));
        pairs().for_each(|(value, slot)| values.remove(value, slot));
        values.shrink();
        assert_eq!((values.len(), values.pool_size), (0, 0));
        assert!(values.size() < 8192, "{}", values.size());
    }
}
