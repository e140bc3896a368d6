//! Label names and values. Each is stored once, for as long as something refers to it.

use std::fmt;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use varve_collections::{Arena, Column, IdAllocator, WideTable};

/// The id of a string. Ids are dense from 0, and reused when nothing refers to the string any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SymbolId(pub(crate) u32);

/// Name and value of a label, by their ids in one head.
pub(crate) type Pair = (SymbolId, SymbolId);

/// All label names and values of a shard.
pub(crate) struct Symbols {
    texts: Arena<String>,
    entries: Column<Entry>,
    ids: IdAllocator,
    by_string: WideTable<SymbolId>,
    seed: u64,
}

/// The position of a string.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    start: u32,
    size: u32,
    /// Number of references to the string.
    n_uses: u32,
}

impl Symbols {
    /// Creates an empty table. `seed` keeps senders from choosing strings that collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            texts: Arena::default(),
            entries: Column::default(),
            ids: IdAllocator::default(),
            by_string: WideTable::default(),
            seed,
        }
    }

    /// Returns the string of a symbol.
    ///
    /// # Panics
    /// If the symbol does not belong to this table.
    #[inline]
    pub(crate) fn resolve(&self, id: SymbolId) -> &str {
        string_of(&self.texts, &self.entries, id)
    }

    /// Iterates over the strings of some ids. Skips ids without a counted use. Returns `None` if
    /// all ids are lower.
    pub(crate) fn of_ids(
        &self,
        ids: Range<usize>,
    ) -> Option<impl Iterator<Item = (SymbolId, &str)>> {
        let ids = ids.start..ids.end.min(self.entries.len());
        let symbols = ids
            .clone()
            .filter(|&id| self.entries[id].n_uses > 0)
            .map(|id| SymbolId(id as u32))
            .map(|id| (id, self.resolve(id)));
        (!ids.is_empty()).then_some(symbols)
    }

    /// Returns the symbol of a string, if it exists.
    pub(crate) fn find(&self, text: &str) -> Option<SymbolId> {
        self.by_string
            .find(self.hash(text), |&id| self.resolve(id) == text)
            .copied()
    }

    /// Returns the symbol of a string as [`Symbols::find_or_add`] does, and counts a use.
    #[cfg(test)]
    pub(crate) fn intern(&mut self, text: &str) -> Option<SymbolId> {
        let id = self.find_or_add(text)?;
        self.retain(id, 1).map(|()| id)
    }

    /// Returns the symbol of a string. Adds the string if it is new. The caller then counts a use.
    /// Returns `None` at 2^32 strings or 4 GiB.
    pub(crate) fn find_or_add(&mut self, text: &str) -> Option<SymbolId> {
        let hash = self.hash(text);
        let texts = &self.texts;
        let entries = &self.entries;
        match self
            .by_string
            .find(hash, |&id| string_of(texts, entries, id) == text)
        {
            Some(&id) => Some(id),
            None => self.insert(hash, text),
        }
    }

    /// Counts uses of a symbol. Returns `None` at 2^32 uses.
    pub(crate) fn retain(&mut self, id: SymbolId, n_uses: u32) -> Option<()> {
        let entry = &mut self.entries[id.0 as usize];
        entry.n_uses = entry.n_uses.checked_add(n_uses)?;
        Some(())
    }

    fn insert(&mut self, hash: u64, text: &str) -> Option<SymbolId> {
        let size = u32::try_from(text.len()).ok()?;
        let start = self.texts.push(text)?;
        let Some(id) = self.ids.allocate(u32::MAX).map(SymbolId) else {
            self.texts.release(start, text.len());
            return None;
        };
        let entry = Entry {
            start,
            size,
            n_uses: 0,
        };
        match self.entries.get_mut(id.0 as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        let texts = &self.texts;
        let entries = &self.entries;
        let seed = self.seed;
        self.by_string.insert_unique(hash, id, |&id| {
            xxh3_64_with_seed(string_of(texts, entries, id).as_bytes(), seed)
        });
        Some(id)
    }

    /// Releases one use of a symbol. The symbol is removed with its last use.
    pub(crate) fn release(&mut self, id: SymbolId) {
        let entry = &mut self.entries[id.0 as usize];
        entry.n_uses -= 1;
        self.forget_unused(id);
    }

    /// Removes a symbol that has no counted use.
    pub(crate) fn forget_unused(&mut self, id: SymbolId) {
        let Entry {
            start,
            size,
            n_uses,
        } = self.entries[id.0 as usize];
        if n_uses > 0 {
            return;
        }
        let hash = self.hash(self.resolve(id));
        self.by_string.remove(hash, |&other| other == id);
        self.texts.release(start, size as usize);
        self.ids.free(id.0);
    }

    /// Removes all symbols that have no counted use. No symbol may have been removed before.
    pub(crate) fn forget_all_unused(&mut self) {
        for id in 0..self.entries.len() as u32 {
            self.forget_unused(SymbolId(id));
        }
    }

    /// Frees the memory after the last symbol.
    pub(crate) fn truncate(&mut self) {
        self.entries.truncate(self.ids.end());
    }

    /// Moves the strings of some ids out of sparse pieces. Returns `false` if the ids do not exist.
    pub(crate) fn compact_strings(&mut self, ids: Range<usize>) -> bool {
        for id in ids.start..ids.end.min(self.entries.len()) {
            let Entry {
                start,
                size,
                n_uses,
            } = self.entries[id];
            if n_uses > 0
                && self.texts.is_sparse(start)
                && let Some(moved) = self.texts.relocate(start, size as usize)
            {
                self.entries[id].start = moved;
            }
        }
        ids.start < self.entries.len()
    }

    /// Frees unused memory in one piece of the table. Returns `false` if the piece does not exist.
    pub(crate) fn shrink_piece(&mut self, piece: usize) -> bool {
        let texts = &self.texts;
        let entries = &self.entries;
        let seed = self.seed;
        self.by_string.shrink_piece(piece, |&id| {
            xxh3_64_with_seed(string_of(texts, entries, id).as_bytes(), seed)
        })
    }

    /// Returns the size of the table in bytes.
    pub(crate) fn size(&self) -> usize {
        self.texts.size() + self.entries.size() + self.ids.size() + self.by_string.size()
    }

    fn hash(&self, text: &str) -> u64 {
        xxh3_64_with_seed(text.as_bytes(), self.seed)
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Symbols({} strings, {} bytes)",
            self.ids.n_used(),
            self.size()
        )
    }
}

