//! Interned label pairs. A million series have about ten million labels, of which few are
//! different.

use varve_collections::{Arena, Column};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::hash_index::HashIndex;

/// Number of a pair, counted from 0.
pub(crate) type PairId = u32;

/// All pairs.
#[derive(Debug, Default)]
pub(crate) struct LabelPairs {
    /// For each pair the name, then the value.
    strings: Arena<String>,
    locations: Column<Location>,
    ids: HashIndex,
    scratch: String,
}

/// A name and a value that may not be interned yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewPair<'a> {
    name: &'a str,
    value: &'a str,
    hash: u64,
}

impl<'a> NewPair<'a> {
    /// The hash is unsalted: the labels come from the owner of the directory, and runs are
    /// reproducible.
    pub(crate) fn of(name: &'a str, value: &'a str) -> Self {
        Self {
            name,
            value,
            hash: xxh3_64_with_seed(value.as_bytes(), xxh3_64(name.as_bytes())),
        }
    }
}

/// Location of the strings of a pair.
#[derive(Debug, Clone, Copy)]
struct Location {
    start: u32,
    name_size: u32,
    value_size: u32,
}

impl LabelPairs {
    /// Marks a pair without a number.
    pub(crate) const NONE: PairId = PairId::MAX;

    /// Returns the number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.locations.len()
    }

    /// Estimates the memory in bytes.
    pub(crate) fn size(&self) -> usize {
        self.strings.size() + self.locations.size() + self.ids.size()
    }

    /// Returns name and value of a pair.
    pub(crate) fn strings(&self, id: PairId) -> (&str, &str) {
        strings(&self.strings, self.locations[id as usize])
    }

    /// Returns the number of a known pair.
    pub(crate) fn find(&self, pair: &NewPair<'_>) -> Option<PairId> {
        let all = &self.strings;
        let locations = &self.locations;
        self.ids.find(pair.hash, |id| {
            strings(all, locations[id as usize]) == (pair.name, pair.value)
        })
    }

    /// Returns the number of a pair, and interns a new one, or `None` once the strings fill 4 GiB.
    pub(crate) fn intern(&mut self, pair: &NewPair<'_>) -> Option<PairId> {
        if let Some(id) = self.find(pair) {
            return Some(id);
        }
        let &NewPair { name, value, hash } = pair;
        let id = u32::try_from(self.locations.len())
            .ok()
            .filter(|&id| id != Self::NONE)?;
        self.scratch.clear();
        self.scratch.push_str(name);
        self.scratch.push_str(value);
        let name_size = u32::try_from(name.len()).ok()?;
        let value_size = u32::try_from(value.len()).ok()?;
        let start = self.strings.push(&self.scratch)?;
        self.locations.push(Location {
            start,
            name_size,
            value_size,
        });
        self.ids.insert(hash, id);
        Some(id)
    }
}

fn strings(all: &Arena<String>, location: Location) -> (&str, &str) {
    let name_size = location.name_size as usize;
    all.run(location.start, name_size + location.value_size as usize)
        .split_at(name_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_interned_once() {
        let mut pairs = LabelPairs::default();
        let given = [
            ("a", "bc"),
            ("ab", "c"),
            ("", "abc"),
            ("abc", ""),
            ("job", "x"),
            ("instance", "x"),
        ];
        for round in 0..2 {
            for (i, (name, value)) in given.into_iter().enumerate() {
                assert_eq!(
                    pairs.find(&NewPair::of(name, value)),
                    (round > 0).then_some(i as u32)
                );
                assert_eq!(
                    pairs.intern(&NewPair::of(name, value)),
                    Some(i as u32),
                    "{round}"
                );
                assert_eq!(pairs.strings(i as u32), (name, value));
            }
        }
        for i in 0..5000 {
            pairs
                .intern(&NewPair::of("pod", &format!("pod-{}", i % 1000)))
                .unwrap();
        }
        assert_eq!(pairs.len(), given.len() + 1000);
    }
}
