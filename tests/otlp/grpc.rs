//! OTLP/gRPC and the health check, on the port that speaks HTTP, too.

use std::io::Write;

use base64::Engine as _;
use prost::Message;

use super::{
    Data, Gauge, contents, metric, number, resource, server, server_with_reader, with_bad_points,
};
use crate::harness::messages::otlp::{ExportResponse, RpcStatus};
use crate::harness::{Call, Http2, Server, frame, now_ms};

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

fn export(server: &Server, headers: &[(&str, &str)], message: &[u8]) -> Call {
    Http2::connect(server.http().address()).call(EXPORT, headers, message)
}

#[test]
fn calls_store_points_and_tell_what_they_reject() {
    let server = server("{}");
    let stored = export(&server, &[], &with_bad_points(2, 0));
    assert_eq!((&*stored.status, &*stored.messages[0].1), ("0", &b""[..]));
    let now_s = now_ms().cast_unsigned() / 1000;
    assert!(contents(server.http(), now_s).join("").contains("\"good\""));

    let partial = export(&server, &[], &with_bad_points(2, 3));
    assert_eq!(partial.status, "0");
    let response = ExportResponse::decode(&*partial.messages[0].1).expect("a response");
    let partial = response.partial_success.expect("a partial success");
    assert_eq!(partial.rejected_data_points, 3, "{partial:?}");

    let refused = export(&server, &[], &with_bad_points(0, 3));
    assert_eq!(refused.status, "3", "{refused:?}");
    assert!(!refused.headers.contains_key("grpc-status-details-bin"));
    let damaged = export(&server, &[], b"\x0a\x05x");
    assert_eq!(damaged.status, "3", "{damaged:?}");
}

#[test]
fn calls_are_compressed_and_concurrent() {
    let server = server("{}");
    let now_s = now_ms().cast_unsigned() / 1000;
    let connection = Http2::connect(server.http().address());
    let gzip = |message: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(message).expect("a vector grows");
        encoder.finish().expect("a vector grows")
    };
    let headers = [
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-encoding", "gzip"),
    ];
    let send = |i: usize| {
        let gauge = Gauge {
            points: vec![number(now_s, 1.0)],
        };
        let of_call = metric(&format!("call_{i}"), "", Data::Gauge(gauge));
        let message = gzip(&resource(vec![of_call], Vec::new()).encode_to_vec());
        connection.send("POST", EXPORT, &headers, &frame(true, &message))
    };
    // All are sent before the first response is read.
    let sent: Vec<_> = (0..20).map(send).collect();
    for sent in sent {
        let response = connection.head(sent);
        connection.body(response).expect("a complete response");
    }
    let stored = contents(server.http(), now_s);
    let of_calls = stored.iter().filter(|line| line.contains("\"call_"));
    assert_eq!(of_calls.count(), 20);
}

#[test]
fn a_rejected_call_says_when_to_retry() {
    let server = Server::start(&["--ingest.bytes-in-flight-max=1KiB"]);
    let large = resource(
        vec![metric(
            &"x".repeat(5_000),
            "",
            Data::Gauge(Gauge { points: vec![] }),
        )],
        Vec::new(),
    );
    let refused = export(&server, &[], &large.encode_to_vec());
    assert_eq!(refused.status, "14", "{refused:?}");
    let details = refused.headers["grpc-status-details-bin"].as_bytes();
    let details = base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(details)
        .expect("Base64");
    let status = RpcStatus::decode(&*details).expect("a status");
    let detail = &status.details[0];
    assert_eq!(detail.type_url, "type.googleapis.com/google.rpc.RetryInfo");
    assert!(!detail.value.is_empty());
}

#[test]
fn the_health_check_needs_no_token() {
    let (server, _dir) = server_with_reader();
    let http2 = Http2::connect(server.http().address());
    let serving = http2.call(HEALTH, &[], b"");
    assert_eq!(
        (&*serving.status, &*serving.messages[0].1),
        ("0", &b"\x08\x01"[..])
    );
    let service = b"\x0a\x37opentelemetry.proto.collector.metrics.v1.MetricsService";
    assert_eq!(http2.call(HEALTH, &[], service).status, "0");
    assert_eq!(http2.call(HEALTH, &[], b"\x0a\x01x").status, "5");
}
