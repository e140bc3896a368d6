//! `varve query`, over http and https.

use tempfile::TempDir;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::{check_alike, run, text, varve};
use crate::harness::{Access, Prometheus, Server, missing};
use crate::http::{T0, data};

/// Calls of both tools; SERVER is replaced by the URL.
const CALLS: &[&[&str]] = &[
    &["query", "instant", "--time=1700000100", "SERVER", "up"],
    &[
        "query",
        "instant",
        "--time=1700000100",
        "-o",
        "json",
        "SERVER",
        "up",
    ],
    &[
        "query",
        "instant",
        "--time=2023-11-14T22:15:00Z",
        "SERVER",
        "temperature",
    ],
    &[
        "query",
        "instant",
        "--time=1700000100.5",
        "-o",
        "json",
        "SERVER",
        "temperature",
    ],
    &["query", "instant", "--time=1700000100", "SERVER", "special"],
    &[
        "query",
        "instant",
        "--time=1700000100",
        "SERVER",
        "huge or tiny",
    ],
    &[
        "query",
        "instant",
        "--time=1700000100",
        "SERVER",
        "{'with.dots'}",
    ],
    &["query", "instant", "--time=1700000100", "SERVER", "1.5e9"],
    &[
        "query",
        "instant",
        "--time=1700000100",
        "-o",
        "json",
        "SERVER",
        "NaN",
    ],
    &["query", "instant", "--time=1700000100", "SERVER", "up[1m]"],
    &["query", "instant", "--time=1700000100", "SERVER", "nothing"],
    &[
        "query",
        "instant",
        "--time=1700000100",
        "-o",
        "json",
        "SERVER",
        "nothing",
    ],
    &["query", "instant", "--time=1700000100", "SERVER", "sum("],
    &[
        "query",
        "instant",
        "--time=1700000100",
        "SERVER",
        "up + on() group_left() up",
    ],
    &[
        "query",
        "range",
        "--start=1700000000",
        "--end=1700000060",
        "--step=30s",
        "SERVER",
        "up",
    ],
    &[
        "query",
        "range",
        "--start=1700000000",
        "--end=1700000060",
        "--step=30s",
        "-o",
        "json",
        "SERVER",
        "requests_total",
    ],
    &[
        "query",
        "range",
        "--start=1700000000",
        "--end=1700000285",
        "SERVER",
        "sum by (code) (requests_total)",
    ],
    &[
        "query",
        "range",
        "--start=1700000000",
        "--end=1700000285",
        "--header=X-Any=1",
        "SERVER",
        "sum(up)",
    ],
    &["query", "range", "--start=2", "--end=1", "SERVER", "up"],
    &[
        "query",
        "series",
        "--match=up",
        "--match={job='x'}",
        "--start=1700000000",
        "--end=1700000285",
        "SERVER",
    ],
    &[
        "query",
        "series",
        "--match=temperature",
        "-o",
        "json",
        "--start=1700000000",
        "--end=1700000285",
        "SERVER",
    ],
    &["query", "series", "--match=nothing", "SERVER"],
    &["query", "series", "--match={", "SERVER"],
    &[
        "query",
        "labels",
        "--start=1700000000",
        "--end=1700000285",
        "SERVER",
        "__name__",
    ],
    &[
        "query",
        "labels",
        "--start=1700000000",
        "--end=1700000285",
        "SERVER",
        "room",
        "-o",
        "json",
    ],
    &[
        "query",
        "labels",
        "--start=1700000000",
        "--end=1700000285",
        "SERVER",
        "code",
        "--match=up",
    ],
    &[
        "query",
        "analyze",
        "--server=SERVER",
        "--type=histogram",
        "--match=latency_seconds_bucket",
        "--time=1700000285",
    ],
    &["check", "healthy", "--url=SERVER"],
    &["check", "ready", "--url=SERVER"],
];

