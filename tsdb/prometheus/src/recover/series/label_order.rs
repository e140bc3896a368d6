//! Sorts series by labels, as blocks store them.

use rayon::prelude::*;

use super::label_pairs::{LabelPairs, PairId};
use super::labels::{SeriesIdx, SeriesLabels};

/// Size of a group that is sorted by comparing series directly, instead of by their next label.
const FEW: usize = 24;
/// Number of series whose labels are stored together.
const RUN_LEN: usize = 1 << 12;

/// Position of a series in label order.
pub(crate) type Position = u32;

/// Strings, pairs and series in sorted order.
#[derive(Debug)]
pub(crate) struct LabelOrder<'a> {
    /// All names and values, ascending.
    pub(crate) strings: Vec<&'a str>,
    /// All pairs, ascending: indexes of name and value in `strings`.
    pub(crate) pairs: Vec<(u32, u32)>,
    /// All series, ascending.
    pub(crate) series: Vec<SeriesIdx>,
    /// The labels of [`RUN_LEN`] series each, in this order: an iteration over all series reads
    /// them sequentially.
    labels: Vec<LabelRun>,
}

/// Labels of consecutive series.
#[derive(Debug)]
struct LabelRun {
    /// For each series, the end of its labels.
    ends: Vec<u32>,
    /// Indexes of pairs, ascending for each series.
    labels: Vec<u32>,
}

impl<'a> LabelOrder<'a> {
    /// Sorts series on the current thread pool.
    pub(crate) fn of(pairs: &'a LabelPairs, labels: SeriesLabels) -> Self {
        let (strings, pairs, ranks) = order_pairs(pairs);
        // There are no more series than indexes of them.
        let mut series: Vec<_> = (0..labels.len() as SeriesIdx).collect();
        let sorter = Sorter { labels, ranks };
        sorter.sort(&mut series);
        let labels = series
            .par_chunks(RUN_LEN)
            .map(|some| sorter.run(some))
            .collect();
        Self {
            strings,
            pairs,
            series,
            labels,
        }
    }

    /// Counts the series of each pair, on the current thread pool.
    pub(crate) fn count(&self, series: &[Position]) -> Vec<u32> {
        let per_worker = series.len().div_ceil(rayon::current_num_threads()).max(1);
        let none = || vec![0; self.pairs.len()];
        let counted = series
            .par_chunks(per_worker)
            .fold(none, |mut counts, some| {
                for &series in some {
                    for &pair in self.labels(series) {
                        counts[pair as usize] += 1;
                    }
                }
                counts
            });
        counted.reduce_with(add).unwrap_or_else(none)
    }

    /// Returns the name and the value of the pair at an index.
    pub(crate) fn pair(&self, idx: usize) -> (&'a str, &'a str) {
        let (name, value) = self.pairs[idx];
        (self.strings[name as usize], self.strings[value as usize])
    }

    /// Returns the labels of a series as indexes of pairs, ascending.
    #[inline]
    pub(crate) fn labels(&self, position: Position) -> &[u32] {
        let LabelRun { ends, labels } = &self.labels[position as usize / RUN_LEN];
        let index = position as usize % RUN_LEN;
        let start = if index == 0 { 0 } else { ends[index - 1] };
        &labels[start as usize..ends[index] as usize]
    }
}

/// Adds counts of the same pairs.
fn add(mut counts: Vec<u32>, more: Vec<u32>) -> Vec<u32> {
    for (n, more) in counts.iter_mut().zip(more) {
        *n += more;
    }
    counts
}

/// The input of the sort.
struct Sorter {
    labels: SeriesLabels,
    /// For each pair, its rank.
    ranks: Vec<u32>,
}

impl Sorter {
    fn labels(&self, series: SeriesIdx) -> impl ExactSizeIterator<Item = u32> {
        self.labels
            .get(series)
            .iter()
            .map(|&id| self.ranks[id as usize])
    }

    fn run(&self, series: &[SeriesIdx]) -> LabelRun {
        let n_labels = series.iter().map(|&it| self.labels.get(it).len()).sum();
        let mut ends = Vec::with_capacity(series.len());
        let mut labels = Vec::with_capacity(n_labels);
        for &it in series {
            labels.extend(self.labels(it));
            // All labels together have indexes of 32 bits.
            ends.push(labels.len() as u32);
        }
        LabelRun { ends, labels }
    }

    /// Sorts series by their first label, then groups with the same first label by the next.
    fn sort(&self, series: &mut [SeriesIdx]) {
        let mut keys: Vec<u64> = series.par_iter().map(|&it| self.key(it, 0)).collect();
        keys.par_sort_unstable();
        put(&keys, series);
        let mut groups = Vec::new();
        let mut rest = series;
        for same in keys.chunk_by(|a, b| a >> 32 == b >> 32) {
            let (group, behind) = rest.split_at_mut(same.len());
            groups.push(group);
            rest = behind;
        }
        groups
            .into_par_iter()
            .for_each(|group| self.sort_group(group));
    }

    /// Sorts series with the same first label. Uses a stack instead of recursion, since series may
    /// have many labels.
    fn sort_group(&self, series: &mut [SeriesIdx]) {
        let mut waiting = vec![(0, series.len(), 1)];
        while let Some((start, end, depth)) = waiting.pop() {
            let group = &mut series[start..end];
            if group.len() <= FEW {
                group.sort_unstable_by(|&a, &b| {
                    self.labels(a).skip(depth).cmp(self.labels(b).skip(depth))
                });
                continue;
            }
            let mut keys: Vec<u64> = group.iter().map(|&it| self.key(it, depth)).collect();
            keys.sort_unstable();
            put(&keys, group);
            let mut same_start = start;
            for same in keys.chunk_by(|a, b| a >> 32 == b >> 32) {
                // At most one series of a group ends here: label sets are unique.
                if same.len() > 1 && same[0] >> 32 > 0 {
                    waiting.push((same_start, same_start + same.len(), depth + 1));
                }
                same_start += same.len();
            }
        }
    }

