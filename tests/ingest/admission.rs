//! Admission control: budgets of teams in a running server, responses to their senders, and a storm
//! of new series from a real Prometheus.

use serde_json::{Value, json};

use crate::harness::{
    Access, Answer, ConfigFile, Http, Prometheus, Server, TimeSeries, WriteRequest, missing,
    now_ms, series, wait_until,
};

const T0: i64 = 1_700_000_000_000;
const HEADERS: [(&str, &str); 2] = [
    ("content-encoding", "snappy"),
    ("content-type", "application/x-protobuf"),
];

/// Writes a configuration file with this section; JSON is YAML.
fn config(ingest: &Value) -> ConfigFile {
    ConfigFile::new(&json!({ "ingest": ingest }).to_string())
}

fn of(team: &str, i: usize, time_ms: i64) -> TimeSeries {
    series(
        &[
            ("__name__", "m"),
            ("i", &i.to_string()),
            ("namespace", team),
        ],
        &[(time_ms, 1.0)],
    )
}

/// Returns the status of a team: active series, borrowed series, samples, rejected series.
fn team(server: &Server, name: &str) -> [u64; 4] {
    let data = server.http().get("/api/v1/status/teams").data();
    let teams = data["teams"].as_array().expect("teams are a list");
    let team = teams
        .iter()
        .find(|team| team["team"] == name)
        .unwrap_or_else(|| panic!("{name} is not in {data}"));
    let number = |value: &Value| {
        value
            .as_u64()
            .unwrap_or_else(|| panic!("a number in {team}"))
    };
    [
        &team["use"]["activeSeries"],
        &team["borrowed"]["activeSeries"],
        &team["samples"],
        &team["seriesRejected"],
    ]
    .map(number)
}

