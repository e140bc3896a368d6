//! Label names and values, each kept once for as long as something refers to it.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::column::Column;
use super::numbers::Numbers;
use super::wide_table::WideTable;

/// The number of a text; dense from 0, and given again when nothing refers to the text any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SymbolId(pub(crate) u32);

/// All label names and values of a shard.
pub(crate) struct Symbols {
    /// All texts, one after the other, with those between that are gone.
    text: String,
    /// Bytes of texts that are gone.
    garbage_size: usize,
    entries: Column<Entry>,
    numbers: Numbers,
    ids: WideTable<SymbolId>,
    seed: u64,
}

/// Where a text stands.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    start: u64,
    size: u32,
    /// Counts what refers to the text.
    n_uses: u32,
}

/// Garbage below this is left alone.
const GARBAGE_SIZE_MIN: usize = 1 << 16;

impl Symbols {
    /// Starts empty; `seed` keeps senders from choosing texts that collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            text: String::new(),
            garbage_size: 0,
            entries: Column::default(),
            numbers: Numbers::default(),
            ids: WideTable::default(),
            seed,
        }
    }

    /// Returns the text of a symbol.
    ///
    /// # Panics
    /// If the symbol is not of this table.
    #[inline]
    pub(crate) fn text(&self, id: SymbolId) -> &str {
        text_of(&self.text, &self.entries, id)
    }

    /// Returns the symbol of a text, if there is one.
    pub(crate) fn find(&self, text: &str) -> Option<SymbolId> {
        self.ids.find(self.hash(text), |&id| self.text(id) == text).copied()
    }

    /// Returns the symbol of a text, makes one if need be, and counts the use; `None` when 2^32 texts are there or the
    /// text is larger than 4 GiB.
    pub(crate) fn intern(&mut self, text: &str) -> Option<SymbolId> {
        let id = match self.find(text) {
            Some(id) => id,
            None => self.insert(text)?,
        };
        self.retain(id).map(|()| id)
    }

    /// Counts a use of a symbol that is in use; `None` at 2^32 uses.
    pub(crate) fn retain(&mut self, id: SymbolId) -> Option<()> {
        let entry = &mut self.entries[id.0 as usize];
        entry.n_uses = entry.n_uses.checked_add(1)?;
        Some(())
    }

    fn insert(&mut self, text: &str) -> Option<SymbolId> {
        let size = u32::try_from(text.len()).ok()?;
        let id = SymbolId(self.numbers.take(u32::MAX)?);
        if self.text.capacity() - self.text.len() < text.len() {
            self.text.reserve_exact(text.len().max(self.text.len() / 8));
        }
        let entry = Entry { start: self.text.len() as u64, size, n_uses: 0 };
        self.text.push_str(text);
        match self.entries.get_mut(id.0 as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        let hash = self.hash(text);
        let (all, entries, seed) = (&self.text, &self.entries, self.seed);
        self.ids.insert_unique(hash, id, |&id| xxh3_64_with_seed(text_of(all, entries, id).as_bytes(), seed));
        Some(id)
    }

    /// Takes back one use of a symbol; with the last one the symbol is gone.
    pub(crate) fn release(&mut self, id: SymbolId) {
        let entry = &mut self.entries[id.0 as usize];
        entry.n_uses -= 1;
        if entry.n_uses > 0 {
            return;
        }
        let size = entry.size as usize;
        let hash = self.hash(self.text(id));
        self.ids.remove(hash, |&other| other == id);
        self.garbage_size += size;
        self.numbers.give_back(id.0);
    }

    /// Gives memory back if much of it is not needed any more.
    pub(crate) fn shrink(&mut self) {
        self.entries.truncate(self.numbers.end());
        if self.garbage_size > self.text.len() / 2 && self.garbage_size > GARBAGE_SIZE_MIN {
            let mut text = String::with_capacity(self.text.len() - self.garbage_size);
            for id in self.ids.iter() {
                let start = text.len() as u64;
                text.push_str(text_of(&self.text, &self.entries, *id));
                self.entries[id.0 as usize].start = start;
            }
            (self.text, self.garbage_size) = (text, 0);
        }
        let (all, entries, seed) = (&self.text, &self.entries, self.seed);
        self.ids.shrink(|&id| xxh3_64_with_seed(text_of(all, entries, id).as_bytes(), seed));
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn size(&self) -> usize {
        self.text.capacity() + self.entries.size() + self.numbers.size() + self.ids.size()
    }

    fn hash(&self, text: &str) -> u64 {
        xxh3_64_with_seed(text.as_bytes(), self.seed)
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Symbols({} texts, {} bytes)", self.ids.len(), self.size())
    }
}

#[inline]
fn text_of<'a>(text: &'a str, entries: &[Entry], id: SymbolId) -> &'a str {
    let entry = &entries[id.0 as usize];
    let start = entry.start as usize;
    &text[start..start + entry.size as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_symbol() {
        let mut symbols = Symbols::new(7);
        let ids: Vec<_> = (0..1000).map(|i| symbols.intern(&format!("value {}", i % 100)).unwrap()).collect();
        assert_eq!(symbols.entries.len(), 100);
        for (i, &id) in ids.iter().enumerate() {
            assert_eq!(symbols.text(id), format!("value {}", i % 100));
            assert_eq!(symbols.find(symbols.text(id)), Some(id));
        }
        assert_eq!((symbols.find("value 100"), symbols.find("")), (None, None));
        assert_eq!(symbols.intern("").map(|id| symbols.text(id)), Some(""));
    }

    #[test]
    fn a_symbol_lasts_as_long_as_its_uses() {
        let mut symbols = Symbols::new(7);
        let (a, b) = (symbols.intern("a").unwrap(), symbols.intern("b").unwrap());
        assert_eq!(symbols.intern("a"), Some(a));
        symbols.release(a);
        assert_eq!(symbols.find("a"), Some(a));
        symbols.release(a);
        assert_eq!((symbols.find("a"), symbols.find("b")), (None, Some(b)));
        assert_eq!(symbols.intern("c"), Some(a), "the number is given again");
        assert_eq!((symbols.text(a), symbols.text(b)), ("c", "b"));
    }

    #[test]
    fn memory_of_gone_texts_is_given_back() {
        let mut symbols = Symbols::new(7);
        let ids: Vec<_> = (0..10_000).map(|i| symbols.intern(&format!("{i:064}")).unwrap()).collect();
        let full = symbols.size();
        ids.iter().filter(|id| id.0 % 16 != 0).for_each(|&id| symbols.release(id));
        symbols.shrink();
        assert!(symbols.size() < full / 3, "{} of {full}", symbols.size());
        ids.iter().filter(|id| id.0 % 16 == 0).for_each(|&id| assert_eq!(symbols.text(id), format!("{:064}", id.0)));
        ids.iter().filter(|id| id.0 % 16 == 0).for_each(|&id| symbols.release(id));
        symbols.shrink();
        assert!(symbols.size() < 100_000, "{}", symbols.size());
        assert_eq!(symbols.intern("x").map(|id| symbols.text(id)), Some("x"));
    }
}
