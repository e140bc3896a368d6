//! Series in the order of the labels that the client sees, without some labels and with others.
//!
//! A selection is sorted by stored labels. Adding a label changes the order: `{a="1"}` is before
//! `{a="1", b="2"}`, but `{a="1", c="x"}` is after `{a="1", b="2", c="x"}`. Removing one does too.
//!
//! Invariants
//! 1. Adding a label buffers at most as many series as a series has labels: a series whose names
//!    are all smaller than the added one follows the series that continue it with a smaller name.
//!    These directly follow it in the input, so the series that wait are a stack in which each one
//!    is a prefix of the next.
//! 2. Removing labels buffers series and charges them to the request: those with the same first
//!    label, usually one metric. Series whose first label is not before the first removed name are
//!    all one group. Each series keeps a label, at least its metric name.

use std::vec;

use varve_context::{Charge, QueryContext};
use varve_model::Labels;

type Next<S> = varve_tsdb::Result<(Labels, S)>;

/// Returns `series`, which are sorted, without the labels `hidden` and with the labels `added`,
/// sorted again.
pub(super) fn sorted<'a, S: 'a>(
    ctx: &QueryContext,
    series: impl Iterator<Item = Next<S>> + 'a,
    hidden: &[&'a str],
    added: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Box<dyn Iterator<Item = Next<S>> + 'a> {
    let mut sorted: Box<dyn Iterator<Item = Next<S>> + 'a> = match hidden {
        [] => Box::new(series),
        hidden => Box::new(Removing::new(ctx, series, hidden.to_vec())),
    };
    for (name, value) in added {
        sorted = Box::new(Adding {
            series: sorted,
            name,
            value,
            waiting: Vec::new(),
            ahead: ReadAhead::Nothing,
        });
    }
    sorted
}

/// Adds a label that no series has.
struct Adding<'a, I, S> {
    series: I,
    name: &'a str,
    value: &'a str,
    waiting: Vec<(Labels, S)>,
    ahead: ReadAhead<S>,
}

/// What was read of a stream before its turn.
enum ReadAhead<S> {
    Nothing,
    Series(Labels, S),
    End,
}

impl<I: Iterator<Item = Next<S>>, S> Adding<'_, I, S> {
    fn take_next(&mut self) -> varve_tsdb::Result<Option<(Labels, S)>> {
        match std::mem::replace(&mut self.ahead, ReadAhead::Nothing) {
            ReadAhead::Nothing => self.series.next().transpose(),
            ReadAhead::Series(labels, series) => Ok(Some((labels, series))),
            ReadAhead::End => Ok(None),
        }
    }

    /// Returns `true` if a series that waits for `labels` and what follows must wait longer.
    fn must_wait(&self, waiting: &Labels, labels: &Labels) -> bool {
        let mut pairs = labels.iter();
        waiting.iter().all(|pair| pairs.next() == Some(pair))
            && pairs.next().is_none_or(|(name, _)| name < self.name)
    }

    fn advance(&mut self) -> varve_tsdb::Result<Option<(Labels, S)>> {
        loop {
            let next = self.take_next()?;
            if let Some((waiting, _)) = self.waiting.last()
                && next
                    .as_ref()
                    .is_none_or(|(labels, _)| !self.must_wait(waiting, labels))
            {
                self.ahead = match next {
                    Some((labels, series)) => ReadAhead::Series(labels, series),
                    None => ReadAhead::End,
                };
                return Ok(self.waiting.pop());
            }
            match next {
                Some((labels, series)) if labels.iter().all(|(name, _)| name < self.name) => {
                    self.waiting.push((labels, series));
                }
                next => return Ok(next),
            }
        }
    }
}

impl<I: Iterator<Item = Next<S>>, S> Iterator for Adding<'_, I, S> {
    type Item = Next<S>;

    fn next(&mut self) -> Option<Next<S>> {
        let next = self.advance().transpose()?;
        Some(next.map(|(labels, series)| (labels.with(self.name, self.value), series)))
    }
}

/// Removes labels.
struct Removing<'a, I, S> {
    ctx: QueryContext,
    series: I,
    names: Vec<&'a str>,
    /// The first of `names`: series whose first name is smaller keep their first label.
    least: &'a str,
    /// The remaining series of the current group, and its charge.
    group: vec::IntoIter<(Labels, S)>,
    charge: Charge,
    /// The first series of the next group.
    next: Option<(Labels, S)>,
}

impl<'a, I: Iterator<Item = Next<S>>, S> Removing<'a, I, S> {
    fn new(ctx: &QueryContext, series: I, names: Vec<&'a str>) -> Self {
        let least = names.iter().min().copied().unwrap_or_default();
        let group = Vec::new().into_iter();
        Self {
            ctx: ctx.clone(),
            series,
            names,
            least,
            group,
            charge: ctx.charge(),
            next: None,
        }
    }