#[test]
fn teams_have_budgets_that_a_reload_changes() {
    let config = config(&json!({
        "team_label": "namespace",
        "teams": {"a": {"guaranteed": {"active_series": 1}, "maximum": {"active_series": 2}}},
    }));
    let server = Server::start(&[&config.flag()]);
    let request = |t: i64| WriteRequest::new((0..4).map(|i| of("a", i, t)).chain([of("b", 9, t)]));
    let refused = server.http().write(&request(T0)).expect_status(400);
    let expect = "new series exceeds the maximum of active series of its team (ingest.teams): 2 series with 2 samples, e.g. series \
                  {__name__=\"m\", i=\"2\", namespace=\"a\"} of team \"a\", with 2 of 2 active\n";
    assert_eq!(refused.text(), expect);
    assert_eq!(
        (team(&server, "a"), team(&server, "b")),
        ([2, 1, 2, 2], [1, 1, 1, 0])
    );
    assert_eq!(
        server.metric("varve_ingest_team_active_series{team=\"a\"}"),
        2.0
    );
    assert_eq!(
        server.metric("varve_ingest_rejected_total{reason=\"team_active_series\"}"),
        2.0
    );

    let reload = |what: &str| {
        let n_before = server.log().matches(what).count();
        server.signal("HUP");
        wait_until("the configuration to be read", || {
            server.log().matches(what).count() > n_before
        });
    };
    config.write(r#"{"ingest": {"team_label": "namespace", "budget": {"active_series": 0}}}"#);
    reload("Error reloading config");
    config.write(r#"{"ingest": {"team_label": "namespace", "budget": {"active_series": 6}}}"#);
    reload("Completed loading of configuration file");
    server.http().write(&request(T0 + 1)).expect_status(204);
    assert_eq!(team(&server, "a"), [4, 4, 6, 2]);

    // A sender may name a team for the whole request; a team that is not listed is `(other)`. The
    // request has one series more than the total budget.
    let request = WriteRequest::new([of("a", 7, T0), of("a", 8, T0)]);
    let answer = write_as(server.http(), "named", &request).expect_status(400);
    assert!(
        answer
            .text()
            .starts_with("new series exceeds the maximum of active series of all teams")
    );
    assert_eq!(team(&server, "(other)"), [1, 1, 1, 1]);
}

fn write_as(http: &Http, team: &str, request: &WriteRequest) -> Answer {
    http.post(
        "/api/v1/write",
        &[HEADERS[0], HEADERS[1], ("X-Scope-OrgID", team)],
        &request.to_body(),
    )
}

#[test]
fn deleted_series_are_given_back_to_the_budget_at_once() {
    let config = config(&json!({
        "team_label": "namespace",
        "budget": {"active_series": 100},
        "teams": {"a": {"guaranteed": {"active_series": 2}, "maximum": {"active_series": 4}}},
    }));
    let flags = [&*config.flag(), "--web.enable-admin-api"];
    let mut server = Server::start(&flags);
    let exploded = WriteRequest::new((0..4).map(|i| of("a", i, T0)).chain([of("b", 9, T0)]));
    server.http().write(&exploded).expect_status(204);
    let new_pod = |server: &Server| {
        server
            .http()
            .write(&WriteRequest::new([of("a", 5, T0 + 1)]))
    };
    new_pod(&server).expect_status(400);
    let metric = |name: &str| server.metric(&format!("varve_ingest_{name}"));
    assert_eq!(metric("team_active_series{team=\"a\"}"), 4.0);
    assert_eq!(
        metric("team_maximum{team=\"a\",resource=\"active_series\"}"),
        4.0
    );
    assert_eq!(
        metric("team_guaranteed{team=\"a\",resource=\"active_series\"}"),
        2.0
    );
    assert_eq!(metric("team_borrowed_series{team=\"a\"}"), 2.0);
    assert_eq!(metric("budget_maximum{resource=\"active_series\"}"), 100.0);
    let path = "/api/v1/admin/tsdb/delete_series?match[]=%7Bnamespace=%22a%22%7D";
    server.http().post(path, &[], b"").expect_status(204);
    assert_eq!(server.metric("prometheus_tsdb_head_series"), 1.0);
    let status = server.http().get("/api/v1/status/tsdb").data();
    assert_eq!(status["headStats"]["numSeries"], 1, "{status}");
    assert_eq!(team(&server, "a")[..2], [0, 0]);
    wait_until("the audit line", || {
        server.log().contains("Administrative request")
    });
    assert!(
        server.log().contains("/api/v1/admin/tsdb/delete_series"),
        "{}",
        server.log()
    );
    server.kill();
    server.restart(&flags);
    wait_until("the eviction", || {
        server.metric("prometheus_tsdb_head_series") == 1.0
    });
    assert_eq!(team(&server, "a")[..2], [0, 0]);
    new_pod(&server).expect_status(204);
    assert_eq!(team(&server, "a")[..2], [1, 0]);
}

#[test]
fn failed_administrative_requests_do_not_flood_the_log() {
    let server = Server::start(&["--web.enable-admin-api"]);
    let request = |path: &str, status| server.http().post(path, &[], b"").expect_status(status);
    for _ in 0..3 {
        request("/api/v1/admin/relabel/enable?name=unknown", 404);
        request("/api/v1/admin/tsdb/clean_tombstones", 204);
    }
    let lines = |text| {
        server
            .log()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    };
    wait_until("the last line", || lines("result=success") == 3);
    assert_eq!(lines("no relabel rule has the name"), 1, "{}", server.log());
}

#[test]
fn a_token_spends_only_the_budget_of_its_own_team() {
    let config = config(&json!({
        "teams": {"payments": {"maximum": {"active_series": 1}}, "search": {"senders": ["eve"]}},
        "team_maximum": {"active_series": 1},
    }));
    let tokens = ["payments", "eve"]
        .map(|name| json!({"name": name, "token": name, "scopes": ["read", "write"]}));
    let web = ConfigFile::new(&json!({"bearer_tokens": tokens}).to_string());
    let web_flag = web.flag().replace("--config.file", "--web.config.file");
    let access = |token: &str| Access {
        tls: None,
        authorization: Some(format!("Bearer {token}")),
    };
    let server = Server::start_as(&[&config.flag(), &web_flag], &access("eve"));
    for (token, named, i, expect) in [
        ("eve", "payments", 1, 204), // counts as `(other)`
        ("eve", "payments", 2, 400), // (other) is full
        ("eve", "invented", 3, 400),
        ("payments", "payments", 4, 204), // eve has left the budget untouched
        ("payments", "payments", 5, 400),
        ("eve", "search", 6, 204),
    ] {
        let http = server.http().with(&access(token));
        let answer = write_as(&http, named, &WriteRequest::new([of("x", i, T0)]));
        assert_eq!(answer.status, expect, "{i}: {}", answer.text());
    }
}

#[test]
fn series_belong_to_the_team_of_their_label_after_a_restart() {
    let config = config(&json!({"team_label": "namespace", "team_maximum": {"active_series": 3}}));
    let mut server = Server::start(&[&config.flag()]);
    server
        .http()
        .write(&WriteRequest::new((0..3).map(|i| of("a", i, T0))))
        .expect_status(204);
    server.kill();
    server.restart(&[&config.flag()]);
    assert_eq!(team(&server, "a"), [3, 3, 0, 0]);
    let answer = server
        .http()
        .write(&WriteRequest::new((0..4).map(|i| of("a", i, T0 + 1))));
    answer.expect_status(400);
    assert_eq!(team(&server, "a"), [3, 3, 3, 1]);
}

#[test]
fn new_series_beyond_the_rate_are_retried_by_the_sender() {
    let config = config(&json!({"budget": {"new_series_per_second": 1}}));
    let known = WriteRequest::new([of("a", 0, T0)]);
    for (flags, status) in [
        (&[][..], 503),
        (&["--ingest.queue-timeout-status=429"][..], 429),
    ] {
        let flags: Vec<&str> = flags
            .iter()
            .copied()
            .chain(["--ingest.queue-timeout=0s"])
            .collect();
        let config_flag = config.flag();
        let server = Server::start(&[&[&*config_flag][..], &flags].concat());
        server.http().write(&known).expect_status(204);
        let many = WriteRequest::new((0..100).map(|i| of("a", i, T0 + 1)));
        let answer = server.http().write(&many).expect_status(status);
        assert_eq!(answer.headers["retry-after"], "1");
        assert!(answer.text().starts_with(
            "requests exceed the rate of new series (ingest.budget.new_series_per_second); "
        ));
        // Known series are stored.
        let stored = server
            .http()
            .query(
                "/api/v1/query",
                &[("query", "m{i=\"0\"}[1m]"), ("time", "1700000001")],
            )
            .data();
        assert_eq!(
            stored["result"][0]["values"].as_array().map(Vec::len),
            Some(2)
        );
        assert_eq!(
            server.metric("varve_ingest_throttled_total{resource=\"new_series\"}"),
            1.0
        );
    }
}

/// Returns the samples that a Prometheus has sent, lost and retried.
fn sent(http: &Http) -> [f64; 3] {
    let text = http.get("/metrics").text();
    let sum = |name: &str| -> f64 {
        let of_name = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")));
        of_name
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    };
    let lost = sum("prometheus_remote_storage_samples_failed_total")
        + sum("prometheus_remote_storage_samples_dropped_total");
    [
        sum("prometheus_remote_storage_samples_total"),
        lost,
        sum("prometheus_remote_storage_samples_retried_total"),
    ]
}

#[test]
fn every_sample_of_a_storm_arrives_from_a_real_prometheus_at_its_default_settings() {
    if missing(&["prometheus"]) {
        return;
    }
    let n_series =
        std::env::var("VARVE_STORM_SERIES").map_or(20_000, |text| text.parse().expect("a number"));
    // Less than Prometheus itself accepts.
    let config = config(&json!({"budget": {"new_series_per_second": (n_series / 20).max(4_000)}}));
    let server = Server::start(&[&config.flag(), "--ingest.queue-timeout=100ms"]);
    let url = server.http().url("/api/v1/write");
    let prometheus = Prometheus::start(&json!({"remote_write": [{"url": url}]}).to_string(), &[]);
    // Ahead of the clock: remote write skips samples older than its own start.
    let time_ms = now_ms() + 300_000;
    let numbers: Vec<usize> = (0..n_series).collect();
    for chunk in numbers.chunks(2_000) {
        prometheus
            .http()
            .write(&WriteRequest::new(
                chunk.iter().map(|&i| of("storm", i, time_ms)),
            ))
            .expect_status(204);
    }
    let time = (time_ms / 1000 + 1).to_string();
    let n_stored = || {
        let data = server
            .http()
            .query("/api/v1/query", &[("query", "count(m)"), ("time", &time)])
            .data();
        data["result"][0]["value"][1]
            .as_str()
            .map_or(0, |n| n.parse::<usize>().expect("a count is a number"))
    };
    wait_until("all samples of the storm", || n_stored() == n_series);
    wait_until("the sender to know", || {
        sent(prometheus.http())[0] >= n_series as f64
    });
    let [_, lost, _] = sent(prometheus.http());
    assert_eq!(lost, 0.0);
    assert!(
        server.metric("varve_ingest_requests_total{outcome=\"throttled\"}") > 0.0,
        "it was a storm"
    );
}
