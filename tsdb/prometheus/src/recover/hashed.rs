//! Values found by a hash, which is kept with each of them: a table that grows reads nothing but itself.

use hashbrown::HashTable;

/// Places of values in some list, found by what they are there.
#[derive(Debug, Default)]
pub(super) struct Hashed {
    table: HashTable<(u32, u32)>,
}

impl Hashed {
    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.table.capacity() * (size_of::<(u32, u32)>() + 1)
    }

    /// Returns the place of the value that `is_it` and has this hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = short(hash);
        self.table.find(spread(hash), |&(other, place)| other == hash && is_it(place)).map(|&(_, place)| place)
    }

    /// Adds a place whose value is not there yet.
    pub(super) fn insert(&mut self, hash: u64, place: u32) {
        let hash = short(hash);
        self.table.insert_unique(spread(hash), (hash, place), |&(hash, _)| spread(hash));
    }
}

/// The part of a hash that is kept.
fn short(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

/// The table wants the highest bits mixed, too.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_same_hash_are_told_apart() {
        let mut hashed = Hashed::default();
        let value = |place: u32| u64::from(place) % 1000;
        (0..3000).for_each(|place| hashed.insert(value(place), place));
        for place in 0..3000 {
            assert_eq!(hashed.find(value(place), |it| it == place), Some(place));
        }
        assert_eq!(hashed.find(5, |_| false), None);
        assert_eq!(hashed.find(1000, |_| true), None);
        assert!(hashed.size() >= 3000 * 8);
    }
}
