//! The web page as HTTP serves it. `tests/ui` opens it in a browser.

use tempfile::TempDir;

use super::T0;
use crate::harness::{Access, Server, WriteRequest, now_ms, series};

/// Returns the path of the page's script.
fn script(page: &str) -> String {
    let start = page.find("assets/varve-").expect("the page has a script");
    let path = page[start..]
        .split('"')
        .next()
        .expect("a split has a first part");
    format!("/{path}")
}

#[test]
fn the_page_has_its_policy_and_its_files_are_immutable() {
    let server = Server::start(&[]);
    let page = server.http().get("/").expect_status(200);
    assert_eq!(
        page.text(),
        server
            .http()
            .get("/graph?g0.expr=up")
            .expect_status(200)
            .text()
    );
    assert_eq!(
        page.text(),
        server.http().get("/tsdb-status").expect_status(200).text(),
        "a page of Prometheus"
    );
    let policy = page.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self';",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{part} is not in {policy}");
    }
    assert_eq!(page.header("cache-control"), "no-cache");
    let etag = page.header("etag").to_owned();
    server
        .http()
        .call("GET", "/query", &[("If-None-Match", &etag)], b"")
        .expect_status(304);

    let path = script(&page.text());
    let plain = server
        .http()
        .call("GET", &path, &[("Accept-Encoding", "identity")], b"")
        .expect_status(200);
    assert_eq!(
        plain.header("cache-control"),
        "public, max-age=31536000, immutable"
    );
    for coding in ["gzip", "zstd"] {
        let coded = server
            .http()
            .call("GET", &path, &[("Accept-Encoding", coding)], b"")
            .expect_status(200);
        assert_eq!(coded.header("content-encoding"), coding, "{path}");
        assert!(
            coded.body.len() < plain.body.len() / 2,
            "{coding}: {} bytes",
            coded.body.len()
        );
    }
    server.http().get("/assets/nothing.js").expect_status(404);
}

#[test]
fn the_page_needs_no_credentials_and_its_scripts_get_no_dialog() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = dir.path().join("web.yml");
    let tokens = "bearer_tokens:\n- {name: reader, token: t0ken, scopes: [read]}\n";
    std::fs::write(&path, tokens).expect("write a file");
    let access = Access {
        tls: None,
        authorization: Some("Bearer t0ken".to_owned()),
    };
    let server = Server::start_as(&[&format!("--web.config.file={}", path.display())], &access);
    let http = server.http().with(&Access::default());
    let page = http.get("/query").expect_status(200).text();
    http.get(&script(&page)).expect_status(200);
    for (headers, challenge) in [
        (&[][..], "Basic"),
        (&[("X-Requested-With", "XMLHttpRequest")][..], "Bearer"),
    ] {
        let denied = http
            .call("GET", "/api/v1/labels", headers, b"")
            .expect_status(401);
        assert_eq!(denied.header("www-authenticate"), challenge);
    }
}

#[test]
fn senders_costs_and_inspections_are_recorded() {
    let server = Server::start(&[]);
    let up = WriteRequest::new([series(&[("__name__", "up")], &[(T0, 1.0), (T0 + 1, 1.0)])]);
    server.http().write(&up).expect_status(204);
    server.http().write_body(b"no snappy").expect_status(400);
    let lag_min_ms = now_ms() - T0 - 60_000;
    let senders = server.http().get("/api/v1/status/senders").data()["senders"].take();
    let [sender] = &senders.as_array().expect("a list")[..] else {
        panic!("one sender: {senders}")
    };
    assert_eq!(
        (&sender["requests"], &sender["samples"], &sender["failed"]),
        (&2.into(), &2.into(), &1.into()),
        "{sender}"
    );
    assert_eq!(sender["newestSampleMs"], T0 + 1);
    assert!(sender["lagMs"].as_i64() > Some(lag_min_ms), "{sender}");
    assert!(
        sender["lastError"]
            .as_str()
            .is_some_and(|error| error.contains("malformed")),
        "{sender}"
    );

    for job in ["a", "b"] {
        let query = format!("up{{job=\"{job}\"}}");
        server
            .http()
            .query("/api/v1/query", &[("query", &query)])
            .expect_status(200);
    }
    let top = server
        .http()
        .get("/api/v1/status/top_queries?range=day")
        .data()["queries"]
        .take();
    assert_eq!(
        (&top[0]["shape"], &top[0]["queries"]),
        (&"up{job=\"…\"}".into(), &2.into()),
        "{top}"
    );
    server
        .http()
        .get("/api/v1/status/top_queries?range=week")
        .expect_status(400);

    let inspection = [("X-Varve-Inspection", "true")];
    server
        .http()
        .call("GET", "/api/v1/query?query=inspected", &inspection, b"")
        .expect_status(200);
    let used = server.http().get("/api/v1/status/usage").data()["metrics"].take();
    let names: Vec<_> = used
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| &entry["metric"])
        .collect();
    assert_eq!(names, ["up"], "the page's own reads are no use");
    let last = server.http().get("/api/v1/status/last_words").data();
    assert!(last["process"].is_null(), "{last}");
}

/// The agents of a pair that is not configured: each sample was stored twice, and nothing said so.
#[test]
fn senders_of_the_same_series_are_shown() {
    let server = Server::start(&[]);
    for (agent, first) in [("vmagent-a", 0), ("vmagent-b", 0), ("other", 30)] {
        let up = WriteRequest::new((first..first + 20).map(|i| {
            let instance = format!("node-{i}");
            series(
                &[("__name__", "up"), ("instance", &instance)],
                &[(now_ms(), 1.0)],
            )
        }));
        let headers = [
            ("Content-Encoding", "snappy"),
            ("Content-Type", "application/x-protobuf"),
            ("User-Agent", agent),
        ];
        server
            .http()
            .post("/api/v1/write", &headers, &up.to_body())
            .expect_status(204);
    }
    let senders = server.http().get("/api/v1/status/senders").data()["senders"].take();
    let same_as = |agent: &str| {
        let mut senders = senders.as_array().expect("a list").iter();
        let sender = senders.find(|sender| sender["userAgent"] == agent);
        sender.expect("the sender")["sameSeries"].clone()
    };
    let same = same_as("vmagent-a");
    assert_eq!(same[0]["share"], 1.0, "{same}");
    let other = same[0]["sender"].as_str().expect("a name");
    assert!(other.contains("user agent vmagent-b"), "{other}");
    assert_eq!(same_as("vmagent-b").as_array().map(Vec::len), Some(1));
    assert_eq!(same_as("other").as_array().map(Vec::len), Some(0));
}
