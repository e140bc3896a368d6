//! A leaf: series through the store API, and through queriers.

use std::time::{Duration, Instant};

use prost::Message as _;
use serde_json::{Value, json};
use varve_model::histogram::HistogramCounts;

use super::series::series_of;
use super::{T0, ask, number, start};
use crate::harness::messages::thanos::{
    LabelValuesRequest, Matcher, QueryRangeRequest, SeriesRequest, ShardInfo, Texts,
};
use crate::harness::{
    BucketSpan, Call, ConfigFile, Histogram, Http2, Server, Thanos, WriteRequest, frame,
    is_thanos_missing, series, wait_for, wait_until,
};

const SERIES: &str = "/thanos.Store/Series";

fn everything() -> SeriesRequest {
    let matchers = vec![Matcher::matching("__name__", ".+")];
    SeriesRequest {
        min_time: i64::MIN + 1,
        max_time: i64::MAX,
        matchers,
        ..SeriesRequest::default()
    }
}

fn call(server: &Server, request: &SeriesRequest) -> Call {
    Http2::connect(server.http().address()).call(SERIES, &[], &request.encode_to_vec())
}

/// Returns label sets whose order changes with each of the labels A, cluster and zz.
fn nested() -> Vec<Vec<(&'static str, &'static str)>> {
    vec![
        vec![("__name__", "m")],
        vec![("__name__", "m"), ("a", "1")],
        vec![("__name__", "m"), ("a", "1"), ("b", "1")],
        vec![("__name__", "m"), ("a", "1"), ("zzz", "1")],
        vec![("__name__", "m"), ("z", "1")],
        vec![("__name__", "n")],
        vec![("B", "1"), ("__name__", "m")],
    ]
}

fn write_nested(server: &Server) {
    let all = nested();
    let request = WriteRequest::new(
        all.iter()
            .map(|labels| series(labels, &[(T0, 1.0), (T0 + 15_000, 2.0)])),
    );
    server.http().write(&request).expect_status(204);
}

#[test]
fn series_are_sorted_with_external_labels_and_without_replica_labels() {
    let server = start(&json!({"A": "x", "cluster": "c", "replica": "a", "zz": "y"}));
    write_nested(&server);
    let labels = |request: &SeriesRequest| {
        let call = call(&server, request);
        assert_eq!((&*call.status, &*call.message), ("0", ""));
        let all: Vec<_> = series_of(&call)
            .iter()
            .map(|series| series.labels())
            .collect();
        assert!(
            all.is_sorted() && all.iter().all(|labels| labels.is_sorted()),
            "{all:?}"
        );
        assert!(
            all.iter()
                .all(|labels| labels.contains(&("cluster".to_owned(), "c".to_owned()))),
            "{all:?}"
        );
        all
    };
    assert_eq!(labels(&everything()).len(), nested().len());
    let hidden = |names: &[&str]| {
        let without_replica_labels = names.iter().map(|name| (*name).to_owned()).collect();
        labels(&SeriesRequest {
            without_replica_labels,
            response_batch_size: 3,
            ..everything()
        })
    };
    for names in [
        &["replica"][..],
        &["a"],
        &["B", "a", "replica"],
        &["z", "zzz"],
    ] {
        let found = hidden(names);
        assert_eq!(found.len(), nested().len());
        assert!(
            !found
                .iter()
                .flatten()
                .any(|(name, _)| names.contains(&name.as_str())),
            "{found:?}"
        );
    }
    assert_eq!(
        labels(&SeriesRequest {
            limit: 2,
            ..everything()
        })
        .len(),
        2
    );
    assert_eq!(
        labels(&SeriesRequest {
            skip_chunks: true,
            ..everything()
        }),
        labels(&everything())
    );
    let shard = |shard_index| {
        let shard_info = ShardInfo {
            shard_index,
            total_shards: 3,
            by: true,
            labels: vec!["a".into(), "z".into()],
        };
        labels(&SeriesRequest {
            shard_info: Some(shard_info),
            ..everything()
        })
    };
    let mut shards: Vec<_> = (0..3).flat_map(shard).collect();
    shards.sort();
    assert_eq!(shards, labels(&everything()));
}

