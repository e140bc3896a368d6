//! Counters of ingestion.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::admission::TurnStats;
use crate::error::{Scarce, WriteError};
use crate::outcome::{ExemplarCounts, Reason, Rejects, Written};
use crate::route::RouteStats;

/// What a [`Receiver`](crate::Receiver) has done since it was made, and what it holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests of which all was stored.
    pub requests_stored: u64,
    /// Requests of which a part was not stored, for reasons in `rejected`.
    pub requests_partial: u64,
    /// Requests refused whole as malformed.
    pub requests_malformed: u64,
    /// Requests refused whole as too large.
    pub requests_too_large: u64,
    /// Requests refused for want of room, to come again.
    pub requests_busy: u64,
    /// Requests of which a part has to come again because something was scarce, by what.
    pub requests_throttled: BTreeMap<Scarce, u64>,
    /// Requests that the store failed or refused, to come again.
    pub requests_failed: u64,
    /// Bytes of request bodies as they came.
    pub received_bytes: u64,
    /// Samples stored, floats and histograms, exact repetitions included.
    pub samples_stored: u64,
    /// Samples that rules have dropped, floats and histograms.
    pub samples_dropped: u64,
    /// Samples left out because another replica of their HA pair leads, floats and histograms.
    pub samples_left_out: u64,
    /// What became of exemplars.
    pub exemplars: ExemplarCounts,
    /// What was not stored of requests that were not refused whole: samples, or what the reason counts where it costs no
    /// samples (metric families).
    pub rejected: BTreeMap<Reason, u64>,
    /// The route cache.
    pub route: RouteStats,
    /// Bytes held by requests now.
    pub in_flight_bytes: u64,
    /// Requests that make series or wait now.
    pub turns: TurnStats,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    stored: AtomicU64,
    partial: AtomicU64,
    malformed: AtomicU64,
    too_large: AtomicU64,
    busy: AtomicU64,
    failed: AtomicU64,
    received_bytes: AtomicU64,
    samples_stored: AtomicU64,
    samples_dropped: AtomicU64,
    samples_left_out: AtomicU64,
    /// A lock will do: only requests with exemplars take it.
    exemplars: Mutex<ExemplarCounts>,
    /// A lock will do: only requests that have waited take it.
    throttled: Mutex<BTreeMap<Scarce, u64>>,
    /// A lock will do: only requests with rejects take it.
    rejected: Mutex<BTreeMap<Reason, u64>>,
}

impl Counters {
    /// Counts a request by how it ended.
    pub(crate) fn note(&self, body_size: usize, outcome: &Result<Written, WriteError>) {
        add(&self.received_bytes, body_size as u64);
        let requests = match outcome.as_ref().map_err(WriteError::cause) {
            Ok(written) => {
                add(&self.samples_stored, written.samples_stored);
                add(&self.samples_dropped, written.samples_dropped);
                add(&self.samples_left_out, written.samples_left_out);
                self.note_exemplars(&written.exemplars);
                self.note_rejects(&written.rejects);
                self.note_rejects(&written.ignored);
                if written.rejects.is_empty() { &self.stored } else { &self.partial }
            }
            Err(WriteError::Malformed(_)) => &self.malformed,
            Err(WriteError::TooLarge { .. }) => &self.too_large,
            Err(WriteError::Busy { .. }) => &self.busy,
            Err(WriteError::Throttled { scarce, .. }) => {
                *self.throttled.lock().unwrap_or_else(PoisonError::into_inner).entry(*scarce).or_default() += 1;
                return;
            }
            Err(WriteError::Moved | WriteError::Store(_) | WriteError::Cut { .. }) => &self.failed,
        };
        add(requests, 1);
    }

    fn note_exemplars(&self, exemplars: &ExemplarCounts) {
        if *exemplars != ExemplarCounts::default() {
            self.exemplars.lock().unwrap_or_else(PoisonError::into_inner).add(exemplars);
        }
    }

    fn note_rejects(&self, rejects: &Rejects) {
        if rejects.is_empty() {
            return;
        }
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        for reject in rejects.iter() {
            let is_of_samples = reject.reason.is_of_samples();
            *rejected.entry(reject.reason).or_default() += if is_of_samples { reject.n_samples } else { reject.count };
        }
    }

    pub(crate) fn read(&self, route: RouteStats, in_flight_bytes: u64, turns: TurnStats) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            requests_stored: read(&self.stored),
            requests_partial: read(&self.partial),
            requests_malformed: read(&self.malformed),
            requests_too_large: read(&self.too_large),
            requests_busy: read(&self.busy),
            requests_throttled: self.throttled.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            requests_failed: read(&self.failed),
            received_bytes: read(&self.received_bytes),
            samples_stored: read(&self.samples_stored),
            samples_dropped: read(&self.samples_dropped),
            samples_left_out: read(&self.samples_left_out),
            exemplars: self.exemplars.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            rejected: self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            route,
            in_flight_bytes,
            turns,
        }
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
