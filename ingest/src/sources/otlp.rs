//! OTLP requests: series that `varve-otlp` translates go to a batch, and what it rejects is
//! counted.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use varve_context::{Limit, MemoryBudget, QueryContext};
use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;
use varve_model::{Labels, RejectionReason, StoredSeries, TenantLabels};
use varve_otlp::{Position, RequestDeltas, Sink};
use varve_tsdb::bounds::Bounds;
use varve_tsdb::{Db, ReadContext};

use super::batch_builder::BatchBuilder;
use crate::admission::{Origin, Permit};
use crate::batch::RouteKey;
use crate::compression::Compression;
use crate::error::WriteError;
use crate::label_set::excerpt;
use crate::outcome::{Example, PointCounts, Rejections, Written};
use crate::receiver::Receiver;
use crate::write::buffers::Buffers;
use crate::write::{Decoded, RejectedSamples, Write};

/// The encoding of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// Protobuf.
    Protobuf,
    /// JSON.
    Json,
}

/// Puts the series of a request into a batch.
#[derive(Debug)]
pub(crate) struct OtlpSink<'a, 'p> {
    pub(crate) batch: BatchBuilder<'a, 'p>,
    pub(crate) rejections: Rejections,
    /// Bounds for the timestamps of deltas; `None` if the store has none.
    pub(crate) bounds: Option<Bounds>,
    /// Maximum number of labels of a series, without those of the tenant.
    labels_max: usize,
    /// `None` in tests.
    lookup: Option<Lookup<'a>>,
    /// The samples of each data point in the batch.
    points: Vec<Range<Position>>,
    /// Number of data points that are not in the batch.
    n_rejected: u64,
}

/// Looks up what the store has of a tenant's series.
#[derive(Debug)]
struct Lookup<'a> {
    db: &'a Db,
    tenant: &'a TenantLabels,
    ctx: ReadContext,
}

impl<'a> Lookup<'a> {
    fn new(db: &'a Db, tenant: &'a TenantLabels) -> Self {
        let memory = MemoryBudget::new(Limit::Other("memory of lookups"), LOOKUPS_SIZE_MAX);
        let ctx = ReadContext::unrestricted(QueryContext::new(LOOKUPS_TIMEOUT, memory));
        Self { db, tenant, ctx }
    }
}

impl<'a, 'p> OtlpSink<'a, 'p> {
    fn new(batch: BatchBuilder<'a, 'p>, bounds: Option<Bounds>, labels_max: usize) -> Self {
        Self {
            batch,
            rejections: Rejections::default(),
            bounds,
            labels_max,
            lookup: None,
            points: Vec::new(),
            n_rejected: 0,
        }
    }

    /// Returns the reason why the store rejects all samples of a time, if it does.
    fn rejection_of(&self, timestamp_ms: i64) -> Option<RejectionReason> {
        self.bounds?.first_sample_rejection(timestamp_ms)
    }
}

impl Sink for OtlpSink<'_, '_> {
    type Error = WriteError;
    type Key = RouteKey;

    fn series<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Result<RouteKey, WriteError> {
        self.batch.series(labels)
    }

    fn sample(&mut self, timestamp_ms: i64, value: f64, start_ms: i64) -> Result<(), WriteError> {
        self.batch.sample(timestamp_ms, value, start_ms)
    }

    fn histogram(
        &mut self,
        timestamp_ms: i64,
        histogram: Histogram,
        start_ms: i64,
    ) -> Result<(), WriteError> {
        self.batch.histogram(timestamp_ms, histogram, start_ms)
    }