#[test]
fn matchers_of_external_labels_select_the_store() {
    let server = start(&json!({"cluster": "c"}));
    write_nested(&server);
    let found = |matchers: Vec<Matcher>| {
        let call = call(
            &server,
            &SeriesRequest {
                matchers,
                ..everything()
            },
        );
        (call.status.clone(), series_of(&call).len())
    };
    let name = || Matcher::equal("__name__", "n");
    assert_eq!(
        found(vec![name(), Matcher::equal("cluster", "c")]),
        ("0".into(), 1)
    );
    assert_eq!(
        found(vec![name(), Matcher::equal("cluster", "d")]),
        ("0".into(), 0)
    );
    // InvalidArgument.
    assert_eq!(found(vec![Matcher::equal("cluster", "c")]), ("3".into(), 0));
    assert_eq!(
        found(vec![Matcher::matching("__name__", "(")]),
        ("3".into(), 0)
    );
    let http2 = Http2::connect(server.http().address());
    let values = |label: &str, limit| {
        let (label, end) = (label.to_owned(), i64::MAX);
        let request = LabelValuesRequest {
            label,
            end,
            limit,
            ..LabelValuesRequest::default()
        };
        let call = http2.call("/thanos.Store/LabelValues", &[], &request.encode_to_vec());
        Texts::decode(&*call.messages[0].1).expect("texts").texts
    };
    assert_eq!(values("cluster", 0), ["c"]);
    assert_eq!(values("__name__", 0), ["m", "n"]);
    assert_eq!(values("__name__", 1), ["m"]);
    assert!(values("nothing", 0).is_empty());
}

#[test]
fn calls_are_compressed_limited_and_bounded_in_time_like_requests_of_http() {
    let server = Server::start(&[
        "--query.max-memory=1MiB",
        "--query.max-memory-total=1MiB",
        "--grpc-address=127.0.0.1:0",
    ]);
    let http2 = Http2::connect(server.http().address());
    for part in 0..4 {
        let many = (0..5000).map(|i| {
            series(
                &[("__name__", "m"), ("i", &*(part * 5000 + i).to_string())],
                &[(T0, 1.0)],
            )
        });
        server
            .http()
            .write(&WriteRequest::new(many))
            .expect_status(204);
    }
    let exhausted = http2.call(SERIES, &[], &everything().encode_to_vec());
    assert_eq!(exhausted.status, "8", "{exhausted:?}");
    assert!(
        exhausted.message.contains("--query.max-memory"),
        "{exhausted:?}"
    );
    assert!(
        server.metric("varve_grpc_requests_total{code=\"8\",method=\"/thanos.Store/Series\"}")
            >= 1.0
    );

    let one = SeriesRequest {
        matchers: vec![Matcher::equal("i", "7")],
        ..everything()
    }
    .encode_to_vec();
    for (name, body) in [
        ("gzip", gzip(&one)),
        ("zstd", zstd(&one)),
        ("snappy", framed_snappy(&one)),
    ] {
        let call = http2.call_with(SERIES, &[("grpc-encoding", name)], &frame(true, &body));
        assert_eq!(
            (&*call.status, call.messages.len()),
            ("0", 1),
            "{name} {call:?}"
        );
        assert!(
            call.messages[0].0,
            "the response has the coding of the request"
        );
        assert_eq!(call.headers["grpc-encoding"], name);
    }
    let status = |headers: &[(&str, &str)], path| http2.call(path, headers, &one).status;
    // DeadlineExceeded, InvalidArgument, Unimplemented.
    assert_eq!(status(&[("grpc-timeout", "1n")], SERIES), "4");
    assert_eq!(status(&[("grpc-timeout", "soon")], SERIES), "3");
    assert_eq!(status(&[("grpc-encoding", "br")], SERIES), "12");
    let unknown = http2.head(http2.send(
        "POST",
        "/thanos.Store/Nothing",
        &[("content-type", "application/grpc")],
        b"",
    ));
    assert_eq!(unknown.status(), 404);
    let step_0 = QueryRangeRequest {
        query: "1".into(),
        end_time_seconds: 1,
        ..QueryRangeRequest::default()
    };
    assert_eq!(
        http2
            .call("/thanos.Query/QueryRange", &[], &step_0.encode_to_vec())
            .status,
        "3"
    );

    let log = server.log();
    let (_, address) = log
        .split_once("Listening for gRPC")
        .and_then(|(_, rest)| rest.split_once("address="))
        .unwrap();
    let address = address.split_whitespace().next().unwrap().trim_matches('"');
    let only_grpc = Http2::connect(address.parse().expect("an address"));
    assert_eq!(only_grpc.call(SERIES, &[], &one).status, "0");
    assert_eq!(only_grpc.get("/api/v1/query?query=1").0, 404);
}

