//! Postings: the series that have a label value.
//!
//! Most values occur in one series or a few: a table entry is eight bytes and holds one slot.
//! Longer lists are stored in a pool, as a sorted array or, if they are long, as a Roaring bitmap.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::DefaultHashBuilder;
use roaring::RoaringBitmap;

use super::slot_bits::SlotBits;
use super::slot_set::SlotSet;
use super::symbols::SymbolId;
use super::value_order::ValueOrder;
use varve_collections::{Column, IdAllocator, WideTable};

/// Slots are less than this: the highest bit marks a [`SlotsRef`] into the pool.
pub(crate) const SLOTS_MAX: u32 = 1 << 31;

/// The largest sorted array. A longer list takes less memory as a bitmap.
const FEW_MAX: usize = 64;
/// Memory of a small bitmap besides its slots: four containers and the first array.
const BITMAP_SIZE: usize = 192;

/// Many values of one label and the series that have them.
#[derive(Debug, Default)]
pub(crate) struct ValueTable {
    table: WideTable<Entry>,
    hasher: DefaultHashBuilder,
    pool: Column<Many>,
    ids: IdAllocator,
    /// Bytes that elements of the pool take on the heap, about.
    pool_size: usize,
    /// The sorted order of the values.
    pub(super) order: ValueOrder,
}

/// A value and its slots.
#[derive(Debug, Clone, Copy)]
struct Entry {
    value: SymbolId,
    slots: SlotsRef,
}

/// A [`ValueSlots`] in four bytes: a slot, or [`SLOTS_MAX`] plus a number in the pool.
#[derive(Debug, Clone, Copy)]
struct SlotsRef(u32);

/// Where the slots of a value are.
#[derive(Debug, Clone, Copy)]
enum ValueSlots {
    /// This slot is the only one.
    One(u32),
    /// The number of the list in the pool.
    Pooled(u32),
}

impl SlotsRef {
    fn one(slot: u32) -> Self {
        debug_assert!(slot < SLOTS_MAX, "the head allocates no such slot");
        Self(slot)
    }

    fn pooled(number: u32) -> Self {
        Self(SLOTS_MAX + number)
    }

    #[inline]
    fn decode(self) -> ValueSlots {
        match self.0.checked_sub(SLOTS_MAX) {
            None => ValueSlots::One(self.0),
            Some(number) => ValueSlots::Pooled(number),
        }
    }
}

/// Two slots and more.
#[derive(Debug)]
enum Many {
    /// Ascending.
    Few(Vec<u32>),
    Bitmap(Box<SlotSet>),
}

