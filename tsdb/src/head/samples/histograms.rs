//! Histograms of one series since a freeze, both in order and out of order.
//!
//! They are stored encoded, in a tenth of their decoded size. Consecutive histograms with equal
//! layouts share one.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_model::TimeRange;
use varve_model::histogram::Histogram;

use crate::chunk::histogram::{Layout, decode_counts, encode_counts};
use crate::head::copy::HeadCopies;
use crate::isolation::{ReadView, before};

/// Bytes of memory per histogram without its counts and its layout: timestamp, entry, their share
/// of a half-filled map node, and the overhead of the allocator.
const ENTRY_SIZE: usize = 2 * (size_of::<i64>() + size_of::<Entry>()) + 16;

/// The histograms of a series, by timestamp.
#[derive(Debug, Default)]
pub(in crate::head) struct Histograms {
    by_time: BTreeMap<i64, Entry>,
}

#[derive(Debug)]
struct Entry {
    append_id: u32,
    /// `true` if its reset hint refers to the previous entry.
    follows: bool,
    layout: Arc<Layout>,
    counts: Box<[u8]>,
}

impl Histograms {
    /// Adds a histogram at a new timestamp and returns its size in bytes. `last_ms` is the
    /// timestamp of the newest sample of the series, or `i64::MAX` if the histogram is out of
    /// order.
    pub(in crate::head) fn insert(
        &mut self,
        timestamp_ms: i64,
        last_ms: i64,
        histogram: &Histogram,
        append_id: u32,
    ) -> usize {
        let before = self.by_time.range(..timestamp_ms).next_back();
        // Without an earlier histogram here, one that is in order follows the newest sample of the
        // series, which may be in a block. `SampleColumns::merge_from` clears the hint at that
        // seam.
        let follows = before.map_or(timestamp_ms > last_ms, |(&before_ms, _)| {
            before_ms == last_ms
        });
        let (layout, layout_size) =
            match before.filter(|(_, before)| before.layout.is_of(histogram)) {
                Some((_, before)) => (Arc::clone(&before.layout), 0),
                None => {
                    let layout = Layout::of(histogram);
                    let size = layout.size();
                    (Arc::new(layout), size)
                }
            };
        let mut counts = Vec::new();
        encode_counts(histogram, &mut counts);
        let counts = counts.into_boxed_slice();
        let size = ENTRY_SIZE + counts.len() + layout_size;
        // The hint of an out-of-order histogram refers to another predecessor. From now on, so does
        // the hint of its successor.
        if let Some((_, behind)) = self.by_time.range_mut(timestamp_ms..).next() {
            behind.follows = false;
        }
        self.by_time.insert(
            timestamp_ms,
            Entry {
                append_id,
                follows,
                layout,
                counts,
            },
        );
        size
    }

    /// Returns the number of histograms.
    pub(in crate::head) fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Returns the histogram at a timestamp.
    pub(in crate::head) fn get(&self, timestamp_ms: i64) -> Option<Histogram> {
        let entry = self.by_time.get(&timestamp_ms)?;
        decode_counts(&entry.layout, &mut &*entry.counts)
    }

    /// Copies the histograms that lie in `range` and are visible in `view` (every histogram is
    /// visible if it is `None`).
    pub(in crate::head) fn copy(
        &self,
        range: TimeRange,
        view: Option<&ReadView>,
        out: &mut HeadCopies,
    ) {
        let begin = out.begin_histograms();
        let mut skipped = false;
        // `BTreeMap::range` panics if the start is after the end.
        let inside = (range.start_ms <= range.end_ms)
            .then(|| self.by_time.range(range.start_ms..=range.end_ms));
        for (&timestamp_ms, entry) in inside.into_iter().flatten() {
            let is_seen = view.is_none_or(|view| view.sees(entry.append_id));
            if is_seen {
                out.push_histogram(
                    timestamp_ms,
                    &entry.layout,
                    &entry.counts,
                    entry.follows && !skipped,
                );
            }
            skipped = !is_seen;
        }
        out.end_histograms(begin);
    }

    /// Replaces the ids of appends that every reader sees by an id that stays before all future
    /// ids.
    pub(in crate::head) fn settle(&mut self, horizon: u32) {
        for entry in self
            .by_time
            .values_mut()
            .filter(|entry| before(entry.append_id, horizon))
        {
            entry.append_id = horizon.wrapping_sub(1);
        }
    }
}
