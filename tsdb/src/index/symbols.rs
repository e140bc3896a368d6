//! Label names and values, each kept once for as long as something refers to it.

use std::fmt;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::arena::Arena;
use super::column::Column;
use super::numbers::Numbers;
use super::wide_table::WideTable;

/// The number of a text; dense from 0, and given again when nothing refers to the text any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SymbolId(pub(crate) u32);

/// All label names and values of a shard.
pub(crate) struct Symbols {
    texts: Arena<String>,
    entries: Column<Entry>,
    numbers: Numbers,
    ids: WideTable<SymbolId>,
    seed: u64,
}

/// Where a text stands.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    start: u32,
    size: u32,
    /// Counts what refers to the text.
    n_uses: u32,
}

impl Symbols {
    /// Starts empty; `seed` keeps senders from choosing texts that collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            texts: Arena::default(),
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
        text_of(&self.texts, &self.entries, id)
    }

    /// Returns the symbol of a text, if there is one.
    pub(crate) fn find(&self, text: &str) -> Option<SymbolId> {
        self.ids.find(self.hash(text), |&id| self.text(id) == text).copied()
    }

    /// Returns the symbol of a text as [`Symbols::number`] does, and counts the use.
    #[cfg(test)]
    pub(crate) fn intern(&mut self, text: &str) -> Option<SymbolId> {
        let id = self.number(text)?;
        self.retain(id, 1).map(|()| id)
    }

    /// Returns the symbol of a text, and makes one if need be, of which the use is to be counted next; `None` when 2^32
    /// texts or 4 GiB of them are there.
    pub(crate) fn number(&mut self, text: &str) -> Option<SymbolId> {
        let hash = self.hash(text);
        let (texts, entries) = (&self.texts, &self.entries);
        match self.ids.find(hash, |&id| text_of(texts, entries, id) == text) {
            Some(&id) => Some(id),
            None => self.insert(hash, text),
        }
    }

    /// Counts uses of a symbol; `None` at 2^32 uses.
    pub(crate) fn retain(&mut self, id: SymbolId, n_uses: u32) -> Option<()> {
        let entry = &mut self.entries[id.0 as usize];
        entry.n_uses = entry.n_uses.checked_add(n_uses)?;
        Some(())
    }

    fn insert(&mut self, hash: u64, text: &str) -> Option<SymbolId> {
        let size = u32::try_from(text.len()).ok()?;
        let start = self.texts.push(text)?;
        let Some(id) = self.numbers.take(u32::MAX).map(SymbolId) else {
            self.texts.release(start, text.len());
            return None;
        };
        let entry = Entry { start, size, n_uses: 0 };
        match self.entries.get_mut(id.0 as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        let (texts, entries, seed) = (&self.texts, &self.entries, self.seed);
        self.ids.insert_unique(hash, id, |&id| xxh3_64_with_seed(text_of(texts, entries, id).as_bytes(), seed));
        Some(id)
    }

    /// Takes back one use of a symbol; with the last one the symbol is gone.
    pub(crate) fn release(&mut self, id: SymbolId) {
        let entry = &mut self.entries[id.0 as usize];
        entry.n_uses -= 1;
        self.forget_unused(id);
    }

    /// Forgets a symbol if no use of it is counted.
    pub(crate) fn forget_unused(&mut self, id: SymbolId) {
        let Entry { start, size, n_uses } = self.entries[id.0 as usize];
        if n_uses > 0 {
            return;
        }
        let hash = self.hash(self.text(id));
        self.ids.remove(hash, |&other| other == id);
        self.texts.release(start, size as usize);
        self.numbers.give_back(id.0);
    }

    /// Gives the memory behind the last symbol back.
    pub(crate) fn cut_end(&mut self) {
        self.entries.truncate(self.numbers.end());
    }

    /// Moves the texts of some numbers together where few are left; false if there are no such numbers.
    pub(crate) fn gather_texts(&mut self, numbers: Range<usize>) -> bool {
        for number in numbers.start..numbers.end.min(self.entries.len()) {
            let Entry { start, size, n_uses } = self.entries[number];
            if n_uses > 0
                && self.texts.is_sparse(start)
                && let Some(moved) = self.texts.relocate(start, size as usize)
            {
                self.entries[number].start = moved;
            }
        }
        numbers.start < self.entries.len()
    }

    /// Gives memory of a piece of the table back; false if there is no such piece.
    pub(crate) fn shrink_piece(&mut self, piece: usize) -> bool {
        let (texts, entries, seed) = (&self.texts, &self.entries, self.seed);
        self.ids.shrink_piece(piece, |&id| xxh3_64_with_seed(text_of(texts, entries, id).as_bytes(), seed))
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn size(&self) -> usize {
        self.texts.size() + self.entries.size() + self.numbers.size() + self.ids.size()
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
fn text_of<'a>(texts: &'a Arena<String>, entries: &Column<Entry>, id: SymbolId) -> &'a str {
    let entry = &entries[id.0 as usize];
    texts.run(entry.start, entry.size as usize)
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

    fn shrink(symbols: &mut Symbols) {
        symbols.cut_end();
        assert!((0..).take_while(|step| symbols.gather_texts(step * 100..(step + 1) * 100)).count() <= 100);
        assert!((0..).take_while(|&piece| symbols.shrink_piece(piece)).count() <= 64);
    }

    #[test]
    fn memory_of_gone_texts_is_given_back() {
        let mut symbols = Symbols::new(7);
        let ids: Vec<_> = (0..10_000).map(|i| symbols.intern(&format!("{i:064}")).unwrap()).collect();
        let full = symbols.size();
        ids.iter().filter(|id| id.0 % 16 != 0).for_each(|&id| symbols.release(id));
        shrink(&mut symbols);
        assert!(symbols.size() < full / 2, "{} of {full}", symbols.size());
        ids.iter().filter(|id| id.0 % 16 == 0).for_each(|&id| assert_eq!(symbols.text(id), format!("{:064}", id.0)));
        ids.iter().filter(|id| id.0 % 16 == 0).for_each(|&id| symbols.release(id));
        shrink(&mut symbols);
        assert!(symbols.size() < 100_000, "{}", symbols.size());
        assert_eq!(symbols.intern("x").map(|id| symbols.text(id)), Some("x"));
    }
}
