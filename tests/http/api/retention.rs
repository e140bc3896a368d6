//! Retention that waits for a confirmation.

use crate::harness::{ConfigFile, Server, WriteRequest, now_ms, series, wait_until};

const DAY_MS: i64 = 86_400_000;

#[test]
fn many_blocks_that_are_too_old_at_once_stay_until_retention_is_confirmed() {
    let server = Server::start(&[
        "--web.enable-admin-api",
        "--storage.tsdb.retention.time=15d",
    ]);
    let (http, now_ms) = (server.http(), now_ms());
    let post = |name: &str| {
        http.post(&format!("/api/v1/admin/tsdb/{name}"), &[], b"")
            .expect_status(204)
    };
    for days in [40, 39, 38, 37, 36, 0] {
        http.write(&WriteRequest::new([series(
            &[("__name__", "m")],
            &[(now_ms - days * DAY_MS, 1.0)],
        )]))
        .expect_status(204);
        post("compact");
    }
    let notifications = || http.get("/api/v1/notifications").data();
    let n_samples = || {
        let params = [
            ("query", "count_over_time(m[50d])"),
            ("time", &*(now_ms / 1000 + 1).to_string()),
        ];
        http.query("/api/v1/query", &params).data()["result"][0]["value"][1]
            .as_str()
            .map(str::to_owned)
    };
    wait_until("a notification", || {
        notifications()[0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("varve admin confirm-retention"))
    });
    assert_eq!(server.metric("varve_tsdb_blocks_held"), 5.0);
    assert_eq!(n_samples().as_deref(), Some("6"));

    post("confirm_retention");
    assert_eq!(n_samples().as_deref(), Some("1"));
    assert_eq!(
        (
            server.metric("varve_tsdb_blocks_held"),
            server.metric("varve_tsdb_blocks_expired_total")
        ),
        (0.0, 5.0)
    );
    wait_until("the notification to end", || {
        notifications().as_array().is_some_and(Vec::is_empty)
    });
}

#[test]
fn a_reload_changes_retention() {
    let config = ConfigFile::new("");
    let flags = [
        "--web.enable-admin-api",
        "--web.enable-lifecycle",
        "--storage.tsdb.retention.time=100d",
    ];
    let server = Server::start(&[&flags[..], &[&*config.flag()]].concat());
    let (http, now_ms) = (server.http(), now_ms());
    let post = |path: &str| http.post(path, &[], b"").status;
    for days in [20, 0] {
        let request = WriteRequest::new([series(
            &[("__name__", "m")],
            &[(now_ms - days * DAY_MS, 1.0)],
        )]);
        http.write(&request).expect_status(204);
        assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    }
    let state = || {
        let info = http.get("/api/v1/status/runtimeinfo").data()["storageRetention"].clone();
        let limits = ["seconds", "bytes", "percentage"]
            .map(|unit| server.metric(&format!("prometheus_tsdb_retention_limit_{unit}")));
        (info.as_str().unwrap_or_default().to_owned(), limits)
    };
    let days = |n: f64| n * 86_400.0;
    assert_eq!(state(), ("100d".to_owned(), [days(100.0), 0.0, 0.0]));
    assert_eq!(server.metric("varve_tsdb_blocks_expired_total"), 0.0);

    config.write("storage: {tsdb: {retention: {time: 10d, size: 1GiB}}}");
    assert_eq!(post("/-/reload"), 200);
    assert_eq!(
        state(),
        (
            "10d or 1GiB".to_owned(),
            [days(10.0), f64::from(1 << 30), 0.0]
        )
    );
    assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    wait_until("the old block to expire", || {
        server.metric("varve_tsdb_blocks_expired_total") == 1.0
    });

    // The rest of the section needs a restart, and an invalid value changes nothing.
    for text in [
        "retention: {time: 10d, size: 1GiB}, ahead_max: 1m",
        "retention: {time: x}",
        "retention: {size: 1x}",
        "retention: {percentage: 101}",
    ] {
        config.write(&format!("storage: {{tsdb: {{{text}}}}}"));
        assert_eq!(post("/-/reload"), 500, "{text}");
        assert_eq!(state().0, "10d or 1GiB");
    }
    // Without the keys, the flags are in force again.
    config.write("");
    assert_eq!(post("/-/reload"), 200);
    assert_eq!(state(), ("100d".to_owned(), [days(100.0), 0.0, 0.0]));

    // A part of the volume that is too small for any block.
    config.write("storage: {tsdb: {retention: {percentage: 0.000000001}}}");
    assert_eq!(post("/-/reload"), 200);
    let info = "100d or 0.000000001%".to_owned();
    assert_eq!(state(), (info, [days(100.0), 0.0, 1e-9]));
    assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    wait_until("all blocks to be removed", || {
        server.metric("prometheus_tsdb_blocks_loaded") == 0.0
    });
}

