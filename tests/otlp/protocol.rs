//! OTLP/HTTP as its specification demands: responses, errors, encodings and compressions.

use prost::Message;
use serde_json::{Value, json};

use super::{
    Data, Gauge, contents, metric, number, request, resource, server, server_with_reader, text,
    with_bad_points,
};
use crate::harness::messages::otlp::{ExportResponse, RpcStatus};
use crate::harness::{Access, Answer, Http, Server, now_ms, wait_until};

const PATH: &str = "/api/v1/otlp/v1/metrics";
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Posts a body, and checks the status and that an error is a `google.rpc.Status` in the encoding
/// of the request. Returns its message.
fn refused(http: &Http, headers: &[(&str, &str)], body: &[u8], status: u16) -> String {
    let answer = http.post(PATH, headers, body).expect_status(status);
    message_of(&answer)
}

fn message_of(answer: &Answer) -> String {
    if answer.header("content-type") == JSON {
        let error: Value = serde_json::from_slice(&answer.body).expect("a status in JSON");
        return error["message"].as_str().expect("a message").to_owned();
    }
    assert_eq!(answer.header("content-type"), PROTOBUF, "{answer:?}");
    RpcStatus::decode(&*answer.body).expect("a status").message
}

#[test]
fn errors_are_a_status_in_the_encoding_of_the_request() {
    let server = server("{}");
    let http = server.http();
    let text = refused(http, &[("Content-Type", "text/plain")], b"{}", 415);
    assert!(
        text.starts_with("unsupported content type: text/plain, supported: [application/json"),
        "{text}"
    );
    let text = refused(
        http,
        &[("Content-Type", JSON)],
        b"{\"resourceMetrics\":[",
        400,
    );
    assert!(text.contains("json"), "{text}");
    let headers = [("Content-Type", PROTOBUF), ("Content-Encoding", "br")];
    let text = refused(http, &headers, b"", 415);
    assert!(text.starts_with("unsupported compression: br"), "{text}");
    let mut damaged = request(1_700_000_000).encode_to_vec();
    damaged.truncate(damaged.len() - 3);
    refused(http, &[("Content-Type", PROTOBUF)], &damaged, 400);
    let text = refused(
        http,
        &[("Content-Type", PROTOBUF)],
        &with_bad_points(0, 3),
        400,
    );
    assert!(text.contains("3 data points"), "{text}");
    // Other paths of the protocol.
    let logs = http.post("/api/v1/otlp/v1/logs", &[("Content-Type", JSON)], b"{}");
    assert_eq!(message_of(&logs.expect_status(404)), "404 page not found");
    assert!(contents(http, 1_700_000_000).is_empty());
}

#[test]
fn denied_requests_get_a_status() {
    let (server, _dir) = server_with_reader();
    let headers = [("Content-Type", JSON)];
    let text = refused(server.http(), &headers, b"{}", 403);
    assert_eq!(text, "Forbidden: the token lacks the scope write");
    let stranger = server.http().with(&Access::default());
    assert_eq!(refused(&stranger, &headers, b"{}", 401), "Unauthorized");
}

#[test]
fn a_large_body_gets_a_status() {
    let server = Server::start(&["--ingest.body-size-max=1KiB"]);
    let headers = [("Content-Type", PROTOBUF)];
    let text = refused(server.http(), &headers, &[0; 2_000], 413);
    assert!(text.contains("--ingest.body-size-max"), "{text}");
}

#[test]
fn a_part_of_the_points_is_a_partial_success() {
    let server = server("{}");
    let answer = server
        .http()
        .post(PATH, &[("Content-Type", PROTOBUF)], &with_bad_points(60, 6))
        .expect_status(200);
    assert_eq!(answer.header("content-type"), PROTOBUF);
    let partial = ExportResponse::decode(&*answer.body)
        .expect("a response")
        .partial_success
        .expect("a partial success");
    assert_eq!(partial.rejected_data_points, 6);
    assert!(
        partial.error_message.contains("6 data points"),
        "{partial:?}"
    );
    let senders = server.http().get("/api/v1/status/senders").data()["senders"].take();
    assert_eq!(senders[0]["failed"], 1, "{senders}");

    // One old point of a histogram is one point, though each of its buckets is a sample.
    let old = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "h", "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"timeUnixNano": "1000000000", "count": "3", "sum": 1, "bucketCounts": ["1", "1", "1"], "explicitBounds": [1, 2]},
            {"timeUnixNano": (now_ms() * 1_000_000).to_string(), "count": "1", "bucketCounts": ["1"]},
        ]}},
    ]}]}]});
    let answer = server
        .http()
        .post(PATH, &[("Content-Type", JSON)], old.to_string().as_bytes())
        .expect_status(200);
    assert_eq!(answer.header("content-type"), JSON);
    let response: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let partial = &response["partialSuccess"];
    assert_eq!(partial["rejectedDataPoints"], "1", "{response}");
}

#[test]
fn a_success_is_an_empty_response() {
    let server = server("{}");
    let http = server.http();
    let stored = http
        .post(PATH, &[("Content-Type", PROTOBUF)], &with_bad_points(1, 0))
        .expect_status(200);
    assert_eq!(
        (stored.header("content-type"), &*stored.body),
        (PROTOBUF, &b""[..])
    );
    let stored = http
        .post(PATH, &[("Content-Type", JSON)], b"{}")
        .expect_status(200);
    assert_eq!(
        (stored.header("content-type"), &*stored.body),
        (JSON, &b"{}"[..])
    );
}

