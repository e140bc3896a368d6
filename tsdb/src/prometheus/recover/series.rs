//! The series of a directory: labels, each text once, and the numbers by which records name them.
//!
//! About 150 bytes a series: with the encoders of open chunks, what recovery keeps in memory whatever its budget.

use hashbrown::{HashMap, HashTable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::index::{SymbolId, Symbols};

/// The place of a series in the table.
pub(super) type SeriesIdx = u32;

/// All series, in the order in which they were first defined.
#[derive(Debug)]
pub(super) struct SeriesTable {
    symbols: Symbols,
    /// Names and values of all series, one after the other, and where each series' begin.
    pairs: Vec<(SymbolId, SymbolId)>,
    starts: Vec<u64>,
    by_labels: HashTable<SeriesIdx>,
    by_number: Numbers,
    seed: u64,
    scratch: Vec<(SymbolId, SymbolId)>,
}

impl SeriesTable {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            symbols: Symbols::new(seed),
            pairs: Vec::new(),
            starts: vec![0],
            by_labels: HashTable::new(),
            by_number: Numbers::default(),
            seed,
            scratch: Vec::new(),
        }
    }

    /// Counts the series.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.pairs.len() * 8 + self.starts.len() * 16 + self.by_number.size() + self.symbols.size()
    }

    /// Returns the series that records call `number`.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<SeriesIdx> {
        self.by_number.get(number)
    }

    /// Gives a series a number, and makes the series if there is none of these labels; `None` if labels are doubled or
    /// there are more than a table holds.
    pub(super) fn define<'a>(
        &mut self,
        number: u64,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Option<SeriesIdx> {
        let mut pairs = std::mem::take(&mut self.scratch);
        let series = self.find_or_make(&mut pairs, labels);
        pairs.clear();
        self.scratch = pairs;
        self.by_number.insert(number, series?);
        series
    }

    fn find_or_make<'a>(
        &mut self,
        pairs: &mut Vec<(SymbolId, SymbolId)>,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Option<SeriesIdx> {
        for (name, value) in labels.filter(|(_, value)| !value.is_empty()) {
            pairs.push((self.symbols.intern(name)?, self.symbols.intern(value)?));
        }
        let text = |symbol: &SymbolId| self.symbols.text(*symbol);
        if !pairs.is_sorted_by(|a, b| text(&a.0) < text(&b.0)) {
            pairs.sort_by(|a, b| text(&a.0).cmp(text(&b.0)));
            if pairs.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return None;
            }
        }
        let pairs_hash = hash(pairs, self.seed);
        let (all, starts, seed) = (&self.pairs, &self.starts, self.seed);
        if let Some(&found) = self.by_labels.find(pairs_hash, |&series| of(all, starts, series) == pairs.as_slice()) {
            return Some(found);
        }
        let series = SeriesIdx::try_from(self.len()).ok().filter(|&series| series != NO_SERIES)?;
        self.pairs.extend_from_slice(pairs);
        self.starts.push(self.pairs.len() as u64);
        let (all, starts) = (&self.pairs, &self.starts);
        self.by_labels.insert_unique(pairs_hash, series, |&series| hash(of(all, starts, series), seed));
        Some(series)
    }

    /// Puts texts and series in order.
    pub(super) fn order(&self) -> Order<'_> {
        let symbols = || self.pairs.iter().flat_map(|&(name, value)| [name, value]);
        let mut ranks = vec![u32::MAX; symbols().map(|id| id.0 as usize + 1).max().unwrap_or(0)];
        let mut ids = Vec::new();
        for id in symbols() {
            if std::mem::replace(&mut ranks[id.0 as usize], 0) == u32::MAX {
                ids.push(id);
            }
        }
        ids.sort_unstable_by_key(|&id| self.symbols.text(id));
        for (rank, id) in (0..).zip(&ids) {
            ranks[id.0 as usize] = rank;
        }
        let texts: Vec<_> = ids.iter().map(|&id| self.symbols.text(id)).collect();
        let mut order = Order { table: self, texts, ranks, series: (0..self.len() as SeriesIdx).collect() };
        let mut series = std::mem::take(&mut order.series);
        series.sort_unstable_by(|&a, &b| order.labels(a).cmp(order.labels(b)));
        order.series = series;
        order
    }
}

/// Series by the numbers that records give them. Prometheus counts them up, so most are found by their place in a list.
#[derive(Debug, Default)]
struct Numbers {
    /// By number; [`NO_SERIES`] where there is none.
    dense: Vec<SeriesIdx>,
    /// Numbers that would make the list mostly empty.
    sparse: HashMap<u64, SeriesIdx>,
    len: usize,
}

