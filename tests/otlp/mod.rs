//! OTLP: Varve and a real Prometheus with the same settings get requests with metrics of all types,
//! and must store the same.

mod collector;
mod grpc;
mod protocol;
mod traces;

use std::process::Command;

use prost::Message;
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::messages::otlp::{
    AnyValue, ArrayValue, Buckets, CUMULATIVE, DELTA, Data, Exemplar, Exponential,
    ExponentialPoint, ExportResponse, Gauge, Histogram, HistogramPoint, Metric, Number,
    NumberPoint, Quantile, Request, Resource, ResourceMetrics, RpcStatus, Scope, ScopeMetrics, Sum,
    Summary, SummaryPoint, Value, attributes, text,
};
use crate::harness::{
    Access, Answer, ConfigFile, Http, Release, Server, now_ms, python_with, releases,
};

const SETTINGS: [&str; 7] = [
    "{}",
    "{translation_strategy: UnderscoreEscapingWithoutSuffixes}",
    "{translation_strategy: NoUTF8EscapingWithSuffixes, promote_resource_attributes: [host.name, absent]}",
    "{translation_strategy: NoTranslation, keep_identifying_resource_attributes: true}",
    "{promote_all_resource_attributes: true, ignore_resource_attributes: [k8s.pod.name]}",
    "{convert_histograms_to_nhcb: true}",
    "{promote_scope_metadata: true}",
];

