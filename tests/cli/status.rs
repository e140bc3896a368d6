//! `varve status`, against a running server.

use super::{text, varve};
use crate::harness::{Server, WriteRequest, now_ms, series};

#[test]
fn top_and_senders_show_queries_and_writes() {
    let server = Server::start(&[]);
    let url = server.http().url("");
    let printed = |args: &[&str]| {
        let output = varve(&[&["status"], args, &[&url]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(printed(&["top"]), "none\n");
    server
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", "m")],
            &[(now_ms(), 1.0)],
        )]))
        .expect_status(204);
    for pod in ["a", "b"] {
        let query = format!("sum(m{{pod=\"{pod}\"}})");
        server
            .http()
            .query("/api/v1/query", &[("query", &query)])
            .expect_status(200);
    }
    // Both queries have one shape.
    for args in [&["top"][..], &["top", "--range=day"]] {
        let top = printed(args);
        let row = top
            .lines()
            .find(|line| line.contains("sum(m{pod="))
            .unwrap_or_else(|| panic!("{top}"));
        assert!(row.split_whitespace().nth(2) == Some("2"), "{top}");
    }
    let senders = printed(&["senders"]);
    assert!(
        senders.contains("127.0.0.1") && senders.lines().count() >= 2,
        "{senders}"
    );
    assert!(
        !varve(&["status", "top", "--range=week", &url])
            .status
            .success()
    );
}
