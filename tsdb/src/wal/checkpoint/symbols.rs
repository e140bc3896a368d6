//! The symbols of a checkpoint: pairs of label name and value, each written once.
//!
//! ```text
//! first   varint: the number of the first symbol
//! n       varint, then n times:
//!         name    varint: 0 and a new name as a string, or the number of a name in this frame, from 1
//!         value   string
//! ```

use hashbrown::HashMap;
use varve_codec::varint::{put_u64, take_u64};
use varve_collections::{Arena, Column};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use crate::error::{Error, Result};
use crate::index::{Pair, SymbolId, Symbols as Strings};
use crate::wal::record::{put_string, take_string};

/// Maximum number of symbols of a checkpoint.
const SYMBOLS_MAX: u64 = u32::MAX as u64;

/// Number of new labels for which the tables have room. A series with more labels is rare.
const ROOM: usize = 4096;

/// Assigns numbers to labels and encodes new labels.
#[derive(Debug)]
pub(super) struct SymbolWriter {
    /// Symbol numbers by a 128-bit hash of the label. Its seed is random, so collisions are
    /// negligible and cannot be provoked.
    numbers: HashMap<u128, u64>,
    seed: u64,
    /// Symbol numbers by the ids of one head.
    by_pair: HashMap<Pair, u64>,
    /// The encoded new symbols.
    new: Vec<u8>,
    n_new: u64,
    /// Numbers of the names in the current frame.
    names: HashMap<String, u64>,
}

impl SymbolWriter {
    /// Creates an empty table.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            numbers: HashMap::new(),
            seed,
            by_pair: HashMap::new(),
            new: Vec::new(),
            n_new: 0,
            names: HashMap::new(),
        }
    }

    /// Returns the number of a label. `text` returns its name and value. Returns `None` if there
    /// are too many symbols.
    pub(super) fn number<'a>(
        &mut self,
        label: Pair,
        text: impl Fn(Pair) -> (&'a str, &'a str),
    ) -> Option<u64> {
        if let Some(&number) = self.by_pair.get(&label) {
            return Some(number);
        }
        let (name, value) = text(label);
        let number = self.number_of_text(name, value)?;
        self.by_pair.insert(label, number);
        Some(number)
    }

    /// Returns `true` if the tables need not grow for a series with at most [`ROOM`] labels. They
    /// grow all at once, so the caller must not hold the lock of a head then.
    pub(super) fn has_room(&self) -> bool {
        let free = |capacity: usize, len: usize| capacity - len >= ROOM;
        free(self.numbers.capacity(), self.numbers.len())
            && free(self.by_pair.capacity(), self.by_pair.len())
            && free(self.names.capacity(), self.names.len())
    }

    /// Lets the tables grow if they have no room.
    pub(super) fn make_room(&mut self) {
        self.numbers.reserve(ROOM);
        self.by_pair.reserve(ROOM);
        self.names.reserve(ROOM);
    }

    /// Forgets the ids of a head: another head gives them to other labels.
    pub(super) fn forget_ids(&mut self) {
        self.by_pair.clear();
    }

    fn number_of_text(&mut self, name: &str, value: &str) -> Option<u64> {
        let hash = xxh3_128_with_seed(
            value.as_bytes(),
            xxh3_64_with_seed(name.as_bytes(), self.seed),
        );
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
            self.names
                .insert(name.to_owned(), self.names.len() as u64 + 1);
            put_u64(&mut self.new, 0);
            put_string(&mut self.new, name);
        }
        put_string(&mut self.new, value);
    }

    /// Returns the encoded size of the new symbols in bytes.
    pub(super) fn new_size(&self) -> usize {
        self.new.len()
    }

    /// Moves the new symbols to `dst` as the payload of a record. Appends nothing if there are
    /// none.
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

/// The texts of a checkpoint's symbols.
#[derive(Debug)]
pub(crate) enum Texts {
    /// Those of a head, to which all series of the log belong. No text is in memory twice.
    OfHead(Strings),
    /// Texts beside the heads: all labels of a series decide which head it belongs to.
    Own(OwnTexts),
}

/// Texts by number, without an allocation for each.
#[derive(Debug, Default)]
pub(crate) struct OwnTexts {
    /// An arena has at most 4 GiB. All but the last are full.
    texts: Vec<Arena<String>>,
    spans: Column<TextSpan>,
}

/// Where a text is.
#[derive(Debug, Clone, Copy, Default)]
struct TextSpan {
    arena: u32,
    start: u32,
    size: u32,
}

