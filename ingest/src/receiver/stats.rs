//! Counters of ingestion.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use varve_context::Limit;
use varve_model::RejectionReason;
use varve_otlp::WarningCounts;
use varve_tsdb::Error;

use crate::admission::{AdmissionStats, Exhausted};
use crate::error::WriteError;
use crate::outcome::{ExemplarCounts, Written};
use crate::route::RouteStats;

/// The counters of a [`Receiver`](crate::Receiver) since its creation, and its current state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IngestStats {
    /// Requests that were stored completely.
    pub requests_stored: u64,
    /// Requests of which a part was rejected, for reasons in `rejected`.
    pub requests_partial: u64,
    /// Requests rejected as malformed.
    pub requests_malformed: u64,
    /// Requests rejected as too large.
    pub requests_too_large: u64,
    /// Requests rejected because no memory was free.
    pub requests_busy: u64,
    /// Requests that were rejected, in whole or in part, because a resource was exhausted.
    pub requests_throttled: BTreeMap<Exhausted, u64>,
    /// Requests that the store rejected, or during which it failed.
    pub requests_failed: u64,
    /// Bytes of request bodies as received.
    pub received_bytes: u64,
    /// Samples of requests that were stored, including exact duplicates. This and the next two
    /// counters include histograms.
    pub samples_stored: u64,
    /// Samples that relabel rules dropped.
    pub samples_dropped: u64,
    /// Samples of HA standbys.
    pub samples_deduplicated: u64,
    /// The outcome of exemplars.
    pub exemplars: ExemplarCounts,
    /// Rejected samples of partial requests by reason. Reasons that concern no samples count their
    /// own unit, such as metric families.
    pub rejected: BTreeMap<RejectionReason, u64>,
    /// The route cache.
    pub route: RouteStats,
    /// Bytes of memory of buffers that are kept for later requests.
    pub pooled_bytes: u64,
    /// Warnings of translations of OTLP requests.
    pub otlp_warnings: WarningCounts,
    /// Streams of OTLP deltas that are added up.
    pub delta_streams: u64,
    /// OTLP deltas that arrived after a later one of their stream, and were added.
    pub late_deltas: u64,
    /// The resources that requests hold now.
    pub admission: AdmissionStats,
}

/// The counters behind one lock, which each request takes once, briefly.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<IngestStats>);

impl IngestStats {
    fn add(&mut self, written: &Written) {
        self.samples_stored += written.stored.total;
        self.samples_dropped += written.dropped.total;
        self.samples_deduplicated += written.deduplicated.total;
        self.exemplars.add(&written.exemplars);
        for reject in written.rejections.iter().chain(written.ignored.iter()) {
            let n = if reject.counts_samples() {
                reject.n_samples
            } else {
                reject.count
            };
            *self.rejected.entry(reject.reason).or_default() += n;
        }
    }
}

impl Counters {
    /// Counts a request.
    pub(crate) fn record(&self, body_size: usize, outcome: &Result<Written, WriteError>) {
        let stats = &mut *self.0.lock();
        stats.received_bytes += body_size as u64;
        let requests = match outcome.as_ref().map_err(WriteError::cause) {
            Ok(written) => {
                stats.add(written);
                if written.rejections.is_empty() {
                    &mut stats.requests_stored
                } else {
                    &mut stats.requests_partial
                }
            }
            Err(WriteError::Malformed(_)) => &mut stats.requests_malformed,
            Err(WriteError::TooLarge { .. }) => &mut stats.requests_too_large,
            Err(
                WriteError::Busy { .. }
                | WriteError::NoLeaderYet { .. }
                | WriteError::Store(Error::Limit {
                    what: Limit::HeadMemory,
                    ..
                }),
            ) => &mut stats.requests_busy,
            Err(WriteError::Throttled { resource, .. }) => {
                stats.requests_throttled.entry(*resource).or_default()
            }
            Err(WriteError::Moved | WriteError::Store(_) | WriteError::PartialImport { .. }) => {
                &mut stats.requests_failed
            }
        };
        *requests += 1;
    }

    /// Counts the warnings of the translation of an OTLP request.
    pub(crate) fn record_otlp_warnings(&self, warnings: WarningCounts) {
        // Fast path: most requests have none.
        if warnings == WarningCounts::default() {
            return;
        }
        let total = &mut self.0.lock().otlp_warnings;
        total.label_name_collisions += warnings.label_name_collisions;
        total.zero_counts_with_sum += warnings.zero_counts_with_sum;
        total.cut_target_infos += warnings.cut_target_infos;
    }

    /// Counts what a request stored and rejected before it failed.
    pub(crate) fn record_partial(&self, written: &Written) {
        self.0.lock().add(written);
    }

    pub(crate) fn read(&self, route: RouteStats, admission: AdmissionStats) -> IngestStats {
        IngestStats {
            route,
            admission,
            ..self.0.lock().clone()
        }
    }
}
