//! A hash table that grows one piece at a time.
//!
//! A table that doubles moves all its entries. If the hash of every entry requires a look-up
//! elsewhere, this takes a tenth of a second at half a million entries, under a shard's lock. This
//! table consists of pieces, each for a part of the hashes. The pieces grow one by one.

use hashbrown::HashTable;

/// Pieces of a table: a growing piece moves about one entry in this many.
const N_PIECES: usize = 64;
/// A table with fewer entries has one piece.
const SPLIT_LEN: usize = 1024;

/// Entries by hash.
#[derive(Debug)]
pub struct WideTable<T> {
    /// One piece, or [`N_PIECES`].
    pieces: Vec<HashTable<T>>,
    len: usize,
    /// Bytes of the pieces.
    size: usize,
}

impl<T> WideTable<T> {
    /// Returns the entry with a hash for which `is_it` is true.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.pieces[self.piece(hash)].find(hash, is_it)
    }

    /// Returns a mutable reference to the entry with a hash for which `is_it` is true. Its hash
    /// must not change.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let piece = self.piece(hash);
        self.pieces[piece].find_mut(hash, is_it)
    }

    /// Adds a new entry. `hash_of` returns the hash of any entry.
    pub fn insert_unique(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) {
        if self.len == SPLIT_LEN && self.pieces.len() == 1 {
            self.split(&hash_of);
        }
        let piece = self.piece(hash);
        let table = &mut self.pieces[piece];
        // Fast path: the piece has room.
        if table.len() < table.capacity() {
            table.insert_unique(hash, entry, hash_of);
        } else {
            let size = table.allocation_size();
            rebuild(table, &hash_of);
            table.insert_unique(hash, entry, hash_of);
            self.size = self.size + table.allocation_size() - size;
        }
        self.len += 1;
    }

    #[cold]
    fn split(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let whole = std::mem::replace(
            &mut self.pieces,
            (0..N_PIECES).map(|_| HashTable::new()).collect(),
        );
        for entry in whole.into_iter().flatten() {
            let hash = hash_of(&entry);
            let piece = self.piece(hash);
            self.pieces[piece].insert_unique(hash, entry, hash_of);
        }
        self.size = self.pieces.iter().map(HashTable::allocation_size).sum();
    }

    /// Returns the piece of a hash, chosen by bits that its position in the piece does not depend
    /// on.
    #[inline]
    fn piece(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.pieces.len() - 1)
    }

    /// Removes the entry with a hash for which `is_it` is true, if it exists.
    pub fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) {
        let piece = self.piece(hash);
        if let Ok(found) = self.pieces[piece].find_entry(hash, is_it) {
            found.remove();
            self.len -= 1;
        }
    }

    /// Removes the entries of a piece that `keep` rejects.
    pub fn retain_piece(&mut self, piece: usize, mut keep: impl FnMut(&T) -> bool) {
        let Some(table) = self.pieces.get_mut(piece) else {
            return;
        };
        let len = table.len();
        table.retain(|entry| keep(entry));
        self.len -= len - table.len();
    }

    /// Shrinks a piece that is less than a quarter full. Returns `false` if the piece does not
    /// exist.
    pub fn shrink_piece(&mut self, piece: usize, hash_of: impl Fn(&T) -> u64) -> bool {
        let Some(table) = self.pieces.get_mut(piece) else {
            return false;
        };
        if table.num_buckets() / 4 > table.len() {
            let size = table.allocation_size();
            table.shrink_to(0, hash_of);
            self.size = self.size + table.allocation_size() - size;
        }
        true
    }

    /// Returns the entries of a piece. Returns `None` if the piece does not exist. The table has
    /// several pieces only once it has more entries than one piece holds.
    pub fn entries_of(&self, piece: usize) -> Option<impl Iterator<Item = &T>> {
        self.pieces.get(piece).map(HashTable::iter)
    }

    /// Returns the number of pieces.
    pub fn n_pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Iterates over all entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of the table in bytes: 0 while it is empty.
    pub fn size(&self) -> usize {
        self.size + (self.pieces.len() - 1) * size_of::<HashTable<T>>()
    }
}

/// Makes room for a quarter more entries. [`HashTable`] would double a table that is more than half
/// full, even if removed entries take the rest.
#[cold]
fn rebuild<T>(table: &mut HashTable<T>, hash_of: &impl Fn(&T) -> u64) {
    let room = table.len() + table.len() / 4 + 1;
    for entry in std::mem::replace(table, HashTable::with_capacity(room)) {
        table.insert_unique(hash_of(&entry), entry, hash_of);
    }
}

impl<T> Default for WideTable<T> {
    fn default() -> Self {
        Self {
            pieces: vec![HashTable::new()],
            len: 0,
            size: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: &u32) -> u64 {
        u64::from(*number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// This bounds the time under the lock when a series is created. The number of series does not
    /// matter.
    #[test]
    fn adding_an_entry_moves_at_most_the_entries_of_one_piece() {
        let mut table = WideTable::default();
        let n_hashed = std::cell::Cell::new(0);
        let counted = |number: &u32| {
            n_hashed.set(n_hashed.get() + 1);
            hash(number)
        };
        for i in 0..200_000_u32 {
            n_hashed.set(0);
            table.insert_unique(hash(&i), i, counted);
            // Twice the average of a piece, as entries are not spread evenly. For a small table,
            // all entries once.
            let most = (2 * table.len() / N_PIECES).max(3 * SPLIT_LEN);
            assert!(
                n_hashed.get() <= most,
                "{} entries were moved for the {i}th",
                n_hashed.get()
            );
        }
    }

    #[test]
    fn a_table_whose_entries_are_replaced_does_not_grow() {
        // Almost six tenths of the slots of each piece.
        let n = 75_000_u32;
        let mut table = WideTable::default();
        (0..n).for_each(|i| table.insert_unique(hash(&i), i, hash));
        let full = table.size();
        for i in 0..10 * n {
            table.remove(hash(&i), |&other| other == i);
            table.insert_unique(hash(&(i + n)), i + n, hash);
        }
        assert!(
            table.size() <= full && table.len() == n as usize,
            "{} of {full}",
            table.size()
        );
        assert!(
            (9 * n..11 * n)
                .all(|i| table.find(hash(&i), |&other| other == i).is_some() == (i >= 10 * n))
        );
    }

    #[test]
    fn memory_is_freed_when_entries_are_removed() {
        let mut table = WideTable::default();
        (0..10_000).for_each(|i: u32| table.insert_unique(hash(&i), i, hash));
        let full = table.size();
        assert!(full >= 40_000);
        (0..9_990).for_each(|i| table.remove(hash(&i), |&other| other == i));
        table.remove(hash(&5), |&other| other == 5);
        assert_eq!(table.find(hash(&5), |&other| other == 5), None);
        assert_eq!(
            (0..)
                .take_while(|&piece| table.shrink_piece(piece, hash))
                .count(),
            N_PIECES
        );
        assert!(table.size() < full / 4, "{} of {full}", table.size());
        let mut left: Vec<_> = table.iter().copied().collect();
        left.sort_unstable();
        assert_eq!(left, (9_990..10_000).collect::<Vec<_>>());
        assert_eq!(table.len(), 10);
        assert_eq!(
            table.find(hash(&9_995), |&other| other == 9_995),
            Some(&9_995)
        );
    }
}