fn gzip(message: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(message).expect("a vector grows");
    encoder.finish().expect("a vector grows")
}

fn zstd(message: &[u8]) -> Vec<u8> {
    zstd::encode_all(message, 1).expect("a vector grows")
}

fn framed_snappy(message: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(message).expect("a vector grows");
    encoder.into_inner().expect("a vector grows")
}

#[test]
fn samples_arrive_bit_for_bit_and_in_the_same_chunks_from_each_replica() {
    const STALE: u64 = 0x7ff0_0000_0000_0002;
    let payloads = [
        STALE,
        0x7ff8_0000_0000_0001,
        0xfff8_dead_beef_0001,
        (-0.0_f64).to_bits(),
        1,
        u64::MAX,
    ];
    let floats: Vec<_> = (0..2000)
        .map(|i| (T0 + i * 15_000, f64::from_bits(payloads[i as usize % 6])))
        .collect();
    let mut native = series(&[("__name__", "native")], &[]);
    native.histograms = (0..300).map(histogram).collect();
    // The second replica was down at the beginning, and starts in the middle of a period.
    let servers = [0, 777].map(|n_missing| {
        let server = start(&json!({"cluster": "c"}));
        let request = WriteRequest::new([
            series(&[("__name__", "m")], &floats[n_missing..]),
            native.clone(),
        ]);
        server.http().write(&request).expect_status(204);
        server
    });
    let [whole, later] = servers
        .each_ref()
        .map(|server| series_of(&call(server, &everything())));
    let read = whole[0].samples();
    assert_eq!(
        read.timestamps_ms,
        floats
            .iter()
            .map(|(time_ms, _)| *time_ms)
            .collect::<Vec<_>>()
    );
    assert!(
        read.values
            .iter()
            .zip(&floats)
            .all(|(got, (_, sent))| got.to_bits() == sent.to_bits())
    );
    let histograms = whole[1].samples();
    assert_eq!(histograms.len(), 300);
    for (i, (_, read)) in histograms.histograms.iter().enumerate() {
        let HistogramCounts::Integer {
            count, positive, ..
        } = &read.counts
        else {
            panic!("{read:?}")
        };
        assert_eq!(
            (*count, &**positive, read.sum),
            (12 + i as u64, &[10 + i as u64, 2][..], i as f64),
            "{i}"
        );
    }
    let shared: Vec<_> = later[0]
        .chunks
        .iter()
        .filter(|chunk| whole[0].chunks.contains(chunk))
        .collect();
    assert_eq!(
        shared.len(),
        later[0].chunks.len() - 1,
        "all but the first chunk are the same"
    );
    assert_eq!(later[1].chunks, whole[1].chunks);
}

fn histogram(i: i64) -> Histogram {
    let i = i as u64;
    Histogram {
        count_int: Some(12 + i),
        sum: i as f64,
        schema: 3,
        zero_count_int: Some(0),
        positive_spans: vec![BucketSpan {
            offset: -2,
            length: 2,
        }],
        positive_deltas: vec![10 + i as i64, 2 - (10 + i as i64)],
        timestamp_ms: T0 + i as i64 * 15_000,
        ..Histogram::default()
    }
}

