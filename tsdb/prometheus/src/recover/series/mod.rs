//! The series of a data directory: their labels and refs.
//!
//! They take about 90 bytes per series of twelve labels, and stay in memory at any budget.

mod hash_index;
pub(super) mod label_order;
pub(super) mod label_pairs;
mod labels;
mod refs;

use hash_index::HashIndex;
use label_pairs::{LabelPairs, NewPair, PairId};
pub(crate) use labels::{SeriesIdx, SeriesLabels};
use refs::SeriesRefs;

use varve_model::labels::METRIC_NAME;

use crate::wal::{DefinedLabel, RecordError, for_each_definition};

/// All series, in the order of their first definition.
#[derive(Debug, Default)]
pub(crate) struct SeriesTable {
    pub(crate) pairs: LabelPairs,
    pub(crate) labels: SeriesLabels,
    by_labels: HashIndex,
    by_ref: SeriesRefs,
}

/// Series definitions of a record, with known labels looked up.
#[derive(Debug, Default)]
pub(crate) struct Definitions<'a> {
    series: Vec<Defined>,
    /// For each series the number of its labels, then the labels. A label in `new` is
    /// [`LabelPairs::NONE`].
    runs: Vec<PairId>,
    new: Vec<NewPair<'a>>,
    /// The error that ends the record.
    pub(crate) bad: Option<RecordError>,
}

/// A series of [`Definitions`].
#[derive(Debug)]
struct Defined {
    series_ref: u64,
    /// `true` if label names ascend.
    is_sorted: bool,
}

/// A series definition after it was added to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) series_ref: u64,
    /// `None` if a label name is repeated, or the table is full.
    pub(crate) series: Option<SeriesIdx>,
    /// `true` if the ref referred to this series before.
    pub(crate) is_known: bool,
}

/// Labels of the definition before, by position in the record.
#[derive(Debug, Default)]
struct Previous {
    /// `None` is a label without a value, which is no label.
    ids: Vec<Option<PairId>>,
    is_sorted: bool,
}

impl<'a> Definitions<'a> {
    /// Appends a series. Labels marked as same, see [`for_each_definition`], are taken from
    /// `before`.
    fn push(
        &mut self,
        pairs: &LabelPairs,
        series_ref: u64,
        labels: &[DefinedLabel<'a>],
        before: &mut Previous,
    ) {
        before.ids.truncate(labels.len());
        let start = self.runs.len();
        self.runs.push(0);
        let mut is_sorted = true;
        let mut last: Option<DefinedLabel<'_>> = None;
        for (index, &label) in labels.iter().enumerate() {
            // Two labels that follow each other in the series before are in order.
            let is_known =
                before.is_sorted && label.is_same && last.is_none_or(|last| last.is_same);
            is_sorted &= is_known || last.is_none_or(|last| last.name < label.name);
            last = Some(label);
            let id = match before.ids.get(index) {
                Some(&same) if label.is_same => same,
                _ if label.value.is_empty() => None,
                _ => {
                    let pair = NewPair::of(label.name, label.value);
                    Some(pairs.find(&pair).unwrap_or(LabelPairs::NONE))
                }
            };
            match before.ids.get_mut(index) {
                Some(before) => *before = id,
                None => before.ids.push(id),
            }
            if id == Some(LabelPairs::NONE) {
                self.new.push(NewPair::of(label.name, label.value));
            }
            self.runs.extend(id);
        }
        before.is_sorted = is_sorted;
        // A record has fewer labels than that.
        self.runs[start] = (self.runs.len() - start - 1) as u32;
        self.series.push(Defined {
            series_ref,
            is_sorted,
        });
    }
}

impl SeriesTable {
    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Estimates the memory in bytes.
    pub(crate) fn size(&self) -> usize {
        self.pairs.size() + self.labels.size() + self.by_labels.size() + self.by_ref.size()
    }

    /// Returns the series with this ref.
    #[inline]
    pub(crate) fn find(&self, series_ref: u64) -> Option<SeriesIdx> {
        self.by_ref.get(series_ref)
    }

    /// Returns the labels of a series.
    pub(crate) fn strings_of(&self, series: SeriesIdx) -> impl Iterator<Item = (&str, &str)> {
        self.labels
            .get(series)
            .iter()
            .map(|&id| self.pairs.strings(id))
    }

    /// Returns the metric name of the series with this ref.
    pub(crate) fn metric_name(&self, series_ref: u64) -> Option<&str> {
        self.strings_of(self.find(series_ref)?)
            .find(|(name, _)| *name == METRIC_NAME)
            .map(|(_, value)| value)
    }