#[test]
fn requests_are_stored_like_in_a_real_prometheus() {
    let flags = [
        "--web.enable-otlp-receiver",
        "--enable-feature=native-histograms,exemplar-storage,metadata-wal-records",
    ];
    let now_s = now_ms().cast_unsigned() / 1000;
    let request = request(now_s);
    let mut wrong = Vec::new();
    for (release, settings) in with_receiver()
        .into_iter()
        .flat_map(|release| SETTINGS.map(|settings| (release, settings)))
    {
        let prometheus = release.start(&format!("otlp: {settings}"), &flags);
        let varve = server(settings);
        for http in [prometheus.http(), varve.http()] {
            send(http, &request).expect_status(200);
        }
        let (ours, theirs) = (
            contents(varve.http(), now_s),
            contents(prometheus.http(), now_s),
        );
        assert!(theirs.len() > 30, "{} lines", theirs.len());
        wrong.extend(difference(
            &format!("{:?} {settings}", release.version),
            &ours,
            &theirs,
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the releases with an OTLP receiver: some distributions build Prometheus without one.
fn with_receiver() -> Vec<&'static Release> {
    let found: Vec<_> = releases()
        .iter()
        .filter(|release| release.has_flag("--web.enable-otlp-receiver"))
        .collect();
    if found.is_empty() {
        varve_oracle::skip("no prometheus with an OTLP receiver is on PATH");
    }
    found
}

fn server(settings: &str) -> Server {
    Server::start(&[&ConfigFile::new(&format!("otlp: {settings}")).flag()])
}

/// Returns what a counter has counted: the sum of its increases, also after a reset.
fn counted(http: &Http, name: &str) -> f64 {
    let query = [("query", format!("{name}[1h]"))];
    let query = query.each_ref().map(|(key, value)| (*key, value.as_str()));
    let found = http.query("/api/v1/query", &query).data();
    let values = found["result"][0]["values"].as_array().expect("samples");
    let value = |sample: &Json| -> f64 {
        let text = sample[1].as_str().expect("a value");
        text.parse().expect("a number")
    };
    let mut before = 0.0;
    let mut increase = |sample: &Json| {
        let value = value(sample);
        let increase = if value < before {
            value
        } else {
            value - before
        };
        before = value;
        increase
    };
    values.iter().map(&mut increase).sum()
}

/// Senders repeat what was not acknowledged, and their consumers reorder it: each delta counts once.
#[test]
fn deltas_count_once_after_kills() {
    let flags = ["--enable-feature=otlp-deltatocumulative"];
    let mut varve = Server::start(&flags);
    let first_s = now_ms().cast_unsigned() / 1000 - 600;
    let send_delta = |varve: &Server, i: u64| {
        let delta = Sum {
            points: vec![NumberPoint {
                start_ns: (first_s + 10 * i) * 1_000_000_000,
                ..number(first_s + 10 * (i + 1), 1.0)
            }],
            temporality: DELTA,
            is_monotonic: true,
        };
        let request = resource(vec![metric("hits", "", Data::Sum(delta))], Vec::new());
        send(varve.http(), &request).expect_status(200);
    };
    // Each list is sent to one process, which is killed then.
    for (sent, expected) in [
        (&[0, 1, 3, 2, 4][..], 5.0),
        (&[4, 3, 6, 5], 7.0),
        (&[6, 7, 9, 8, 10], 11.0),
        (&[10, 11], 12.0),
    ] {
        for &i in sent {
            send_delta(&varve, i);
        }
        assert_eq!(counted(varve.http(), "hits_total"), expected, "{sent:?}");
        varve.kill();
        varve.restart(&flags);
    }
}

/// Returns a server whose only token has the scope `read`, and the directory of its tokens.
fn server_with_reader() -> (Server, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("web.yml");
    let tokens = "bearer_tokens:\n- {name: reader, token: t0ken, scopes: [read]}\n";
    std::fs::write(&path, tokens).expect("write a file");
    let access = Access {
        tls: None,
        authorization: Some("Bearer t0ken".to_owned()),
    };
    let flag = format!("--web.config.file={}", path.display());
    (Server::start_as(&[&flag], &access), dir)
}

/// A gauge with good points, and bad ones: a metric with delta temporality, which is not enabled.
fn with_bad_points(n_good: usize, n_bad: usize) -> Vec<u8> {
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

/// Starts Varve and each Prometheus with an OTLP receiver, calls `send` for both, and compares what
/// they have stored.
fn compare(feature: &str, now_s: u64, window: &str, send: impl Fn(&Http)) {
    let mut wrong = Vec::new();
    for release in with_receiver() {
        let features = format!(
            "--enable-feature=native-histograms,exemplar-storage,metadata-wal-records{feature}"
        );
        let prometheus = release.start("otlp: {}", &["--web.enable-otlp-receiver", &features]);
        let varve = Server::start(&[&format!("--enable-feature=search-api{feature}")]);
        send(prometheus.http());
        send(varve.http());
        let (ours, theirs) = (
            contents_in(window, varve.http(), now_s),
            contents_in(window, prometheus.http(), now_s),
        );
        assert!(!theirs.is_empty());
        wrong.extend(difference(
            &format!("{:?} {feature}", release.version),
            &ours,
            &theirs,
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn json_is_stored_like_in_a_real_prometheus() {
    let now_s = now_ms().cast_unsigned() / 1000;
    let time = format!(
        r#""startTimeUnixNano":"{}000000000","timeUnixNano":"{now_s}000000000""#,
        now_s - 60
    );
    let attributes = r#""attributes":[{"key":"a","value":{"stringValue":"é"}},{"key":"i","value":{"intValue":"-7"}},
        {"key":"l","value":{"arrayValue":{"values":[{"boolValue":true},{"doubleValue":1.5},{}]}}},
        {"key":"m","value":{"kvlistValue":{"values":[{"key":"b","value":{"bytesValue":"YWI="}}]}}}]"#;
    let exemplars = format!(
        r#""exemplars":[{{"timeUnixNano":{now_s}000000000,"asDouble":2,"traceId":"0af7651916cd43dd8448eb211c80319c",
        "spanId":"b7ad6b7169203331","filteredAttributes":[{{"key":"user","value":{{"stringValue":"u"}}}}]}}]"#
    );
    let metrics = [
        format!(
            r#"{{"name":"g","unit":"By","gauge":{{"dataPoints":[{{{time},"asInt":"5",{attributes},"flags":0}}]}}}}"#
        ),
        format!(
            r#"{{"name":"s","description":"x","sum":{{"aggregationTemporality":"AGGREGATION_TEMPORALITY_CUMULATIVE",
            "isMonotonic":true,"dataPoints":[{{{time},"as_double":1.25,{exemplars}}}]}}}}"#
        ),
        format!(
            r#"{{"name":"h","histogram":{{"aggregationTemporality":2,"dataPoints":[{{{time},"count":"6","sum":7.5,
            "bucketCounts":["1",2,"3"],"explicitBounds":[1,"2.5"],"min":1,{exemplars}}}]}}}}"#
        ),
        format!(
            r#"{{"name":"e","exponentialHistogram":{{"aggregationTemporality":2,"dataPoints":[{{{time},"count":5,
            "sum":3,"scale":2,"zeroCount":"1","positive":{{"offset":-1,"bucketCounts":["1","3"]}},"unknown":{{"x":[]}}}}]}}}}"#
        ),
        format!(
            r#"{{"name":"q","summary":{{"dataPoints":[{{{time},"count":2,"sum":5,
            "quantileValues":[{{"quantile":0.5,"value":"NaN"}}]}}]}}}}"#
        ),
    ];
    let body = format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"shop"}}}},
        {{"key":"x","value":{{"stringValue":"y"}}}}]}},"scopeMetrics":[{{"scope":{{"name":"l"}},"metrics":[{}],
        "schemaUrl":""}}]}}],"later":null}}"#,
        metrics.join(",")
    );
    compare("", now_s, "1h", |http| {
        http.post(
            "/api/v1/otlp/v1/metrics",
            &[("Content-Type", "application/json")],
            body.as_bytes(),
        )
        .expect_status(200);
    });
}