/// The series that have a label value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Postings<'a> {
    /// One slot.
    One(u32),
    /// Some slots, ascending.
    Few(&'a [u32]),
    /// Many slots.
    Bitmap(&'a SlotSet),
}

impl ValueTable {
    /// Adds a series to a value. Returns the change of [`ValueTable::size`].
    pub(super) fn insert(&mut self, value: SymbolId, slot: u32) -> isize {
        let hash = self.hasher.hash_one(value);
        let Some(entry) = self.table.find_mut(hash, |entry| entry.value == value) else {
            let slots = SlotsRef::one(slot);
            return self.insert_value(hash, Entry { value, slots });
        };
        match entry.slots.decode() {
            ValueSlots::Pooled(number) => {
                let grown = self.pool[number as usize].insert(slot);
                self.pool_size = self.pool_size.wrapping_add_signed(grown);
                grown
            }
            ValueSlots::One(known) if known == slot => 0,
            ValueSlots::One(known) => {
                let few = Many::Few(vec![slot.min(known), slot.max(known)]);
                let few_size = few.size();
                let size_before = self.pool.size();
                entry.slots = keep(&mut self.pool, &mut self.ids, few);
                self.pool_size += few_size;
                (self.pool.size() - size_before + few_size) as isize
            }
        }
    }

    /// Adds a new value with its series: ascending runs of slots, at least one.
    pub(super) fn insert_new(&mut self, value: SymbolId, runs: &[Range<u32>]) {
        let slots = match runs {
            [one] if one.len() == 1 => SlotsRef::one(one.start),
            _ => {
                let many = Many::of(runs);
                self.pool_size += many.size();
                keep(&mut self.pool, &mut self.ids, many)
            }
        };
        self.insert_value(self.hasher.hash_one(value), Entry { value, slots });
    }

    #[cold]
    fn insert_value(&mut self, hash: u64, entry: Entry) -> isize {
        let size = self.table.size() + self.order.size();
        let hasher = &self.hasher;
        self.table
            .insert_unique(hash, entry, |entry| hasher.hash_one(entry.value));
        self.order.add(entry.value);
        (self.table.size() + self.order.size()) as isize - size as isize
    }

    /// Removes a series from a value, and the value with its last series.
    pub(super) fn remove(&mut self, value: SymbolId, slot: u32) {
        let hash = self.hasher.hash_one(value);
        let Some(entry) = self.table.find_mut(hash, |entry| entry.value == value) else {
            return;
        };
        let number = match entry.slots.decode() {
            ValueSlots::Pooled(number) => number,
            ValueSlots::One(last) => {
                if last == slot {
                    self.table.remove(hash, |entry| entry.value == value);
                    self.order.remove();
                }
                return;
            }
        };
        let many = &mut self.pool[number as usize];
        self.pool_size -= many.size();
        if let Some(last) = many.remove(slot) {
            entry.slots = SlotsRef::one(last);
            *many = Many::Few(Vec::new());
            self.ids.free(number);
        }
        self.pool_size += self.pool[number as usize].size();
    }

    /// Frees unused memory in one piece of the table. Returns `false` if the piece does not exist.
    pub(super) fn shrink_piece(&mut self, piece: usize) -> bool {
        self.pool.truncate(self.ids.end());
        let hasher = &self.hasher;
        self.table
            .shrink_piece(piece, |entry| hasher.hash_one(entry.value))
    }

    /// Returns the values in one piece of the table, and the number of pieces.
    pub(super) fn values_in_piece(&self, piece: usize) -> (Vec<SymbolId>, usize) {
        let values = self
            .table
            .entries_of(piece)
            .into_iter()
            .flatten()
            .map(|entry| entry.value)
            .collect();
        (values, self.table.n_pieces())
    }

    /// Returns the series that have a value.
    pub(super) fn get(&self, value: SymbolId) -> Option<Postings<'_>> {
        let entry = self
            .table
            .find(self.hasher.hash_one(value), |entry| entry.value == value)?;
        Some(self.postings(*entry))
    }

    /// Iterates over all values and their series, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SymbolId, Postings<'_>)> {
        self.table
            .iter()
            .map(|entry| (entry.value, self.postings(*entry)))
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the approximate size of the table in bytes.
    pub(super) fn size(&self) -> usize {
        self.table.size() + self.pool.size() + self.pool_size + self.order.size()
    }

    fn postings(&self, entry: Entry) -> Postings<'_> {
        match entry.slots.decode() {
            ValueSlots::One(slot) => Postings::One(slot),
            ValueSlots::Pooled(number) => match &self.pool[number as usize] {
                Many::Few(slots) => Postings::Few(slots),
                Many::Bitmap(bitmap) => Postings::Bitmap(bitmap),
            },
        }
    }
}

/// Stores slots in the pool.
fn keep(pool: &mut Column<Many>, ids: &mut IdAllocator, many: Many) -> SlotsRef {
    let number = ids
        .allocate(SLOTS_MAX)
        .expect("there are fewer values than slots");
    match pool.get_mut(number as usize) {
        Some(free) => *free = many,
        None => pool.push(many),
    }
    SlotsRef::pooled(number)
}

impl Many {
    /// Creates a list from ascending runs of slots.
    fn of(runs: &[Range<u32>]) -> Self {
        let n_slots: usize = runs.iter().map(Range::len).sum();
        if n_slots > FEW_MAX {
            return Self::Bitmap(Box::new(SlotSet::of(runs)));
        }
        let mut slots = Vec::with_capacity(n_slots);
        slots.extend(runs.iter().cloned().flatten());
        Self::Few(slots)
    }

    /// Adds a slot. Returns the change of [`Many::size`], which visits all slots.
    fn insert(&mut self, slot: u32) -> isize {
        match self {
            Self::Few(slots) => {
                // Fast path: slots mostly arrive in ascending order.
                let idx = match slots.last() {
                    Some(&last) if last < slot => slots.len(),
                    _ => match slots.binary_search(&slot) {
                        Ok(_) => return 0,
                        Err(idx) => idx,
                    },
                };
                let before = slots.capacity() * size_of::<u32>();
                if slots.len() < FEW_MAX {
                    if slots.len() == slots.capacity() {
                        slots.reserve_exact(slots.len() / 2);
                    }
                    slots.insert(idx, slot);
                } else {
                    slots.insert(idx, slot);
                    *self = Self::Bitmap(Box::new(slots.iter().copied().collect()));
                }
                // Both are a few hundred bytes.
                self.size() as isize - before as isize
            }
            Self::Bitmap(bitmap) => {
                let n_new = isize::from(bitmap.insert(slot));
                n_new * size_of::<u16>() as isize
            }
        }
    }

