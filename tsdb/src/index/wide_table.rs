//! A hash table that grows a piece at a time.
//!
//! A table that doubles moves all that it holds. Where every entry has to be looked up elsewhere for its hash, that takes
//! a tenth of a second at half a million entries, and a shard's lock is held meanwhile. This one consists of pieces, each
//! with the entries of some hashes, that double one by one.

use hashbrown::HashTable;

/// Pieces of a table: each moves at most about one entry in so many at once.
const N_PIECES: usize = 64;

/// Entries by hash.
#[derive(Debug)]
pub(crate) struct WideTable<T> {
    pieces: Box<[HashTable<T>]>,
    len: usize,
    /// Bytes that the pieces take.
    size: usize,
}

impl<T> WideTable<T> {
    /// Returns the entry of a hash that `is_it`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.pieces[piece(hash)].find(hash, is_it)
    }

    /// Adds an entry that is not there; `hash_of` returns the hash of any entry.
    pub(crate) fn insert_unique(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) {
        let table = &mut self.pieces[piece(hash)];
        let size = table.allocation_size();
        table.insert_unique(hash, entry, hash_of);
        self.size = self.size + table.allocation_size() - size;
        self.len += 1;
    }

    /// Removes the entry of a hash that `is_it`, if it is there.
    pub(crate) fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) {
        if let Ok(found) = self.pieces[piece(hash)].find_entry(hash, is_it) {
            found.remove();
            self.len -= 1;
        }
    }

    /// Gives memory back where three quarters are not needed any more.
    pub(crate) fn shrink(&mut self, hash_of: impl Fn(&T) -> u64) {
        for table in &mut self.pieces {
            if table.capacity() / 4 > table.len() {
                table.shrink_to(0, &hash_of);
            }
        }
        self.size = self.pieces.iter().map(HashTable::allocation_size).sum();
    }

    /// Iterates over all entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Counts the entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn size(&self) -> usize {
        self.size + size_of_val(&*self.pieces)
    }
}

impl<T> Default for WideTable<T> {
    fn default() -> Self {
        Self { pieces: (0..N_PIECES).map(|_| HashTable::new()).collect(), len: 0, size: 0 }
    }
}

/// Returns the piece of a hash, by bits that its place in the piece does not depend on.
#[inline]
fn piece(hash: u64) -> usize {
    (hash >> 40) as usize % N_PIECES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(of: &u32) -> u64 {
        u64::from(*of).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn entries_come_and_go_and_so_does_their_memory() {
        let mut table = WideTable::default();
        (0..10_000).for_each(|i: u32| table.insert_unique(hash(&i), i, hash));
        let full = table.size();
        assert!(full >= 40_000);
        (0..9_990).for_each(|i| table.remove(hash(&i), |&of| of == i));
        table.remove(hash(&5), |&of| of == 5);
        assert_eq!(table.find(hash(&5), |&of| of == 5), None);
        table.shrink(hash);
        assert!(table.size() < full / 4, "{} of {full}", table.size());
        let mut left: Vec<_> = table.iter().copied().collect();
        left.sort_unstable();
        assert_eq!(left, (9_990..10_000).collect::<Vec<_>>());
        assert_eq!(table.len(), 10);
        assert_eq!(table.find(hash(&9_995), |&of| of == 9_995), Some(&9_995));
    }
}
