//! Evicted series, and the timestamps of their newest samples.
//!
//! Whether an out-of-order sample is accepted depends on the newest sample of its series. Eviction
//! must not change that, so the timestamp is stored, by a hash of the labels, until it can no
//! longer matter. A series that returns continues from this timestamp. A restart loses the
//! timestamps: a series evicted before the restart is then new.
//!
//! The log keeps the start timestamps of a series until the next checkpoint. If the series returns
//! before that, it must log that its start timestamp is unknown.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use varve_collections::WideTable;
use varve_model::Labels;

/// Maximum number of stored timestamps per shard, of 16 bytes each plus free space in the table.
/// Series evicted above this limit return as new series.
const EVICTED_SERIES_MAX: usize = 1 << 20;

/// Timestamps of the newest in-order samples of evicted series, by the hashes of their label sets.
/// The lowest bit of a stored hash is set if the series had start timestamps ([`HAD_STARTS`]).
#[derive(Debug, Default)]
pub(super) struct EvictedSeries {
    lasts: WideTable<(u64, i64)>,
    hasher: DefaultHashBuilder,
}

/// The flag of a series that had start timestamps.
const HAD_STARTS: u64 = 1;

impl EvictedSeries {
    /// Stores the newest timestamp of an evicted series, and whether it had start timestamps.
    pub(super) fn note(&mut self, labels: &Labels, last_ms: i64, had_starts: bool) {
        let hash = self.hash(labels);
        let entry = (hash | u64::from(had_starts), last_ms);
        if let Some(known) = self.lasts.find_mut(hash, |other| hash_of(other) == hash) {
            *known = entry;
        } else if self.lasts.len() < EVICTED_SERIES_MAX {
            self.lasts.insert_unique(hash, entry, hash_of);
        }
    }

    /// Removes a series and returns what [`EvictedSeries::note`] stored, if anything.
    pub(super) fn take(&mut self, labels: &Labels) -> Option<(i64, bool)> {
        // Fast path: the table is empty.
        if self.lasts.is_empty() {
            return None;
        }
        let hash = self.hash(labels);
        let &(stored_hash, last_ms) = self.lasts.find(hash, |other| hash_of(other) == hash)?;
        self.lasts.remove(hash, |other| hash_of(other) == hash);
        Some((last_ms, stored_hash & HAD_STARTS != 0))
    }

    fn hash(&self, labels: &Labels) -> u64 {
        self.hasher.hash_one(labels.as_packed()) & !HAD_STARTS
    }

    /// Forgets the series in one piece of the table whose newest sample is older than `before_ms`.
    /// Returns `false` if the piece does not exist.
    pub(super) fn forget(&mut self, piece: usize, before_ms: i64) -> bool {
        self.lasts
            .retain_piece(piece, |&(_, last_ms)| last_ms >= before_ms);
        self.lasts.shrink_piece(piece, hash_of)
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        self.lasts.size()
    }
}

/// Returns the hash of the labels of an entry, without the flag.
fn hash_of(&(stored_hash, _): &(u64, i64)) -> u64 {
    stored_hash & !HAD_STARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(i: usize) -> Labels {
        Labels::from_pairs([("i", &*i.to_string())]).unwrap()
    }

    #[test]
    fn a_series_is_remembered_once_and_until_its_timestamp_is_too_old() {
        let mut evicted = EvictedSeries::default();
        assert_eq!(evicted.take(&labels(0)), None);
        (0..5000).for_each(|i| evicted.note(&labels(i), 7, true));
        (0..5000).for_each(|i| evicted.note(&labels(i), i as i64, i % 2 == 1));
        assert_eq!(
            [3000, 3000, 3001].map(|i| evicted.take(&labels(i))),
            [Some((3000, false)), None, Some((3001, true))]
        );
        assert!(
            (0..)
                .take_while(|&piece| evicted.forget(piece, 4990))
                .count()
                > 1
        );
        assert_eq!(
            (0..5000)
                .filter(|&i| evicted.take(&labels(i)).is_some())
                .count(),
            10
        );
        (0..)
            .take_while(|&piece| evicted.forget(piece, i64::MAX))
            .for_each(drop);
        assert!(evicted.size() < 5000, "{}", evicted.size());
    }

    #[test]
    fn no_more_than_the_maximum_is_remembered() {
        let mut evicted = EvictedSeries::default();
        (0..EVICTED_SERIES_MAX + 2).for_each(|i| evicted.note(&labels(i), 7, false));
        assert_eq!(evicted.lasts.len(), EVICTED_SERIES_MAX);
        assert_eq!(
            [0, EVICTED_SERIES_MAX].map(|i| evicted.take(&labels(i))),
            [Some((7, false)), None]
        );
    }
}