    /// Returns the first label of a series if it stays the first one. All other series are in one
    /// group.
    fn group_of<'l>(&self, labels: &'l Labels) -> Option<(&'l str, &'l str)> {
        labels.iter().next().filter(|(name, _)| *name < self.least)
    }

    fn fill(&mut self) -> varve_tsdb::Result<()> {
        self.charge = self.ctx.charge();
        let Some(first) = self
            .next
            .take()
            .map_or_else(|| self.series.next().transpose(), |next| Ok(Some(next)))?
        else {
            return Ok(());
        };
        let (first_labels, first_series) = first;
        let mut group = Vec::new();
        self.keep(first_labels.clone(), first_series, &mut group)?;
        while let Some((labels, series)) = self.series.next().transpose()? {
            if self.group_of(&labels) != self.group_of(&first_labels) {
                self.next = Some((labels, series));
                break;
            }
            self.keep(labels, series, &mut group)?;
        }
        group.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.group = group.into_iter();
        Ok(())
    }

    fn keep(
        &mut self,
        labels: Labels,
        series: S,
        group: &mut Vec<(Labels, S)>,
    ) -> varve_tsdb::Result<()> {
        let labels = labels.filter(|name| !self.names.contains(&name));
        self.charge
            .grow(2 * size_of::<(Labels, S)>() + labels.size())?;
        group.push((labels, series));
        Ok(())
    }
}

impl<I: Iterator<Item = Next<S>>, S> Iterator for Removing<'_, I, S> {
    type Item = Next<S>;

    fn next(&mut self) -> Option<Next<S>> {
        if self.group.len() == 0
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        self.group.next().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use varve_context::Limit;

    use proptest::prelude::*;

    use super::*;

    /// Every series has a metric name.
    fn labels(pairs: &BTreeMap<String, u8>) -> Labels {
        let name = ("__name__", "m".to_owned());
        let mut values: Vec<_> = pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_string()))
            .collect();
        values.insert(pairs.range("A".to_owned().."a".to_owned()).count(), name);
        Labels::from_pairs(values.iter().map(|(name, value)| (*name, value.as_str()))).unwrap()
    }

    fn check(series: Vec<Labels>, hidden: &[&str], added: &[(&str, &str)]) {
        let visible = |labels: &Labels| {
            let labels = labels.filter(|name| !hidden.contains(&name));
            added
                .iter()
                .fold(labels, |labels, (name, value)| labels.with(name, value))
        };
        let mut expect: Vec<Labels> = series.iter().map(visible).collect();
        expect.sort();
        let added: BTreeMap<_, _> = added
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let input = series
            .iter()
            .map(|labels| Ok((labels.clone(), labels.clone())));
        let sorted = sorted(&QueryContext::unbounded(), input, hidden, &added);
        let got: Vec<_> = sorted.map(Result::unwrap).collect();
        assert_eq!(
            got.iter()
                .map(|(labels, _)| labels.clone())
                .collect::<Vec<_>>(),
            expect
        );
        assert!(
            got.iter()
                .all(|(labels, stored)| *labels == visible(stored)),
            "labels stay with their series"
        );
    }

    #[test]
    fn an_added_label_moves_series_behind_their_continuations() {
        let series = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied()).unwrap();
        let stored = vec![
            series(&[("__name__", "m")]),
            series(&[("__name__", "m"), ("a", "1")]),
            series(&[("__name__", "m"), ("a", "1"), ("b", "1")]),
            series(&[("__name__", "m"), ("z", "1")]),
            series(&[("__name__", "n")]),
        ];
        check(stored, &[], &[("cluster", "x")]);
    }

    #[test]
    fn an_error_is_returned_in_its_place() {
        let series = [
            Ok((Labels::empty(), 1)),
            Err(varve_tsdb::Error::Interrupted(
                varve_context::Interrupt::Killed,
            )),
        ];
        let external = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let mut sorted = sorted(
            &QueryContext::unbounded(),
            series.into_iter(),
            &["x"],
            &external,
        );
        assert!(sorted.next().is_some_and(|first| first.is_err()));
    }

    #[test]
    fn sorting_again_is_charged() {
        use varve_context::MemoryBudget;
        let memory = MemoryBudget::new(Limit::QueryMemory, 10_000);
        let ctx = QueryContext::new(std::time::Duration::from_secs(60), memory);
        let series = |idx: u32| {
            let labels =
                Labels::from_pairs([("__name__", "m"), ("i", &*idx.to_string()), ("r", "a")])
                    .unwrap();
            Ok((labels, ()))
        };
        let none = BTreeMap::new();
        let mut hidden = sorted(&ctx, (0..1000).map(series), &["r"], &none);
        assert!(matches!(
            hidden.next(),
            Some(Err(varve_tsdb::Error::Limit {
                what: Limit::QueryMemory,
                ..
            }))
        ));
        let external = BTreeMap::from([("j".to_owned(), "b".to_owned())]);
        assert_eq!(
            sorted(&ctx, (0..1000).map(series), &[], &external)
                .filter(Result::is_ok)
                .count(),
            1000
        );
    }

    proptest! {
        #[test]
        fn series_are_sorted_by_the_labels_that_are_seen(
            stored in proptest::collection::btree_set(
                proptest::collection::btree_map("[A-Ba-e]", 0..3_u8, 0..5), 0..60),
            hidden in proptest::collection::btree_set("[A-Ba-e]", 0..3),
            added in proptest::collection::btree_set("[a-eA-B][x]", 0..3),
        ) {
            let mut series: Vec<_> = stored.iter().map(labels).collect();
            series.sort();
            let hidden: Vec<&str> = hidden.iter().map(String::as_str).collect();
            let added: Vec<_> = added.iter().map(|name| (name.as_str(), "v")).collect();
            check(series, &hidden, &added);
        }
    }
}
