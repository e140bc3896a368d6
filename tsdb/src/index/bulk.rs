//! Bulk construction of postings.
//!
//! A series that is added alone looks up each of its labels in tables larger than the processor's
//! caches, and its lists grow one slot at a time. When all series of a head are known, the series
//! of one label are sorted by value instead. This is a counting sort, as values are integers. Each
//! list is then allocated once with its final size. Neighbors often share a value, so runs of slots
//! are counted and sorted.
//!
//! Used to load series during replay (`head::load`). Besides the postings it takes about twenty
//! bytes per run of the current label.

use std::ops::Range;

use super::symbols::SymbolId;
use super::values::Values;

/// Builds the postings of one label after the other, and reuses its memory.
#[derive(Debug, Default)]
pub(crate) struct LabelBuilder {
    /// Ascending by slot, with the value: neighbors with the same value form one run.
    runs: Vec<(SymbolId, Range<u32>)>,
    /// The runs sorted by value.
    by_value: Vec<Range<u32>>,
    /// The values in order of first occurrence.
    values: Vec<SymbolId>,
    /// By value: the number of its runs, then the position of its next run. All entries are zero
    /// between two labels.
    ends: Vec<u32>,
}

impl LabelBuilder {
    /// Adds a series, whose slot is above those added before.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32, value: SymbolId) {
        match self.runs.last_mut() {
            Some((last, slots)) if *last == value && slots.end == slot => slots.end += 1,
            _ => self.runs.push((value, slot..slot + 1)),
        }
    }

    /// Returns the postings of the label whose series were added and starts the next label. Calls
    /// `count` with each value and its number of series. Returns `None` if `count` does; the
    /// builder must not be used again then.
    pub(crate) fn finish(
        &mut self,
        mut count: impl FnMut(SymbolId, u32) -> Option<()>,
    ) -> Option<Values> {
        self.sort();
        let mut values = Values::default();
        let mut start = 0;
        for value in self.values.drain(..) {
            let end = std::mem::take(&mut self.ends[value.0 as usize]) as usize;
            let runs = &self.by_value[start..end];
            count(
                value,
                runs.iter().map(|slots| slots.end - slots.start).sum(),
            )?;
            values.insert_new(value, runs);
            start = end;
        }
        self.runs.clear();
        Some(values)
    }

    /// Sorts the runs by value. `ends` then holds the end of each value's runs.
    fn sort(&mut self) {
        let Self {
            runs,
            by_value,
            values,
            ends,
        } = self;
        let n_symbols = runs
            .iter()
            .map(|(value, _)| value.0 as usize + 1)
            .max()
            .unwrap_or(0);
        ends.resize(n_symbols.max(ends.len()), 0);
        for (value, _) in &*runs {
            let n_runs = &mut ends[value.0 as usize];
            if *n_runs == 0 {
                values.push(*value);
            }
            *n_runs += 1;
        }
        let mut start = 0;
        for value in &*values {
            start += std::mem::replace(&mut ends[value.0 as usize], start);
        }
        by_value.clear();
        by_value.resize(runs.len(), 0..0);
        for (value, slots) in &*runs {
            let end = &mut ends[value.0 as usize];
            by_value[*end as usize] = slots.clone();
            *end += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roaring::RoaringBitmap;
    use std::collections::BTreeMap;

    /// Asserts that both have the same series for each value.
    fn assert_same(built: &Values, inserted: &Values) {
        let lists = |values: &Values| {
            let list = |(value, postings): (SymbolId, super::super::postings::Postings<'_>)| {
                let mut slots = RoaringBitmap::new();
                postings.union_into(&mut slots);
                assert_eq!(slots.len(), postings.len());
                (value, slots)
            };
            values.iter().map(list).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(lists(built), lists(inserted));
        assert_eq!(built.len(), inserted.len());
    }

    proptest! {
        #[test]
        fn bulk_construction_equals_inserting_one_by_one(
            labels in proptest::collection::vec(
                proptest::collection::vec((1..4_u32, 0..6_u32, 1..100_u32), 0..60), 1..4,
            ),
            more in proptest::collection::vec((0..6_u32, 0..9_000_u32), 0..50),
        ) {
            let mut builder = LabelBuilder::default();
            for label in labels {
                let (mut inserted, mut counts, mut slot) = (Values::default(), BTreeMap::<u32, u32>::new(), 0);
                for (gap, value, n) in label {
                    slot += gap - 1;
                    for _ in 0..n {
                        builder.push(slot, SymbolId(value));
                        inserted.insert(SymbolId(value), slot);
                        *counts.entry(value).or_default() += 1;
                        slot += 1;
                    }
                }
                let mut counted = BTreeMap::new();
                let mut built = builder.finish(|value, n| counted.insert(value.0, n).is_none().then_some(())).unwrap();
                prop_assert_eq!(counted, counts);
                assert_same(&built, &inserted);
                // Later insertions and removals expect lists in this form.
                for &(value, slot) in &more {
                    if slot % 3 == 0 {
                        built.remove(SymbolId(value), slot);
                        inserted.remove(SymbolId(value), slot);
                    } else {
                        built.insert(SymbolId(value), slot);
                        inserted.insert(SymbolId(value), slot);
                    }
                }
                assert_same(&built, &inserted);
            }
        }
    }

    #[test]
    fn bulk_construction_uses_as_much_memory_as_inserting_one_by_one() {
        let value = |slot: u32| SymbolId([slot, 7, slot / 50, slot % 3][slot as usize / 5_000]);
        let mut builder = LabelBuilder::default();
        let mut inserted = Values::default();
        for slot in 0..20_000 {
            builder.push(slot, value(slot));
            inserted.insert(value(slot), slot);
        }
        let built = builder.finish(|_, _| Some(())).unwrap();
        assert_same(&built, &inserted);
        assert!(
            built.size() <= inserted.size(),
            "{} {}",
            built.size(),
            inserted.size()
        );
    }
}
