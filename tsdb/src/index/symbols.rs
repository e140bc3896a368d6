//! Label names and values, each kept once.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of a text; dense from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SymbolId(pub(crate) u32);

/// All label names and values of a shard.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// All texts, one after the other.
    text: String,
    /// Where each text ends; it begins where the one before ends.
    ends: Vec<u64>,
    ids: HashTable<SymbolId>,
    seed: u64,
}

impl Symbols {
    /// Starts empty; `seed` keeps senders from choosing texts that collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self { text: String::new(), ends: Vec::new(), ids: HashTable::new(), seed }
    }

    /// Returns the text of a symbol.
    ///
    /// # Panics
    /// If the symbol is not of this table.
    pub(crate) fn text(&self, id: SymbolId) -> &str {
        text_of(&self.text, &self.ends, id)
    }

    /// Returns the symbol of a text, if there is one.
    pub(crate) fn find(&self, text: &str) -> Option<SymbolId> {
        self.ids.find(self.hash(text), |&id| self.text(id) == text).copied()
    }

    /// Returns the symbol of a text and makes one if need be; `None` when 2^32 texts are there.
    pub(crate) fn intern(&mut self, text: &str) -> Option<SymbolId> {
        if let Some(id) = self.find(text) {
            return Some(id);
        }
        let id = SymbolId(u32::try_from(self.ends.len()).ok()?);
        self.text.push_str(text);
        self.ends.push(self.text.len() as u64);
        let (all, ends, seed) = (&self.text, &self.ends, self.seed);
        let hash = xxh3_64_with_seed(text.as_bytes(), seed);
        self.ids.insert_unique(hash, id, |&id| xxh3_64_with_seed(text_of(all, ends, id).as_bytes(), seed));
        Some(id)
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn size(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u64>() + self.ids.capacity() * 5
    }

    fn hash(&self, text: &str) -> u64 {
        xxh3_64_with_seed(text.as_bytes(), self.seed)
    }
}

fn text_of<'a>(text: &'a str, ends: &[u64], id: SymbolId) -> &'a str {
    let idx = id.0 as usize;
    let start = if idx == 0 { 0 } else { ends[idx - 1] };
    &text[start as usize..ends[idx] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_symbol() {
        let mut symbols = Symbols::new(7);
        let ids: Vec<_> = (0..1000).map(|i| symbols.intern(&format!("value {}", i % 100)).unwrap()).collect();
        assert_eq!(symbols.ends.len(), 100);
        for (i, &id) in ids.iter().enumerate() {
            assert_eq!(symbols.text(id), format!("value {}", i % 100));
            assert_eq!(symbols.find(symbols.text(id)), Some(id));
        }
        assert_eq!((symbols.find("value 100"), symbols.find("")), (None, None));
        assert_eq!(symbols.intern("").map(|id| symbols.text(id)), Some(""));
    }
}
