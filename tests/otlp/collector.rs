//! A real OpenTelemetry Collector sends to Varve. Its program, `otelcol`, is a tool of the machine:
//! without it the tests are skipped.

use std::net::SocketAddr;
use std::process::Command;

use prost::Message;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{DELTA, Data, Gauge, NumberPoint, Sum, counted, metric, number, resource};
use crate::harness::{
    Http, Process, Server, WriteRequest, free_address, missing, now_ms, series, wait_until,
};

/// A running Collector with one exporter.
struct Collector {
    http: Http,
    process: Process,
    _dir: TempDir,
}

impl Collector {
    /// Starts the Collector, if there is one. `exporter` is the name of an exporter, and `settings`
    /// are its own.
    fn start(exporter: &str, settings: &Value) -> Option<Self> {
        if missing(&["otelcol"]) {
            return None;
        }
        let dir = TempDir::new().expect("make a temporary directory");
        let address = free_address();
        let config = json!({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": address.to_string()}}}},
            "exporters": {exporter: settings},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": [exporter]}},
            },
        });
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, config.to_string()).expect("write a file");
        let mut command = Command::new("otelcol");
        command.arg("--config").arg(&path);
        let process = Process::start("otelcol", &mut command);
        let http = Http::new(address);
        // The receiver answers all but POST with an error.
        wait_until("otelcol to be ready", || {
            http.try_get("/v1/metrics").is_ok()
        });
        Some(Self {
            http,
            process,
            _dir: dir,
        })
    }

    fn send(&self, request: &[u8]) {
        self.http
            .post(
                "/v1/metrics",
                &[("Content-Type", "application/x-protobuf")],
                request,
            )
            .expect_status(200);
    }
}

/// Returns the settings of an exporter for OTLP over HTTP or gRPC.
fn exporter(name: &str, varve: SocketAddr, compression: &str) -> Value {
    match name {
        "otlphttp" => json!({
            "endpoint": format!("http://{varve}/api/v1/otlp"),
            "compression": compression,
        }),
        "otlp" => json!({
            "endpoint": varve.to_string(),
            "compression": compression,
            "tls": {"insecure": true},
        }),
        _ => json!({"endpoint": format!("http://{varve}/api/v1/write")}),
    }
}

/// Returns a request with a sample of each of 60 series, and of six more that is too old.
fn with_old_points() -> Vec<u8> {
    let now_s = now_ms().cast_unsigned() / 1000;
    let point = |i: u64| {
        let age_s = if i < 60 { 0 } else { 40 * 86_400 };
        let mut point = number(now_s - age_s, 1.0);
        point.attributes = super::attributes([("i", super::text(&i.to_string()))]);
        point
    };
    let gauge = Gauge {
        points: (0..66).map(point).collect(),
    };
    resource(vec![metric("g", "", Data::Gauge(gauge))], Vec::new()).encode_to_vec()
}

#[test]
fn a_collector_prints_what_was_rejected() {
    for (name, compression, text) in [
        ("otlphttp", "none", "Partial success response"),
        ("otlphttp", "gzip", "Partial success response"),
        ("otlphttp", "zstd", "Partial success response"),
        ("otlphttp", "snappy", "Partial success response"),
        ("otlphttp", "deflate", "Partial success response"),
        ("otlp", "none", "Partial success response"),
        ("otlp", "gzip", "Partial success response"),
        ("otlp", "zstd", "Partial success response"),
        ("otlp", "snappy", "Partial success response"),
        ("prometheusremotewrite", "snappy", "400 Bad Request"),
    ] {
        let varve = Server::start(&[]);
        // An empty store takes samples of any age.
        let newest = series(&[("__name__", "newest")], &[(now_ms(), 1.0)]);
        let written = varve.http().write(&WriteRequest::new([newest]));
        written.expect_status(204);
        let settings = exporter(name, varve.http().address(), compression);
        let Some(collector) = Collector::start(name, &settings) else {
            return;
        };
        collector.send(&with_old_points());
        wait_until(&format!("{name} to print what was rejected"), || {
            let log = collector.process.output();
            log.contains(text) && log.contains("too old sample: 6 samples")
        });
        let count = [("query", "count(g)")];
        let found = varve.http().query("/api/v1/query", &count).data();
        assert_eq!(found["result"][0]["value"][1], "60", "{name} {compression}");
    }
}

/// Ten consumers reorder deltas, and repeat those of a server that is killed.
#[test]
fn a_collector_loses_no_delta_and_counts_none_twice() {
    const N: u64 = 600;
    for name in ["otlphttp", "otlp"] {
        // The same after a restart.
        let address = free_address();
        let listen = format!("--web.listen-address={address}");
        let flags = ["--enable-feature=otlp-deltatocumulative", &listen];
        let mut varve = Server::start(&flags);
        let mut settings = exporter(name, address, "gzip");
        settings["sending_queue"] = json!({"num_consumers": 10, "queue_size": 10_000});
        settings["retry_on_failure"] =
            json!({"initial_interval": "100ms", "max_interval": "500ms", "max_elapsed_time": "0s"});
        let Some(collector) = Collector::start(name, &settings) else {
            return;
        };
        let first_s = now_ms().cast_unsigned() / 1000 - N - 60;
        for i in 0..N {
            let delta = Sum {
                points: vec![NumberPoint {
                    start_ns: (first_s + i) * 1_000_000_000,
                    ..number(first_s + i + 1, 1.0)
                }],
                temporality: DELTA,
                is_monotonic: true,
            };
            let hits = metric("hits", "", Data::Sum(delta));
            collector.send(&resource(vec![hits], Vec::new()).encode_to_vec());
            if i % (N / 4) == N / 5 {
                varve.kill();
                varve.restart(&flags);
            }
        }
        wait_until("otelcol to have sent all deltas", || {
            counted(varve.http(), "hits_total") >= N as f64
        });
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert_eq!(counted(varve.http(), "hits_total"), N as f64, "{name}");
    }
}
