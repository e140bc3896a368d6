//! Series that left the head, and when their newest samples were.
//!
//! Whether a late sample is taken depends on the newest one of its series. So that it makes no difference whether the series
//! has left meanwhile, that time is kept for as long as it can matter, by a hash of the labels. A series that comes back goes
//! on from there. Lost with the process: behind a restart a series that had left is as new.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::index::WideTable;
use crate::labels::Labels;

/// Most series of a shard that are remembered, at 16 bytes each and what the table leaves free. Others come back as new ones.
const DEPARTED_MAX: usize = 1 << 20;

/// Hashes of label sets, and the times of their newest samples in order.
#[derive(Debug, Default)]
pub(super) struct Departed {
    lasts: WideTable<(u64, i64)>,
    hasher: DefaultHashBuilder,
}

impl Departed {
    /// Remembers a series.
    pub(super) fn note(&mut self, labels: &Labels, last_ms: i64) {
        let hash = self.hasher.hash_one(labels.as_packed());
        if let Some(known) = self.lasts.find_mut(hash, |&(other, _)| other == hash) {
            known.1 = last_ms;
        } else if self.lasts.len() < DEPARTED_MAX {
            self.lasts.insert_unique(hash, (hash, last_ms), |&(hash, _)| hash);
        }
    }

    /// Forgets a series, and returns what was remembered of it.
    pub(super) fn take(&mut self, labels: &Labels) -> Option<i64> {
        // Fast path: nothing is remembered.
        if self.lasts.len() == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(labels.as_packed());
        let last_ms = self.lasts.find(hash, |&(other, _)| other == hash)?.1;
        self.lasts.remove(hash, |&(other, _)| other == hash);
        Some(last_ms)
    }

    /// Forgets series of a piece of the table whose newest sample is older than `before_ms`; false if there is no such piece.
    pub(super) fn forget(&mut self, piece: usize, before_ms: i64) -> bool {
        self.lasts.retain_piece(piece, |&(_, last_ms)| last_ms >= before_ms);
        self.lasts.shrink_piece(piece, |&(hash, _)| hash)
    }

    /// Returns how many bytes it takes.
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
    fn a_series_is_remembered_once_and_until_its_time_is_too_old() {
        let mut departed = Departed::default();
        assert_eq!(departed.take(&labels(0)), None);
        (0..5000).for_each(|i| departed.note(&labels(i), 7));
        (0..5000).for_each(|i| departed.note(&labels(i), i as i64));
        assert_eq!([departed.take(&labels(3000)), departed.take(&labels(3000))], [Some(3000), None]);
        assert!((0..).take_while(|&piece| departed.forget(piece, 4990)).count() > 1);
        assert_eq!((0..5000).filter(|&i| departed.take(&labels(i)).is_some()).count(), 10);
        (0..).take_while(|&piece| departed.forget(piece, i64::MAX)).for_each(drop);
        assert!(departed.size() < 5000, "{}", departed.size());
    }

    #[test]
    fn no_more_are_remembered_than_the_bound_says() {
        let mut departed = Departed::default();
        (0..DEPARTED_MAX + 2).for_each(|i| departed.note(&labels(i), 7));
        assert_eq!(departed.lasts.len(), DEPARTED_MAX);
        assert_eq!([0, DEPARTED_MAX].map(|i| departed.take(&labels(i))), [Some(7), None]);
    }
}
