//! Metrics of object storage: its operations, and the uploads of blocks.

use std::time::Instant;

use anyhow::Result;
use prometheus::{Gauge, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry};
use varve_system::metrics::Registrar;

/// Bucket bounds of `varve_objstore_operation_duration_seconds`.
const OPERATION_SECONDS: [f64; 6] = [0.01, 0.1, 1.0, 10.0, 60.0, 300.0];

/// The metrics. Clones share them.
#[derive(Debug, Clone)]
pub struct ObjstoreMetrics {
    pub(crate) seconds: HistogramVec,
    pub(crate) failures: IntCounterVec,
    pub(crate) retries: IntCounter,
    pub(crate) sent_bytes: IntCounter,
    pub(crate) received_bytes: IntCounter,
    pub(crate) uploads: UploadMetrics,
}

/// Metrics of uploads.
#[derive(Debug, Clone)]
pub(crate) struct UploadMetrics {
    pub(crate) blocks: IntCounter,
    pub(crate) failures: IntCounter,
    /// Settled windows that are not in the bucket.
    pub(crate) pending: IntGauge,
    /// Timestamp in seconds before which all settled windows are in the bucket.
    pub(crate) uploaded_until: Gauge,
    /// Local blocks removed because the bucket has their samples.
    pub(crate) removed: IntCounter,
}

impl ObjstoreMetrics {
    /// Creates the metrics, at zero.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            seconds: registrar.histograms(
                "varve_objstore_operation_duration_seconds",
                &OPERATION_SECONDS,
            )?,
            failures: registrar.counters("varve_objstore_operation_failures_total")?,
            retries: registrar.counter("varve_objstore_retries_total")?,
            sent_bytes: registrar.counter("varve_objstore_sent_bytes_total")?,
            received_bytes: registrar.counter("varve_objstore_received_bytes_total")?,
            uploads: UploadMetrics {
                blocks: registrar.counter("varve_uploads_blocks_total")?,
                failures: registrar.counter("varve_uploads_failures_total")?,
                pending: registrar.gauge("varve_uploads_pending_blocks")?,
                uploaded_until: registrar.float_gauge("varve_uploads_until_timestamp_seconds")?,
                removed: registrar.counter("varve_uploads_local_blocks_removed_total")?,
            },
        })
    }

    /// Returns metrics that no registry has, for tools.
    pub fn unregistered() -> Self {
        Self::new(&Registrar(&Registry::new())).expect("its names are valid and differ")
    }

    /// Runs an operation, and counts it.
    pub(super) fn observe<T>(&self, operation: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = run();
        self.seconds
            .with_label_values(&[operation])
            .observe(started.elapsed().as_secs_f64());
        if result.is_err() {
            self.failures.with_label_values(&[operation]).inc();
        }
        result
    }

    pub(super) fn count_sent(&self, size: usize) {
        self.sent_bytes.inc_by(size as u64);
    }

    pub(super) fn count_received(&self, size: usize) {
        self.received_bytes.inc_by(size as u64);
    }
}
