//! Traces: a receiver with OpenTelemetry's own messages, and gRPC's own server, gets the spans of
//! requests and rules.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    ConfigFile, Process, Server, WriteRequest, now_ms, python_with, series, wait_for, wait_until,
};

const MODULES: &str = "grpc, opentelemetry.proto.collector.trace.v1.trace_service_pb2";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A receiver of traces.
struct Receiver {
    process: Process,
    endpoint: String,
    dir: TempDir,
}

impl Receiver {
    /// Starts a receiver. Returns `None` if Python lacks a package.
    fn start(protocol: &str, has_tls: bool) -> Option<Self> {
        let python = python_with(MODULES)?;
        let dir = TempDir::new().expect("make a temporary directory");
        let mut command = Command::new(python);
        command.args(["tests/otlp/receiver.py", protocol]);
        if has_tls {
            let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
                .expect("make a certificate");
            for (name, text) in [
                ("cert.pem", made.cert.pem()),
                ("key.pem", made.signing_key.serialize_pem()),
            ] {
                let path = dir.path().join(name);
                std::fs::write(&path, text).expect("write a file");
                command.arg(path);
            }
        }
        let mut process = Process::start("the receiver of traces", &mut command);
        let endpoint = process.listening_address().to_string();
        Some(Self {
            process,
            endpoint,
            dir,
        })
    }

