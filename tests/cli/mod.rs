//! The tools against promtool: the same arguments, output and exit codes.

mod admin;
mod check;
mod pipes;
mod query;
mod recipes;
mod status;
mod test_rules;
mod tsdb;

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::thread;

/// Runs varve.
fn varve<S: AsRef<OsStr>>(args: &[S]) -> Output {
    run(env!("CARGO_BIN_EXE_varve"), args, "")
}

/// Runs a program with the given standard input.
fn run<S: AsRef<OsStr>>(program: &str, args: &[S], input: &str) -> Output {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("start a program");
    let mut stdin = child.stdin.take().expect("it is piped");
    thread::scope(|scope| {
        // Concurrently with the reads below: the program may print much before it reads its input.
        scope.spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        child.wait_with_output().expect("wait for a program")
    })
}

/// Runs varve and promtool with the same arguments and asserts the same output and exit code. Only
/// errors of varve begin with its name.
fn check_alike(args: &[&str], input: &str) -> Output {
    let (ours, theirs) = (
        run(env!("CARGO_BIN_EXE_varve"), args, input),
        run("promtool", args, input),
    );
    assert_eq!(
        text(&ours.stdout),
        text(&theirs.stdout),
        "standard output of {args:?}"
    );
    let errors = text(&ours.stderr);
    assert_eq!(
        errors.strip_prefix("varve: ").unwrap_or(&errors),
        text(&theirs.stderr),
        "standard error of {args:?}"
    );
    assert_eq!(
        ours.status.code(),
        theirs.status.code(),
        "exit code of {args:?}"
    );
    ours
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn completions_and_manual_pages_cover_all_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = varve(&["completion", shell]);
        assert!(
            output.status.success() && text(&output.stdout).contains("dump-openmetrics"),
            "{output:?}"
        );
    }
    let output = varve(&["man", "query", "range"]);
    assert!(
        output.status.success() && text(&output.stdout).starts_with(".ie \\n(.g .ds Aq"),
        "{output:?}"
    );
    assert_eq!(varve(&["man", "nothing"]).status.code(), Some(1));
}
