//! A hash table that grows a piece at a time.
//!
//! A table that doubles moves all that it holds. Where every entry has to be looked up elsewhere for its hash, that takes
//! a tenth of a second at half a million entries, and a shard's lock is held meanwhile. This one consists of pieces, each
//! with the entries of some hashes, that double one by one.

use hashbrown::HashTable;

/// Pieces of a table: each moves at most about one entry in so many at once.
const N_PIECES: usize = 64;
/// A smaller table is one piece.
const SPLIT_LEN: usize = 1024;

/// Entries by hash.
#[derive(Debug)]
pub(crate) struct WideTable<T> {
    /// One, or [`N_PIECES`].
    pieces: Vec<HashTable<T>>,
    len: usize,
    /// Bytes that the pieces take.
    size: usize,
}

impl<T> WideTable<T> {
    /// Returns the entry of a hash that `is_it`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.pieces[self.piece(hash)].find(hash, is_it)
    }

    /// Returns the entry of a hash that `is_it`, to change what its hash does not depend on.
    #[inline]
    pub(crate) fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let piece = self.piece(hash);
        self.pieces[piece].find_mut(hash, is_it)
    }

    /// Adds an entry that is not there; `hash_of` returns the hash of any entry.
    pub(crate) fn insert_unique(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) {
        if self.len == SPLIT_LEN && self.pieces.len() == 1 {
            self.split(&hash_of);
        }
        let piece = self.piece(hash);
        let table = &mut self.pieces[piece];
        // Fast path: there is room.
        if table.len() < table.capacity() {
            table.insert_unique(hash, entry, hash_of);
        } else {
            let size = table.allocation_size();
            table.insert_unique(hash, entry, hash_of);
            self.size = self.size + table.allocation_size() - size;
        }
        self.len += 1;
    }

    #[cold]
    fn split(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let whole = std::mem::replace(&mut self.pieces, (0..N_PIECES).map(|_| HashTable::new()).collect());
        for entry in whole.into_iter().flatten() {
            let hash = hash_of(&entry);
            let piece = self.piece(hash);
            self.pieces[piece].insert_unique(hash, entry, hash_of);
        }
        self.size = self.pieces.iter().map(HashTable::allocation_size).sum();
    }

    /// Returns the piece of a hash, by bits that its place in the piece does not depend on.
    #[inline]
    fn piece(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.pieces.len() - 1)
    }

    /// Removes the entry of a hash that `is_it`, if it is there.
    pub(crate) fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) {
        let piece = self.piece(hash);
        if let Ok(found) = self.pieces[piece].find_entry(hash, is_it) {
            found.remove();
            self.len -= 1;
        }
    }

    /// Removes entries of a piece, if there is one, but those to `keep`.
    pub(crate) fn retain_piece(&mut self, piece: usize, mut keep: impl FnMut(&T) -> bool) {
        let Some(table) = self.pieces.get_mut(piece) else { return };
        let len = table.len();
        table.retain(|entry| keep(entry));
        self.len -= len - table.len();
    }

    /// Gives memory of a piece back where three quarters are not needed any more; false if there is no such piece.
    pub(crate) fn shrink_piece(&mut self, piece: usize, hash_of: impl Fn(&T) -> u64) -> bool {
        let Some(table) = self.pieces.get_mut(piece) else { return false };
        if table.capacity() / 4 > table.len() {
            let size = table.allocation_size();
            table.shrink_to(0, hash_of);
            self.size = self.size + table.allocation_size() - size;
        }
        true
    }

    /// Returns the entries of a piece; `None` if there is no such piece. There are more pieces only once there are more
    /// entries than one holds.
    pub(crate) fn entries_of(&self, piece: usize) -> Option<impl Iterator<Item = &T>> {
        self.pieces.get(piece).map(HashTable::iter)
    }

    /// Counts the pieces.
    pub(crate) fn n_pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Iterates over all entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Counts the entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that the table takes: none while it is empty.
    pub(crate) fn size(&self) -> usize {
        self.size + (self.pieces.len() - 1) * size_of::<HashTable<T>>()
    }
}

impl<T> Default for WideTable<T> {
    fn default() -> Self {
        Self { pieces: vec![HashTable::new()], len: 0, size: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(of: &u32) -> u64 {
        u64::from(*of).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// What a lock is held for when a series comes is bounded by this, and not by how many there are.
    #[test]
    fn an_entry_that_comes_moves_no_more_than_the_entries_of_a_piece() {
        let (mut table, n_hashed) = (WideTable::default(), std::cell::Cell::new(0));
        let counted = |of: &u32| {
            n_hashed.set(n_hashed.get() + 1);
            hash(of)
        };
        for i in 0..200_000_u32 {
            n_hashed.set(0);
            table.insert_unique(hash(&i), i, counted);
            // Twice what a piece has on average: entries are not spread evenly. Once, all of a small table.
            let most = (2 * table.len() / N_PIECES).max(3 * SPLIT_LEN);
            assert!(n_hashed.get() <= most, "{} entries were moved for the {i}th", n_hashed.get());
        }
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
        assert_eq!((0..).take_while(|&piece| table.shrink_piece(piece, hash)).count(), N_PIECES);
        assert!(table.size() < full / 4, "{} of {full}", table.size());
        let mut left: Vec<_> = table.iter().copied().collect();
        left.sort_unstable();
        assert_eq!(left, (9_990..10_000).collect::<Vec<_>>());
        assert_eq!(table.len(), 10);
        assert_eq!(table.find(hash(&9_995), |&of| of == 9_995), Some(&9_995));
    }
}