fn check_calls(url: &str) {
    for call in CALLS {
        let call: Vec<_> = call.iter().map(|arg| arg.replace("SERVER", url)).collect();
        check_alike(&call.iter().map(String::as_str).collect::<Vec<_>>(), "");
    }
}

#[test]
fn results_are_printed_as_promtool_prints_them() {
    if missing(&["promtool"]) {
        return;
    }
    let server = Server::start(&[]);
    server.http().write(&data()).expect_status(204);
    check_calls(&server.http().url(""));
}

#[test]
fn a_prometheus_can_be_queried() {
    if missing(&["promtool", "prometheus"]) {
        return;
    }
    let prometheus = Prometheus::start("{}", &["--storage.tsdb.retention.time=100y"]);
    prometheus.http().write(&data()).expect_status(204);
    check_calls(&prometheus.http().url(""));
}

/// YAML was accepted, and JSON was printed.
#[test]
fn an_unknown_output_format_is_an_error() {
    for args in [
        &["query", "instant", "--output=yaml", "up"][..],
        &["status", "-o", "yaml"],
        &["advise", "drops", "-o", "yaml"],
    ] {
        let output = varve(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            text(&output.stderr).contains("[possible values: table, json]"),
            "{output:?}"
        );
    }
}

/// Each command had a style of its own.
#[test]
fn commands_that_promtool_lacks_print_errors_of_a_server_in_one_style() {
    let server = Server::start(&[]);
    let url = server.http().url("");
    for (args, expect) in [
        (
            &["query", "explain", &url, "up{"][..],
            "400 for /api/v1/query_explain: ",
        ),
        (
            &["query", "cancel", &url, "17"],
            "500 for /api/v1/status/queries/17: admin APIs disabled",
        ),
        (
            &["admin", "snapshot", &url],
            "500 for /api/v1/admin/tsdb/snapshot: admin APIs disabled",
        ),
    ] {
        let said = text(&varve(args).stderr);
        let expect = format!("varve: {url} returned {expect}");
        assert!(said.starts_with(&expect), "{said}");
    }
}