/// Prometheus has a default time only if there is no other limit. Varve removed samples after 15
/// days although only a size was set.
#[test]
fn a_size_without_a_time_retains_samples_for_ever() {
    let state = |flags: &[&str]| {
        let server = Server::start(flags);
        let info =
            server.http().get("/api/v1/status/runtimeinfo").data()["storageRetention"].clone();
        info.as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(state(&[]), "15d");
    assert_eq!(state(&["--storage.tsdb.retention.size=1GiB"]), "1GiB");
    let config = ConfigFile::new("storage: {tsdb: {retention: {percentage: 80}}}");
    assert_eq!(state(&[&config.flag()]), "80%");
    let both = [
        &*config.flag(),
        "--storage.tsdb.retention.time=3d",
        "--storage.tsdb.retention.size=1GiB",
    ];
    assert_eq!(state(&both), "3d or 1GiB or 80%");
}

#[test]
fn a_reload_with_a_retention_rule_removes_the_old_samples_of_its_series() {
    let config = ConfigFile::new("");
    let flags = [
        "--web.enable-admin-api",
        "--web.enable-lifecycle",
        "--storage.tsdb.retention.time=30d",
    ];
    let server = Server::start(&[&flags[..], &[&*config.flag()]].concat());
    let (http, now_ms) = (server.http(), now_ms());
    let post = |path: &str| http.post(path, &[], b"").status;
    for days in [8, 6, 4, 2, 0] {
        let sample = [(now_ms - days * DAY_MS, 1.0)];
        let all =
            ["dev", "slo", "prod"].map(|env| series(&[("__name__", "m"), ("env", env)], &sample));
        http.write(&WriteRequest::new(all)).expect_status(204);
        assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    }
    let n_samples = || {
        let time = (now_ms / 1000 + 1).to_string();
        ["dev", "slo", "prod"].map(|env| {
            let query = format!("count_over_time(m{{env=\"{env}\"}}[30d])");
            let params = [("query", &*query), ("time", &*time)];
            let n_samples =
                http.query("/api/v1/query", &params).data()["result"][0]["value"][1].clone();
            n_samples
                .as_str()
                .and_then(|n| n.parse::<u32>().ok())
                .unwrap_or_default()
        })
    };
    let removed = || server.metric("varve_tsdb_retention_rules_removed_samples_total");
    let rules = |rules: &str| {
        config.write(&format!(
            "storage: {{tsdb: {{retention: {{rules: [{rules}]}}}}}}"
        ))
    };
    assert_eq!(n_samples(), [5, 5, 5]);
    // Rejected files change nothing.
    for (rule, status) in [
        ("{match: '{env=\"dev\"}', time: 31d}", 500),
        ("{match: '{}', time: 3d}", 500),
    ] {
        rules(rule);
        assert_eq!(post("/-/reload"), status, "{rule}");
    }

    rules("{match: 'm{env=\"slo\"}', time: 0s}, {match: 'm{env!=\"prod\"}', time: 7d}");
    assert_eq!(post("/-/reload"), 200);
    assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    wait_until("one block to be rewritten", || n_samples() == [4, 5, 5]);
    assert_eq!(
        (removed(), server.metric("varve_tsdb_blocks_held")),
        (1.0, 0.0)
    );

    // Three blocks at once need a confirmation.
    rules("{match: 'm{env=\"slo\"}', time: 0s}, {match: 'm{env!=\"prod\"}', time: 1d}");
    assert_eq!(post("/-/reload"), 200);
    assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    wait_until("the blocks to be held", || {
        server.metric("varve_tsdb_blocks_held") == 3.0
    });
    assert_eq!(n_samples(), [4, 5, 5]);
    assert_eq!(post("/api/v1/admin/tsdb/confirm_retention"), 204);
    assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    wait_until("the held blocks to be rewritten", || {
        n_samples() == [1, 5, 5]
    });
    assert_eq!(
        (removed(), server.metric("varve_tsdb_blocks_held")),
        (4.0, 0.0)
    );
}