    /// Decodes the series definitions of a record, adds each of the external labels to the series
    /// that have no label of its name, and looks up known labels.
    pub(crate) fn read<'a>(
        &self,
        record: &'a [u8],
        external_labels: &'a [(String, String)],
    ) -> Definitions<'a> {
        let mut definitions = Definitions::default();
        let mut before = Previous::default();
        let mut labels = Vec::new();
        let decoded = for_each_definition(record, |series_ref, defined| {
            // Fast path: nothing is copied.
            if external_labels.is_empty() {
                definitions.push(&self.pairs, series_ref, defined, &mut before);
                return;
            }
            labels.clear();
            labels.extend_from_slice(defined);
            labels.extend(missing(defined, external_labels));
            definitions.push(&self.pairs, series_ref, &labels, &mut before);
        });
        definitions.bad = decoded.err();
        definitions
    }

    /// Sets the refs of series, and creates the series with new label sets.
    pub(crate) fn define(&mut self, definitions: Definitions<'_>, mut each: impl FnMut(Resolved)) {
        let Definitions {
            series,
            mut runs,
            new,
            ..
        } = definitions;
        let mut runs = &mut runs[..];
        let mut new = new.into_iter();
        for Defined {
            series_ref,
            is_sorted,
        } in series
        {
            let (counted_ids, rest) = runs.split_at_mut(1 + runs[0] as usize);
            runs = rest;
            let before = self.find(series_ref);
            let series = match self.intern(&mut counted_ids[1..], &mut new) {
                Some(()) => self.find_or_create(counted_ids, is_sorted),
                None => None,
            };
            if let Some(series) = series {
                self.by_ref.insert(series_ref, series);
            }
            each(Resolved {
                series_ref,
                series,
                is_known: series.is_some() && series == before,
            });
        }
    }

    /// Interns the new labels of a series. Returns `None` if the table of labels is full.
    fn intern<'a>(
        &mut self,
        ids: &mut [PairId],
        new: &mut impl Iterator<Item = NewPair<'a>>,
    ) -> Option<()> {
        let mut is_whole = true;
        let unknown = ids.iter_mut().filter(|id| **id == LabelPairs::NONE);
        for (id, pair) in unknown.zip(new) {
            let found = self.pairs.intern(&pair);
            is_whole &= found.is_some();
            *id = found.unwrap_or(LabelPairs::NONE);
        }
        is_whole.then_some(())
    }

    /// Finds or creates a series. `counted_ids` are the number of its labels, then the labels.
    fn find_or_create(&mut self, counted_ids: &mut [PairId], is_sorted: bool) -> Option<SeriesIdx> {
        let ids = &mut counted_ids[1..];
        if !is_sorted {
            let name = |id: &PairId| self.pairs.strings(*id).0;
            ids.sort_unstable_by(|a, b| name(a).cmp(name(b)));
            if ids.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                return None;
            }
        }
        let labels = &self.labels;
        let labels_hash = hash(ids);
        if let Some(found) = self.by_labels.find(labels_hash, |it| labels.get(it) == ids) {
            return Some(found);
        }
        let series = SeriesIdx::try_from(self.len())
            .ok()
            .filter(|&series| series != SeriesRefs::NONE)?;
        self.labels.push(counted_ids)?;
        self.by_labels.insert(labels_hash, series);
        Some(series)
    }

    /// Frees the lookup tables: no more series follow.
    pub(crate) fn close(&mut self) {
        self.by_labels = HashIndex::default();
        self.by_ref = SeriesRefs::default();
    }
}

/// Returns the external labels whose name no label has. A label without a value is no label.
fn missing<'a>(
    labels: &[DefinedLabel<'a>],
    external_labels: &'a [(String, String)],
) -> impl Iterator<Item = DefinedLabel<'a>> {
    external_labels
        .iter()
        .filter(|(name, _)| {
            !labels
                .iter()
                .any(|label| label.name == name && !label.value.is_empty())
        })
        .map(|(name, value)| DefinedLabel {
            name,
            value,
            is_same: false,
        })
}