#[test]
fn an_unreachable_server_is_an_error() {
    let output = varve(&["query", "instant", "http://127.0.0.1:1", "up"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("varve: query error: connect to 127.0.0.1:1"),
        "{output:?}"
    );
    let output = varve(&["check", "healthy", "--url=http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // A URL that is not that of a server fails, too.
    let server = Server::start(&[]);
    let output = varve(&[
        "check",
        "ready",
        &format!("--url={}", server.http().url("/nowhere")),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("check failed: URL="),
        "{output:?}"
    );
}

/// `query labels URL` asked the default server for a label with the name of the URL.
#[test]
fn a_url_is_never_another_argument_than_the_server() {
    let url = "http://127.0.0.1:1";
    for args in [
        &["query", "labels"][..],
        &["query", "instant"],
        &["query", "range"],
        &["query", "explain"],
        &["rules", "explain"],
        &["rules", "backtest", "--start=0"],
        &["relabel", "enable"],
    ] {
        let output = varve(&[args, &[url]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains("this is a server"), "{args:?}: {errors}");
    }
    for (args, expect) in [
        (&[url][..], "this is the server, and the files are missing"),
        (
            &["a", url],
            "http://127.0.0.1:1: the server is the first argument",
        ),
        (
            &["--url", url, url, "a"],
            "the first argument or --url, not both",
        ),
    ] {
        let backfill = ["rules", "backfill", "--start=0", "--path=."];
        let output = varve(&[&backfill, args].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(expect), "{args:?}: {errors}");
    }
}

/// Seconds exported and dumped nothing, with exit code 0: only milliseconds were read.
#[test]
fn all_commands_take_the_same_times() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(
        path("in.om"),
        "a 1 1700000000\na 2 1700000001\na 3 1700000002\n# EOF\n",
    )
    .expect("write a file");
    let args = ["tsdb", "create-blocks-from", "openmetrics"];
    let made = varve(&[&args[..], &[&path("in.om"), &path("blocks")]].concat());
    assert!(made.status.success(), "{made:?}");
    let imported = varve(&["tsdb", "import", &path("blocks"), &path("data")]);
    assert!(imported.status.success(), "{imported:?}");
    for time in ["1700000001", "1700000001000", "2023-11-14T22:13:21Z"] {
        let range = [format!("--start={time}"), format!("--end={time}")];
        let out = format!("--to-blocks={}", path(&format!("out-{time}")));
        let exported = varve(&["tsdb", "export", &range[0], &range[1], &out, &path("data")]);
        let table = text(&exported.stdout);
        assert!(table.ends_with("  1        1\n"), "{time}: {exported:?}");
        let range = [format!("--min-time={time}"), format!("--max-time={time}")];
        for name in ["blocks", "data"] {
            let dumped = varve(&["tsdb", "dump", &range[0], &range[1], &path(name)]);
            let expect = "{__name__=\"a\"} 2 1700000001000\n";
            assert_eq!(text(&dumped.stdout), expect, "{time}: {dumped:?}");
        }
    }
}

#[test]
fn servers_can_require_tls_and_a_password_or_token() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = |name: &str| {
        dir.path()
            .join(name)
            .to_str()
            .expect("a path of a test is text")
            .to_owned()
    };
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("write a file");
    let made =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("make a certificate");
    write("cert.pem", &made.cert.pem());
    write("key.pem", &made.signing_key.serialize_pem());
    write(
        "web.yml",
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n\
         bearer_tokens: [{name: a, token: t0ken, scopes: [read, write]}]\n",
    );
    let cert = Certificate::from_pem(made.cert.pem().as_bytes()).expect("a certificate in PEM");
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&[cert]))
        .build();
    let access = Access {
        tls: Some(tls),
        authorization: Some("Bearer t0ken".to_owned()),
    };
    let server = Server::start_as(
        &[&format!("--web.config.file={}", path("web.yml"))],
        &access,
    );
    server.http().write(&data()).expect_status(204);
    let url = format!("https://{}", server.http().address());
    let time = format!("--time={}", T0 / 1000);

    write(
        "client.yml",
        "authorization: {credentials: t0ken}\ntls_config: {ca_file: cert.pem}\n",
    );
    write(
        "wrong.yml",
        "authorization: {credentials: wrong}\ntls_config: {ca_file: cert.pem}\n",
    );
    write(
        "trusting.yml",
        "{bearer_token: t0ken, tls_config: {insecure_skip_verify: true}}\n",
    );
    write("untrusting.yml", "bearer_token: t0ken\n");
    write("token", "t0ken\n");
    let ask = |flag: &str| varve(&["query", "instant", &time, flag, &url, "count(up)"]);
    for config in ["client.yml", "trusting.yml"] {
        let output = ask(&format!("--http.config.file={}", path(config)));
        assert!(text(&output.stdout).starts_with("{} => 2 @["), "{output:?}");
    }
    let output = ask(&format!("--http.config.file={}", path("wrong.yml")));
    assert!(text(&output.stderr).contains("401"), "{output:?}");
    for flag in [
        format!("--http.config.file={}", path("untrusting.yml")),
        format!("--token-file={}", path("token")),
    ] {
        let output = ask(&flag);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains("certificate") && said.contains("(--ca-file names "),
            "{said}"
        );
    }
    let flag = format!("--http.config.file={}", path("client.yml"));
    let output = varve(&["check", "healthy", "--url", &url, &flag]);
    assert!(output.status.success(), "{output:?}");
    let output = run(
        env!("CARGO_BIN_EXE_varve"),
        &["query", "explain", "up", "--url", &url, &flag],
        "",
    );
    assert!(
        output.status.success() && text(&output.stdout).contains("operator"),
        "{output:?}"
    );
}
