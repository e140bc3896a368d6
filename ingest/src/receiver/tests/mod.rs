//! Tests of the receiver, one file per subject. This file has the fixture.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;
use varve_env::testing::MemFs;
use varve_model::histogram::{HistogramCounts, ResetHint};
use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{Labels, Matcher, RejectionReason, Sample, SampleColumns, TimeRange};
use varve_tsdb::{Options, ReadContext};

use std::time::{Duration, Instant};

use super::*;
use crate::admission::{Origin, Team};
use crate::batch::Version;
use crate::error::Malformed;
use crate::outcome::{ExemplarRejection, SampleCounts};
use crate::relabel::{Attribution, RelabelConfig};
use crate::route::{Route, Scope};
use crate::sender_labels::SenderLabels;
use crate::sources::remote_write::message::{
    BucketSpan, Exemplar, Histogram, Label, MetricMetadata, TimeSeries, WriteRequest, series,
};
use crate::sources::remote_write::v1;

mod admission;
mod deltas;
mod disable_on_use;
mod exemplars_and_metadata;
mod ha;
mod refused;
mod rules;
mod samples;
mod series;
mod tenants;

/// A receiver with its own store.
struct Fixture {
    receiver: Receiver,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new(limits: Limits) -> Self {
        Self::on(Options::default(), limits)
    }

    fn on(options: Options, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(
            dir.path(),
            Options {
                shards: 2,
                out_of_order_window_ms: 0,
                ..options
            },
        )
        .unwrap();
        Self {
            receiver: Receiver::new(Arc::new(db), limits),
            _dir: dir,
        }
    }

    fn write(&self, timeseries: &[TimeSeries]) -> Result<Written, WriteError> {
        self.write_message(&request(timeseries))
    }

    fn write_message(&self, message: &[u8]) -> Result<Written, WriteError> {
        self.receiver
            .write(&Origin::default(), Version::V1, &pack(message))
    }

    /// Writes series that must be stored completely.
    fn stored(&self, timeseries: &[TimeSeries]) {
        let written = self.write(timeseries).unwrap();
        assert!(written.rejections.is_empty(), "{}", written.rejections);
    }

    /// Returns the selected series that have samples, ascending by their labels.
    fn select(&self, matchers: &[Matcher]) -> Vec<(Labels, SampleColumns)> {
        let found = self
            .receiver
            .db
            .select(&ReadContext::unbounded(), matchers, TimeRange::ALL)
            .unwrap();
        let read = |series: varve_tsdb::Result<varve_tsdb::select::Series>| {
            let series = series.unwrap();
            let mut columns = SampleColumns::default();
            series.read(&mut columns).unwrap();
            (series.labels().clone(), columns)
        };
        let mut all: Vec<_> = found
            .map(read)
            .filter(|(_, columns)| !columns.is_empty())
            .collect();
        all.sort_by_key(|(labels, _)| labels.to_string());
        all
    }

    /// Returns all series with their samples as timestamp and bits.
    fn contents(&self) -> Vec<(String, Vec<(i64, u64)>)> {
        let bits = |sample: Sample| (sample.timestamp_ms, sample.value.to_bits());
        let all = self.select(&[]).into_iter();
        all.map(|(labels, columns)| (labels.to_string(), columns.iter().map(bits).collect()))
            .collect()
    }

    /// Caches a route of the series `timeseries[series_idx]` to a place in memory that it does not
    /// have: the series has moved, or was evicted.
    fn cache_outdated_route(
        &self,
        timeseries: &[TimeSeries],
        series_idx: usize,
        attribution: Attribution,
    ) {
        let other = Self::new(Limits::for_tests());
        for n in 0..100 {
            other.stored(&[up(&n.to_string(), &[(T, 1.0)])]);
        }
        let labels = Labels::from_pairs([("__name__", "up"), ("job", "99")]).unwrap();
        let outdated = other.receiver.db.series(&labels).unwrap();

        let Receiver { hasher, routes, .. } = &self.receiver;
        let mut batch = DecodedBatch::default();
        v1::decode(
            &request(timeseries),
            hasher,
            &Limits::for_tests(),
            &mut batch,
        )
        .unwrap();
        let scope = Scope::new(
            hasher,
            self.receiver.relabeling().generation,
            0,
            self.receiver.admission.budgets().generation(),
            Team::NONE,
        );
        let sent = batch.series[series_idx].key.unwrap();
        let key = SenderLabels::new(None, &[], hasher).cache_key(sent, scope);
        routes.insert(&[(key, Route::Series(outdated, attribution))]);
    }

    fn n_series(&self) -> u64 {
        self.receiver.db.stats().n_series
    }
}

fn pack(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

fn request(timeseries: &[TimeSeries]) -> Vec<u8> {
    WriteRequest {
        timeseries: timeseries.to_vec(),
        ..WriteRequest::default()
    }
    .encode_to_vec()
}

fn up(job: &str, samples: &[(i64, f64)]) -> TimeSeries {
    series(&[("__name__", "up"), ("job", job)], samples)
}

fn bits(samples: &[(i64, f64)]) -> Vec<(i64, u64)> {
    samples
        .iter()
        .map(|&(t, value)| (t, value.to_bits()))
        .collect()
}

fn drop_where(label: &str, regex: &str) -> RelabelConfig {
    RelabelConfig {
        source_labels: vec![label.to_owned()],
        regex: Some(regex.to_owned()),
        action: Some("drop".to_owned()),
        ..RelabelConfig::default()
    }
}

fn remove(label: &str) -> RelabelConfig {
    RelabelConfig {
        target_label: label.to_owned(),
        replacement: Some(String::new()),
        ..RelabelConfig::default()
    }
}

const T: i64 = 1_700_000_000_000;

fn histogram(timestamp_ms: i64, counts: &[i64]) -> Histogram {
    let deltas = |(i, count): (usize, &i64)| count - if i == 0 { 0 } else { counts[i - 1] };
    Histogram {
        count_int: Some(counts.iter().sum::<i64>().cast_unsigned()),
        sum: 1.5,
        schema: 3,
        positive_spans: vec![BucketSpan {
            offset: -2,
            length: counts.len() as u32,
        }],
        positive_deltas: counts.iter().enumerate().map(deltas).collect(),
        reset_hint: 3,
        timestamp_ms,
        ..Histogram::default()
    }
}

/// Creates a series with exemplars, of a label `a`, value and timestamp, and without samples.
fn exemplars(job: &str, exemplars: &[(&[u8], f64, i64)]) -> TimeSeries {
    let exemplar = |&(value, number, timestamp_ms): &(&[u8], f64, i64)| {
        let label = Label {
            name: b"a".to_vec(),
            value: value.to_vec(),
        };
        Exemplar {
            labels: vec![label],
            value: number,
            timestamp_ms,
        }
    };
    TimeSeries {
        exemplars: exemplars.iter().map(exemplar).collect(),
        ..up(job, &[])
    }
}