    /// Returns the label of a series at `depth` (0 if it has none) in the upper 32 bits, the series
    /// in the lower.
    fn key(&self, series: SeriesIdx, depth: usize) -> u64 {
        let label = self
            .labels
            .get(series)
            .get(depth)
            .map_or(0, |&id| u64::from(self.ranks[id as usize]) + 1);
        label << 32 | u64::from(series)
    }
}

/// Extracts the series from keys.
fn put(keys: &[u64], series: &mut [SeriesIdx]) {
    for (&key, it) in keys.iter().zip(series) {
        *it = key as SeriesIdx;
    }
}

/// Returns all strings and all pairs, both ascending, and the rank of each pair. Pairs are indexes
/// of strings.
fn order_pairs(given: &LabelPairs) -> (Vec<&str>, Vec<(u32, u32)>, Vec<u32>) {
    let (strings, by_number) = order_texts(given);
    let mut by_rank: Vec<(u64, PairId)> = (0..)
        .zip(&by_number)
        .map(|(id, &(name, value))| (u64::from(name) << 32 | u64::from(value), id))
        .collect();
    by_rank.par_sort_unstable();
    let mut ranks = vec![0; by_rank.len()];
    for (rank, &(_, id)) in (0..).zip(&by_rank) {
        ranks[id as usize] = rank;
    }
    let pairs = by_rank
        .iter()
        .map(|&(_, id)| by_number[id as usize])
        .collect();
    (strings, pairs, ranks)
}

/// Returns all strings, ascending, and for each pair the indexes of its name and its value.
fn order_texts(given: &LabelPairs) -> (Vec<&str>, Vec<(u32, u32)>) {
    let n_pairs = given.len() as PairId;
    // Pairs that follow each other often have the same name.
    let mut names: Vec<(&str, PairId)> = (0..n_pairs).map(|id| (given.strings(id).0, id)).collect();
    names.par_sort_unstable();
    let mut all: Vec<(&str, u32)> = names
        .chunk_by(|a, b| a.0 == b.0)
        .zip(0..)
        .map(|(same, i)| (same[0].0, i))
        .collect();
    let n_names = all.len() as u32;
    all.extend((0..n_pairs).map(|id| (given.strings(id).1, n_names + id)));
    all.par_sort_unstable();
    let mut strings = Vec::new();
    let mut indexes = vec![0; all.len()];
    for same in all.chunk_by(|a, b| a.0 == b.0) {
        for &(_, which) in same {
            indexes[which as usize] = strings.len() as u32;
        }
        strings.push(same[0].0);
    }
    let mut pairs = vec![(0, 0); n_pairs as usize];
    for (same, i) in names.chunk_by(|a, b| a.0 == b.0).zip(0..) {
        for &(_, id) in same {
            pairs[id as usize] = (indexes[i], indexes[(n_names + id) as usize]);
        }
    }
    (strings, pairs)
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
    fn series_pairs_and_strings_are_sorted() {
        let table = table(&[
            &[("a", "2"), ("b", "1")],
            &[("a", "10"), ("b", "1")],
            &[("a", "2")],
            &[],
        ]);
        let order = LabelOrder::of(&table.pairs, table.labels);
        assert_eq!(order.strings, ["1", "10", "2", "a", "b"]);
        assert_eq!(order.pairs, [(3, 1), (3, 2), (4, 0)]);
        assert_eq!(order.series, [3, 1, 2, 0]);
        assert_eq!(order.labels(3), [1, 2]);
    }

    #[test]
    fn many_series_are_in_label_order() {
        let mut state = 7_u64;
        let mut random = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut sets = std::collections::BTreeSet::new();
        for _ in 0..3000 {
            let mut labels = vec![(
                "__name__".to_owned(),
                ["up", "cpu"][usize::from(random(9) > 0)].to_owned(),
            )];
            for name in ["a", "b", "c", "d", "e"] {
                if random(5) > 0 {
                    labels.push((
                        name.to_owned(),
                        random(if name == "d" { 300 } else { 2 }).to_string(),
                    ));
                }
            }
            sets.insert(labels);
        }
        // Label sets of which each extends the one before.
        let chain = (0..60).map(|n| {
            (0..n)
                .map(|i| (format!("x{i:02}"), "1".to_owned()))
                .collect::<Vec<_>>()
        });
        sets.extend(chain);
        let mut shuffled: Vec<_> = sets.iter().collect();
        (1..shuffled.len()).for_each(|i| shuffled.swap(i, random(i as u64 + 1) as usize));
        let mut table = SeriesTable::default();
        for (i, labels) in shuffled.iter().enumerate() {
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            define(&mut table, i as u64, &labels).unwrap();
        }
        let order = LabelOrder::of(&table.pairs, table.labels);
        assert!(
            order
                .series
                .iter()
                .map(|&it| shuffled[it as usize])
                .eq(sets.iter())
        );
        let positions: Vec<_> = (0..order.series.len() as Position).collect();
        assert!(positions.is_sorted_by(|&a, &b| order.labels(a) < order.labels(b)));
    }
}
