//! Starts of the samples of a record, from the record before it.

use hashbrown::HashMap;

use super::places::Place;
use crate::head::{Head, Replayed};
use crate::wal::starts::Start;

/// See the module.
#[derive(Default)]
pub(super) struct RecordStarts {
    by_sample: HashMap<(Place, i64), Start>,
    is_held: bool,
}

impl RecordStarts {
    /// Adds the start of a sample, unless it has one.
    pub(super) fn add(&mut self, place: Place, timestamp_ms: i64, start: Start) {
        self.by_sample.entry((place, timestamp_ms)).or_insert(start);
    }

    /// Tells whether there is nothing to say of any sample.
    pub(super) fn is_empty(&self) -> bool {
        self.by_sample.is_empty() && !self.is_held
    }

    /// Says whether the samples came while the log was replayed.
    pub(super) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Forgets all; the record is done.
    pub(super) fn clear(&mut self) {
        self.by_sample.clear();
        self.is_held = false;
    }

    /// Sets the start of a sample that was just replayed.
    #[inline]
    pub(super) fn apply(&self, head: &mut Head, place: Place, timestamp_ms: i64, replayed: Replayed) {
        // Fast path: the record has no starts.
        if self.is_empty() {
            return;
        }
        let told = self.by_sample.get(&(place, timestamp_ms)).copied();
        if let Some(start) = told.or_else(|| self.is_held.then_some(Start::held(0))) {
            start.replay(head, place.slot, timestamp_ms, replayed);
        }
    }
}
