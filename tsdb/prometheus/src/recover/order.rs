//! Series in the order of their labels, as blocks have them.

use rayon::prelude::*;

use super::pairs::{PairId, Pairs};
use super::series::{SeriesIdx, SeriesLabels};

/// Series that are compared label by label of two of them, instead of by the next label of all.
const FEW: usize = 24;
/// Series whose labels lie together.
const RUN_LEN: usize = 1 << 12;

/// The place of a series among all, in the order of labels.
pub(super) type Position = u32;

/// Texts, pairs and series, each in order.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// All names and values, ascending.
    pub(super) texts: Vec<&'a str>,
    /// All pairs, ascending: name and value as places in `texts`.
    pub(super) pairs: Vec<(u32, u32)>,
    /// All series, ascending.
    pub(super) series: Vec<SeriesIdx>,
    /// The labels of [`RUN_LEN`] series each, in this order: who goes through all series reads them one after the other.
    labels: Vec<Run>,
}

/// Labels of series that follow each other.
#[derive(Debug)]
struct Run {
    /// By series, where its labels end.
    ends: Vec<u32>,
    /// Places of pairs, ascending for each series.
    labels: Vec<u32>,
}

impl<'a> Order<'a> {
    /// Puts series in order, on the threads of the current pool.
    pub(super) fn of(pairs: &'a Pairs, labels: SeriesLabels) -> Self {
        let (texts, pairs, ranks) = order_pairs(pairs);
        // There are no more series than numbers of them.
        let mut series: Vec<_> = (0..labels.len() as SeriesIdx).collect();
        let unordered = Unordered { labels, ranks };
        unordered.sort(&mut series);
        let labels = series.par_chunks(RUN_LEN).map(|some| unordered.run(some)).collect();
        Self { texts, pairs, series, labels }
    }

    /// Counts by pair the series that have it, on the threads of the current pool.
    pub(super) fn count(&self, series: &[Position]) -> Vec<u32> {
        let none = || vec![0; self.pairs.len()];
        let count = |mut counts: Vec<u32>, some: &[Position]| {
            for &series in some {
                self.labels(series).iter().for_each(|&pair| counts[pair as usize] += 1);
            }
            counts
        };
        let add = |mut counts: Vec<u32>, more: Vec<u32>| {
            counts.iter_mut().zip(more).for_each(|(n, more)| *n += more);
            counts
        };
        let of_worker = series.len().div_ceil(rayon::current_num_threads()).max(1);
        series.par_chunks(of_worker).fold(none, count).reduce_with(add).unwrap_or_else(none)
    }

    /// Returns the labels of a series as places of pairs, ascending.
    #[inline]
    pub(super) fn labels(&self, position: Position) -> &[u32] {
        let (Run { ends, labels }, place) = (&self.labels[position as usize / RUN_LEN], position as usize % RUN_LEN);
        let start = if place == 0 { 0 } else { ends[place - 1] };
        &labels[start as usize..ends[place] as usize]
    }
}

/// What series are put in order by.
struct Unordered {
    labels: SeriesLabels,
    /// By number, the place of a pair.
    ranks: Vec<u32>,
}

impl Unordered {
    fn labels(&self, series: SeriesIdx) -> impl ExactSizeIterator<Item = u32> {
        self.labels.get(series).iter().map(|&id| self.ranks[id as usize])
    }

    fn run(&self, series: &[SeriesIdx]) -> Run {
        let n_labels = series.iter().map(|&it| self.labels.get(it).len()).sum();
        let (mut ends, mut labels) = (Vec::with_capacity(series.len()), Vec::with_capacity(n_labels));
        for &it in series {
            labels.extend(self.labels(it));
            // All labels of all series have places of 32 bits.
            ends.push(labels.len() as u32);
        }
        Run { ends, labels }
    }

    /// Sorts series: by the first label of all at once, then those that have the same one by the next label.
    fn sort(&self, series: &mut [SeriesIdx]) {
        let mut keys: Vec<u64> = series.par_iter().map(|&it| self.key(it, 0)).collect();
        keys.par_sort_unstable();
        put(&keys, series);
        let (mut groups, mut rest) = (Vec::new(), series);
        for same in keys.chunk_by(|a, b| a >> 32 == b >> 32) {
            let (group, behind) = rest.split_at_mut(same.len());
            groups.push(group);
            rest = behind;
        }
        groups.into_par_iter().for_each(|group| self.sort_group(group));
    }

    /// Sorts series of the same first label. What is still to be sorted stands in a list: labels may be many.
    fn sort_group(&self, series: &mut [SeriesIdx]) {
        let mut waiting = vec![(0, series.len(), 1)];
        while let Some((start, end, depth)) = waiting.pop() {
            let group = &mut series[start..end];
            if group.len() <= FEW {
                group.sort_unstable_by(|&a, &b| self.labels(a).skip(depth).cmp(self.labels(b).skip(depth)));
                continue;
            }
            let mut keys: Vec<u64> = group.iter().map(|&it| self.key(it, depth)).collect();
            keys.sort_unstable();
            put(&keys, group);
            let mut at = start;
            for same in keys.chunk_by(|a, b| a >> 32 == b >> 32) {
                // Where the labels end there is one series: no two have the same.
                if same.len() > 1 && same[0] >> 32 > 0 {
                    waiting.push((at, at + same.len(), depth + 1));
                }
                at += same.len();
            }
        }
    }

