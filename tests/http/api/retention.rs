//! Retention that waits for a confirmation.

use crate::harness::{Server, WriteRequest, now_ms, series, wait_until};

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
