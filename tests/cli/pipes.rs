//! A closed pipe: `varve ... | head -1`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{text, varve};
use crate::harness::{Server, WriteRequest, series};

/// Runs varve with a closed pipe as standard output, and as standard error if `errors_too` is set.
fn unread(args: &[&str], input: &str, errors_too: bool) -> Output {
    let (reader, writer) = std::io::pipe().expect("make a pipe");
    drop(reader);
    let stderr = if errors_too {
        writer.try_clone().expect("share a pipe").into()
    } else {
        Stdio::piped()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(stderr)
        .spawn()
        .expect("start varve");
    // It may exit before it has read everything.
    let _ = child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(input.as_bytes());
    child.wait_with_output().expect("wait for varve")
}

#[test]
fn tools_exit_with_0_on_a_closed_pipe() {
    let metrics = "# HELP up Whether it is.\n# TYPE up gauge\nup 1\n# EOF\n";
    let server = Server::start(&[]);
    let write = WriteRequest::new([series(&[("__name__", "up")], &[(1_700_000_000_000, 1.0)])]);
    assert!(server.http().write(&write).status < 300);
    let (url, log) = (server.http().url(""), server.data_dir());
    let dir = tempfile::TempDir::new().expect("make a temporary directory");
    let file = |name: &str, contents: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, contents).expect("write a file");
        path.to_str().expect("a path of a test is text").to_owned()
    };
    let history = file(
        "history.om",
        "# TYPE up gauge\nup{i=\"1\"} 1 1700000000.000\nup{i=\"2\"} 2 1700000060.000\n# EOF\n",
    );
    let rules = file(
        "rules.yml",
        "groups: [{name: a, rules: [{record: a, expr: up}]}]",
    );
    let config = file("varve.yml", "{}");
    let path = |path: &Path| path.to_str().expect("a path of a test is text").to_owned();
    let (blocks, log) = (path(&dir.path().join("blocks")), path(&log));
    let made = varve(&[
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        &history,
        &blocks,
    ]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    std::fs::create_dir(dir.path().join("blocks/wal")).expect("make a folder");
    let cases: [&[&str]; 21] = [
        &["--help"],
        &["help", "wal"],
        &["--version"],
        &["man"],
        &["completion", "bash"],
        &["wal", "inspect", &log],
        &["wal", "verify", &log, "--format=json"],
        &["wal", "dump", &log],
        &["wal", "replay", &log],
        &["wal", "repair", &log],
        &["wal", "inspect", &blocks],
        &[
            "wal",
            "recover",
            &blocks,
            "--to-blocks",
            &path(&dir.path().join("out")),
        ],
        &["tsdb", "list", &blocks],
        &["tsdb", "analyze", &blocks],
        &["tsdb", "dump", &blocks],
        &["tsdb", "dump-openmetrics", &blocks],
        &[
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            &history,
            &path(&dir.path().join("again")),
        ],
        &["check", "rules", &rules],
        &["check", "config", &config],
        &["query", "instant", &url, "up"],
        &["query", "labels", &url, "__name__"],
    ];
    for args in cases {
        for errors_too in [false, true] {
            let output = unread(args, metrics, errors_too);
            assert!(output.status.success(), "{args:?} {errors_too}: {output:?}");
            assert!(
                !text(&output.stderr).contains("panicked"),
                "{args:?}: {}",
                text(&output.stderr)
            );
        }
    }
}
