//! Evicted series, and the timestamps of their newest samples.
//!
//! Whether an out-of-order sample is accepted depends on the newest sample of its series. Eviction must not change
//! that, so the timestamp is stored, by a hash of the labels, until it can no longer matter. A series that returns
//! continues from this timestamp. A restart loses the timestamps: a series evicted before the restart is then new.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::labels::Labels;
use varve_collections::WideTable;

/// Maximum number of stored timestamps per shard, of 16 bytes each plus free space in the table. Series evicted above
/// this limit return as new series.
const EVICTED_SERIES_MAX: usize = 1 << 20;

/// Timestamps of the newest in-order samples of evicted series, by the hashes of their label sets.
#[derive(Debug, Default)]
pub(super) struct EvictedSeries {
    lasts: WideTable<(u64, i64)>,
    hasher: DefaultHashBuilder,
}

impl EvictedSeries {
    /// Stores the newest timestamp of an evicted series.
    pub(super) fn note(&mut self, labels: &Labels, last_ms: i64) {
        let hash = self.hasher.hash_one(labels.as_packed());
        if let Some(known) = self.lasts.find_mut(hash, |&(other, _)| other == hash) {
            known.1 = last_ms;
        } else if self.lasts.len() < EVICTED_SERIES_MAX {
            self.lasts.insert_unique(hash, (hash, last_ms), |&(hash, _)| hash);
        }
    }

    /// Removes a series and returns its newest timestamp, if it is stored.
    pub(super) fn take(&mut self, labels: &Labels) -> Option<i64> {
        // Fast path: the table is empty.
        if self.lasts.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(labels.as_packed());
        let last_ms = self.lasts.find(hash, |&(other, _)| other == hash)?.1;
        self.lasts.remove(hash, |&(other, _)| other == hash);
        Some(last_ms)
    }

    /// Forgets the series in one piece of the table whose newest sample is older than `before_ms`. Returns `false` if
    /// the piece does not exist.
    pub(super) fn forget(&mut self, piece: usize, before_ms: i64) -> bool {
        self.lasts.retain_piece(piece, |&(_, last_ms)| last_ms >= before_ms);
        self.lasts.shrink_piece(piece, |&(hash, _)| hash)
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        self.lasts.size()
    }
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
        (0..5000).for_each(|i| evicted.note(&labels(i), 7));
        (0..5000).for_each(|i| evicted.note(&labels(i), i as i64));
        assert_eq!([evicted.take(&labels(3000)), evicted.take(&labels(3000))], [Some(3000), None]);
        assert!((0..).take_while(|&piece| evicted.forget(piece, 4990)).count() > 1);
        assert_eq!((0..5000).filter(|&i| evicted.take(&labels(i)).is_some()).count(), 10);
        (0..).take_while(|&piece| evicted.forget(piece, i64::MAX)).for_each(drop);
        assert!(evicted.size() < 5000, "{}", evicted.size());
    }

    #[test]
    fn no_more_than_the_maximum_is_remembered() {
        let mut evicted = EvictedSeries::default();
        (0..EVICTED_SERIES_MAX + 2).for_each(|i| evicted.note(&labels(i), 7));
        assert_eq!(evicted.lasts.len(), EVICTED_SERIES_MAX);
        assert_eq!([0, EVICTED_SERIES_MAX].map(|i| evicted.take(&labels(i))), [Some(7), None]);
    }
}