#[test]
fn deltas_are_added_up_like_in_a_real_prometheus() {
    let now_s = now_ms().cast_unsigned() / 1000;
    let request = |i: u64| {
        let (start_ns, time_ns) = (
            (now_s - 60 + 10 * i) * 1_000_000_000,
            (now_s - 50 + 10 * i) * 1_000_000_000,
        );
        let number = |value| NumberPoint {
            start_ns,
            time_ns,
            value: Some(value),
            ..NumberPoint::default()
        };
        let sum = |value| {
            Data::Sum(Sum {
                points: vec![number(value)],
                temporality: DELTA,
                is_monotonic: true,
            })
        };
        let histogram = HistogramPoint {
            start_ns,
            time_ns,
            count: 3 + i,
            sum: Some(2.5),
            bucket_counts: vec![1, 2, i],
            explicit_bounds: vec![1.0, if i == 3 { 4.0 } else { 2.0 }],
            ..HistogramPoint::default()
        };
        let exponential = ExponentialPoint {
            start_ns,
            time_ns,
            count: 6,
            sum: Some(1.5),
            scale: if i == 2 { 1 } else { 3 },
            zero_count: 1,
            positive: Some(Buckets {
                offset: -3 + 5 * i as i32,
                counts: vec![1, 0, 4],
            }),
            ..ExponentialPoint::default()
        };
        let data = [
            ("int", sum(Number::Int(5 + i.cast_signed()))),
            ("float", sum(Number::Double(0.25))),
            (
                "explicit",
                Data::Histogram(Histogram {
                    points: vec![histogram],
                    temporality: DELTA,
                }),
            ),
            (
                "exponential",
                Data::Exponential(Exponential {
                    points: vec![exponential],
                    temporality: DELTA,
                }),
            ),
        ];
        let metrics = data
            .into_iter()
            .map(|(name, data)| metric(name, "", data))
            .collect();
        resource(metrics, vec![("service.name", text("shop"))])
    };
    // The window begins after the zeros that only Varve stores, at the start of each stream.
    compare(",otlp-deltatocumulative", now_s, "55s", |http| {
        for i in 0..5 {
            send(http, &request(i)).expect_status(200);
        }
    });
    let int_total = |varve: &Server| {
        let time = (now_s + 1).to_string();
        let query = [("query", "int_total[1h]"), ("time", &time)];
        let found = varve.http().query("/api/v1/query", &query).data();
        let values = found["result"][0]["values"].as_array().expect("samples");
        let value = |sample: &Json| sample[1].as_str().unwrap_or_default().to_owned();
        values.iter().map(value).collect::<Vec<_>>()
    };
    // Prometheus rejects a delta before the last one, too; Varve says so, unless it is a repetition.
    let flags = [
        "--enable-feature=otlp-deltatocumulative",
        "--ingest.late-delta-window=0s",
    ];
    let varve = Server::start(&flags);
    for (i, status) in [(1, 200), (2, 200), (2, 200), (0, 400), (1, 200)] {
        send(varve.http(), &request(i)).expect_status(status);
    }
    assert_eq!(varve.metric("varve_ingest_delta_streams"), 4.0);
    assert_eq!(int_total(&varve), ["0", "6", "13"]);
    // By default a late delta is added, once. That of the histogram whose bounds change is not.
    let varve = Server::start(&flags[..1]);
    for i in [1, 3, 2, 2, 3, 0, 1, 4] {
        send(varve.http(), &request(i)).expect_status(200);
    }
    assert_eq!(varve.metric("varve_ingest_late_deltas_total"), 2.0 * 3.0);
    assert_eq!(int_total(&varve), ["0", "6", "14", "21", "26", "35"]);
}

