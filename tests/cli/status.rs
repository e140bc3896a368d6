//! `varve status`, against a running server.

use super::{text, varve};
use crate::harness::{Access, ConfigFile, Server, WriteRequest, now_ms, series, wait_until};

#[test]
fn alerts_that_no_alertmanager_takes_are_on_the_screen() {
    let dir = tempfile::tempdir().expect("make a directory");
    let rules = dir.path().join("rules.yml");
    let text_of_rules = "groups: [{name: g, interval: 1s, rules: [{alert: A, expr: vector(1)}]}]";
    std::fs::write(&rules, text_of_rules).expect("write a file");
    let config = ConfigFile::new(&format!(
        "rule_files: [{rules:?}]\nalerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:1']}}]}}]}}"
    ));
    let server = Server::start(&[&config.flag()]);
    let url = server.http().url("");
    wait_until("a dropped alert", || {
        let printed = text(&varve(&["status", &url]).stdout);
        printed.contains("1 Alertmanager, ") && !printed.contains(" 0 alerts dropped")
    });
}

#[test]
fn the_state_of_a_server_fits_on_a_screen() {
    let server = Server::start(&[]);
    let url = server.http().url("");
    server
        .http()
        .write(&WriteRequest::new([
            series(&[("__name__", "m")], &[(now_ms(), 1.0)]),
            series(&[("__name__", "__bad")], &[(now_ms() + 86_400_000, 1.0)]),
        ]))
        .expect_status(400);
    let output = varve(&["status", &url]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(printed.lines().count() <= 24, "{printed}");
    for expect in [
        "Varve is Ready.",
        "varve-",
        "up for ",
        "1 active",
        "samples 1, requests 1 since the start: ",
        "memory ",
        "0 firing, 0 pending",
        "0 Alertmanagers, 0 alerts dropped since the start",
        "1 sender, 0 late, 1 with rejected requests",
    ] {
        assert!(printed.contains(expect), "{expect} is not in\n{printed}");
    }
    let mistyped = varve(&["status", "sendrs"]);
    assert!(
        text(&mistyped.stderr).contains("neither a part of the status nor a server"),
        "{mistyped:?}"
    );
    let output = varve(&["status", "--output=json", &url]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["series"]["all"]["use"]["activeSeries"], 1, "{json}");
}

/// It printed an empty version, no memory, and four errors.
#[test]
fn a_server_that_is_not_varve_is_one_error() {
    let server = Server::start(&[]);
    let url = server.http().url("/nowhere");
    for args in [&["status", &*url][..], &["status", "senders", &url]] {
        let output = varve(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(text(&output.stdout), "");
        let said = text(&output.stderr);
        assert_eq!(
            said.matches("is not a Varve server: 404 for /api/v1/status/")
                .count(),
            1,
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// The error was printed ten times, without a remedy.
#[test]
fn a_missing_token_is_one_error_that_names_the_flag() {
    let dir = tempfile::tempdir().expect("make a directory");
    let web = dir.path().join("web.yml");
    let tokens = "bearer_tokens: [{name: a, token: t0ken, scopes: [read]}]\n";
    std::fs::write(&web, tokens).expect("write a file");
    let token = dir.path().join("token");
    std::fs::write(&token, "t0ken\n").expect("write a file");
    let access = Access {
        tls: None,
        authorization: Some("Bearer t0ken".to_owned()),
    };
    let flag = format!("--web.config.file={}", web.display());
    let server = Server::start_as(&[&flag], &access);
    let url = server.http().url("");

    let refused = varve(&["status", &url]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(text(&refused.stdout), "");
    let said = text(&refused.stderr);
    assert_eq!(said.matches(" 401 ").count(), 1, "{said}");
    assert!(
        said.ends_with("Unauthorized: --token-file or --http.config.file gives the credentials\n"),
        "{said}"
    );
    let flag = format!("--token-file={}", token.display());
    let accepted = varve(&["status", &flag, &url]);
    assert!(accepted.status.success(), "{accepted:?}");
}

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
        senders.contains("  series  ")
            && senders.contains("127.0.0.1")
            && senders.lines().count() >= 2,
        "{senders}"
    );
    assert!(
        !varve(&["status", "top", "--range=week", &url])
            .status
            .success()
    );
}