    fn exemplar<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), WriteError> {
        self.batch.exemplar(labels, value, timestamp_ms)
    }

    fn end_series(&mut self) -> Result<(), WriteError> {
        self.batch.end_series()
    }

    fn family(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        unit: &str,
    ) -> Result<(), WriteError> {
        self.batch.family(name, kind, help, unit)
    }

    fn reserve(&mut self, size: usize) -> Result<(), WriteError> {
        self.batch.grow(size)
    }

    /// Relabel rules are not applied: a series that they rename has no earlier total here.
    fn stored<'l>(
        &self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        timestamp_ms: i64,
    ) -> Result<StoredSeries, WriteError> {
        let Some(Lookup { db, tenant, ctx }) = &self.lookup else {
            return Ok(StoredSeries::default());
        };
        let mut pairs: Vec<(&str, &str)> = tenant.iter().collect();
        for (name, value) in labels {
            if tenant.get(name).is_none() {
                pairs.push((name, value));
            }
        }
        // Such a series cannot be stored.
        let Ok(labels) = Labels::from_unsorted(&mut pairs) else {
            return Ok(StoredSeries::default());
        };
        Ok(db.stored_series(ctx, &labels, timestamp_ms)?)
    }

    fn labels_max(&self) -> usize {
        self.labels_max
    }

    fn position(&self) -> Position {
        let (n_floats, n_histograms) = self.batch.n_samples();
        Position {
            n_floats,
            n_histograms,
        }
    }

    fn takes_time(&self, timestamp_ms: i64) -> bool {
        self.rejection_of(timestamp_ms).is_none()
    }

    fn reject_time(&mut self, metric: &str, timestamp_ms: i64) {
        let Some(reason) = self.rejection_of(timestamp_ms) else {
            return;
        };
        self.n_rejected += 1;
        let bounds = self.bounds;
        self.rejections.add(reason, 1, 1, || {
            let metric = excerpt(metric.as_bytes());
            let example = Example {
                text: format!("metric {metric:?}: delta at {timestamp_ms}"),
                timestamp_ms: Some(timestamp_ms),
                ..Example::default()
            };
            example.out_of(bounds, reason)
        });
    }

    fn reject(&mut self, n_points: u64, reason: String) {
        self.n_rejected += n_points;
        self.rejections.add(
            RejectionReason::Untranslatable,
            n_points.max(1),
            n_points,
            || reason,
        );
    }

    fn reject_point(&mut self, metric: &str, reason: &str) {
        self.n_rejected += 1;
        self.rejections
            .add(RejectionReason::Untranslatable, 1, 1, || {
                format!("metric {:?}: {reason}", excerpt(metric.as_bytes()))
            });
    }

    fn reject_info(&mut self, reason: String) {
        self.rejections
            .add(RejectionReason::Untranslatable, 1, 1, || reason);
    }

    fn end_point(&mut self, samples: Range<Position>) -> Result<(), WriteError> {
        // The list grows by doubling.
        self.batch.grow(2 * size_of::<Range<Position>>())?;
        self.points.push(samples);
        Ok(())
    }
}