fn send(http: &Http, request: &Request) -> Answer {
    http.post(
        "/api/v1/otlp/v1/metrics",
        &[("Content-Type", "application/x-protobuf")],
        &request.encode_to_vec(),
    )
}

/// Returns all samples and exemplars as sorted lines.
fn contents(http: &Http, now_s: u64) -> Vec<String> {
    contents_in("1h", http, now_s)
}

/// Returns the samples of a window before `now_s`, and all exemplars, as sorted lines.
fn contents_in(window: &str, http: &Http, now_s: u64) -> Vec<String> {
    let time = (now_s + 1).to_string();
    let samples = http
        .query(
            "/api/v1/query",
            &[
                ("query", &*format!("{{__name__=~\".+\"}}[{window}]")),
                ("time", &time),
            ],
        )
        .data();
    let start = (now_s - 3600).to_string();
    let exemplars = [
        ("query", "{__name__=~\".+\"}"),
        ("start", start.as_str()),
        ("end", time.as_str()),
    ];
    let exemplars = http.query("/api/v1/query_exemplars", &exemplars).data();
    let lines = |list: &Json| {
        list.as_array()
            .expect("a list")
            .iter()
            .map(Json::to_string)
            .collect::<Vec<_>>()
    };
    let mut all = [lines(&samples["result"]), lines(&exemplars)].concat();
    all.sort_unstable();
    all
}

fn difference(settings: &str, ours: &[String], theirs: &[String]) -> Vec<String> {
    let only = |these: &[String], those: &[String], whose: &str| {
        let missing = these.iter().filter(|line| !those.contains(line));
        missing
            .map(|line| format!("{settings}: only {whose}: {line}"))
            .collect::<Vec<_>>()
    };
    [only(ours, theirs, "ours"), only(theirs, ours, "theirs")].concat()
}