/// Stands for a number that no series has.
const NO_SERIES: SeriesIdx = SeriesIdx::MAX;
/// Places of the list for each number that is given, at most, and those that it may have in any case.
const PLACES_OF_NUMBER: usize = 4;
const PLACES_MIN: usize = 1 << 16;

impl Numbers {
    #[inline]
    fn get(&self, number: u64) -> Option<SeriesIdx> {
        // Fast path: in the list. What is not there is behind its end or not given, but for the few of the table.
        match usize::try_from(number).ok().and_then(|place| self.dense.get(place)) {
            Some(&series) if series != NO_SERIES => Some(series),
            _ => self.sparse.get(&number).copied(),
        }
    }

    fn insert(&mut self, number: u64, series: SeriesIdx) {
        self.len += usize::from(self.get(number).is_none());
        let places_max = self.len.saturating_mul(PLACES_OF_NUMBER).saturating_add(PLACES_MIN);
        match usize::try_from(number).ok().filter(|&place| place < places_max) {
            Some(place) => {
                if place >= self.dense.len() {
                    self.dense.resize(place + 1, NO_SERIES);
                }
                self.dense[place] = series;
                self.sparse.remove(&number);
            }
            None => _ = self.sparse.insert(number, series),
        }
    }

    /// Estimates the bytes in memory.
    fn size(&self) -> usize {
        self.dense.capacity() * size_of::<SeriesIdx>() + self.sparse.capacity() * 24
    }
}

/// Series in the order of their labels, and texts in the order of their bytes.
#[derive(Debug)]
pub(super) struct Order<'a> {
    table: &'a SeriesTable,
    /// All names and values, ascending.
    pub(super) texts: Vec<&'a str>,
    /// By symbol, the place of its text.
    ranks: Vec<u32>,
    /// All series, ascending.
    pub(super) series: Vec<SeriesIdx>,
}

impl Order<'_> {
    /// Returns the labels of a series as places in `texts`.
    pub(super) fn labels(&self, series: SeriesIdx) -> impl Iterator<Item = (u32, u32)> {
        let rank = |symbol: SymbolId| self.ranks[symbol.0 as usize];
        of(&self.table.pairs, &self.table.starts, series).iter().map(move |&(name, value)| (rank(name), rank(value)))
    }
}

fn of<'a>(pairs: &'a [(SymbolId, SymbolId)], starts: &[u64], series: SeriesIdx) -> &'a [(SymbolId, SymbolId)] {
    &pairs[starts[series as usize] as usize..starts[series as usize + 1] as usize]
}

fn hash(pairs: &[(SymbolId, SymbolId)], seed: u64) -> u64 {
    let number = |(name, value): &(SymbolId, SymbolId)| u64::from(name.0) << 32 | u64::from(value.0);
    pairs.iter().fold(seed, |hash, pair| xxh3_64_with_seed(&number(pair).to_le_bytes(), hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_again_whatever_they_are() {
        let mut numbers = Numbers::default();
        let given = [5, 0, 70_000, u64::MAX, 1 << 40, 65_535, 65_536 + 4 * 7, 131_000];
        for (series, number) in (0..).zip(given) {
            numbers.insert(number, series);
        }
        // Some that were sparse are dense by now, and are given to others.
        (0..40_000).for_each(|number| numbers.insert(number, 7));
        numbers.insert(70_000, 8);
        for (number, expect) in
            [(5, Some(7)), (70_000, Some(8)), (u64::MAX, Some(3)), (1 << 40, Some(4)), (40_000, None)]
        {
            assert_eq!(numbers.get(number), expect, "{number}");
        }
        assert!(numbers.dense.len() <= 4 * numbers.len + PLACES_MIN && numbers.sparse.len() < given.len());
    }

    #[test]
    fn series_are_known_by_labels_and_numbers() {
        let mut table = SeriesTable::new(7);
        let a = table.define(10, [("b", "1"), ("a", "2"), ("gone", "")].into_iter()).unwrap();
        let again = table.define(20, [("a", "2"), ("b", "1")].into_iter()).unwrap();
        let other = table.define(30, [("a", "10"), ("b", "1")].into_iter()).unwrap();
        assert_eq!((a, again, other, table.len()), (0, 0, 1, 2));
        assert_eq!((table.find(10), table.find(20), table.find(30), table.find(1)), (Some(0), Some(0), Some(1), None));
        assert_eq!(table.define(40, [("a", "1"), ("a", "2")].into_iter()), None);
        let order = table.order();
        assert_eq!((order.texts.as_slice(), order.series.as_slice()), (&["1", "10", "2", "a", "b"][..], &[1, 0][..]));
        assert_eq!(order.labels(0).collect::<Vec<_>>(), [(3, 2), (4, 0)]);
    }
}
