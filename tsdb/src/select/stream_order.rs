//! The label order in which the streams of a selection are merged.
//!
//! The blocks of a store mostly have the same series, so streams at the same series stay together: a
//! group of streams is ordered by one comparison, and a stream that has advanced is first compared
//! with the stream before it. The cost of a series does not depend on the number of streams that do
//! not have it, except for the logarithm in a binary search.

use std::cmp::Ordering;

use varve_model::labels::compare_packed;

/// The streams that have a current series, ordered by its labels.
#[derive(Debug)]
pub(super) struct StreamOrder {
    /// The groups of streams at the same series, in descending label order. A group is named by one
    /// of its streams.
    groups: Vec<usize>,
    /// By stream, another stream of its group. From the name of a group, all are reached.
    others: Vec<Option<usize>>,
}

impl StreamOrder {
    /// Creates an order of `n` streams, none of which has a current series.
    pub(super) fn new(n: usize) -> Self {
        Self {
            groups: Vec::with_capacity(n),
            others: vec![None; n],
        }
    }

    /// Replaces `next` by the streams whose current series is the first in label order, ascending.
    /// They leave the order.
    pub(super) fn take_first(&mut self, next: &mut Vec<usize>) {
        next.clear();
        let mut stream = self.groups.pop();
        while let Some(idx) = stream {
            next.push(idx);
            stream = self.others[idx].take();
        }
        next.sort_unstable();
    }

    /// Adds the streams of `advanced` that have a current series. `packed` returns its packed
    /// labels.
    pub(super) fn add<'a>(
        &mut self,
        advanced: &[usize],
        packed: impl Fn(usize) -> Option<&'a str>,
    ) {
        let mut before: Option<(usize, &str)> = None;
        for &stream in advanced {
            let Some(labels) = packed(stream) else {
                continue;
            };
            match before {
                // Fast path: neighboring blocks have the same series.
                Some((group, same)) if same == labels => self.join(group, stream),
                _ => {
                    let group = self.insert(stream, labels, &packed);
                    before = Some((group, labels));
                }
            }
        }
    }

    /// Adds a stream to the group of its series, and returns that group.
    fn insert<'a>(
        &mut self,
        stream: usize,
        labels: &str,
        packed: impl Fn(usize) -> Option<&'a str>,
    ) -> usize {
        let at = match self.groups.last() {
            // Fast path: the series after the one that was taken comes before all others.
            Some(&first) if is_after(packed(first), labels) => self.groups.len(),
            _ => self
                .groups
                .partition_point(|&group| is_after(packed(group), labels)),
        };
        if let Some(&group) = self.groups.get(at)
            && packed(group) == Some(labels)
        {
            self.join(group, stream);
            return group;
        }
        self.groups.insert(at, stream);
        stream
    }

    fn join(&mut self, group: usize, stream: usize) {
        self.others[stream] = self.others[group].replace(stream);
    }
}

/// Returns `true` if the packed labels of a group come after `labels`.
fn is_after(group: Option<&str>, labels: &str) -> bool {
    group.is_some_and(|group| compare_packed(group, labels) == Ordering::Greater)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_model::Labels;

    /// Returns the streams that have the first of all current series, by comparing all of them.
    fn first_of_all(current: &[Option<&str>]) -> Vec<usize> {
        let mut first = None;
        for labels in current.iter().flatten() {
            if first.is_none_or(|first| compare_packed(labels, first) == Ordering::Less) {
                first = Some(labels);
            }
        }
        let streams = 0..current.len();
        streams
            .filter(|&stream| first.is_some() && current[stream] == first)
            .collect()
    }

    /// Merges streams of the numbers of series, and checks each step.
    fn check(streams: &[Vec<u32>]) {
        let labels = |number: u32| {
            let number = format!("{number:05}");
            Labels::from_pairs([("__name__", "metric"), ("number", &number)]).unwrap()
        };
        let streams: Vec<Vec<Labels>> = streams
            .iter()
            .map(|numbers| numbers.iter().copied().map(labels).collect())
            .collect();
        let mut places = vec![0; streams.len()];
        let mut order = StreamOrder::new(streams.len());
        let mut next: Vec<usize> = (0..streams.len()).collect();
        loop {
            let current: Vec<Option<&str>> = streams
                .iter()
                .zip(&places)
                .map(|(stream, &place)| stream.get(place).map(Labels::as_packed))
                .collect();
            order.add(&next, |stream| current[stream]);
            order.take_first(&mut next);
            assert_eq!(next, first_of_all(&current));
            if next.is_empty() {
                return;
            }
            for &stream in &next {
                places[stream] += 1;
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_series_is_taken_from_all_streams_that_have_it(
            streams in proptest::collection::vec(proptest::collection::btree_set(0_u32..40, 0..30), 0..12),
        ) {
            let streams: Vec<Vec<u32>> = streams.into_iter().map(|numbers| numbers.into_iter().collect()).collect();
            check(&streams);
        }
    }

    #[test]
    fn hundreds_of_streams_with_churn_are_merged() {
        // Each stream has the common series, those of a few neighbors, and one of its own.
        let numbers = |stream: u32| {
            (0..100).filter(move |&number| match number % 4 {
                0 => true,
                1 => stream / 8 == number,
                2 => number >= stream / 4,
                _ => number == stream,
            })
        };
        let streams: Vec<Vec<u32>> = (0..400).map(|stream| numbers(stream).collect()).collect();
        check(&streams);
        let same = vec![(0..50).collect(); 400];
        check(&same);
    }
}
