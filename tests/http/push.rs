//! Pushes of batch jobs: the path of a Pushgateway.

use std::collections::BTreeSet;
use std::process::Command;

use super::{T0, everything};
use crate::harness::messages::families::{
    Bucket, Family, Histogram, Label, Metric, Span, Value, delimited,
};
use crate::harness::{Http, Server, python_with};

const PATH: &str = "/api/v1/import/prometheus/metrics";
const PROTOBUF: (&str, &str) = (
    "Content-Type",
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
);

/// Returns the series of floats with their values, without times.
fn stored(http: &Http) -> Vec<String> {
    let mut stored = Vec::new();
    for line in everything(http) {
        if let Some((labels, samples)) = line.split_once(" [[") {
            let (_, value) = samples.split_once(',').expect("a time and a value");
            stored.push(format!("{labels} {}", value.trim_end_matches(']')));
        }
    }
    stored
}

#[test]
fn a_push_is_stored_with_the_labels_of_its_path() {
    let server = Server::start(&[]);
    let http = server.http();
    let send = |method: &str, path: &str, body: &str| {
        let headers = [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")];
        let path = format!("{PATH}/{path}?timestamp={T0}");
        http.call(method, &path, &headers, body.as_bytes())
    };
    send("POST", "job/x", "a{job=\"y\",b=\"c\"} 1\n").expect_status(200);
    // L3Zhci90bXA= is /var/tmp.
    send("PUT", "job/x/path@base64/L3Zhci90bXA=", "a 2\n").expect_status(200);
    send("PUT", "job@base64/YS9i/instance/%C3%A9", "a 3\n").expect_status(200);
    let expect = [
        r#"{"__name__":"a","b":"c","job":"x"} "1""#,
        "{\"__name__\":\"a\",\"instance\":\"\u{e9}\",\"job\":\"a/b\"} \"3\"",
        r#"{"__name__":"a","job":"x","path":"/var/tmp"} "2""#,
    ];
    assert_eq!(stored(http), expect);

    // Nothing is deleted: there is nothing to end either.
    let deleted = http.delete(&format!("{PATH}/job/x"));
    assert_eq!((deleted.status, deleted.body.len()), (202, 0));
    assert_eq!(stored(http), expect);

    for (path, reason) in [
        ("instance/a", "does not begin with job/<job>"),
        ("job/x/instance", "a label \"instance\" without a value"),
        ("job/x/__name__/a", "empty or reserved"),
        ("job/x/a@base64/*", "invalid base64"),
    ] {
        for method in ["POST", "PUT", "DELETE"] {
            let refused = send(method, path, "a 4\n").expect_status(400).text();
            assert!(refused.contains(reason), "{method} {path}: {refused}");
        }
    }
    send("GET", "job/x", "").expect_status(405);
    let invalid = send("POST", "job/x", "a b\n").expect_status(400).text();
    assert!(invalid.contains("line 1: "), "{invalid}");
    assert_eq!(stored(http), expect);
}

fn family(name: &str, kind: i32, metric: Metric) -> Family {
    let label = vec![Label {
        name: "l".to_owned(),
        value: "\"\n".to_owned(),
    }];
    Family {
        name: name.to_owned(),
        help: format!("The \"{name}\"."),
        kind: Some(kind),
        metric: vec![Metric { label, ..metric }],
    }
}

/// The default of Go's library.
#[test]
fn a_push_in_protobuf_is_stored() {
    let server = Server::start(&[]);
    let http = server.http();
    let value = |value: f64| Some(Value { value });
    let bucket = |upper_bound: f64, cumulative_count: u64| Bucket {
        cumulative_count,
        upper_bound,
    };
    let classic = Histogram {
        sample_count: 3,
        sample_sum: 4.5,
        bucket: vec![bucket(1.0, 1), bucket(2.5, 2)],
        ..Histogram::default()
    };
    let native = Histogram {
        sample_count: 3,
        sample_sum: 4.5,
        schema: 0,
        zero_threshold: 0.001,
        positive_span: vec![Span {
            offset: 0,
            length: 2,
        }],
        positive_delta: vec![2, -1],
        ..Histogram::default()
    };
    let histogram = |histogram: Histogram| Metric {
        histogram: Some(histogram),
        ..Metric::default()
    };
    let counter = Metric {
        counter: value(2.0),
        ..Metric::default()
    };
    let gauge = Metric {
        gauge: value(f64::INFINITY),
        ..Metric::default()
    };
    let body = delimited(&[
        family("c_total", 0, counter),
        family("a.gauge", 1, gauge),
        family("h", 4, histogram(classic)),
        family("n", 4, histogram(native)),
    ]);
    let path = format!("{PATH}/job/x?timestamp={T0}");
    http.post(&path, &[PROTOBUF], &body).expect_status(200);
    let label = r#""job":"x","l":"\"\n""#;
    let bucket_label = |le: &str| format!(r#""job":"x","l":"\"\n","le":"{le}""#);
    let mut expect = vec![
        format!(r#"{{"__name__":"a.gauge",{label}}} "+Inf""#),
        format!(r#"{{"__name__":"c_total",{label}}} "2""#),
        format!(r#"{{"__name__":"h_bucket",{}}} "1""#, bucket_label("1.0")),
        format!(r#"{{"__name__":"h_bucket",{}}} "2""#, bucket_label("2.5")),
        format!(r#"{{"__name__":"h_bucket",{}}} "3""#, bucket_label("+Inf")),
        format!(r#"{{"__name__":"h_count",{label}}} "3""#),
        format!(r#"{{"__name__":"h_sum",{label}}} "4.5""#),
    ];
    expect.sort_unstable();
    let found: BTreeSet<_> = stored(http).into_iter().collect();
    for line in &expect {
        assert!(found.contains(line), "{line}: {found:?}");
    }
    let count = http.query(
        "/api/v1/query",
        &[("query", "histogram_count(n)"), ("time", "1700000000")],
    );
    assert_eq!(count.data()["result"][0]["value"][1], "3");
    let metadata = http.get("/api/v1/metadata?metric=c_total").data();
    assert_eq!(metadata["c_total"][0]["type"], "counter");
    assert_eq!(metadata["c_total"][0]["help"], "The \"c_total\".");

    let cut = &body[..body.len() - 1];
    let refused = http.post(&format!("{PATH}/job/x"), &[PROTOBUF], cut);
    let text = refused.expect_status(400).text();
    assert!(text.contains("the body ends before"), "{text}");
    let text_form = (
        "Content-Type",
        "application/vnd.google.protobuf; encoding=text",
    );
    http.post(&format!("{PATH}/job/x"), &[text_form], &body)
        .expect_status(415);
    let encoding = ("Content-Encoding", "gzip");
    http.post(&format!("{PATH}/job/x"), &[PROTOBUF, encoding], &body)
        .expect_status(415);
}

/// `push_to_gateway`, `pushadd_to_gateway` and `delete_from_gateway`.
#[test]
fn the_client_library_of_python_pushes() {
    let Some(python) = python_with("prometheus_client") else {
        return;
    };
    let server = Server::start(&[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/push.py");
    let gateway = server.http().url("/api/v1/import/prometheus");
    let pushed = Command::new(python).args([script, &gateway]).output();
    let pushed = pushed.expect("run Python");
    assert!(pushed.status.success(), "{pushed:?}");
    let ask = |query: &str| {
        let found = server.http().query("/api/v1/query", &[("query", query)]);
        found.data()["result"].clone()
    };
    let one = |query: &str| ask(query)[0]["value"][1].clone();
    assert_eq!(one("last_success{job=\"batch\",path=\"\"}"), "1.5");
    let nightly = "items_total{job=\"batch/nightly\",path=\"/var/tmp\",empty=\"\",kind=\"a/b\"}";
    assert_eq!(one(nightly), "3");
    assert_eq!(
        one("duration_bucket{job=\"added\",instance!=\"\",le=\"2.0\"}"),
        "1"
    );
    assert_eq!(one("build_info{job=\"compressed\",version=\"1\"}"), "1");
    let jobs = ask("count by (job) (last_success)");
    assert_eq!(jobs.as_array().map(Vec::len), Some(4), "{jobs}");
}
