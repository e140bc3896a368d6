//! HA pairs: of two Prometheus servers that scrape the same targets one is stored, and the other
//! takes over when it dies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::messages::otlp;
use crate::harness::{
    ConfigFile, Http, Prometheus, Server, WriteRequest, missing, now_ms, series, v2, wait_for,
    wait_until,
};

const TIMEOUT_MS: i64 = 3_000;

/// Starts a server with the HA labels `cluster` and `replica`.
fn start(failover_timeout: &str) -> (Server, ConfigFile) {
    let ha = json!({"cluster_label": "cluster", "replica_label": "replica", "failover_timeout": failover_timeout});
    let otlp = json!({"promote_all_resource_attributes": true});
    let config = ConfigFile::new(&json!({"ingest": {"ha": ha}, "otlp": otlp}).to_string());
    (Server::start(&[&config.flag()]), config)
}

fn clusters(http: &Http) -> Vec<Value> {
    http.get("/api/v1/status/ha").data()["clusters"]
        .as_array()
        .expect("a list")
        .clone()
}

fn leader(http: &Http) -> Option<String> {
    Some(
        clusters(http).first()?["leader"]["replica"]
            .as_str()
            .expect("a text")
            .to_owned(),
    )
}

/// Returns the timestamps of `up` in milliseconds, by the label `via`.
fn times(http: &Http) -> BTreeMap<String, BTreeSet<i64>> {
    let data = http.query("/api/v1/query", &[("query", "up[10m]")]).data();
    let mut times = BTreeMap::<_, BTreeSet<i64>>::new();
    for series in data["result"].as_array().expect("a matrix") {
        assert_eq!(series["metric"].get("replica"), None, "{series}");
        let via = series["metric"]["via"]
            .as_str()
            .expect("a target has it")
            .to_owned();
        let values = series["values"].as_array().expect("samples");
        let at = |sample: &Value| (sample[0].as_f64().expect("a time") * 1_000.0).round() as i64;
        times.entry(via).or_default().extend(values.iter().map(at));
    }
    times
}

#[test]
fn when_one_prometheus_dies_the_other_takes_over_after_the_timeout_without_duplicates() {
    if missing(&["prometheus"]) {
        return;
    }
    let (varve, _dir) = start("3s");
    // Both scrape the same target; a target label tells which one scraped.
    let prometheus = |name: &str| {
        let target = varve.http().address().to_string();
        Prometheus::start(
            &json!({
                "global": {"scrape_interval": "1s", "external_labels": {"cluster": "c", "replica": name}},
                "scrape_configs": [{"job_name": "x", "static_configs": [{"targets": [target], "labels": {"via": name}}]}],
                "remote_write": [{
                    "url": varve.http().url("/api/v1/write"),
                    "protobuf_message": if name == "a" { "prometheus.WriteRequest" } else { "io.prometheus.write.v2.Request" },
                    "queue_config": {"min_shards": 1, "max_shards": 1, "batch_send_deadline": "200ms"},
                    "write_relabel_configs": [{"source_labels": ["__name__"], "regex": "up", "action": "keep"}],
                }],
            })
            .to_string(),
            &[],
        )
    };
    let mut pair = BTreeMap::from(["a", "b"].map(|name| (name.to_owned(), prometheus(name))));
    let n_stored = |via: &str| times(varve.http()).get(via).map_or(0, BTreeSet::len);
    let first = wait_for("one to lead", || leader(varve.http()));
    wait_until("both to be heard", || {
        n_stored(&first) >= 3
            && clusters(varve.http())[0]["samplesDeduplicated"]
                .as_u64()
                .expect("a number")
                >= 3
    });

    drop(pair.remove(&first));
    let (second, left) = pair.first_key_value().expect("one is left");
    wait_until("the other one to lead", || {
        leader(varve.http()).as_ref() == Some(second)
    });
    let cluster = clusters(varve.http()).remove(0);
    let silent_ms = cluster["standbys"][0]["silentMs"]
        .as_i64()
        .expect("a number");
    let due_ms = now_ms() - silent_ms + TIMEOUT_MS;
    // It leads a moment before its first sample is stored.
    let newest_ms = || {
        times(varve.http())
            .get(second)
            .and_then(BTreeSet::last)
            .copied()
    };
    wait_until("samples of the other one", || {
        newest_ms().is_some_and(|newest_ms| newest_ms > due_ms + 2_000)
    });

    let (stored, scraped) = (times(varve.http()), &times(left.http())[second]);
    let newest = *stored[second].last().expect("there are samples");
    let missed: Vec<_> = scraped
        .range(due_ms..=newest)
        .filter(|at| !stored[second].contains(at))
        .collect();
    assert!(
        missed.is_empty(),
        "after the timeout, at {due_ms}, {missed:?} are not stored"
    );
    assert!(
        stored[&first].last() < stored[second].first(),
        "one after the other: {stored:?}"
    );
    assert!(varve.metric("varve_ha_samples_deduplicated_total{cluster=\"c\"}") >= 3.0);
    assert_eq!(
        varve.metric("varve_ha_leader_changes_total{cluster=\"c\"}"),
        1.0
    );
}

