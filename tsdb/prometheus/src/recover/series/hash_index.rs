//! A hash index that stores the hash of each value, so that it grows without reading the values.

use hashbrown::HashTable;

/// Finds values in a list by their hash.
#[derive(Debug, Default)]
pub(crate) struct HashIndex {
    table: HashTable<(u32, u32)>,
}

impl HashIndex {
    /// Estimates the memory in bytes.
    pub(crate) fn size(&self) -> usize {
        self.table.capacity() * (size_of::<(u32, u32)>() + 1)
    }

    /// Returns the index of the value with this hash for which `is_it` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = short(hash);
        self.table
            .find(spread(hash), |&(other, index)| {
                other == hash && is_it(index)
            })
            .map(|&(_, index)| index)
    }

    /// Adds the index of a new value.
    pub(crate) fn insert(&mut self, hash: u64, index: u32) {
        let hash = short(hash);
        self.table
            .insert_unique(spread(hash), (hash, index), |&(hash, _)| spread(hash));
    }
}

/// The part of a hash that is stored.
fn short(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

/// Mixes the highest bits, which the table uses.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_the_same_hash_are_distinct() {
        let mut hashed = HashIndex::default();
        let value = |index: u32| u64::from(index) % 1000;
        (0..3000).for_each(|index| hashed.insert(value(index), index));
        for index in 0..3000 {
            assert_eq!(hashed.find(value(index), |it| it == index), Some(index));
        }
        assert_eq!(hashed.find(5, |_| false), None);
        assert_eq!(hashed.find(1000, |_| true), None);
        assert!(hashed.size() >= 3000 * 8);
    }
}
