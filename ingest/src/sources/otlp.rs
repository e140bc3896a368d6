//! OTLP requests: series that `varve-otlp` translates go to a batch, and what it rejects is
//! counted.

use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;
use varve_otlp::Sink;

use crate::batch::{BatchBuilder, RouteKey};
use crate::error::WriteError;
use crate::label_set::excerpt;
use crate::outcome::{Reason, Rejections};

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

    fn reject(&mut self, n_points: u64, reason: String) {
        self.rejections
            .add(Reason::Untranslatable, n_points.max(1), n_points, || reason);
    }

    fn reject_point(&mut self, metric: &str, reason: &str) {
        let example = || format!("metric {:?}: {reason}", excerpt(metric.as_bytes()));
        self.rejections.add(Reason::Untranslatable, 1, 1, example);
    }
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
        let (memory, hasher, limits) =
            (Memory::new(1 << 30), RouteHasher::new(), Limits::default());
        let (mut batch, mut text, mut memory) = (
            DecodedBatch::default(),
            Vec::new(),
            memory.reserve(0).unwrap(),
        );
        let to = BatchBuilder::new(&mut batch, &mut text, &mut memory, &hasher, &limits);
        let mut sink = OtlpSink {
            batch: to,
            rejections: Rejections::default(),
        };
        let message =
            varve_otlp::transcode::<WriteError>(REQUEST.as_bytes(), &|_| Ok(()), &mut |_| Ok(()))
                .unwrap();
        varve_otlp::translate(
            &message,
            &OtlpSettings::default(),
            &DeltaStreams::default(),
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
        let (memory, hasher, limits) = (Memory::new(100), RouteHasher::new(), Limits::default());
        // A request that runs alone may reserve more.
        let (_other, mut memory) = (memory.reserve(1).unwrap(), memory.reserve(0).unwrap());
        let (mut batch, mut text) = (DecodedBatch::default(), Vec::new());
        let to = BatchBuilder::new(&mut batch, &mut text, &mut memory, &hasher, &limits);
        let mut sink = OtlpSink {
            batch: to,
            rejections: Rejections::default(),
        };
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