impl Receiver {
    /// Writes an OTLP export request of metrics, compressed or not.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_otlp(
        &self,
        origin: &Origin<'_>,
        encoding: OtlpEncoding,
        compression: Compression,
        body: &[u8],
    ) -> Result<Written, WriteError> {
        self.counted(body, |buffers| {
            self.limits.check_body(body.len())?;
            let mut permit = self.admission.admit(origin, body.len(), body.len())?;
            let mut message = compression.decompress(body, &self.limits, &mut permit.memory)?;
            if encoding == OtlpEncoding::Json {
                message = varve_otlp::transcode(
                    &message,
                    &|size| self.limits.check_decompressed(size as u64),
                    &mut |size| permit.memory.grow(size),
                )?;
            }
            self.store_otlp(origin, permit, &message, buffers)
        })
    }

    /// Writes an OTLP export request of metrics that came over gRPC. `read` returns the message in
    /// `body`, decompressed into a buffer if necessary.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_otlp_call(
        &self,
        origin: &Origin<'_>,
        body: &[u8],
        read: impl for<'a> FnOnce(&'a [u8], &'a mut Vec<u8>) -> Result<&'a [u8], WriteError>,
    ) -> Result<Written, WriteError> {
        self.counted(body, |buffers| {
            let mut buffer = Vec::new();
            let message = read(body, &mut buffer)?;
            let permit = self.admission.admit(origin, message.len(), message.len())?;
            self.store_otlp(origin, permit, message, buffers)
        })
    }

    /// Translates and stores a message in protobuf.
    fn store_otlp(
        &self,
        origin: &Origin<'_>,
        mut permit: Permit<'_>,
        message: &[u8],
        buffers: &mut Buffers,
    ) -> Result<Written, WriteError> {
        let settings = Arc::clone(&self.otlp.read());
        let tenant = TenantLabels::new(origin.labels);
        let mut deltas = RequestDeltas::new(&self.delta_streams, &tenant, settings.late_delta_max);
        let batch = self.builder(&mut buffers.batch, &mut buffers.message, &mut permit);
        let of_all = self.limits.labels_per_series_max;
        let labels_max = of_all.saturating_sub(origin.labels.len());
        let mut sink = OtlpSink::new(batch, self.db.bounds().ok(), labels_max);
        sink.lookup = Some(Lookup::new(&self.db, &tenant));
        let translated = match varve_otlp::translate(message, &settings, &mut deltas, &mut sink) {
            Ok(translated) => translated,
            Err(error) => {
                deltas.roll_back_all();
                return Err(error);
            }
        };
        self.counters.record_otlp_warnings(translated.warnings);

        let OtlpSink {
            points,
            n_rejected,
            rejections,
            ..
        } = sink;
        let decoded = Decoded {
            rejections,
            message: &buffers.message,
            batch: &buffers.batch,
        };
        let write = Write::of_sender(self, permit, decoded, &mut buffers.request)
            .and_then(Write::noting_rejected);
        let write = match write {
            Ok(write) => write,
            Err(error) => {
                deltas.roll_back_all();
                return Err(error);
            }
        };
        let (outcome, rejected) = write.store_noting_rejected();
        let n_floats = buffers.batch.n_samples();
        deltas.roll_back(|samples| rejected.contains_all(samples, n_floats));
        let mut counts = rejected.count_points(&points, n_floats);
        counts.sent += n_rejected;
        counts.rejected += n_rejected;
        outcome.map(|mut written| {
            if translated.merges_scopes {
                written
                    .rejections
                    .explain(RejectionReason::Duplicate, MERGED_SCOPES);
            }
            written.points = Some(counts);
            written
        })
    }
}

/// Maximum memory of the lookups of a request.
const LOOKUPS_SIZE_MAX: usize = 16 << 20;
/// Maximum time of the lookups of a request. The first waits for the replay of the WAL.
const LOOKUPS_TIMEOUT: Duration = Duration::from_secs(5);

/// What a duplicate of a request with several scopes may come from.
const MERGED_SCOPES: &str =
    "; if several scopes have the metric, otlp.promote_scope_metadata tells them apart";

impl RejectedSamples {
    /// Returns `true` if no sample of a data point is stored. `n_floats` is that of the
    /// request.
    fn contains_all(&self, samples: &Range<Position>, n_floats: usize) -> bool {
        indexes(samples, n_floats)
            .into_iter()
            .flatten()
            .all(|index| self.contains(index))
    }

    /// Counts data points that are in the batch.
    fn count_points(&self, points: &[Range<Position>], n_floats: usize) -> PointCounts {
        let rejected = points
            .iter()
            .filter(|samples| self.contains_any(samples, n_floats));
        PointCounts {
            sent: points.len() as u64,
            rejected: rejected.count() as u64,
        }
    }

    /// Returns `true` if a sample of a data point is not stored.
    fn contains_any(&self, samples: &Range<Position>, n_floats: usize) -> bool {
        indexes(samples, n_floats)
            .into_iter()
            .any(|range| self.has_one_of(range))
    }
}