#[test]
fn a_canceled_call_frees_its_memory_at_once() {
    let server = Server::start(&["--web.response-buffer=64KiB"]);
    for part in 0..4 {
        let many = (0..5000).map(|i| {
            let samples: Vec<_> = (0..40)
                .map(|j| (T0 + j * 15_000, (i * j) as f64 / 7.0))
                .collect();
            series(
                &[
                    ("__name__", "m"),
                    ("i", &*i.to_string()),
                    ("part", &*part.to_string()),
                ],
                &samples,
            )
        });
        server
            .http()
            .write(&WriteRequest::new(many))
            .expect_status(204);
    }
    let message = everything().encode_to_vec();
    let body = frame(false, &message);
    let http2 = Http2::connect(server.http().address());
    let sent = http2.send(
        "POST",
        SERIES,
        &[("content-type", "application/grpc"), ("te", "trailers")],
        &body,
    );
    let response = http2.head(sent);
    assert!(server.metric("varve_query_memory_bytes") > 1e6);
    drop(response);
    let dropped = Instant::now();
    wait_until("the memory to be free", || {
        server.metric("varve_query_memory_bytes") == 0.0
    });
    // The server has 100 ms. The rest is for the machine.
    assert!(
        dropped.elapsed() < Duration::from_secs(2),
        "{:?}",
        dropped.elapsed()
    );
    let canceled = "varve_grpc_requests_total{code=\"1\",method=\"/thanos.Store/Series\"}";
    assert_eq!(server.metric(canceled), 1.0);
}

#[test]
fn a_querier_merges_replicas_and_keeps_each_series_whole() {
    if is_thanos_missing() {
        return;
    }
    let servers =
        ["a", "b"].map(|replica| start(&json!({"A": "x", "cluster": "c", "replica": replica})));
    servers.iter().for_each(write_nested);
    for (replica, server) in servers.iter().enumerate() {
        // Each replica has a gap that the other one fills.
        let samples: Vec<_> = (0..240)
            .filter(|i| (i / 60) % 2 == replica as i64)
            .map(|i| (T0 + i * 15_000, i as f64))
            .collect();
        let mut native = series(&[("__name__", "native")], &[]);
        native.histograms = (0..240)
            .filter(|i| (i / 60) % 2 == replica as i64)
            .map(histogram)
            .collect();
        server
            .http()
            .write(&WriteRequest::new([
                series(&[("__name__", "gaps")], &samples),
                native,
            ]))
            .expect_status(204);
    }
    let addresses = servers.each_ref().map(|server| server.http().address());
    let querier = Thanos::query(&addresses, &["--query.replica-label=replica"]);
    let http = querier.http();
    // The metadata of a store with its first samples arrive with the next request, up to 5 s later.
    wait_until("the querier to know the times", || {
        number(http, "count(m)", T0 / 1000 + 15, &[]) > 0.0
    });
    let n = nested().len() as f64;
    let time_s = T0 / 1000 + 15;
    assert_eq!(
        number(
            http,
            "count({__name__=~\"m|n\"})",
            time_s,
            &[("dedup", "true")]
        ),
        n
    );
    assert_eq!(
        number(
            http,
            "count({__name__=~\"m|n\"})",
            time_s,
            &[("dedup", "false")]
        ),
        2.0 * n
    );
    assert_eq!(
        number(
            http,
            "count by (cluster) ({__name__=~\"m|n\", cluster=\"c\"})",
            time_s,
            &[]
        ),
        n
    );
    for metric in ["gaps", "native"] {
        let query = format!("count_over_time({metric}[1h])");
        // Where a replica has a gap, a querier waits some intervals before it changes to another
        // one.
        let n_samples = number(http, &query, T0 / 1000 + 3600, &[("dedup", "true")]);
        assert!(
            (225.0..=240.0).contains(&n_samples),
            "{metric}: {n_samples} of 240"
        );
    }
    let of_all = ask(http, "{__name__=~\"m|n\"}", time_s, &[("dedup", "true")]);
    assert!(
        of_all.iter().all(|series| series["value"][1] == "2"),
        "{of_all:?}"
    );
    let stores = querier.healthy_stores();
    assert_eq!(stores.len(), 2, "{stores:?}");
    assert!(
        stores
            .iter()
            .all(|store| store["maxTime"] == json!(i64::MAX)),
        "{stores:?}"
    );
    metadata_reaches_the_querier(http);
}