    /// Returns the label of a series at `depth`, none first, and the series, in one number.
    fn key(&self, series: SeriesIdx, depth: usize) -> u64 {
        let label = self.labels.get(series).get(depth).map_or(0, |&id| u64::from(self.ranks[id as usize]) + 1);
        label << 32 | u64::from(series)
    }
}

/// Takes the series out of keys.
fn put(keys: &[u64], series: &mut [SeriesIdx]) {
    keys.iter().zip(series).for_each(|(&key, it)| *it = key as SeriesIdx);
}

/// Returns all texts, ascending; the pairs, ascending, as places of their names and values; by number, the place of a pair.
fn order_pairs(given: &Pairs) -> (Vec<&str>, Vec<(u32, u32)>, Vec<u32>) {
    let (texts, by_number) = order_texts(given);
    let mut by_rank: Vec<(u64, PairId)> =
        (0..).zip(&by_number).map(|(id, &(name, value))| (u64::from(name) << 32 | u64::from(value), id)).collect();
    by_rank.par_sort_unstable();
    let mut ranks = vec![0; by_rank.len()];
    for (rank, &(_, id)) in (0..).zip(&by_rank) {
        ranks[id as usize] = rank;
    }
    let pairs = by_rank.iter().map(|&(_, id)| by_number[id as usize]).collect();
    (texts, pairs, ranks)
}

/// Returns all texts, ascending, and by pair the places of its name and its value.
fn order_texts(given: &Pairs) -> (Vec<&str>, Vec<(u32, u32)>) {
    let n_pairs = given.len() as PairId;
    // The same name stands in many pairs, mostly in some that follow each other.
    let mut names: Vec<(&str, PairId)> = (0..n_pairs).map(|id| (given.texts(id).0, id)).collect();
    names.par_sort_unstable();
    let mut all: Vec<(&str, u32)> =
        names.chunk_by(|a, b| a.0 == b.0).zip(0..).map(|(same, i)| (same[0].0, i)).collect();
    let n_names = all.len() as u32;
    all.extend((0..n_pairs).map(|id| (given.texts(id).1, n_names + id)));
    all.par_sort_unstable();
    let (mut texts, mut places) = (Vec::new(), vec![0; all.len()]);
    for same in all.chunk_by(|a, b| a.0 == b.0) {
        same.iter().for_each(|&(_, which)| places[which as usize] = texts.len() as u32);
        texts.push(same[0].0);
    }
    let mut pairs = vec![(0, 0); n_pairs as usize];
    for (same, i) in names.chunk_by(|a, b| a.0 == b.0).zip(0..) {
        same.iter().for_each(|&(_, id)| pairs[id as usize] = (places[i], places[(n_names + id) as usize]));
    }
    (texts, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::series::SeriesTable;
    use crate::recover::series::tests::define;

    fn table(labels: &[&[(&str, &str)]]) -> SeriesTable {
        let mut table = SeriesTable::default();
        for (i, labels) in labels.iter().enumerate() {
            define(&mut table, i as u64, labels).unwrap();
        }
        table
    }

    #[test]
    fn series_and_texts_are_in_order() {
        let table = table(&[&[("a", "2"), ("b", "1")], &[("a", "10"), ("b", "1")], &[("a", "2")], &[]]);
        let order = Order::of(&table.pairs, table.labels);
        assert_eq!(order.texts, ["1", "10", "2", "a", "b"]);
        assert_eq!(order.pairs, [(3, 1), (3, 2), (4, 0)]);
        assert_eq!(order.series, [3, 1, 2, 0]);
        assert_eq!(order.labels(3), [1, 2]);
    }

    #[test]
    fn many_series_are_sorted_as_their_labels_are() {
        let mut state = 7_u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut sets = std::collections::BTreeSet::new();
        for _ in 0..3000 {
            let mut labels = vec![("__name__".to_owned(), ["up", "cpu"][usize::from(random(9) > 0)].to_owned())];
            for name in ["a", "b", "c", "d", "e"] {
                if random(5) > 0 {
                    labels.push((name.to_owned(), random(if name == "d" { 300 } else { 2 }).to_string()));
                }
            }
            sets.insert(labels);
        }
        // One behind the other, each with one label more.
        let chain = (0..60).map(|n| (0..n).map(|i| (format!("x{i:02}"), "1".to_owned())).collect::<Vec<_>>());
        sets.extend(chain);
        let mut shuffled: Vec<_> = sets.iter().collect();
        (1..shuffled.len()).for_each(|i| shuffled.swap(i, random(i as u64 + 1) as usize));
        let mut table = SeriesTable::default();
        for (i, labels) in shuffled.iter().enumerate() {
            let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            define(&mut table, i as u64, &labels).unwrap();
        }
        let order = Order::of(&table.pairs, table.labels);
        assert!(order.series.iter().map(|&it| shuffled[it as usize]).eq(sets.iter()));
        let positions: Vec<_> = (0..order.series.len() as Position).collect();
        assert!(positions.is_sorted_by(|&a, &b| order.labels(a) < order.labels(b)));
    }
}
