//! The ring of exemplars: the newest exemplars in order of arrival, and in order of time per
//! series.
//!
//! The rules for accepting exemplars follow Prometheus (`tsdb/exemplar.go`, 3.14).
//!
//! Invariants
//! 1. Both maps contain the same exemplars. A series without exemplars has no entry.
//! 2. The ring never has more than `n_max` exemplars, nor labels of more than `size_max` bytes or
//!    `n_max` times [`EXEMPLAR_LABELS_SIZE`], unless a single exemplar exceeds that size.
//! 3. An id is never reused.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use varve_model::labels::prometheus_hash;
use varve_model::{EXEMPLAR_LABELS_LEN_MAX, Exemplar, Labels};

use crate::batch::RejectExemplar;

/// Maximum bytes of labels in the ring, divided by its capacity in exemplars.
const EXEMPLAR_LABELS_SIZE: usize = 1024;

/// Statistics of the exemplar storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExemplarStats {
    /// Number of exemplars stored since the store was opened.
    pub n_appended: u64,
    /// Number of exemplars rejected as out of order since the store was opened.
    pub n_out_of_order: u64,
    /// Number of exemplars in the ring.
    pub n_stored: u64,
    /// Number of series with exemplars in the ring.
    pub n_series: u64,
    /// Capacity of the ring in exemplars.
    pub n_max: u64,
    /// Size of the labels of the exemplars and of their series in bytes.
    pub labels_size_bytes: u64,
    /// The timestamp of the exemplar that was stored first. `None` if the ring is empty.
    pub oldest_ms: Option<i64>,
}

/// The highest accepted id.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// The exemplars in memory.
#[derive(Debug)]
pub(crate) struct Ring {
    n_max: usize,
    size_max: usize,
    /// Exemplars by id, the oldest first.
    taken: BTreeMap<u64, Taken>,
    /// Timestamps and ids of the exemplars of each series. At one timestamp, ids ascend, because
    /// further exemplars are only accepted at the newest timestamp.
    series: HashMap<Labels, BTreeSet<(i64, u64)>>,
    /// The next id.
    next: u64,
    /// Bytes of all labels. The labels of a series count once.
    size: usize,
    n_appended: u64,
    n_out_of_order: u64,
}

#[derive(Debug)]
struct Taken {
    series: Labels,
    exemplar: Exemplar,
}

impl Ring {
    pub(crate) fn new(n_max: usize, size_max: usize) -> Self {
        Self {
            n_max,
            size_max: size_max.min(n_max.saturating_mul(EXEMPLAR_LABELS_SIZE)),
            taken: BTreeMap::new(),
            series: HashMap::new(),
            next: 0,
            size: 0,
            n_appended: 0,
            n_out_of_order: 0,
        }
    }

    /// Returns the number of exemplars.
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    /// Adds an exemplar. Returns its id, or `None` if the ring already has the exemplar.
    ///
    /// # Errors
    /// The reason why it is rejected.
    pub(crate) fn append(
        &mut self,
        series: Labels,
        exemplar: &Exemplar,
        window_ms: i64,
    ) -> Result<Option<u64>, RejectExemplar> {
        match self.check(&series, exemplar, window_ms) {
            Ok(Order::Repeated) => return Ok(None),
            Ok(Order::New) => {}
            Err(refused) => {
                self.n_out_of_order += u64::from(refused == RejectExemplar::OutOfOrder);
                return Err(refused);
            }
        }
        let number = self.next;
        self.insert(number, series, exemplar.clone());
        self.n_appended += 1;
        Ok(Some(number))
    }

    fn check(
        &self,
        series: &Labels,
        exemplar: &Exemplar,
        window_ms: i64,
    ) -> Result<Order, RejectExemplar> {
        let text_len = |text: &str| text.chars().count();
        if exemplar
            .labels
            .iter()
            .map(|(name, value)| text_len(name) + text_len(value))
            .sum::<usize>()
            > EXEMPLAR_LABELS_LEN_MAX
        {
            return Err(RejectExemplar::LabelsTooLong);
        }
        let Some(times) = self.series.get(series) else {
            return Ok(Order::New);
        };
        let (_, number) = times
            .last()
            .expect("a series without exemplars has no entry");
        let newest = &self.taken[number].exemplar;
        let time_ms = exemplar.timestamp_ms;
        let newest_ms = newest.timestamp_ms;
        if newest_ms == time_ms {
            if newest.value == exemplar.value && newest.labels == exemplar.labels {
                return Ok(Order::Repeated);
            }
            // At one timestamp (for example for the buckets of one histogram), exemplars must
            // arrive in the order of values, then labels. Labels are ordered by hash, as in
            // Prometheus.
            let is_before = exemplar.value < newest.value
                || exemplar.value == newest.value
                    && prometheus_hash(&exemplar.labels) < prometheus_hash(&newest.labels);
            return if is_before {
                Err(RejectExemplar::OutOfOrder)
            } else {
                Ok(Order::New)
            };
        }
        if time_ms < newest_ms && time_ms <= newest_ms.saturating_sub(window_ms) {
            return Err(RejectExemplar::OutOfOrder);
        }
        // A series has at most one out-of-order exemplar per timestamp: the first one.
        let is_taken = time_ms < newest_ms
            && times
                .range((time_ms, 0)..=(time_ms, u64::MAX))
                .next()
                .is_some();
        Ok(if is_taken {
            Order::Repeated
        } else {
            Order::New
        })
    }