/// Returns the indexes of the samples of a data point in a request with `n_floats` floats.
fn indexes(samples: &Range<Position>, n_floats: usize) -> [Range<usize>; 2] {
    let Range { start, end } = samples;
    [
        start.n_floats..end.n_floats,
        n_floats + start.n_histograms..n_floats + end.n_histograms,
    ]
}

#[cfg(test)]
mod tests {
    use varve_otlp::{DeltaStreams, OtlpSettings};

    use super::*;
    use crate::admission::memory::Memory;
    use crate::batch::{DecodedBatch, RouteHasher};
    use crate::limits::Limits;

    const REQUEST: &str = r#"{"resourceMetrics":[{
        "resource":{"attributes":[
            {"key":"service.name","value":{"stringValue":"shop"}}, {"key":"a","value":{"stringValue":"b"}}
        ]},
        "scopeMetrics":[{"metrics":[
            {"name":"m","gauge":{"dataPoints":[{"timeUnixNano":0,"asInt":1},{"timeUnixNano":1000000000000,"asInt":2}]}},
            {"name":"d","sum":{"aggregationTemporality":1,"dataPoints":[{"asInt":1},{"asInt":2}]}},
            {"name":"h","histogram":{"aggregationTemporality":2,"dataPoints":[
                {"count":1,"bucketCounts":[1],"exemplars":[{}]}
            ]}}
        ]}]
    }]}"#;

    #[test]
    fn series_go_to_the_batch_and_rejected_points_are_counted() {
        let memory = Memory::new(1 << 30);
        let hasher = RouteHasher::new();
        let limits = Limits::for_tests();
        let mut batch = DecodedBatch::default();
        let mut text = Vec::new();
        let mut memory = memory.reserve(0).unwrap();
        let to = BatchBuilder::new(&mut batch, &mut text, &mut memory, &hasher, &limits);
        let mut sink = OtlpSink::new(to, None, 128);
        let message =
            varve_otlp::transcode::<WriteError>(REQUEST.as_bytes(), &|_| Ok(()), &mut |_| Ok(()))
                .unwrap();
        let streams = DeltaStreams::default();
        let tenant = TenantLabels::default();
        varve_otlp::translate(
            &message,
            &OtlpSettings::default(),
            &mut RequestDeltas::new(&streams, &tenant, Duration::ZERO),
            &mut sink,
        )
        .unwrap();
        let rejections = sink.rejections;
        let labels = |idx: usize| {
            crate::label_set::print(crate::sources::remote_write::label_pairs(
                &batch,
                &text,
                batch.series[idx].labels,
            ))
        };
        assert_eq!(labels(0), r#"{__name__="m", job="shop"}"#);
        assert_eq!(labels(2), r#"{__name__="target_info", a="b", job="shop"}"#);
        assert_eq!((batch.n_series(), rejections.n_samples()), (3, 3));
        let first = "invalid temporality and type combination for metric \"d\"";
        assert!(rejections.to_string().contains(first), "{rejections}");
    }

    #[test]
    fn reserved_memory_is_limited_and_long_names_are_cut_in_examples() {
        let memory = Memory::new(100);
        let hasher = RouteHasher::new();
        let limits = Limits::for_tests();
        // A request that runs alone may reserve more.
        let _other = memory.reserve(1).unwrap();
        let mut memory = memory.reserve(0).unwrap();
        let mut batch = DecodedBatch::default();
        let mut text = Vec::new();
        let to = BatchBuilder::new(&mut batch, &mut text, &mut memory, &hasher, &limits);
        let mut sink = OtlpSink::new(to, None, 128);
        sink.reserve(99).unwrap();
        assert!(matches!(sink.reserve(1), Err(WriteError::Busy { .. })));
        sink.reject_point(&"x".repeat(9999), "no");
        assert!(
            sink.rejections.to_string().contains("xxx...\": no"),
            "{}",
            sink.rejections
        );
    }
}
