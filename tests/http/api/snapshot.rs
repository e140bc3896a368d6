//! A snapshot in Prometheus' format is a data directory from which a real Prometheus responds as
//! Varve does.

use super::super::server_with_data;
use super::histogram::histograms;
use crate::harness::{Http, Prometheus, copy_dir, missing};

/// The requests to both.
const QUERIES: [&str; 6] = [
    "count by (__name__) ({__name__=~\".+\"})",
    "{__name__=~\"up|special|tiny|temperature\"}[1h]",
    "rate(requests_total[1m])",
    "histogram_quantile(0.9, latency_seconds_bucket)",
    "{\"with.dots\"}",
    "native",
];

fn snapshot(http: &Http, params: &str) -> crate::harness::Answer {
    http.post(&format!("/api/v1/admin/tsdb/snapshot{params}"), &[], b"")
}

#[test]
fn prometheus_responds_from_a_snapshot_as_varve_does() {
    if missing(&["prometheus"]) {
        return;
    }
    let varve = server_with_data(&["--web.enable-admin-api"]);
    let times = [
        super::super::T0,
        super::super::T0 + 15_000,
        super::super::T0 + 30_000,
    ];
    varve
        .http()
        .write_body(&histograms(&times))
        .expect_status(204);
    varve
        .http()
        .post("/api/v1/admin/tsdb/delete_series?match[]=huge", &[], b"")
        .expect_status(204);
    let name = snapshot(varve.http(), "?format=prometheus").data()["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    let dir = varve.data_dir().join("snapshots").join(name);
    let flags = [
        "--storage.tsdb.retention.time=100y",
        "--enable-feature=native-histograms",
    ];
    let prometheus = Prometheus::start_on("{}", &flags, |to| copy_dir(&dir, to));
    for query in QUERIES {
        for time in ["1700000030", "1700000285"] {
            let params = [("query", query), ("time", time)];
            let ask = |http: &Http| super::sorted(http.query("/api/v1/query", &params).data());
            assert_eq!(
                ask(varve.http()),
                ask(prometheus.http()),
                "{query} at {time}"
            );
        }
    }
}

#[test]
fn a_snapshot_has_the_requested_format() {
    let varve = server_with_data(&["--web.enable-admin-api"]);
    for (params, expect) in [
        (
            "?format=nonsense",
            "invalid parameter \"format\": not supported value \"nonsense\"",
        ),
        (
            "?format=prometheus&skip_head=true",
            "invalid parameter \"skip_head\": skip_head is not supported with",
        ),
    ] {
        let (kind, error) = snapshot(varve.http(), params).expect_status(400).error();
        assert_eq!(kind, "bad_data");
        assert!(error.starts_with(expect), "{error}");
    }
    let snapshots = varve.data_dir().join("snapshots");
    assert!(!snapshots.exists(), "what is refused leaves nothing");
    for (params, holds) in [("", "blocks"), ("?format=varve", "blocks")] {
        let name = snapshot(varve.http(), params).data()["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        assert!(snapshots.join(name).join(holds).is_dir());
    }
}