    /// Returns `true` if the exemplar with this id must be restored: the ring does not have it, and
    /// it is not the oldest of a full ring.
    pub(crate) fn has_room_for(&mut self, number: u64) -> bool {
        // Rejects the highest id, which no store reaches, because there must always be a next id.
        if number > NUMBER_MAX {
            return false;
        }
        self.next = self.next.max(number + 1);
        let is_forgotten = self.len() >= self.n_max
            && self.taken.keys().next().is_none_or(|&first| number < first);
        !is_forgotten && !self.taken.contains_key(&number)
    }

    /// Raises the next id.
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.next = self.next.max(number);
    }

    /// Restores an exemplar from a log. If it arrived again during the replay, keeps the newer
    /// copy.
    pub(crate) fn restore(&mut self, number: u64, series: Labels, exemplar: Exemplar) {
        match self.find_same(&series, &exemplar) {
            Some(newer) if newer > number => return,
            Some(older) => self.forget(older),
            None => {}
        }
        self.insert(number, series, exemplar);
    }

    fn find_same(&self, series: &Labels, exemplar: &Exemplar) -> Option<u64> {
        let time_ms = exemplar.timestamp_ms;
        let mut at_time = self
            .series
            .get(series)?
            .range((time_ms, 0)..=(time_ms, u64::MAX));
        let same = at_time.find(|(_, number)| {
            let known = &self.taken[number].exemplar;
            known.value == exemplar.value && known.labels == exemplar.labels
        });
        same.map(|&(_, number)| number)
    }

    /// Inserts an exemplar with a new id, and evicts the oldest while the ring is over its limits.
    pub(crate) fn insert(&mut self, number: u64, series: Labels, exemplar: Exemplar) {
        // Uses the copy of the labels that the ring has for the series.
        let series = self
            .series
            .get_key_value(&series)
            .map_or(series, |(known, _)| known.clone());
        self.next = self.next.max(number + 1);
        self.size += exemplar.labels.size();
        if !self.series.contains_key(&series) {
            self.size += series.size();
        }
        self.series
            .entry(series.clone())
            .or_default()
            .insert((exemplar.timestamp_ms, number));
        self.taken.insert(number, Taken { series, exemplar });
        while self.len() > self.n_max || self.size > self.size_max && self.len() > 1 {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(&number) = self.taken.keys().next() {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(Taken { series, exemplar }) = self.taken.remove(&number) else {
            return;
        };
        self.size -= exemplar.labels.size();
        let times = self.series.get_mut(&series).expect("both halves have it");
        times.remove(&(exemplar.timestamp_ms, number));
        if times.is_empty() {
            self.size -= series.size();
            self.series.remove(&series);
        }
    }

    /// Iterates over the series, in no particular order, each with its exemplars and their ids in
    /// order of time.
    pub(crate) fn series(
        &self,
    ) -> impl Iterator<Item = (&Labels, impl Iterator<Item = (u64, &Exemplar)>)> {
        self.series.iter().map(move |(labels, times)| {
            let exemplars = times.iter().map(|(_, number)| {
                let taken = &self.taken[number];
                (*number, &taken.exemplar)
            });
            (labels, exemplars)
        })
    }

    pub(crate) fn stats(&self) -> ExemplarStats {
        ExemplarStats {
            n_appended: self.n_appended,
            n_out_of_order: self.n_out_of_order,
            n_stored: self.len() as u64,
            n_series: self.series.len() as u64,
            n_max: self.n_max as u64,
            labels_size_bytes: self.size as u64,
            oldest_ms: self
                .taken
                .values()
                .next()
                .map(|first| first.exemplar.timestamp_ms),
        }
    }
}

/// The order of an exemplar relative to the other exemplars of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    New,
    Repeated,
}

#[cfg(test)]
mod tests;
