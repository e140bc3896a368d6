//! Remote write: the cost of decoding. `rules` measures a request from body to acknowledgement.

#[path = "common/bodies.rs"]
mod bodies;
#[allow(dead_code, reason = "no store is opened in this process")]
mod common;
#[path = "../tests/harness/messages/remote_write.rs"]
#[allow(dead_code, unused_imports, reason = "a bench does not use all of it")]
mod messages;

use std::hint::black_box;

use bodies::{SERIES_PER_REQUEST, requests};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prost::Message;
use varve_ingest::Limits;
use varve_ingest::remote_write::{DecodedBatch, RouteHasher, decode_v1, decode_v2};

/// Returns the first request in version 2.0.
fn version_2() -> messages::v2::Request {
    let mut request = messages::v2::Request::default();
    for i in 0..SERIES_PER_REQUEST {
        let labels = common::labels(i);
        request.add(
            &labels.iter().collect::<Vec<_>>(),
            &[(common::START_MS, common::value(i, 0), 0)],
        );
    }
    request
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(SERIES_PER_REQUEST as u64));
    let request = &requests(0..SERIES_PER_REQUEST, common::START_MS, 0)
        .next()
        .expect("there are series");
    let message = request.encode_to_vec();
    let body = request.to_body();
    let hasher = RouteHasher::new();
    let limits = Limits::for_tests();

    let mut decompressed = vec![0; message.len()];
    group.bench_function("snappy", |b| {
        b.iter(|| {
            snap::raw::Decoder::new()
                .decompress(&body, &mut decompressed)
                .expect("decompress a valid block")
        });
    });
    let mut batch = DecodedBatch::default();
    group.bench_function("protobuf and hashes", |b| {
        b.iter(|| {
            decode_v1(black_box(&message), &hasher, &limits, &mut batch)
                .expect("decode a valid message")
        });
    });
    let message = version_2().encode_to_vec();
    group.bench_function("protobuf and hashes, version 2.0", |b| {
        b.iter(|| {
            decode_v2(black_box(&message), &hasher, &limits, &mut batch)
                .expect("decode a valid message")
        });
    });
}

criterion_group!(benches, decode);
criterion_main!(benches);
