//! Retention that waits for a confirmation.

use crate::harness::{ConfigFile, Server, WriteRequest, now_ms, series, wait_until};

const DAY_MS: i64 = 86_400_000;

#[test]
fn many_blocks_that_are_too_old_at_once_stay_until_retention_is_confirmed() {
    let server = Server::start(&["--web.enable-admin-api", "--storage.tsdb.retention.time=15d"]);
    let (http, now_ms) = (server.http(), now_ms());
    let post = |name: &str| http.post(&format!("/api/v1/admin/tsdb/{name}"), &[], b"").expect_status(204);
    for days in [40, 39, 38, 37, 36, 0] {
        http.write(&WriteRequest::new([series(&[("__name__", "m")], &[(now_ms - days * DAY_MS, 1.0)])]))
            .expect_status(204);
        post("compact");
    }
    let notifications = || http.get("/api/v1/notifications").data();
    let n_samples = || {
        let params = [("query", "count_over_time(m[50d])"), ("time", &*(now_ms / 1000 + 1).to_string())];
        http.query("/api/v1/query", &params).data()["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    wait_until("a notification", || {
        notifications()[0]["text"].as_str().is_some_and(|text| text.contains("confirm_retention"))
    });
    assert_eq!(server.metric("varve_tsdb_blocks_held"), 5.0);
    assert_eq!(n_samples().as_deref(), Some("6"));

    post("confirm_retention");
    assert_eq!(n_samples().as_deref(), Some("1"));
    assert_eq!((server.metric("varve_tsdb_blocks_held"), server.metric("varve_tsdb_blocks_expired_total")), (0.0, 5.0));
    wait_until("the notification to end", || notifications().as_array().is_some_and(Vec::is_empty));
}

#[test]
fn a_reload_changes_retention() {
    let config = ConfigFile::new("");
    let flags = ["--web.enable-admin-api", "--web.enable-lifecycle", "--storage.tsdb.retention.time=100d"];
    let server = Server::start(&[&flags[..], &[&*config.flag()]].concat());
    let (http, now_ms) = (server.http(), now_ms());
    let post = |path: &str| http.post(path, &[], b"").status;
    for days in [20, 0] {
        let request = WriteRequest::new([series(&[("__name__", "m")], &[(now_ms - days * DAY_MS, 1.0)])]);
        http.write(&request).expect_status(204);
        assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    }
    let state = || {
        let info = http.get("/api/v1/status/runtimeinfo").data()["storageRetention"].clone();
        let limits = ["seconds", "bytes"].map(|unit| server.metric(&format!("prometheus_tsdb_retention_limit_{unit}")));
        (info.as_str().unwrap_or_default().to_owned(), limits)
    };
    let days = |n: f64| n * 86_400.0;
    assert_eq!(state(), ("100d".to_owned(), [days(100.0), 0.0]));
    assert_eq!(server.metric("varve_tsdb_blocks_expired_total"), 0.0);

    config.write("storage: {tsdb: {retention: {time: 10d, size: 1GiB}}}");
    assert_eq!(post("/-/reload"), 200);
    assert_eq!(state(), ("10d or 1GiB".to_owned(), [days(10.0), f64::from(1 << 30)]));
    assert_eq!(post("/api/v1/admin/tsdb/compact"), 204);
    wait_until("the old block to expire", || server.metric("varve_tsdb_blocks_expired_total") == 1.0);

    // The rest of the section needs a restart, and an invalid value changes nothing.
    for text in ["retention: {time: 10d, size: 1GiB}, ahead_max: 1m", "retention: {time: x}", "retention: {size: 1x}"] {
        config.write(&format!("storage: {{tsdb: {{{text}}}}}"));
        assert_eq!(post("/-/reload"), 500, "{text}");
        assert_eq!(state().0, "10d or 1GiB");
    }
    // Without the keys, the flags are in force again.
    config.write("");
    assert_eq!(post("/-/reload"), 200);
    assert_eq!(state(), ("100d".to_owned(), [days(100.0), 0.0]));
}
