//! What the compiler does not check: the arrows between the crates, what the documentation must name, what no source
//! may hold.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Server, WriteRequest, series};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files under a folder that end in `suffix`.
fn files(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("list a folder").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn sources() -> Vec<PathBuf> {
    ["bin", "tsdb/src", "tsdb/prometheus/src", "ingest/src", "query/src", "benches", "tests"]
        .iter()
        .flat_map(|folder| files(folder, ".rs"))
        .collect()
}

#[test]
fn arrows_between_crates_hold() {
    let outside_of_engine = ["axum", "hyper", "tokio", "prost", "snap", "serde", "serde_json", "serde_yaml_ng"];
    let check = |manifest: &str, forbidden: &[&str]| {
        let manifest = text(&root().join(manifest));
        let dependencies = manifest.split_once("[dependencies]").expect("a crate has dependencies").1;
        let dependencies = dependencies.split("\n[").next().expect("a split has a first part");
        let names: BTreeSet<_> = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).collect();
        for name in forbidden {
            assert!(!names.contains(name), "{name} among {names:?}");
        }
    };
    let above_engine = ["varve-prometheus", "varve-ingest", "varve-query"];
    check("tsdb/Cargo.toml", &[&outside_of_engine[..], &above_engine].concat());
    check("tsdb/prometheus/Cargo.toml", &["varve-ingest", "varve-query", "axum", "hyper", "tokio", "prost", "serde"]);
    check("ingest/Cargo.toml", &["varve-query", "axum", "hyper", "tokio"]);
    check("query/Cargo.toml", &["varve-ingest", "axum", "hyper", "tokio", "prost", "snap"]);
}

#[test]
fn crates_that_need_no_unsafe_code_forbid_it() {
    for lib in ["tsdb/prometheus/src/lib.rs", "ingest/src/lib.rs", "query/src/lib.rs", "bin/main.rs", "tests/main.rs"] {
        assert!(text(&root().join(lib)).contains("#![forbid(unsafe_code)]"), "{lib}");
    }
}

#[test]
fn sources_hold_nothing_unfinished_and_no_path_of_a_machine() {
    // Written in two parts, so that this file does not hold them.
    let forbidden = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("d", "bg!("),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/t", "mp/"),
    ];
    for path in sources() {
        let source = text(&path);
        for forbidden in forbidden {
            assert!(!source.contains(forbidden), "{} holds {forbidden}", path.display());
        }
    }
}

#[test]
fn every_source_says_at_its_head_what_it_is() {
    for path in sources().iter().filter(|path| !path.ends_with("tests.rs")) {
        assert!(text(path).starts_with("//! "), "{} has no module documentation", path.display());
    }
}

#[test]
fn every_flag_is_documented() {
    let help = Command::new(env!("CARGO_BIN_EXE_varve")).args(["serve", "--help"]).output().expect("run varve");
    let help = String::from_utf8(help.stdout).expect("help is UTF-8");
    let flags: BTreeSet<_> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"))
        .filter_map(|line| line.split([' ', '=', ',', '\n']).next())
        .filter(|flag| flag.contains('.') || flag.contains('-'))
        .collect();
    assert!(flags.len() > 15, "{flags:?} in\n{help}");
    let page = text(&root().join("docs/config.md"));
    let missing: Vec<_> = flags.iter().filter(|flag| !page.contains(&format!("`--{flag}"))).collect();
    assert!(missing.is_empty(), "docs/config.md does not name {missing:?}");
}

#[test]
fn every_metric_is_documented() {
    let server = Server::start(&[]);
    // A request, a refused one and a read bring to light what appears with the first of its kind.
    server.http().query("/api/v1/query", &[("query", "1")]).expect_status(200);
    server.http().write(&WriteRequest::new([series(&[], &[(0, 0.0)])])).expect_status(400);
    let metrics = server.http().get("/metrics").text();
    let families: BTreeSet<_> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(families.len() > 20, "{families:?}");
    let page = text(&root().join("docs/metrics.md"));
    let missing: Vec<_> = families.iter().filter(|family| !page.contains(&format!("`{family}"))).collect();
    assert!(missing.is_empty(), "docs/metrics.md does not name {missing:?}");
}

/// Returns what the map in docs/architecture.md names. What is not found from the root lies beside the first of its row.
fn mapped() -> Vec<PathBuf> {
    let page = text(&root().join("docs/architecture.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let in_row = |row: &str| {
        let names: Vec<_> = row.split('`').step_by(2).map(str::to_owned).collect();
        let beside = root().join(&names[0]).parent().expect("a file has a folder").to_owned();
        let place = move |name: &String| [root().join(name), beside.join(name)].into_iter().find(|path| path.exists());
        names.iter().map(|name| place(name).unwrap_or_else(|| panic!("{name} is not there"))).collect::<Vec<_>>()
    };
    rows.flat_map(in_row).collect()
}

#[test]
fn every_source_is_on_the_map() {
    let mapped = mapped();
    let is_there = |path: &Path| mapped.iter().any(|of| path == of || path.starts_with(of.with_extension("")));
    let lost: Vec<_> = sources().into_iter().filter(|path| !is_there(path)).collect();
    assert!(lost.is_empty(), "not on the map in docs/architecture.md: {lost:?}");
}

#[test]
fn every_page_on_a_format_is_named_in_the_overview() {
    let overview: String =
        ["docs/README.md", "docs/architecture.md"].iter().map(|page| text(&root().join(page))).collect();
    for page in files("docs/format", ".md") {
        let name = page.strip_prefix(root().join("docs")).expect("it is under docs").display().to_string();
        assert!(overview.contains(&name), "neither docs/README.md nor docs/architecture.md names {name}");
    }
}
