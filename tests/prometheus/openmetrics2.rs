//! A real Prometheus scrapes an OpenMetrics 2.0 text, and Varve imports it: both store the same.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::harness::{Http, Server, now_ms, releases, wait_until};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=2.0.0; charset=utf-8";

/// Returns a body with all kinds of metrics. Samples without a timestamp would have different ones
/// in the two stores.
fn body(time_s: f64) -> String {
    let lines = [
        "# TYPE c counter",
        "# HELP c Counts \\\\ with\\na line.",
        "c{job_name=\"x\"} 42.5 TIME st@START # {trace_id=\"a\"} 1.0 OLD # {\"trace.id\"=\"b\"} 2.0 TIME",
        "# TYPE \"t.é\" gauge",
        "# UNIT \"t.é\" celsius",
        "{\"t.é\",\"a.b\"=\"c\\\"d\"} -1e-3 TIME",
        "# TYPE build_info info",
        "build_info{version=\"1\"} 1 TIME",
        "# TYPE state stateset",
        "state{state=\"on\"} 1 TIME",
        "state{state=\"off\"} 0 TIME",
        "unknown{le=\"1\"} NaN TIME",
        "# TYPE classic histogram",
        "# UNIT classic seconds",
        "classic{a=\"1\"} {count:17,sum:324.5,bucket:[-Inf:0,0:1,0.01:3,1:5,1e6:14,+Inf:17]} TIME st@START # {t=\"1\"} 0.005 OLD # {t=\"2\"} 2e6 OLD",
        "classic{a=\"2\"} {count:0.5,sum:NaN,bucket:[+Inf:0.5]} TIME",
        "# TYPE gauges gaugehistogram",
        "gauges {gcount:42,gsum:-3289.5,bucket:[0.01:20,+Inf:42]} TIME",
        "# TYPE summary summary",
        "summary{a=\"1\"} {count:100,sum:30000.5,quantile:[0:1,0.5:NaN,0.99:300,1:301]} TIME st@START",
        "summary{a=\"2\"} {count:0,sum:0,quantile:[]} TIME",
        "# TYPE native histogram",
        "# HELP native Native buckets.",
        "native{a=\"1\"} {count:14,sum:12.125,schema:3,zero_threshold:0.001,zero_count:2,negative_spans:[-2:1],negative_buckets:[4],positive_spans:[0:2,3:1],positive_buckets:[1,2,5]} TIME st@START # {t=\"3\"} 0.5 OLD",
        "native{a=\"2\"} {count:5.5,sum:1,schema:-4,zero_threshold:0,zero_count:2.5,positive_spans:[1:2],positive_buckets:[2.0,1e0]} TIME",
        "native{a=\"3\"} {count:0,sum:0,schema:8,zero_threshold:1e-128,zero_count:0} TIME",
        "# TYPE both histogram",
        "both {count:3,sum:6.5,schema:0,zero_threshold:0.001,zero_count:0,positive_spans:[0:2],positive_buckets:[1,2],bucket:[0.1:1,1:2,+Inf:3]} TIME # {id=\"1\"} 0.8 OLD # {id=\"2\"} 5.0 OLD",
        "# TYPE native_gauges gaugehistogram",
        "native_gauges {gcount:3,gsum:-1,schema:0,zero_threshold:0,zero_count:0,positive_spans:[0:2],positive_buckets:[1,2]} TIME",
        "# EOF\n",
    ];
    lines
        .join("\n")
        .replace("TIME", &time_s.to_string())
        .replace("OLD", &(time_s - 1.0).to_string())
        .replace("START", &(time_s - 100.0).to_string())
}

/// Serves a body to every request, until the test process ends.
fn exporter(body: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
    let address = listener.local_addr().expect("a listener has an address");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("accept a connection");
            let mut request = BufReader::new(&connection);
            let mut line = String::new();
            while request.read_line(&mut line).is_ok_and(|size| size > 2) {
                line.clear();
            }
            let size = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n{body}"
            );
            // Prometheus may have gone.
            let _sent = connection.write_all(answer.as_bytes());
        }
    });
    address
}

/// Returns a list of an answer, one text per entry, sorted.
fn sorted(list: &Value) -> Vec<String> {
    let entries = list.as_array().expect("a list");
    let mut lines: Vec<_> = entries.iter().map(Value::to_string).collect();
    lines.sort_unstable();
    lines
}

/// Returns the samples of the series that are no series of the scrape itself.
fn samples(http: &Http) -> Vec<String> {
    let query = "{__name__=~\".+\",job=\"\"}[5m]";
    let answer = http.query("/api/v1/query", &[("query", query)]);
    sorted(&answer.data()["result"])
}

fn exemplars(http: &Http, time_s: f64) -> Vec<String> {
    let start = (time_s - 60.0).to_string();
    let end = (time_s + 60.0).to_string();
    let answer = http.query(
        "/api/v1/query_exemplars",
        &[
            ("query", "{__name__=~\".+\"}"),
            ("start", &start),
            ("end", &end),
        ],
    );
    sorted(&answer.data())
}

#[test]
fn varve_imports_what_prometheus_scrapes() {
    let Some(release) = releases().iter().find(|release| release.version >= (3, 16)) else {
        return varve_oracle::skip("no Prometheus on PATH reads OpenMetrics 2.0");
    };
    let time_s = (now_ms() / 1000) as f64 - 5.0;
    let body = body(time_s);
    let job = json!({
        "job_name": "x",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "scrape_protocols": ["OpenMetricsText2.0.0"],
        "scrape_native_histograms": true,
        "always_scrape_classic_histograms": true,
        "static_configs": [{"targets": [exporter(body.clone()).to_string()]}],
        "metric_relabel_configs": [{"action": "labeldrop", "regex": "job|instance"}],
    });
    let features = "--enable-feature=openmetrics2,exemplar-storage";
    let prometheus = release.start(&json!({"scrape_configs": [job]}).to_string(), &[features]);
    let theirs = prometheus.http();
    wait_until("a scrape", || {
        !samples(theirs).is_empty() && !exemplars(theirs, time_s).is_empty()
    });

    let varve = Server::start(&[]);
    let ours = varve.http();
    ours.post(
        "/api/v1/import/prometheus",
        &[("Content-Type", CONTENT_TYPE)],
        body.as_bytes(),
    )
    .expect_status(204);
    assert_eq!(samples(ours), samples(theirs));
    assert_eq!(samples(ours).len(), 39);
    assert_eq!(exemplars(ours, time_s), exemplars(theirs, time_s));
    let metadata = |http: &Http| http.get("/api/v1/metadata").data();
    assert_eq!(metadata(ours), metadata(theirs));
}