    /// Removes a slot. Returns the remaining slot if there is only one.
    fn remove(&mut self, slot: u32) -> Option<u32> {
        match self {
            Self::Few(slots) => {
                if let Ok(idx) = slots.binary_search(&slot) {
                    slots.remove(idx);
                }
                if slots.capacity() / 2 > slots.len() {
                    slots.shrink_to_fit();
                }
                if let [last] = slots[..] {
                    Some(last)
                } else {
                    None
                }
            }
            Self::Bitmap(bitmap) => {
                bitmap.remove(slot);
                // Half the threshold for bitmaps: a slot that is added and removed repeatedly does
                // not change the form each time.
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
    /// Returns the number of slots.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Few(slots) => slots.len() as u64,
            Self::Bitmap(bitmap) => bitmap.len(),
        }
    }

    /// Iterates over the slots in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let (listed, bitmap) = match self {
            Self::One(slot) => (std::slice::from_ref(slot), None),
            Self::Few(slots) => (*slots, None),
            Self::Bitmap(bitmap) => (&[][..], Some(bitmap.iter())),
        };
        listed.iter().copied().chain(bitmap.into_iter().flatten())
    }

    /// Adds the slots to `set`.
    pub(crate) fn union_into(&self, set: &mut RoaringBitmap) {
        match self {
            Self::One(slot) => {
                set.insert(*slot);
            }
            Self::Few(slots) => set.extend(*slots),
            Self::Bitmap(bitmap) => bitmap.union_into(set),
        }
    }

    /// Adds the slots to `bits`.
    pub(super) fn add_to(&self, bits: &mut SlotBits) {
        match self {
            Self::One(slot) => bits.insert(*slot),
            Self::Few(slots) => {
                for &slot in *slots {
                    bits.insert(slot);
                }
            }
            Self::Bitmap(bitmap) => bitmap.add_to(bits),
        }
    }

    /// Removes from `set` all slots that are not in this set.
    pub(crate) fn intersect_into(&self, set: &mut RoaringBitmap) {
        match self {
            Self::One(slot) => {
                *set = std::iter::once(*slot)
                    .filter(|&slot| set.contains(slot))
                    .collect()
            }
            Self::Few(slots) => {
                *set = slots
                    .iter()
                    .copied()
                    .filter(|&slot| set.contains(slot))
                    .collect()
            }
            Self::Bitmap(bitmap) => bitmap.intersect_into(set),
        }
    }

    /// Returns `true` if one of the slots is in `set`.
    pub(crate) fn intersects(&self, set: &RoaringBitmap) -> bool {
        match self {
            Self::One(slot) => set.contains(*slot),
            Self::Few(slots) => slots.iter().any(|&slot| set.contains(slot)),
            Self::Bitmap(bitmap) => bitmap.intersects(set),
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
            let (mut values, mut model) = (ValueTable::default(), BTreeMap::<u32, BTreeSet<u32>>::new());
            let n_adds = steps.len() / 2;
            for (i, (add, value, slot)) in steps.into_iter().enumerate() {
                // First mostly additions, then mostly removals, so that all forms occur.
                if add || i < n_adds {
                    values.insert(SymbolId(value), slot);
                    model.entry(value).or_default().insert(slot);
                } else {
                    values.remove(SymbolId(value), slot);
                    model.entry(value).or_default().remove(&slot);
                }
            }
            (0..).take_while(|&piece| values.shrink_piece(piece)).for_each(drop);
            model.retain(|_, slots| !slots.is_empty());
            prop_assert_eq!(values.len(), model.len());
            prop_assert_eq!(values.iter().map(|(value, _)| value.0).collect::<BTreeSet<_>>(), model.keys().copied().collect());
            let pool_size: usize = values.pool.iter().map(Many::size).sum();
            prop_assert_eq!(values.pool_size, pool_size);
            for value in 0..3 {
                let Some(postings) = values.get(SymbolId(value)) else {
                    prop_assert!(!model.contains_key(&value));
                    continue;
                };
                let slots = &model[&value];
                prop_assert_eq!(postings.len(), slots.len() as u64);
                prop_assert!(postings.iter().eq(slots.iter().copied()));
                let mut union = bitmap(&other);
                let mut both = bitmap(&other);
                postings.union_into(&mut union);
                postings.intersect_into(&mut both);
                prop_assert_eq!(union, bitmap(&(slots | &other)));
                prop_assert_eq!(both, bitmap(&(slots & &other)));
                prop_assert_eq!(postings.intersects(&bitmap(&other)), !slots.is_disjoint(&other));
            }
        }
    }

    #[test]
    fn memory_of_removed_values_is_freed() {
        let mut values = ValueTable::default();
        let pairs = || {
            (0..2000).flat_map(|value| (0..value % 100).map(move |slot| (SymbolId(value), slot)))
        };
        pairs().for_each(|(value, slot)| _ = values.insert(value, slot));
        pairs().for_each(|(value, slot)| values.remove(value, slot));
        (0..)
            .take_while(|&piece| values.shrink_piece(piece))
            .for_each(drop);
        assert_eq!((values.len(), values.pool_size), (0, 0));
        assert!(values.size() < 8192, "{}", values.size());
    }
}