#[test]
fn bodies_have_any_compression() {
    use std::io::Write;
    let server = server("{}");
    let now_s = now_ms().cast_unsigned() / 1000;
    let body = |name: &str| {
        let gauge = Gauge {
            points: vec![number(now_s, 1.0)],
        };
        resource(vec![metric(name, "", Data::Gauge(gauge))], Vec::new()).encode_to_vec()
    };
    let gzip = |body: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).expect("a vector grows");
        encoder.finish().expect("a vector grows")
    };
    let zlib = |body: &[u8]| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).expect("a vector grows");
        encoder.finish().expect("a vector grows")
    };
    let framed = |body: &[u8]| {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(body).expect("a vector grows");
        encoder.into_inner().expect("a vector grows")
    };
    let block = |body: &[u8]| {
        snap::raw::Encoder::new()
            .compress_vec(body)
            .expect("a short body")
    };
    for (name, encoding, coded) in [
        ("plain", "identity", body("plain")),
        ("gzip", "GZip", gzip(&body("gzip"))),
        (
            "zstd",
            "zstd",
            zstd::encode_all(&*body("zstd"), 1).expect("compress"),
        ),
        ("deflate", "deflate", zlib(&body("deflate"))),
        ("block", "snappy", block(&body("block"))),
        ("framed", "snappy", framed(&body("framed"))),
    ] {
        let headers = [
            ("Content-Type", "application/x-protobuf; charset=utf-8"),
            ("Content-Encoding", encoding),
        ];
        server
            .http()
            .post(PATH, &headers, &coded)
            .expect_status(200);
        let stored = contents(server.http(), now_s).join("\n");
        assert!(stored.contains(&format!("\"{name}\"")), "{name}: {stored}");
    }
}

/// Returns a request of one resource whose scopes have the same gauge with other values.
fn two_scopes(now_s: u64) -> Vec<u8> {
    let of_scope = |value| {
        let gauge = Gauge {
            points: vec![number(now_s, value)],
        };
        resource(vec![metric("same", "", Data::Gauge(gauge))], Vec::new())
    };
    let mut request = of_scope(1.0);
    let mut other = of_scope(2.0);
    let mut scope = other.resources[0].scopes.remove(0);
    scope.scope.as_mut().expect("a scope").name = "other".to_owned();
    request.resources[0].scopes.push(scope);
    request.encode_to_vec()
}

#[test]
fn a_duplicate_of_another_scope_names_the_setting() {
    let now_s = now_ms().cast_unsigned() / 1000;
    for (settings, n_rejected, n_stored) in [("{}", 1, 1), ("{promote_scope_metadata: true}", 0, 2)]
    {
        let server = server(settings);
        // Samples that arrive during a replay are compared when it ends.
        wait_until("the replay", || {
            server.metric("varve_tsdb_replay_running") == 0.0
        });
        let answer = server
            .http()
            .post(PATH, &[("Content-Type", PROTOBUF)], &two_scopes(now_s))
            .expect_status(200);
        let response = ExportResponse::decode(&*answer.body).expect("a response");
        let partial = response.partial_success.unwrap_or_default();
        assert_eq!(partial.rejected_data_points, n_rejected);
        assert_eq!(
            partial
                .error_message
                .contains("otlp.promote_scope_metadata"),
            n_rejected == 1,
            "{partial:?}"
        );
        let stored = contents(server.http(), now_s);
        let of_metric = stored.iter().filter(|line| line.contains("\"same\""));
        assert_eq!(of_metric.count(), n_stored, "{settings}");
    }
}

/// `target_info` is no data point of the sender.
#[test]
fn a_rejected_target_info_is_a_warning() {
    let server = Server::start(&["--ingest.label-value-size-max=100B"]);
    let now_s = now_ms().cast_unsigned() / 1000;
    let gauge = Gauge {
        points: vec![number(now_s, 1.0)],
    };
    let long = "x".repeat(101);
    let of_resource = vec![("service.name", text("shop")), ("long", text(&long))];
    let request = resource(vec![metric("m", "", Data::Gauge(gauge))], of_resource);
    let answer = server
        .http()
        .post(
            PATH,
            &[("Content-Type", PROTOBUF)],
            &request.encode_to_vec(),
        )
        .expect_status(200);
    let response = ExportResponse::decode(&*answer.body).expect("a response");
    let partial = response.partial_success.expect("a warning");
    assert_eq!(partial.rejected_data_points, 0);
    assert!(partial.error_message.contains("target_info"), "{partial:?}");
    assert!(contents(server.http(), now_s).join("").contains("\"m\""));
}

/// It was refused at every export.
#[test]
fn a_resource_with_200_attributes_has_a_target_info() {
    let server = server("{}");
    let now_s = now_ms().cast_unsigned() / 1000;
    let names: Vec<_> = (0..200).map(|i| format!("attribute.{i:03}")).collect();
    let mut of_resource: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), text("x")))
        .collect();
    of_resource.push(("service.name", text("shop")));
    let gauge = Gauge {
        points: vec![number(now_s, 1.0)],
    };
    let request = resource(vec![metric("m", "", Data::Gauge(gauge))], of_resource);
    let answer = server
        .http()
        .post(
            PATH,
            &[("Content-Type", PROTOBUF)],
            &request.encode_to_vec(),
        )
        .expect_status(200);
    assert!(answer.body.is_empty(), "{answer:?}");
    let stored = contents(server.http(), now_s).join("\n");
    assert!(
        stored.contains(r#""__name__":"target_info","attribute_000":"x""#),
        "{stored}"
    );
    assert!(
        stored.contains("attribute_125") && !stored.contains("attribute_126"),
        "{stored}"
    );
    let metrics = server.http().get("/metrics").text();
    let cut = r#"prometheus_api_otlp_translation_warnings_total{category="target_info_labels_dropped"} 1"#;
    assert!(metrics.contains(cut), "{metrics}");
}