    /// Returns the requests so far.
    fn requests(&self) -> Vec<Value> {
        let output = self.process.output();
        output
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns the spans so far, each with hexadecimal ids and with its attributes as an object.
    fn spans(&self) -> Vec<Value> {
        let requests = self.requests();
        let resources = requests
            .iter()
            .flat_map(|request| list(&request["request"]["resourceSpans"]));
        let scopes = resources.flat_map(|resource| {
            assert_eq!(attributes(&resource["resource"])["service.name"], "varve");
            list(&resource["scopeSpans"])
        });
        scopes
            .flat_map(|scope| list(&scope["spans"]))
            .map(readable)
            .collect()
    }

    /// Waits for the span with this name and returns it.
    fn span(&self, name: &str) -> Value {
        wait_for(name, || {
            self.spans().into_iter().find(|span| span["name"] == name)
        })
    }
}

fn list(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

fn attributes(of: &Value) -> Value {
    let value = |value: &Value| {
        value["stringValue"]
            .as_str()
            .or(value["intValue"].as_str())
            .map(str::to_owned)
    };
    list(&of["attributes"])
        .map(|pair| {
            (
                pair["key"].as_str().unwrap().to_owned(),
                value(&pair["value"]),
            )
        })
        .collect()
}

fn readable(span: &Value) -> Value {
    use base64::Engine as _;
    let mut span = span.clone();
    span["attributes"] = attributes(&span);
    for name in ["traceId", "spanId", "parentSpanId"] {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(span[name].as_str().unwrap_or_default());
        span[name] = bytes
            .unwrap()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            .into();
    }
    span
}

fn nanos(of: &Value) -> u64 {
    of.as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{of} is not a time"))
}

/// Returns the names of the parts of a span. Checks that they are its children, within it, and end
/// in order.
fn parts(spans: &[Value], parent: &Value) -> Vec<String> {
    let children: Vec<_> = spans
        .iter()
        .filter(|span| span["parentSpanId"] == parent["spanId"])
        .collect();
    let (start, end) = (
        nanos(&parent["startTimeUnixNano"]),
        nanos(&parent["endTimeUnixNano"]),
    );
    let mut last = start;
    for child in &children {
        assert_eq!(
            (&child["traceId"], &child["kind"]),
            (&parent["traceId"], &json!("SPAN_KIND_INTERNAL"))
        );
        let (from, to) = (
            nanos(&child["startTimeUnixNano"]),
            nanos(&child["endTimeUnixNano"]),
        );
        assert!(
            start <= from && from <= to && last <= to && to <= end,
            "{child} in {parent}"
        );
        last = to;
    }
    children
        .iter()
        .map(|child| child["name"].as_str().unwrap().to_owned())
        .collect()
}

fn tracing(receiver: &Receiver, settings: &str) -> ConfigFile {
    ConfigFile::new(&format!(
        "tracing: {{endpoint: '{}', {settings}}}",
        receiver.endpoint
    ))
}

#[test]
fn a_receiver_gets_the_spans_of_requests() {
    for (protocol, has_tls, compression) in [
        ("http", false, ""),
        ("http", true, "gzip"),
        ("grpc", false, "gzip"),
        ("grpc", true, ""),
    ] {
        let Some(receiver) = Receiver::start(protocol, has_tls) else {
            return;
        };
        let tls = if has_tls {
            format!(
                "tls_config: {{ca_file: '{}'}}",
                receiver.dir.path().join("cert.pem").display()
            )
        } else {
            "insecure: true".to_owned()
        };
        let settings = format!(
            "client_type: {protocol}, compression: '{compression}', sampling_fraction: 1, headers: {{x-team: a}}, {tls}"
        );
        let mut server = Server::start(&[&tracing(&receiver, &settings).flag()]);
        let request = WriteRequest::new([series(&[("__name__", "up")], &[(now_ms(), 1.0)])]);
        server.http().write(&request).expect_status(204);
        let traceparent = format!("00-{TRACE}-{PARENT}-01");
        let answer = server.http().call(
            "GET",
            "/api/v1/query?query=up",
            &[("traceparent", &traceparent)],
            b"",
        );
        answer.expect_status(200);
        server
            .http()
            .get("/api/v1/query?query=up(")
            .expect_status(400);
        // The end of the server sends the queue.
        assert!(server.terminate().success());
        let query = receiver.span("GET /api/v1/query");
        let spans = receiver.spans();
        let log = server.log();
        assert!(!log.contains("Cannot send traces"), "{log}");
        assert_eq!(
            (&query["traceId"], &query["parentSpanId"]),
            (&json!(TRACE), &json!(PARENT)),
            "{protocol}"
        );
        assert_eq!(query["kind"], "SPAN_KIND_SERVER");
        for (name, value) in [
            ("http.request.method", "GET"),
            ("http.route", "/api/v1/query"),
            ("http.response.status_code", "200"),
            ("client.address", "127.0.0.1"),
            ("db.query.text", "up"),
        ] {
            assert_eq!(query["attributes"][name], value, "{query}");
        }
        assert_eq!(
            parts(&spans, &query),
            ["queue", "parse", "evaluate", "encode"]
        );
        let write = receiver.span("POST /api/v1/write");
        assert!(
            write["parentSpanId"] == "" && write["traceId"] != TRACE,
            "{write}"
        );
        assert_eq!(parts(&spans, &write), ["queue", "store"]);
        let invalid = spans
            .iter()
            .find(|span| span["attributes"]["http.response.status_code"] == "400");
        assert_eq!(
            parts(&spans, invalid.expect("the invalid query")),
            ["queue", "parse"]
        );
        let headers = &receiver.requests()[0]["headers"];
        assert_eq!(headers["x-team"], "a", "{headers}");
        // gRPC's server removes the header of the encoding.
        if protocol == "http" && has_tls {
            assert_eq!(headers["content-encoding"], "gzip");
        }
    }
}

#[test]
fn requests_are_sampled_as_their_parents() {
    let Some(receiver) = Receiver::start("http", false) else {
        return;
    };
    let config = tracing(&receiver, "client_type: http, insecure: true");
    let mut server = Server::start(&[&config.flag(), "--web.enable-lifecycle"]);
    let ask = |path: &str, flags: &str| {
        let traceparent = format!("00-{TRACE}-{PARENT}-{flags}");
        server
            .http()
            .call("GET", path, &[("traceparent", &traceparent)], b"")
            .expect_status(200);
    };
    server.http().get("/api/v1/labels").expect_status(200);
    ask("/api/v1/query?query=1", "00");
    ask("/api/v1/rules", "01");
    // A reload sends what is queued, and turns traces off.
    config.write("{}");
    server.http().post("/-/reload", &[], b"").expect_status(200);
    receiver.span("GET /api/v1/rules");
    ask("/api/v1/alerts", "01");
    assert!(server.terminate().success());
    let names: Vec<_> = receiver
        .spans()
        .iter()
        .map(|span| span["name"].clone())
        .collect();
    assert_eq!(names, ["GET /api/v1/rules", "queue"]);
}

#[test]
fn evaluations_of_rules_are_traced() {
    let Some(receiver) = Receiver::start("grpc", false) else {
        return;
    };
    let config = ConfigFile::new(&format!(
        "tracing: {{endpoint: '{}', insecure: true, sampling_fraction: 1}}\nrules: {{wait: none}}\n\
         rule_files: [rules.yml]\nglobal: {{evaluation_interval: 1s, query_log_file: queries.log}}",
        receiver.endpoint
    ));
    let rules = "groups: [{name: g, rules: [{record: r, expr: vector(1)}]}]";
    std::fs::write(config.dir().join("rules.yml"), rules).expect("write the rules");
    let mut server = Server::start(&[&config.flag()]);
    let log = config.dir().join("queries.log");
    let line = wait_for("a rule to be logged", || {
        let text = std::fs::read_to_string(&log).ok()?;
        text.lines()
            .next()
            .map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"))
    });
    assert!(server.terminate().success());
    let rule = receiver.span("rule");
    let spans = receiver.spans();
    assert_eq!(
        (
            &rule["attributes"]["rule.group"],
            &rule["attributes"]["rule.name"]
        ),
        (&json!("g"), &json!("r"))
    );
    assert_eq!(parts(&spans, &rule), ["parse", "evaluate"]);
    let logged = spans
        .iter()
        .find(|span| span["spanId"] == line["spanID"])
        .expect("the span of the logged query");
    assert_eq!(logged["traceId"], line["traceID"]);
}

#[test]
fn requests_do_not_wait_for_a_receiver_that_is_away() {
    let text = "tracing: {endpoint: '127.0.0.1:1', insecure: true, sampling_fraction: 1}";
    let mut server = Server::start(&[&ConfigFile::new(text).flag()]);
    server
        .http()
        .get("/api/v1/query?query=1")
        .expect_status(200);
    wait_until("the spans to be dropped", || {
        server.metric("varve_traces_spans_dropped_total") >= 5.0
    });
    assert_eq!(server.metric("varve_traces_spans_sent_total"), 0.0);
    let started = std::time::Instant::now();
    assert!(server.terminate().success());
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(
        server
            .log()
            .matches("Cannot send traces, dropping spans")
            .count(),
        1
    );
}
