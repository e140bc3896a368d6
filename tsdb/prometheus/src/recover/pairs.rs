//! Labels: names with values, each pair once, by number. A million series have some ten million labels, of which few are
//! different.

use varve_tsdb::collections::{Arena, Column};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::hashed::Hashed;

/// The number of a pair, counted up from 0.
pub(super) type PairId = u32;

/// All pairs.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Of each pair the name, then the value.
    texts: Arena<String>,
    entries: Column<Entry>,
    ids: Hashed,
    scratch: String,
}

/// A name and a value that may have no number yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewPair<'a> {
    name: &'a str,
    value: &'a str,
    hash: u64,
}

impl<'a> NewPair<'a> {
    /// The labels come from whoever wrote the directory: no salt is needed against them, and runs are alike.
    pub(super) fn of(name: &'a str, value: &'a str) -> Self {
        Self { name, value, hash: xxh3_64_with_seed(value.as_bytes(), xxh3_64(name.as_bytes())) }
    }
}

/// Where the texts of a pair stand.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    name_size: u32,
    value_size: u32,
}

impl Pairs {
    /// Stands for a pair that has no number yet.
    pub(super) const NONE: PairId = PairId::MAX;

    /// Counts the pairs.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.texts.size() + self.entries.size() + self.ids.size()
    }

    /// Returns name and value of a pair.
    pub(super) fn texts(&self, id: PairId) -> (&str, &str) {
        texts(&self.texts, self.entries[id as usize])
    }

    /// Returns the number of a pair, if it has one.
    pub(super) fn find(&self, pair: &NewPair<'_>) -> Option<PairId> {
        let (all, entries) = (&self.texts, &self.entries);
        self.ids.find(pair.hash, |id| texts(all, entries[id as usize]) == (pair.name, pair.value))
    }

    /// Returns the number of a pair, and gives it one if need be; `None` when there are 4 GiB of texts.
    pub(super) fn intern(&mut self, pair: &NewPair<'_>) -> Option<PairId> {
        if let Some(id) = self.find(pair) {
            return Some(id);
        }
        let &NewPair { name, value, hash } = pair;
        let id = u32::try_from(self.entries.len()).ok().filter(|&id| id != Self::NONE)?;
        self.scratch.clear();
        self.scratch.push_str(name);
        self.scratch.push_str(value);
        let (name_size, value_size) = (u32::try_from(name.len()).ok()?, u32::try_from(value.len()).ok()?);
        let start = self.texts.push(&self.scratch)?;
        self.entries.push(Entry { start, name_size, value_size });
        self.ids.insert(hash, id);
        Some(id)
    }
}

fn texts(all: &Arena<String>, entry: Entry) -> (&str, &str) {
    let name_size = entry.name_size as usize;
    all.run(entry.start, name_size + entry.value_size as usize).split_at(name_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_one_number() {
        let mut pairs = Pairs::default();
        let given = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("job", "x"), ("instance", "x")];
        for round in 0..2 {
            for (i, (name, value)) in given.into_iter().enumerate() {
                assert_eq!(pairs.find(&NewPair::of(name, value)), (round > 0).then_some(i as u32));
                assert_eq!(pairs.intern(&NewPair::of(name, value)), Some(i as u32), "{round}");
                assert_eq!(pairs.texts(i as u32), (name, value));
            }
        }
        for i in 0..5000 {
            pairs.intern(&NewPair::of("pod", &format!("pod-{}", i % 1000))).unwrap();
        }
        assert_eq!(pairs.len(), given.len() + 1000);
    }
}