#[test]
fn metrics_of_all_types_become_the_specified_series() {
    let server = server("{promote_resource_attributes: [host.name]}");
    send(server.http(), &request(1_700_000_000)).expect_status(200);
    let stored = contents(server.http(), 1_700_000_000).join("\n");
    let identity = r#""host_name":"h1","instance":"i-1","job":"eu/shop""#;
    for expect in [
        format!(r#"{{"__name__":"cpu_utilization_ratio",{identity}}},"values":[[1700000000,"1.5"]]"#),
        format!(r#"{{"__name__":"io_rate_bytes_per_second",{identity}}}"#),
        format!(r#"{{"__name__":"_2xx_responses",{identity}}}"#),
        format!(r#"{{"__name__":"bytes_sent_total",{identity}}}"#),
        format!(r#"{{"__name__":"latency_seconds_count","code":"200",{identity}}},"values":[[1700000000,"10"]]"#),
        format!(r#"{{"__name__":"latency_seconds_bucket","code":"200",{identity},"le":"1000000"}},"values":[[1700000000,"8"]]"#),
        format!(r#"{{"__name__":"pauses_seconds",{identity},"quantile":"0.99"}},"values":[[1700000000,"1.5"]]"#),
        r#"{"__name__":"exp_milliseconds","code":"500""#.to_owned(),
        r#"{"__name__":"target_info","host_name":"h1","instance":"i-1","job":"eu/shop","k8s_pod_name":"p-1","port":"80"}"#.to_owned(),
        r#""http_method":"GET;second""#.to_owned(),
        r#""list":"[1,\"<b>\"]""#.to_owned(),
        r#""key_1st":"true","key_hidden":"x""#.to_owned(),
        r#""labels":{"span_id":"0707070707070707","trace_id":"09090909090909090909090909090909","user.id":"u"}"#.to_owned(),
    ] {
        assert!(stored.contains(&expect), "{expect} is not in\n{stored}");
    }
    assert!(
        !stored.contains("\"h2\",\"job\"") && !stored.contains("\"job\":\"bare\",\"target"),
        "{stored}"
    );
}

#[test]
fn untranslatable_data_points_are_rejected_and_the_others_stored() {
    let server = server("{}");
    let now_s = now_ms().cast_unsigned() / 1000;
    let delta = Sum {
        points: vec![number(now_s, 1.0)],
        temporality: DELTA,
        is_monotonic: true,
    };
    let coarse = ExponentialPoint {
        scale: -5,
        time_ns: now_s * 1_000_000_000,
        ..ExponentialPoint::default()
    };
    let metrics = vec![
        metric(
            "good",
            "",
            Data::Gauge(Gauge {
                points: vec![number(now_s, 1.0)],
            }),
        ),
        metric("delta", "", Data::Sum(delta)),
        metric(
            "coarse",
            "",
            Data::Exponential(Exponential {
                points: vec![coarse],
                temporality: CUMULATIVE,
            }),
        ),
    ];
    let answer = send(server.http(), &resource(metrics, Vec::new())).expect_status(200);
    let response = ExportResponse::decode(&*answer.body).expect("a response");
    let partial = response.partial_success.expect("a partial success");
    assert_eq!(partial.rejected_data_points, 2);
    assert_eq!(
        partial.error_message,
        "OTLP that cannot be translated: 2 data points, e.g. invalid temporality and type combination for metric \
         \"delta\"; --enable-feature=otlp-deltatocumulative accepts deltas"
    );
    let stored = contents(server.http(), now_s);
    assert!(
        stored.len() == 1 && stored[0].contains("\"good\""),
        "{stored:?}"
    );
}

/// The totals of deltas equal what the SDK itself adds up.
#[test]
fn the_sdk_of_opentelemetry_writes_protobuf_and_json() {
    let modules = "opentelemetry.exporter.otlp.proto.http, opentelemetry.exporter.otlp.json.http";
    let Some(python) = python_with(modules) else {
        return;
    };
    let varve = Server::start(&["--enable-feature=otlp-deltatocumulative"]);
    let url = varve.http().url("/api/v1/otlp/v1/metrics");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/otlp/sdk.py");
    for (protocol, temporality) in [
        ("protobuf", "cumulative"),
        ("protobuf", "delta"),
        ("json", "cumulative"),
        ("json", "delta"),
    ] {
        let output = Command::new(&python)
            .args([script, &url, protocol, temporality])
            .output()
            .expect("run python");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && !log.contains("Failed"),
            "{protocol} {temporality}: {log}"
        );
    }
    let query = |instance: &str| {
        let expr = format!("last_over_time({{job=\"sdk\",instance=\"{instance}\"}}[5m])");
        let found = varve
            .http()
            .query("/api/v1/query", &[("query", &expr)])
            .data();
        let found = found["result"].as_array().expect("a vector").clone();
        let line = |series: &Json| {
            let value = if series["value"].is_null() {
                &series["histogram"][1]
            } else {
                &series["value"][1]
            };
            // Sums of floats depend on their order.
            let value = value
                .as_str()
                .and_then(|value| value.parse::<f64>().ok())
                .map_or(value.clone(), |value| Json::from(format!("{value:.6e}")));
            format!("{} {value}", series["metric"]).replace(instance, "")
        };
        let mut lines: Vec<_> = found.iter().map(line).collect();
        lines.sort_unstable();
        lines
    };
    let expect = query("protobuf-cumulative");
    assert!(
        expect.len() > 30 && expect.iter().any(|line| line.contains("buckets")),
        "{expect:#?}"
    );
    for instance in ["protobuf-delta", "json-cumulative", "json-delta"] {
        let wrong = difference(instance, &query(instance), &expect);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// At the limit, deltas of known streams are still added up, and those of others are rejected.
#[test]
fn the_sdk_of_opentelemetry_fills_the_streams_with_deltas() {
    let Some(python) = python_with("opentelemetry.exporter.otlp.proto.http") else {
        return;
    };
    let varve = Server::start(&["--enable-feature=otlp-deltatocumulative"]);
    let url = varve.http().url("/api/v1/otlp/v1/metrics");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/otlp/fill.py");
    let output = Command::new(&python)
        .args([script, &url])
        .output()
        .expect("run python");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let (filling, beyond) = log
        .split_once("full\n")
        .unwrap_or_else(|| panic!("the streams are not full: {log}"));
    assert!(
        output.status.success() && !filling.contains("Failed"),
        "{log}"
    );
    // The SDK does not log a partial success; the server does.
    assert!(!beyond.contains("Failed"), "{log}");
    let log = varve.log();
    assert!(log.contains("n_rejected=10 n_sent=1010"), "{log}");
    let further = Sum {
        points: vec![number(now_ms().cast_unsigned() / 1000, 1.0)],
        temporality: DELTA,
        is_monotonic: true,
    };
    let rejected = send(
        varve.http(),
        &resource(vec![metric("further", "", Data::Sum(further))], Vec::new()),
    );
    // The number of streams may be that of other tenants, so the error does not state it.
    let reason = "OTLP that cannot be translated: 1 data point, e.g. metric \"further\": the streams with delta temporality \
                  of all senders would exceed the limit of 100000 streams or 134217728 bytes";
    let status = RpcStatus::decode(&*rejected.expect_status(400).body).expect("a status");
    assert_eq!(status.message, reason);
    assert_eq!(varve.metric("varve_ingest_delta_streams"), 100_000.0);
    let count = |expr: &str| {
        varve
            .http()
            .query("/api/v1/query", &[("query", expr)])
            .data()["result"][0]["value"]
            .take()
    };
    for (expr, n) in [
        ("filled_total == 3", "1000"),
        ("filled_total == 1", "99000"),
        ("filled_total", "100000"),
    ] {
        assert_eq!(count(&format!("count({expr})"))[1], n, "{expr}");
    }
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        description: format!("What {name} is."),
        unit: unit.to_owned(),
        data: Some(data),
    }
}

fn resource(metrics: Vec<Metric>, of: Vec<(&str, Value)>) -> Request {
    let scope = Scope {
        name: "library".to_owned(),
        version: "1.2".to_owned(),
        attributes: attributes([("scope.kind", text("x"))]),
    };
    let scopes = vec![ScopeMetrics {
        scope: Some(scope),
        metrics,
        schema_url: "https://schema".to_owned(),
    }];
    Request {
        resources: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes(of),
            }),
            scopes,
        }],
    }
}

fn number(time_s: u64, value: f64) -> NumberPoint {
    NumberPoint {
        time_ns: time_s * 1_000_000_000,
        value: Some(Number::Double(value)),
        ..NumberPoint::default()
    }
}

fn exemplar(time_s: u64, value: f64) -> Exemplar {
    Exemplar {
        time_ns: time_s * 1_000_000_000,
        value,
        span_id: vec![7; 8],
        trace_id: vec![9; 16],
        attributes: attributes([("user.id", text("u"))]),
    }
}

/// Returns a request with metrics of all types, and names and units that are hard to translate.
fn request(now_s: u64) -> Request {
    let identity = vec![
        ("service.name", text("shop")),
        ("service.namespace", text("eu")),
        ("service.instance.id", text("i-1")),
        ("host.name", text("h1")),
        ("k8s.pod.name", text("p-1")),
        ("port", Value::Int(80)),
    ];
    let mut request = resource(
        [gauges(now_s), sums(now_s), histograms(now_s)].concat(),
        identity,
    );
    // A resource with identifying attributes only, or without them, gets no target_info.
    let gauge = |name: &str| {
        metric(
            name,
            "",
            Data::Gauge(Gauge {
                points: vec![number(now_s, 5.0)],
            }),
        )
    };
    request
        .resources
        .extend(resource(vec![gauge("plain")], vec![("service.name", text("bare"))]).resources);
    request
        .resources
        .extend(resource(vec![gauge("anonymous")], vec![("host.name", text("h2"))]).resources);
    request
}

fn gauges(now_s: u64) -> Vec<Metric> {
    let names = [
        ("cpu.utilization", "1"),
        ("process.memory", "By"),
        ("io.rate", "By/s"),
        ("request.count", "{requests}"),
        ("temperature", "Cel"),
        ("queue.length_ratio", "1"),
        ("2xx.responses", ""),
        ("weird--name..here", "%"),
        ("speed", "m/s"),
        ("custom", "foo bar/{x}"),
        ("job.seconds", "s"),
    ];
    let gauge = |(name, unit)| {
        metric(
            name,
            unit,
            Data::Gauge(Gauge {
                points: vec![number(now_s, 1.5)],
            }),
        )
    };
    let mut gauges: Vec<_> = names.into_iter().map(gauge).collect();
    let list = ArrayValue {
        values: vec![
            AnyValue {
                value: Some(Value::Int(1)),
            },
            AnyValue {
                value: Some(text("<b>")),
            },
        ],
    };
    let labelled = NumberPoint {
        value: Some(Number::Int(-3)),
        attributes: attributes([
            ("http.method", text("GET")),
            ("http_method", text("second")),
            ("_hidden", text("x")),
            ("1st", Value::Bool(true)),
            ("ratio", Value::Double(1e21)),
            ("small", Value::Double(1.5e-7)),
            ("list", Value::Array(list)),
            ("raw", Value::Bytes(b"abcd".to_vec())),
            ("empty", text("")),
            ("host.name", text("of the point")),
            ("job", text("overwritten")),
            ("é.b", text("ö")),
        ]),
        ..number(now_s, 0.0)
    };
    let stale = NumberPoint {
        flags: 1,
        ..number(now_s, 7.0)
    };
    let points = vec![labelled, number(now_s - 400, 1.0), stale];
    gauges.push(metric("labelled", "", Data::Gauge(Gauge { points })));
    gauges
}

fn sums(now_s: u64) -> Vec<Metric> {
    let sum = |is_monotonic| Sum {
        points: vec![NumberPoint {
            exemplars: vec![exemplar(now_s, 2.0)],
            ..number(now_s, 12.0)
        }],
        temporality: CUMULATIVE,
        is_monotonic,
    };
    vec![
        metric("http.requests", "", Data::Sum(sum(true))),
        metric("bytes.sent", "By", Data::Sum(sum(true))),
        metric("already_total", "1", Data::Sum(sum(true))),
        metric("energy.total", "J", Data::Sum(sum(true))),
        metric("connections", "{connection}", Data::Sum(sum(false))),
        metric("items", "1", Data::Sum(sum(false))),
    ]
}

fn histograms(now_s: u64) -> Vec<Metric> {
    let time_ns = now_s * 1_000_000_000;
    let point = HistogramPoint {
        start_ns: 0,
        time_ns,
        count: 10,
        sum: Some(20.5),
        bucket_counts: vec![0, 3, 5, 2],
        explicit_bounds: vec![0.1, 2.0, 1e6],
        exemplars: vec![exemplar(now_s, 1.0), exemplar(now_s, 2e6)],
        attributes: attributes([("code", text("200"))]),
    };
    let bare = HistogramPoint {
        sum: None,
        exemplars: Vec::new(),
        attributes: Vec::new(),
        ..point.clone()
    };
    let buckets = |offset, counts: &[u64]| {
        Some(Buckets {
            offset,
            counts: counts.to_vec(),
        })
    };
    let exponential = ExponentialPoint {
        start_ns: 0,
        time_ns,
        count: 20,
        sum: Some(33.0),
        scale: 3,
        zero_count: 1,
        positive: buckets(-2, &[4, 0, 0, 0, 0, 5, 1]),
        negative: buckets(3, &[2, 7]),
        attributes: attributes([("code", text("500"))]),
    };
    let fine = ExponentialPoint {
        scale: 10,
        count: 11,
        positive: buckets(5, &[1, 2, 3, 4]),
        negative: None,
        attributes: Vec::new(),
        ..exponential.clone()
    };
    let summary = SummaryPoint {
        time_ns,
        count: 5,
        sum: 2.5,
        quantiles: vec![
            Quantile {
                quantile: 0.5,
                value: 0.25,
            },
            Quantile {
                quantile: 0.99,
                value: 1.5,
            },
        ],
        attributes: Vec::new(),
    };
    vec![
        metric(
            "latency",
            "s",
            Data::Histogram(Histogram {
                points: vec![point],
                temporality: CUMULATIVE,
            }),
        ),
        metric(
            "sizes",
            "By",
            Data::Histogram(Histogram {
                points: vec![bare],
                temporality: CUMULATIVE,
            }),
        ),
        metric(
            "exp",
            "ms",
            Data::Exponential(Exponential {
                points: vec![exponential, fine],
                temporality: CUMULATIVE,
            }),
        ),
        metric(
            "pauses",
            "s",
            Data::Summary(Summary {
                points: vec![summary],
            }),
        ),
    ]
}
