//! The pages name every flag and metric of the program, and the programs that they configure work.

mod blocks;
mod guides;
mod readme;
mod senders;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::harness::{Server, WriteRequest, series};

#[test]
fn every_flag_is_documented() {
    let help = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["serve", "--help"])
        .output()
        .expect("run varve");
    let help = String::from_utf8(help.stdout).expect("help is UTF-8");
    let flags: BTreeSet<_> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"))
        .filter_map(|line| line.split([' ', '=', ',', '[', ']', '\n']).next())
        .filter(|flag| flag.contains('.') || flag.contains('-'))
        .collect();
    assert!(flags.len() > 15, "{flags:?} in\n{help}");
    let page = page("config.md");
    let missing: Vec<_> = flags
        .iter()
        .filter(|flag| !page.contains(&format!("`--{flag}")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/config.md does not name {missing:?}"
    );
}

#[test]
fn every_metric_is_documented() {
    let server = Server::start(&[]);
    // Some metrics appear with the first request, the first rejected request and the first read.
    server
        .http()
        .query("/api/v1/query", &[("query", "1")])
        .expect_status(200);
    server
        .http()
        .write(&WriteRequest::new([series(&[], &[(0, 0.0)])]))
        .expect_status(400);
    let metrics = server.http().get("/metrics").text();
    let families: BTreeSet<_> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert!(families.len() > 20, "{families:?}");
    let page = page("metrics.md");
    let missing: Vec<_> = families
        .iter()
        .filter(|family| !page.contains(&format!("`{family}")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/metrics.md does not name {missing:?}"
    );
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name);
    std::fs::read_to_string(path).expect("read a page")
}
