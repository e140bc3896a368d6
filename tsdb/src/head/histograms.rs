//! Histograms of one series since a freeze, in order or late.
//!
//! They are kept encoded, a tenth of what they take decoded, and neighbours that have one layout share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::copy::HeadCopies;
use super::visible::{Visible, before};
use crate::histogram::{Histogram, Layout, decode_counts, encode_counts};
use crate::sample::TimeRange;

/// What a histogram takes besides its bytes and its layout: its time, its entry, their share of a node of the map that is
/// filled to a half, and what the allocator keeps.
const ENTRY_SIZE: usize = 2 * (size_of::<i64>() + size_of::<Entry>()) + 16;

/// A series' histograms, by time.
#[derive(Debug, Default)]
pub(super) struct Histograms {
    by_time: BTreeMap<i64, Entry>,
}

#[derive(Debug)]
struct Entry {
    request: u32,
    /// The one before it is the one that its reset hint was told of.
    follows: bool,
    layout: Arc<Layout>,
    counts: Box<[u8]>,
}

impl Histograms {
    /// Adds a histogram whose time is not there yet, and returns the bytes that it takes.
    pub(super) fn insert(&mut self, timestamp_ms: i64, histogram: &Histogram, request: u32) -> usize {
        let before = self.by_time.range(..timestamp_ms).next_back().map(|(_, entry)| &entry.layout);
        let (layout, layout_size) = match before.filter(|layout| layout.is_of(histogram)) {
            Some(layout) => (Arc::clone(layout), 0),
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
        // Its sender told a late one of another predecessor than it has here, and now so does the one behind it.
        let behind = self.by_time.range_mut(timestamp_ms..).next().map(|(_, behind)| behind.follows = false);
        self.by_time.insert(timestamp_ms, Entry { request, follows: behind.is_none(), layout, counts });
        size
    }

    /// Returns the histogram at a time, if there is one.
    pub(super) fn get(&self, timestamp_ms: i64) -> Option<Histogram> {
        let entry = self.by_time.get(&timestamp_ms)?;
        decode_counts(&entry.layout, &mut &*entry.counts)
    }

    /// Copies what lies in a range and is visible (everything to whom `visible` is `None`).
    pub(super) fn copy(&self, range: TimeRange, visible: Option<&Visible>, out: &mut HeadCopies) {
        let begin = out.begin_histograms();
        let mut skipped = false;
        for (&timestamp_ms, entry) in self.by_time.range(range.start_ms..=range.end_ms) {
            let is_seen = visible.is_none_or(|visible| visible.sees(entry.request));
            if is_seen {
                out.push_histogram(timestamp_ms, &entry.layout, &entry.counts, entry.follows && !skipped);
            }
            skipped = !is_seen;
        }
        out.end_histograms(begin);
    }

    /// Marks requests that every reader sees with one that stays before all to come.
    pub(super) fn settle(&mut self, horizon: u32) {
        self.by_time.values_mut().filter(|entry| before(entry.request, horizon)).for_each(|entry| {
            entry.request = horizon.wrapping_sub(1);
        });
    }
}
