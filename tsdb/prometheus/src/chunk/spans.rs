//! Compares and merges the buckets of histograms, which are described by spans.
//!
//! Source: Prometheus `tsdb/chunkenc/histogram_meta.go`. Spans of invalid histograms, which
//! overlap, give meaningless results, but never more buckets than both inputs have together.

use varve_model::histogram::BucketSpan;

/// Iterates over the bucket indexes of spans.
#[derive(Debug)]
struct Indices<'a> {
    spans: std::slice::Iter<'a, BucketSpan>,
    left: u32,
    next: i64,
}

impl<'a> Indices<'a> {
    fn of(spans: &'a [BucketSpan]) -> Self {
        Self {
            spans: spans.iter(),
            left: 0,
            next: 0,
        }
    }
}

impl Iterator for Indices<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        while self.left == 0 {
            let span = self.spans.next()?;
            self.next = self.next.saturating_add(i64::from(span.offset));
            self.left = span.length;
        }
        self.left -= 1;
        self.next += 1;
        Some(self.next - 1)
    }
}

/// Buckets and their counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets<'a, V> {
    spans: &'a [BucketSpan],
    counts: &'a [V],
}

impl<'a, V> Buckets<'a, V> {
    pub(super) fn new(spans: &'a [BucketSpan], counts: &'a [V]) -> Self {
        Self { spans, counts }
    }

    /// Iterates over the indexes of the buckets and their counts.
    fn iter(self) -> impl Iterator<Item = (i64, &'a V)> {
        Indices::of(self.spans).zip(self.counts)
    }
}

/// Difference between the buckets of a histogram and the buckets of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    /// The histogram has buckets that the chunk does not have.
    pub(super) is_new: bool,
    /// The chunk has buckets that the histogram does not have.
    pub(super) is_missing: bool,
}

/// Compares the buckets and last counts of a chunk with the buckets and counts of the next
/// histogram. Returns `None` for a counter reset: a count decreased, or a bucket with a count is
/// gone.
pub(super) fn compare<V: Copy + Default + PartialOrd>(
    chunk: Buckets<'_, V>,
    next: Buckets<'_, V>,
) -> Option<Difference> {
    let mut difference = Difference {
        is_new: false,
        is_missing: false,
    };
    // Fast path: the same buckets.
    if chunk.spans == next.spans {
        let mut counts = chunk.counts.iter().zip(next.counts);
        let fell = counts.any(|(count, later)| count > later);
        return if fell { None } else { Some(difference) };
    }
    let mut ours = chunk.iter().peekable();
    for (index, later) in next.iter() {
        while let Some((_, count)) = ours.next_if(|(our_index, _)| *our_index < index) {
            if *count != V::default() {
                return None;
            }
            difference.is_missing = true;
        }
        match ours.next_if(|(our_index, _)| *our_index == index) {
            Some((_, count)) if count > later => return None,
            Some(_) => {}
            None => difference.is_new = true,
        }
    }
    for (_, count) in ours {
        if *count != V::default() {
            return None;
        }
        difference.is_missing = true;
    }
    Some(difference)
}

/// Compares buckets without their counts.
pub(super) fn compare_spans(spans: &[BucketSpan], later: &[BucketSpan]) -> Difference {
    if spans == later {
        return Difference {
            is_new: false,
            is_missing: false,
        };
    }
    let all = Indices::of(&union(spans, later)).count();
    Difference {
        is_new: all > Indices::of(spans).count(),
        is_missing: all > Indices::of(later).count(),
    }
}

/// Returns the union of two sets of buckets, in as few spans as possible.
pub(super) fn union(a: &[BucketSpan], b: &[BucketSpan]) -> Vec<BucketSpan> {
    let mut ours = Indices::of(a).peekable();
    let mut theirs = Indices::of(b).peekable();
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut end = 0;
    while let Some(index) = ours.peek().into_iter().chain(theirs.peek()).min().copied() {
        ours.next_if_eq(&index);
        theirs.next_if_eq(&index);
        match spans.last_mut() {
            Some(last) if index == end => last.length += 1,
            _ => {
                // The gap is no larger than a gap in one of the inputs, so it fits.
                let offset = i32::try_from(index - end).unwrap_or(i32::MAX);
                spans.push(BucketSpan { offset, length: 1 });
            }
        }
        end = index + 1;
    }
    spans
}

/// Returns the counts for the buckets `to`, 0 for those that `from` does not have.
pub(super) fn spread<V: Copy + Default>(
    from: &[BucketSpan],
    counts: &[V],
    to: &[BucketSpan],
) -> Vec<V> {
    // Fast path: the same buckets.
    if from == to {
        return counts.to_vec();
    }
    let mut theirs = Indices::of(from).zip(counts).peekable();
    let mut spread = Vec::new();
    for index in Indices::of(to) {
        while theirs
            .next_if(|(their_index, _)| *their_index < index)
            .is_some()
        {}
        match theirs.next_if(|(their_index, _)| *their_index == index) {
            Some((_, count)) => spread.push(*count),
            None => spread.push(V::default()),
        }
    }
    spread
}

/// Returns the first `n` buckets.
pub(super) fn first(spans: &[BucketSpan], n: usize) -> Vec<BucketSpan> {
    let mut left = u32::try_from(n).unwrap_or(u32::MAX);
    let mut taken = Vec::with_capacity(spans.len());
    for span in spans {
        let length = span.length.min(left);
        taken.push(BucketSpan {
            offset: span.offset,
            length,
        });
        left -= length;
    }
    taken
}

/// Returns the number of buckets.
pub(super) fn count(spans: &[BucketSpan]) -> u64 {
    spans.iter().map(|span| u64::from(span.length)).sum()
}
