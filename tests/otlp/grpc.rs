//! OTLP/gRPC and the health check, on the port that speaks HTTP, too.

use base64::Engine as _;
use prost::Message;

use super::{DELTA, Data, Gauge, Sum, contents, metric, number, resource, server};
use crate::harness::messages::otlp::{ExportResponse, RpcStatus};
use crate::harness::{Access, Call, Http2, Server, now_ms};

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

fn export(server: &Server, headers: &[(&str, &str)], message: &[u8]) -> Call {
    Http2::connect(server.http().address()).call(EXPORT, headers, message)
}

fn points(n_good: usize, n_bad: usize) -> Vec<u8> {
    let now_s = now_ms().cast_unsigned() / 1000;
    let points = |n: usize| (0..n).map(|i| number(now_s - i as u64, 1.0)).collect();
    let bad = Sum {
        points: points(n_bad),
        temporality: DELTA,
        is_monotonic: true,
    };
    let good = Gauge {
        points: points(n_good),
    };
    let mut metrics = vec![metric("good", "", Data::Gauge(good))];
    if n_bad > 0 {
        metrics.push(metric("bad", "", Data::Sum(bad)));
    }
    resource(metrics, Vec::new()).encode_to_vec()
}

#[test]
fn calls_store_points_and_tell_what_they_reject() {
    let server = server("{}");
    let stored = export(&server, &[], &points(2, 0));
    assert_eq!((&*stored.status, &*stored.messages[0].1), ("0", &b""[..]));
    let now_s = now_ms().cast_unsigned() / 1000;
    assert!(contents(server.http(), now_s).join("").contains("\"good\""));

    let partial = export(&server, &[], &points(2, 3));
    assert_eq!(partial.status, "0");
    let response = ExportResponse::decode(&*partial.messages[0].1).expect("a response");
    let partial = response.partial_success.expect("a partial success");
    assert_eq!(partial.rejected_data_points, 3, "{partial:?}");

    let refused = export(&server, &[], &points(0, 3));
    assert_eq!(refused.status, "3", "{refused:?}");
    assert!(!refused.headers.contains_key("grpc-status-details-bin"));
    let damaged = export(&server, &[], b"\x0a\x05x");
    assert_eq!(damaged.status, "3", "{damaged:?}");
}

#[test]
fn a_rejected_call_says_when_to_retry() {
    let server = Server::start(&["--ingest.bytes-in-flight-max=1KiB"]);
    let held = server.http().connect();
    let large = resource(
        vec![metric(
            &"x".repeat(5_000),
            "",
            Data::Gauge(Gauge { points: vec![] }),
        )],
        Vec::new(),
    );
    let refused = export(&server, &[], &large.encode_to_vec());
    drop(held);
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
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("web.yml");
    let tokens = "bearer_tokens:\n- {name: reader, token: t0ken, scopes: [read]}\n";
    std::fs::write(&path, tokens).expect("write a file");
    let access = Access {
        tls: None,
        authorization: Some("Bearer t0ken".to_owned()),
    };
    let server = Server::start_as(&[&format!("--web.config.file={}", path.display())], &access);
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
