//! An ingestor: samples that a router of `thanos receive` distributes.

use prost::Message as _;
use serde_json::json;

use super::{T0, number, start};
use crate::harness::messages::thanos::RoutedWrite;
use crate::harness::{
    Histogram, Http2, Server, Thanos, TimeSeries, WriteRequest, is_thanos_missing, now_ms, series,
    wait_until, write_to_router,
};

const REMOTE_WRITE: &str = "/thanos.WriteableStore/RemoteWrite";
const N_SERIES: usize = 300;

/// Sends series as a router does, and returns the code and the message of the status.
fn write(server: &Server, tenant: &str, timeseries: Vec<TimeSeries>) -> (String, String) {
    let request = RoutedWrite {
        timeseries,
        tenant: tenant.to_owned(),
        replica: 1,
    };
    let call =
        Http2::connect(server.http().address()).call(REMOTE_WRITE, &[], &request.encode_to_vec());
    (call.status, call.message)
}

#[test]
fn a_write_succeeds_conflicts_or_can_be_retried() {
    let server = Server::start(&[]);
    let check = |what: &str, timeseries: Vec<TimeSeries>, status: &str| {
        assert_eq!(write(&server, "t", timeseries).0, status, "{what}");
    };
    let m = |samples: &[(i64, f64)]| series(&[("__name__", "m")], samples);
    check("new", vec![m(&[(T0, 1.0), (T0 + 1000, 2.0)])], "0");
    check("repeated", vec![m(&[(T0, 1.0), (T0 + 1000, 2.0)])], "0");
    check("empty", vec![], "0");
    // AlreadyExists.
    check("another value", vec![m(&[(T0 + 1000, 3.0)])], "6");
    check("too old", vec![m(&[(T0 - 86_400_000 * 30, 3.0)])], "6");
    check("no name", vec![series(&[("a", "b")], &[(T0, 1.0)])], "6");
    let good = series(&[("__name__", "good")], &[(T0, 1.0)]);
    let bad = series(&[("__name__", "bad"), ("a", "1"), ("a", "2")], &[(T0, 1.0)]);
    check("a good and a bad one", vec![bad, good], "6");
    let mut mixed = m(&[(T0 + 10_000, 1.0), (T0 + 30_000, 3.0)]);
    mixed.histograms = [20_000, 40_000]
        .map(|ms| Histogram {
            timestamp_ms: T0 + ms,
            count_int: Some(0),
            zero_count_int: Some(0),
            ..Histogram::default()
        })
        .into();
    check("floats between histograms", vec![mixed], "0");
    let time_s = T0 / 1000 + 60;
    assert_eq!(
        number(
            server.http(),
            "count_over_time(m{tenant_id=\"t\"}[5m])",
            time_s,
            &[]
        ),
        6.0
    );
    assert_eq!(
        number(server.http(), "count(good{tenant_id=\"t\"})", time_s, &[]),
        1.0
    );
    assert_eq!(
        number(server.http(), "count({__name__=~\".+\"})", time_s, &[]),
        2.0
    );

    let body = [&[0, 0, 0, 0, 2][..], b"\x0a\x09"].concat();
    let malformed = Http2::connect(server.http().address()).call_with(REMOTE_WRITE, &[], &body);
    assert_eq!(malformed.status, "6", "{malformed:?}");
}

#[test]
fn the_tenant_is_a_label_of_choice() {
    for (flag, label) in [
        ("--receive.tenant-label-name=customer", "customer"),
        ("--receive.tenant-label-name=", ""),
    ] {
        let server = Server::start(&[flag]);
        let own = series(&[("__name__", "m"), ("customer", "own")], &[(T0, 1.0)]);
        assert_eq!(write(&server, "t", vec![own]).0, "0");
        let expect = if label.is_empty() { "own" } else { "t" };
        let query = format!("count(m{{customer=\"{expect}\"}})");
        assert_eq!(number(server.http(), &query, T0 / 1000, &[]), 1.0, "{flag}");
    }
}

#[test]
fn a_router_replicates_to_three_servers_and_survives_one() {
    if is_thanos_missing() {
        return;
    }
    let replica = |name: &str| start(&json!({"replica": name}));
    let mut servers = ["a", "b", "c"].map(replica);
    let addresses = servers.each_ref().map(|server| server.http().address());
    // With its default compression, which is snappy.
    let (router, http) = Thanos::router(&addresses, &["--receive.replication-factor=3"]);
    let at = |time_ms: i64, value: f64| {
        WriteRequest::new((0..N_SERIES).map(|i| {
            series(
                &[("__name__", "m"), ("i", &*i.to_string())],
                &[(time_ms, value)],
            )
        }))
    };
    let status = |request: &WriteRequest| write_to_router(&http, request, "team-a").status;
    let now = now_ms();
    wait_until("the router to reach its ingestors", || {
        status(&at(now - 60_000, 1.0)) == 200
    });
    assert_eq!(status(&at(now - 60_000, 1.0)), 200, "repeated");
    assert_eq!(status(&at(now - 60_000, 2.0)), 409, "another value");
    assert_eq!(status(&at(now - 86_400_000, 2.0)), 409, "too old");
    let bad = WriteRequest::new([series(
        &[("__name__", "bad"), ("a", "1"), ("a", "2")],
        &[(now, 1.0)],
    )]);
    assert!([400, 409].contains(&status(&bad)), "bad labels");

    let count = "count(m{tenant_id=\"team-a\"})";
    for server in &servers {
        // The router does not wait for the third server.
        wait_until("all series", || {
            number(server.http(), count, now / 1000, &[]) == N_SERIES as f64
        });
    }
    let querier = Thanos::query(&addresses, &["--query.replica-label=replica"]);
    wait_until("the querier to know the times", || {
        number(querier.http(), count, now / 1000, &[]) > 0.0
    });
    for (dedup, n) in [("true", N_SERIES), ("false", 3 * N_SERIES)] {
        assert_eq!(
            number(querier.http(), count, now / 1000, &[("dedup", dedup)]),
            n as f64,
            "{dedup}"
        );
    }

    servers[2].kill();
    assert_eq!(status(&at(now - 45_000, 1.0)), 200, "one of three is dead");
    servers[1].kill();
    assert_eq!(status(&at(now - 30_000, 1.0)), 503, "two of three are dead");
    drop(router);
}