/// Label pairs are numbered consecutively. One multiplication each mixes them well enough.
fn hash(ids: &[PairId]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = ids.iter().fold(0, |hash: u64, &id| {
        (hash.rotate_left(23) ^ u64::from(id)).wrapping_mul(FACTOR)
    });
    mixed ^ mixed >> 32
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::series_record as record;

    /// Defines the series of a record.
    fn define_all(table: &mut SeriesTable, record: &[u8]) -> Vec<Resolved> {
        let mut given = Vec::new();
        let definitions = table.read(record, &[]);
        assert_eq!(definitions.bad, None);
        table.define(definitions, |it| given.push(it));
        given
    }

    /// Defines a series in a record of its own.
    pub(crate) fn define(
        table: &mut SeriesTable,
        series_ref: u64,
        labels: &[(&str, &str)],
    ) -> Option<SeriesIdx> {
        define_all(table, &record([(series_ref, labels.to_vec())]))[0].series
    }

    #[test]
    fn series_are_found_by_labels_and_refs() {
        let mut table = SeriesTable::default();
        let a = define(&mut table, 10, &[("b", "1"), ("a", "2"), ("gone", "")]).unwrap();
        let again = define(&mut table, 20, &[("a", "2"), ("b", "1")]).unwrap();
        let other = define(&mut table, 30, &[("a", "10"), ("b", "1")]).unwrap();
        let none = define(&mut table, 50, &[]).unwrap();
        assert_eq!((a, again, other, none, table.len()), (0, 0, 1, 2, 3));
        assert_eq!(
            (
                table.find(10),
                table.find(20),
                table.find(30),
                table.find(1)
            ),
            (Some(0), Some(0), Some(1), None)
        );
        assert_eq!(define(&mut table, 40, &[("a", "1"), ("a", "2")]), None);
        let strings = |series| {
            table
                .labels
                .get(series)
                .iter()
                .map(|&id| table.pairs.strings(id))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (strings(0), strings(1)),
            (vec![("a", "2"), ("b", "1")], vec![("a", "10"), ("b", "1")])
        );
        assert_eq!(strings(2), []);
        let given = |series| [(20, vec![("a", series), ("b", "1")])];
        let is_known = |given: Vec<Resolved>| given[0].is_known;
        assert!(is_known(define_all(&mut table, &record(given("2")))));
        assert!(!is_known(define_all(&mut table, &record(given("10")))));
    }

    #[test]
    fn many_series_are_distinct() {
        let mut table = SeriesTable::default();
        let names: Vec<String> = (0..40).map(|i| format!("name{i:02}")).collect();
        let values: Vec<String> = (0..50).map(|i| i.to_string()).collect();
        let labels = |i: usize| (0..i % 40).map(move |k| (k, (i / 40 + k) % 50));
        for round in 0..2 {
            for i in 0..2000 {
                let labels: Vec<_> = labels(i)
                    .map(|(name, value)| (names[name].as_str(), values[value].as_str()))
                    .collect();
                let series = define(&mut table, (round * 2000 + i) as u64, &labels).unwrap();
                assert_eq!(table.labels.get(series).len(), i % 40);
            }
        }
        // All label sets of length 0 are equal.
        assert_eq!(table.len(), 2000 - 2000 / 40 + 1);
    }

    #[test]
    fn labels_repeated_from_the_series_before_are_recognized() {
        let series = [
            vec![("a", "1"), ("b", ""), ("c", "2")],
            vec![("a", "1"), ("b", ""), ("c", "2"), ("d", "3")],
            // The third and fourth label are the same as in the series before, but out of order
            // here.
            vec![("x", "1"), ("b", ""), ("c", "2"), ("d", "3")],
            vec![("x", "1"), ("x", "2"), ("c", "2"), ("d", "3")],
            vec![("x", "1"), ("x", "2"), ("c", "2")],
            vec![("a", "1"), ("b", "2"), ("c", "2")],
            vec![("a", "1")],
        ];
        let record = record((0..).zip(series));
        let mut same = Vec::new();
        for_each_definition(&record, |_, labels| {
            same.push(labels.iter().filter(|label| label.is_same).count())
        })
        .unwrap();
        assert_eq!(same, [0, 3, 3, 3, 3, 1, 1]);
        let mut table = SeriesTable::default();
        // First with new labels, then with known labels.
        for _ in 0..2 {
            let found: Vec<_> = define_all(&mut table, &record)
                .iter()
                .map(|given| given.series)
                .collect();
            assert_eq!(
                found,
                [Some(0), Some(1), Some(2), None, None, Some(3), Some(4)]
            );
        }
        let strings = |series| {
            table
                .labels
                .get(series)
                .iter()
                .map(|&id| table.pairs.strings(id))
                .collect::<Vec<_>>()
        };
        assert_eq!(strings(1), [("a", "1"), ("c", "2"), ("d", "3")]);
        assert_eq!(strings(2), [("c", "2"), ("d", "3"), ("x", "1")]);
        assert_eq!(strings(3), [("a", "1"), ("b", "2"), ("c", "2")]);
    }
}
