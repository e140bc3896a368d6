//! Remote write: the cost of decoding, and of a request from body to acknowledgement.

mod common;
#[path = "../tests/harness/remote_write.rs"]
#[allow(dead_code, unused_imports, reason = "a bench does not use all of it")]
mod messages;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use prost::Message;
use varve_ingest::relabel::{RelabelConfig, Rules};
use varve_ingest::remote_write::{DecodedBatch, RouteHasher, Version, decode_v1, decode_v2};
use varve_ingest::{Limits, Origin, Receiver};

const N_SERIES: usize = 100_000;
/// As Prometheus' default `max_samples_per_send`.
const SERIES_PER_REQUEST: usize = 2_000;

/// Returns requests with one sample of each series.
fn requests(step: i64) -> Vec<messages::WriteRequest> {
    let series: Vec<_> = (0..N_SERIES)
        .map(|i| {
            let labels = common::labels(i);
            let pairs: Vec<_> = labels.iter().collect();
            messages::series(&pairs, &[(common::START_MS + step * common::STEP_MS, common::value(i, step))])
        })
        .collect();
    series.chunks(SERIES_PER_REQUEST).map(|chunk| messages::WriteRequest::new(chunk.to_vec())).collect()
}

/// Converts a request to version 2.0.
fn version_2(request: &messages::WriteRequest) -> messages::v2::Request {
    let (mut symbols, mut known) = (vec![Vec::new()], HashMap::from([(Vec::new(), 0)]));
    let mut intern = |text: &[u8]| {
        *known.entry(text.to_vec()).or_insert_with(|| {
            symbols.push(text.to_vec());
            symbols.len() as u32 - 1
        })
    };
    let series = |series: &messages::TimeSeries| {
        let labels_refs = series.labels.iter().flat_map(|of| [intern(&of.name), intern(&of.value)]).collect();
        let sample = |of: &messages::Sample| messages::v2::Sample {
            value: of.value,
            timestamp_ms: of.timestamp_ms,
            start_ms: 0,
        };
        let samples = series.samples.iter().map(sample).collect();
        messages::v2::TimeSeries { labels_refs, samples, ..messages::v2::TimeSeries::default() }
    };
    let timeseries = request.timeseries.iter().map(series).collect();
    messages::v2::Request { symbols, timeseries }
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(SERIES_PER_REQUEST as u64));
    let request = &requests(0)[0];
    let (message, body) = (request.encode_to_vec(), request.to_body());
    let (hasher, limits) = (RouteHasher::new(), Limits::default());

    let mut decompressed = vec![0; message.len()];
    group.bench_function("snappy", |b| {
        b.iter(|| snap::raw::Decoder::new().decompress(&body, &mut decompressed).expect("decompress a valid block"));
    });
    let mut batch = DecodedBatch::default();
    group.bench_function("protobuf and hashes", |b| {
        b.iter(|| decode_v1(black_box(&message), &hasher, &limits, &mut batch).expect("decode a valid message"));
    });
    let message = version_2(request).encode_to_vec();
    group.bench_function("protobuf and hashes, version 2.0", |b| {
        b.iter(|| decode_v2(black_box(&message), &hasher, &limits, &mut batch).expect("decode a valid message"));
    });
}

fn receive(c: &mut Criterion) {
    let mut group = c.benchmark_group("receive");
    group.sample_size(20).throughput(Throughput::Elements(N_SERIES as u64));
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let receiver = Receiver::new(Arc::new(common::open(dir.path(), 2, 1)), Limits::default());
    let mut step = 0;
    let mut bodies = || {
        step += 1;
        requests(step).iter().map(messages::WriteRequest::to_body).collect::<Vec<_>>()
    };
    let write = |bodies: Vec<Vec<u8>>| {
        for body in &bodies {
            assert!(
                receiver
                    .write(&Origin::default(), Version::V1, body)
                    .expect("write within the limits")
                    .rejects
                    .is_empty()
            );
        }
        bodies
    };
    write(bodies());
    group.bench_function("known series, one thread", |b| b.iter_batched(&mut bodies, write, BatchSize::PerIteration));
}

/// Known series with relabel rules that match none of them. Because of the route cache, the cost must not depend on the
/// number of rules.
fn rules(c: &mut Criterion) {
    let mut group = c.benchmark_group("rules");
    group.sample_size(20).throughput(Throughput::Elements(N_SERIES as u64));
    for n_rules in [0, 40, 400] {
        let rule = |i: usize| RelabelConfig {
            source_labels: vec!["job".to_owned(), "__name__".to_owned()],
            regex: Some(format!("job-{i};(unwanted_{i}|deprecated_.*)")),
            action: Some("drop".to_owned()),
            ..RelabelConfig::default()
        };
        bench_rules(&mut group, &format!("{n_rules} rules"), (0..n_rules).map(rule).collect());
    }
    let all = RelabelConfig { action: Some("drop".to_owned()), ..RelabelConfig::default() };
    bench_rules(&mut group, "all dropped", vec![all]);
    group.finish();
}

fn bench_rules(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, rules: Vec<RelabelConfig>) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let receiver = Receiver::new(Arc::new(common::open(dir.path(), 2, 1)), Limits::default());
    receiver.set_rules(Rules::new(rules).expect("parse valid rules"));
    let mut step = 0;
    let mut bodies = || {
        step += 1;
        requests(step).iter().map(messages::WriteRequest::to_body).collect::<Vec<_>>()
    };
    let write = |bodies: Vec<Vec<u8>>| {
        for body in &bodies {
            assert!(
                receiver
                    .write(&Origin::default(), Version::V1, body)
                    .expect("write within the limits")
                    .rejects
                    .is_empty()
            );
        }
        bodies
    };
    write(bodies());
    group.bench_function(name, |b| b.iter_batched(&mut bodies, write, BatchSize::PerIteration));
}

criterion_group!(benches, decode, receive, rules);
criterion_main!(benches);