fn metadata_reaches_the_querier(http: &crate::harness::Http) {
    let range = [
        ("start", (T0 / 1000).to_string()),
        ("end", (T0 / 1000 + 3600).to_string()),
    ];
    let range: Vec<_> = range
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let names = http.query("/api/v1/labels", &range).data();
    // For this list, a querier asks for the replica labels too.
    assert_eq!(
        names,
        json!([
            "A", "B", "__name__", "a", "b", "cluster", "replica", "z", "zzz"
        ])
    );
    assert_eq!(
        http.query("/api/v1/label/cluster/values", &range).data(),
        json!(["c"])
    );
    let selector = [&[("match[]", "n")], &*range].concat();
    let found = http.query("/api/v1/series", &selector).data();
    assert_eq!(found, json!([{"A": "x", "__name__": "n", "cluster": "c"}]));
    for path in ["/api/v1/rules", "/api/v1/metadata", "/api/v1/targets"] {
        let json = http.get(path).expect_status(200).json();
        assert_eq!(json["warnings"], Value::Null, "{path}");
    }
    let exemplars = http.query(
        "/api/v1/query_exemplars",
        &[&[("query", "m")], &*range].concat(),
    );
    assert_eq!(exemplars.expect_status(200).json()["warnings"], Value::Null);
}

/// A querier filters rules by their labels itself: it knows external labels, and ignores labels
/// that have templates.
#[test]
fn rules_and_alerts_are_those_of_a_sidecar() {
    if is_thanos_missing() {
        return;
    }
    let config = ConfigFile::new(
        &json!({
            "global": {"evaluation_interval": "1s", "external_labels": {"cluster": "c", "replica": "a"}},
            "rule_files": ["rules.yml"],
        })
        .to_string(),
    );
    let rules = "groups: [{name: g, rules: [
        {alert: A, expr: vector(1), labels: {severity: page, text: '{{ $value }}'}}]}]";
    std::fs::write(config.dir().join("rules.yml"), rules).expect("write the rule file");
    let server = Server::start(&[&config.flag()]);
    let querier = Thanos::query(
        &[server.http().address()],
        &["--query.replica-label=replica"],
    );
    let rules = |selector: &str| {
        let json = querier
            .http()
            .query("/api/v1/rules", &[("match[]", selector)])
            .expect_status(200)
            .json();
        assert_eq!(json["warnings"], Value::Null, "{selector}");
        let groups = json["data"]["groups"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        groups
            .iter()
            .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    let firing = || {
        rules("{severity=\"page\"}")
            .into_iter()
            .find(|rule| rule["state"] == "firing")
    };
    let rule = wait_for("the alert", firing);
    assert_eq!(
        rule["labels"],
        json!({"cluster": "c", "severity": "page", "text": "{{ $value }}"})
    );
    // The querier removes the replica label from rules only.
    assert_eq!(
        rule["alerts"][0]["labels"],
        json!({"alertname": "A", "severity": "page", "text": "1"})
    );
    for (selector, n) in [
        ("{cluster=\"c\"}", 1),
        ("{cluster=\"d\"}", 0),
        ("{text=\"\"}", 1),
        ("{severity=~\".*\"}", 1),
    ] {
        assert_eq!(rules(selector).len(), n, "{selector}");
    }
}