impl OwnTexts {
    /// Adds a text. Returns `None` at 2^32 texts.
    fn push(&mut self, text: &str) -> Option<SymbolId> {
        let id = u32::try_from(self.spans.len()).ok()?;
        let size = u32::try_from(text.len()).ok()?;
        let in_last = self.texts.last_mut().and_then(|last| last.push(text));
        let start = match in_last {
            Some(start) => start,
            None => {
                self.texts.push(Arena::default());
                self.texts.last_mut()?.push(text)?
            }
        };
        self.spans.push(TextSpan {
            arena: u32::try_from(self.texts.len() - 1).ok()?,
            start,
            size,
        });
        Some(SymbolId(id))
    }

    fn get(&self, id: SymbolId) -> &str {
        let TextSpan { arena, start, size } = self.spans[id.0 as usize];
        self.texts[arena as usize].run(start, size as usize)
    }
}

/// The symbols of the valid frames of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    texts: Texts,
    /// Names and values by index.
    labels: Vec<Pair>,
    /// Number of the first symbol and index of its label, for each range without a gap.
    ranges: Vec<(u64, usize)>,
}

impl Texts {
    /// Adds a text.
    ///
    /// # Errors
    /// [`Error::Limit`] if there is no room for more texts.
    fn push(&mut self, text: &str) -> Result<SymbolId> {
        let id = match self {
            Self::OfHead(strings) => strings.find_or_add(text),
            Self::Own(texts) => texts.push(text),
        };
        id.ok_or(Error::Limit {
            what: varve_context::Limit::Other("label names and values of a WAL checkpoint"),
            used: 1 << 32,
            limit: u64::from(u32::MAX),
        })
    }

    fn get(&self, id: SymbolId) -> &str {
        match self {
            Self::OfHead(strings) => strings.resolve(id),
            Self::Own(texts) => texts.get(id),
        }
    }
}

impl Default for Texts {
    fn default() -> Self {
        Self::Own(OwnTexts::default())
    }
}

impl Symbols {
    /// Creates an empty table that adds its texts to `texts`.
    pub(super) fn new(texts: Texts) -> Self {
        Self {
            texts,
            ..Self::default()
        }
    }

    /// Returns the texts.
    pub(super) fn into_texts(self) -> Texts {
        self.texts
    }

    /// Appends the symbols of a frame. Returns `None` if the frame does not decode.
    ///
    /// # Errors
    /// The errors of [`Texts::push`].
    pub(super) fn add(&mut self, mut src: &[u8]) -> Option<Result<()>> {
        let src = &mut src;
        let first = take_u64(src)?;
        let n = take_u64(src)?;
        let expected = self
            .ranges
            .last()
            .map_or(0, |&(number, at)| number + (self.labels.len() - at) as u64);
        if first < expected || first.checked_add(n)? > SYMBOLS_MAX {
            return None;
        }
        if self.ranges.is_empty() || first != expected {
            self.ranges.push((first, self.labels.len()));
        }
        let mut names = Vec::new();
        for _ in 0..n {
            let name = match take_u64(src)? {
                0 => match self.texts.push(take_string(src)?) {
                    Ok(name) => {
                        names.push(name);
                        name
                    }
                    Err(full) => return Some(Err(full)),
                },
                known => *names.get(usize::try_from(known).ok()? - 1)?,
            };
            match self.texts.push(take_string(src)?) {
                Ok(value) => self.labels.push((name, value)),
                Err(full) => return Some(Err(full)),
            }
        }
        src.is_empty().then_some(Ok(()))
    }

    /// Returns the number of symbols.
    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns the index of symbol `number`, or `None` if its frame is lost.
    #[inline]
    pub(super) fn index(&self, number: u64) -> Option<usize> {
        // Fast path: no frame is lost.
        let (first, at) = match self.ranges[..] {
            [only] => only,
            _ => *self.ranges[..self.ranges.partition_point(|s| s.0 <= number)].last()?,
        };
        let idx = at.checked_add(usize::try_from(number.checked_sub(first)?).ok()?)?;
        (idx < self.labels.len()).then_some(idx)
    }

    /// Returns the ids of the name and the value of a symbol in its texts.
    #[inline]
    pub(super) fn pair(&self, idx: usize) -> Pair {
        self.labels[idx]
    }

    /// Returns the name of a symbol.
    #[inline]
    pub(super) fn name(&self, idx: usize) -> &str {
        self.texts.get(self.labels[idx].0)
    }

    /// Returns the value of a symbol.
    #[inline]
    pub(super) fn value(&self, idx: usize) -> &str {
        self.texts.get(self.labels[idx].1)
    }

    /// Returns `true` if two symbols share a stored name. May return `false` for equal names that
    /// are stored twice.
    #[inline]
    pub(super) fn has_name_of(&self, idx: usize, other: usize) -> bool {
        self.labels[idx].0 == self.labels[other].0
    }
}