#[test]
fn the_leader_survives_a_crash_and_applies_to_every_protocol() {
    let (mut varve, config) = start("1h");
    let now_ms = now_ms();
    let of = |replica: &str, at: i64| {
        let labels = [("__name__", "up"), ("cluster", "c"), ("replica", replica)];
        WriteRequest::new([series(&labels, &[(now_ms + at, 1.0)])])
    };
    varve.http().write(&of("b", 0)).expect_status(204);
    varve.http().write(&of("a", 1)).expect_status(204);
    varve.kill();
    varve.restart(&[&config.flag()]);
    let http = varve.http();
    // The leader may have died meanwhile: until it sends, the other one sends again.
    http.write(&of("a", 2)).expect_status(503);
    http.write(&of("b", 1)).expect_status(204);
    http.write(&of("a", 2)).expect_status(204);
    let mut of_v2 = v2::Request::default();
    of_v2.add(
        &[("__name__", "up"), ("cluster", "c"), ("replica", "a")],
        &[(now_ms + 3, 1.0, 0)],
    );
    let answer = http.write_v2(&of_v2).expect_status(204);
    assert_eq!(
        answer.header("X-Prometheus-Remote-Write-Samples-Written"),
        "1"
    );
    write_otlp(http, "a", now_ms + 4);
    write_otlp(http, "b", now_ms + 5);
    http.write(&of("b", 6)).expect_status(204);

    let data = http
        .query(
            "/api/v1/query",
            &[("query", "{__name__=~\"up|otel\"}[10m]")],
        )
        .data();
    let stored: BTreeMap<_, _> = data["result"]
        .as_array()
        .expect("a matrix")
        .iter()
        .map(|series| {
            assert_eq!(
                (
                    &series["metric"]["cluster"],
                    series["metric"].get("replica")
                ),
                (&json!("c"), None)
            );
            let name = series["metric"]["__name__"]
                .as_str()
                .expect("a name")
                .to_owned();
            (name, series["values"].as_array().expect("samples").len())
        })
        .collect();
    assert_eq!(
        stored,
        BTreeMap::from([("up".to_owned(), 3), ("otel".to_owned(), 1)])
    );
    assert_eq!(leader(http).as_deref(), Some("b"));
}

fn write_otlp(http: &Http, replica: &str, time_ms: i64) {
    let time_ns = u64::try_from(time_ms).expect("a time after 1970") * 1_000_000;
    let point = otlp::NumberPoint {
        time_ns,
        value: Some(otlp::Number::Double(1.0)),
        ..Default::default()
    };
    let data = Some(otlp::Data::Gauge(otlp::Gauge {
        points: vec![point],
    }));
    let metric = otlp::Metric {
        name: "otel".to_owned(),
        data,
        ..Default::default()
    };
    let attributes = otlp::attributes([
        ("cluster", otlp::text("c")),
        ("replica", otlp::text(replica)),
    ]);
    let resource = otlp::ResourceMetrics {
        resource: Some(otlp::Resource { attributes }),
        scopes: vec![otlp::ScopeMetrics {
            metrics: vec![metric],
            ..Default::default()
        }],
    };
    let body = prost::Message::encode_to_vec(&otlp::Request {
        resources: vec![resource],
    });
    http.post(
        "/api/v1/otlp/v1/metrics",
        &[("Content-Type", "application/x-protobuf")],
        &body,
    )
    .expect_status(200);
}
