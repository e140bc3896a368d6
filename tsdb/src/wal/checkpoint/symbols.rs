//! The symbols of a checkpoint: label names and values, written once each.
//!
//! ```text
//! first   varint: the number of the first symbol
//! n       varint, then n times:
//!         name    varint: 0 and a new name as a text, or which of the frame's names, from 1
//!         value   text
//! ```

use hashbrown::HashMap;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use crate::chunk::varint::{put_u64, take_u64};
use crate::wal::record::{put_text, take_text};

/// Most symbols of a checkpoint.
const SYMBOLS_MAX: u64 = u32::MAX as u64;

/// Numbers label names and values, and gathers those that are new.
#[derive(Debug)]
pub(super) struct SymbolWriter {
    /// By a hash of 128 bits with a random seed: two pairs never have the same in practice, and nobody can make them.
    numbers: HashMap<u128, u64>,
    seed: u64,
    /// The new ones, encoded, and how many.
    new: Vec<u8>,
    n_new: u64,
    /// The names of the new ones.
    names: HashMap<String, u64>,
}

impl SymbolWriter {
    /// Starts without symbols.
    pub(super) fn new(seed: u64) -> Self {
        Self { numbers: HashMap::new(), seed, new: Vec::new(), n_new: 0, names: HashMap::new() }
    }

    /// Returns the number of a label; `None` if there are too many.
    pub(super) fn number(&mut self, name: &str, value: &str) -> Option<u64> {
        let hash = xxh3_128_with_seed(value.as_bytes(), xxh3_64_with_seed(name.as_bytes(), self.seed));
        let next = self.numbers.len() as u64;
        let number = *self.numbers.entry(hash).or_insert(next);
        if number == next {
            self.encode(name, value);
        }
        (number < SYMBOLS_MAX).then_some(number)
    }

    fn encode(&mut self, name: &str, value: &str) {
        self.n_new += 1;
        if let Some(&known) = self.names.get(name) {
            put_u64(&mut self.new, known);
        } else {
            self.names.insert(name.to_owned(), self.names.len() as u64 + 1);
            put_u64(&mut self.new, 0);
            put_text(&mut self.new, name);
        }
        put_text(&mut self.new, value);
    }

    /// Returns how large the new symbols are.
    pub(super) fn new_size(&self) -> usize {
        self.new.len()
    }

    /// Moves the new symbols to `dst` as a record's payload; nothing if there are none.
    pub(super) fn take_new(&mut self, dst: &mut Vec<u8>) {
        if self.n_new > 0 {
            put_u64(dst, self.numbers.len() as u64 - self.n_new);
            put_u64(dst, self.n_new);
            dst.append(&mut self.new);
            self.names.clear();
            self.n_new = 0;
        }
    }
}

/// The symbols of a checkpoint that is read, as far as their frames were sound.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    texts: String,
    /// Where each name or value ends; it begins where the one before ends.
    entries: Vec<Entry>,
    /// Number of the first symbol and index of its entry, for each stretch without a gap.
    stretches: Vec<(u64, usize)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    name: (usize, usize),
    value: (usize, usize),
}

impl Symbols {
    /// Adds the symbols of a frame; `None` if it does not decode.
    pub(super) fn add(&mut self, mut src: &[u8]) -> Option<()> {
        let src = &mut src;
        let (first, n) = (take_u64(src)?, take_u64(src)?);
        let expected = self.stretches.last().map_or(0, |&(number, at)| number + (self.entries.len() - at) as u64);
        if first < expected || first.checked_add(n)? > SYMBOLS_MAX {
            return None;
        }
        if self.stretches.is_empty() || first != expected {
            self.stretches.push((first, self.entries.len()));
        }
        let mut names = Vec::new();
        for _ in 0..n {
            let name = match take_u64(src)? {
                0 => {
                    names.push(self.text(take_text(src)?));
                    *names.last()?
                }
                known => *names.get(usize::try_from(known).ok()? - 1)?,
            };
            let value = self.text(take_text(src)?);
            self.entries.push(Entry { name, value });
        }
        src.is_empty().then_some(())
    }

    /// Counts the symbols that are there.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the place of a number among the symbols that are there, unless its frame was lost.
    #[inline]
    pub(super) fn place(&self, number: u64) -> Option<usize> {
        // Fast path: no frame was lost.
        let (first, at) = match self.stretches[..] {
            [only] => only,
            _ => *self.stretches[..self.stretches.partition_point(|s| s.0 <= number)].last()?,
        };
        let place = at.checked_add(usize::try_from(number.checked_sub(first)?).ok()?)?;
        (place < self.entries.len()).then_some(place)
    }

    /// Returns the name at a place.
    #[inline]
    pub(super) fn name(&self, place: usize) -> &str {
        let (start, end) = self.entries[place].name;
        &self.texts[start..end]
    }

    /// Returns the value at a place.
    #[inline]
    pub(super) fn value(&self, place: usize) -> &str {
        let (start, end) = self.entries[place].value;
        &self.texts[start..end]
    }

    /// Tells whether two places are known to have the same name; not if it was written twice.
    #[inline]
    pub(super) fn has_name_of(&self, place: usize, other: usize) -> bool {
        self.entries[place].name == self.entries[other].name
    }

    fn text(&mut self, text: &str) -> (usize, usize) {
        let start = self.texts.len();
        self.texts.push_str(text);
        (start, self.texts.len())
    }
}
