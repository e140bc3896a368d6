//! `varve admin`, `varve query cancel`, and the style of errors.

use super::{text, varve};
use crate::harness::{ConfigFile, Server, WriteRequest, now_ms, series};

/// Runs varve, which must succeed, and returns its output.
fn printed(args: &[&str]) -> String {
    let output = varve(args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn count(server: &Server, query: &str) -> String {
    let found = server.http().query("/api/v1/query", &[("query", query)]);
    found.data()["result"][0]["value"][1]
        .as_str()
        .unwrap_or("none")
        .to_owned()
}

#[test]
fn an_operator_needs_no_curl() {
    let config = ConfigFile::new("");
    let flags = [
        "--web.enable-admin-api",
        "--web.enable-lifecycle",
        &config.flag(),
    ];
    let server = Server::start(&flags);
    let url = server.http().url("");
    let at_ms = now_ms() - 1000;
    let sample = |name: &str| series(&[("__name__", name)], &[(at_ms, 1.0)]);
    server
        .http()
        .write(&WriteRequest::new([sample("kept"), sample("gone")]))
        .expect_status(204);

    let name = printed(&["admin", "snapshot", &url]);
    let snapshots = server.data_dir().join("snapshots");
    assert!(snapshots.join(name.trim()).is_dir(), "{name}");
    let name = printed(&["admin", "snapshot", "--format=prometheus", &url]);
    assert!(snapshots.join(name.trim()).is_dir(), "{name}");

    // Samples before the range stay.
    printed(&["admin", "delete", "--match=gone", "--start=now", &url]);
    assert_eq!(count(&server, "count(gone)"), "1");
    assert_eq!(
        printed(&["admin", "delete", "--match=misspelled", &url]),
        "no series matched before the deletion\n"
    );
    printed(&["admin", "delete", "--match=gone", "--start=-1h", &url]);
    assert_eq!(count(&server, "count(gone)"), "none");
    assert_eq!(count(&server, "count(kept)"), "1");
    printed(&["admin", "clean-tombstones", &url]);
    assert_eq!(
        printed(&["admin", "import", &url]),
        "there is no block to import\n"
    );
    printed(&["admin", "compact", &url]);
    assert!(server.metric("prometheus_tsdb_blocks_loaded") > 0.0);
    printed(&["admin", "reload", &url]);
}

#[test]
fn an_error_of_a_server_is_text_that_names_the_flag() {
    let server = Server::start(&[]);
    let url = server.http().url("");
    let check = |args: &[&str], expect: &str| {
        let output = varve(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.starts_with("varve: "), "{args:?}: {error}");
        assert!(error.contains(expect), "{args:?}: {error}");
        assert!(!error.contains('{'), "{args:?}: {error}");
    };
    let disabled = "admin APIs disabled: --web.enable-admin-api enables them";
    check(&["admin", "snapshot", &url], disabled);
    check(&["admin", "compact", &url], disabled);
    check(&["admin", "delete", "--match=x", &url], disabled);
    check(&["query", "cancel", &url, "1"], disabled);
    check(&["relabel", "enable", &url, "x"], disabled);
    check(&["tsdb", "backup", "backups", "--url", &url], disabled);
    check(
        &["admin", "reload", &url],
        "--web.enable-lifecycle enables it",
    );
    check(
        &["rules", "explain", &url, "Absent"],
        "no alerting rule is named \"Absent\"",
    );
    check(
        &["query", "instant", &url, "sum("],
        "unclosed left parenthesis",
    );
    check(&["tsdb", "list", "/absent"], "does not exist");
    check(&["status", "http://127.0.0.1:1"], "connect to 127.0.0.1:1");
    let output = varve(&["serve", "--query.timeout=5"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("varve: invalid value '5'"));
}