#[inline]
fn string_of<'a>(texts: &'a Arena<String>, entries: &Column<Entry>, id: SymbolId) -> &'a str {
    let entry = &entries[id.0 as usize];
    texts.run(entry.start, entry.size as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_has_one_symbol() {
        let mut symbols = Symbols::new(7);
        let ids: Vec<_> = (0..1000)
            .map(|i| symbols.intern(&format!("value {}", i % 100)).unwrap())
            .collect();
        assert_eq!(symbols.entries.len(), 100);
        for (i, &id) in ids.iter().enumerate() {
            assert_eq!(symbols.resolve(id), format!("value {}", i % 100));
            assert_eq!(symbols.find(symbols.resolve(id)), Some(id));
        }
        assert_eq!((symbols.find("value 100"), symbols.find("")), (None, None));
        assert_eq!(symbols.intern("").map(|id| symbols.resolve(id)), Some(""));
    }

    #[test]
    fn a_symbol_lasts_as_long_as_its_uses() {
        let mut symbols = Symbols::new(7);
        let a = symbols.intern("a").unwrap();
        let b = symbols.intern("b").unwrap();
        assert_eq!(symbols.intern("a"), Some(a));
        symbols.release(a);
        assert_eq!(symbols.find("a"), Some(a));
        symbols.release(a);
        assert_eq!((symbols.find("a"), symbols.find("b")), (None, Some(b)));
        assert_eq!(symbols.intern("c"), Some(a), "the number is given again");
        assert_eq!((symbols.resolve(a), symbols.resolve(b)), ("c", "b"));
    }

    fn shrink(symbols: &mut Symbols) {
        symbols.truncate();
        assert!(
            (0..)
                .take_while(|step| symbols.compact_strings(step * 100..(step + 1) * 100))
                .count()
                <= 100
        );
        assert!(
            (0..)
                .take_while(|&piece| symbols.shrink_piece(piece))
                .count()
                <= 64
        );
    }

    #[test]
    fn memory_of_removed_strings_is_freed() {
        let mut symbols = Symbols::new(7);
        let ids: Vec<_> = (0..10_000)
            .map(|i| symbols.intern(&format!("{i:064}")).unwrap())
            .collect();
        let full = symbols.size();
        ids.iter()
            .filter(|id| id.0 % 16 != 0)
            .for_each(|&id| symbols.release(id));
        shrink(&mut symbols);
        assert!(symbols.size() < full / 2, "{} of {full}", symbols.size());
        ids.iter()
            .filter(|id| id.0 % 16 == 0)
            .for_each(|&id| assert_eq!(symbols.resolve(id), format!("{:064}", id.0)));
        ids.iter()
            .filter(|id| id.0 % 16 == 0)
            .for_each(|&id| symbols.release(id));
        shrink(&mut symbols);
        assert!(symbols.size() < 100_000, "{}", symbols.size());
        assert_eq!(symbols.intern("x").map(|id| symbols.resolve(id)), Some("x"));
    }
}
