//! Rules that the compiler does not check: dependencies between crates, the layout, complete
//! documentation, forbidden text.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Server, WriteRequest, series};

/// The directories of the library crates, and the maximum number of their code lines. Leaves and
/// the crates of `bin/` have little room: they should not grow unseen.
const LIBRARIES: [(&str, usize); 18] = [
    ("tsdb", 22_000),
    ("tsdb/regexp", 1_600),
    ("tsdb/fs", 1_500),
    ("tsdb/codec", 1_200),
    ("tsdb/collections", 600),
    ("tsdb/prometheus", 8_000),
    ("ingest", 8_000),
    ("ingest/protobuf", 300),
    ("ingest/otlp", 2_100),
    ("query", 15_000),
    ("query/promql", 4_000),
    ("query/rules", 5_000),
    ("query/rules/template", 2_900),
    ("query/advise", 2_300),
    ("bin/base", 2_400),
    ("bin/server", 7_000),
    ("bin/http", 13_000),
    ("bin/tools", 7_000),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files under a folder that end in `suffix`.
fn files(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
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
    let outside_of_bin = LIBRARIES
        .iter()
        .filter(|(name, _)| !name.starts_with("bin/"))
        .map(|(name, _)| format!("{name}/src"));
    ["bin", "benches", "tests"]
        .map(str::to_owned)
        .into_iter()
        .chain(outside_of_bin)
        .flat_map(|folder| files(&folder, ".rs"))
        // Generated.
        .filter(|path| !path.starts_with(root().join("bin/ui/dist")))
        .collect()
}

#[test]
fn folders_have_at_most_20_entries() {
    let mut folders: Vec<_> = ["bin", "tsdb", "ingest", "query", "benches", "tests", "docs"]
        .map(|folder| root().join(folder))
        .into();
    while let Some(folder) = folders.pop() {
        let name = folder
            .strip_prefix(root())
            .expect("it is below the root")
            .display()
            .to_string();
        if matches!(&*name, "tests/data" | "tests/fuzz")
            || folder.ends_with("target")
            || folder.ends_with("node_modules")
        {
            continue;
        }
        let entries = std::fs::read_dir(&folder).expect("list a folder");
        let entries: Vec<_> = entries
            .map(|entry| entry.expect("list a folder").path())
            .collect();
        assert!(entries.len() <= 20, "{name} has {} entries", entries.len());
        folders.extend(entries.into_iter().filter(|path| path.is_dir()));
    }
}

/// Returns the number of lines of a source without comments, blanks and test modules.
fn code_lines(source: &str) -> usize {
    let mut lines = source.lines().map(str::trim);
    let mut n_lines = 0;
    while let Some(line) = lines.next() {
        if line.starts_with("#[cfg(test)]") {
            // Skips the item: to its last brace, or to a semicolon before its first one.
            let mut depth = 0;
            let _end = lines.by_ref().find(|line| {
                let n_open = line.matches('{').count();
                let was_open = depth > 0;
                depth = (depth + n_open).saturating_sub(line.matches('}').count());
                let is_attribute = line.starts_with('#');
                depth == 0 && !is_attribute && (was_open || n_open > 0 || line.ends_with(';'))
            });
        } else if !line.is_empty() && !line.starts_with("//") {
            n_lines += 1;
        }
    }
    n_lines
}

#[test]
fn crates_stay_within_their_sizes() {
    let is_tests = |path: &Path| {
        path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
    };
    for (name, max) in LIBRARIES {
        let sources = files(&format!("{name}/src"), ".rs").into_iter();
        let n_lines: usize = sources
            .filter(|path| !is_tests(path.strip_prefix(root()).expect("it is below the root")))
            .map(|path| code_lines(&text(&path)))
            .sum();
        assert!(
            n_lines <= max,
            "{name} has {n_lines} code lines, more than {max}: make room first, or split a leaf off"
        );
    }
}

#[test]
fn crate_roots_export_at_most_20_names_besides_modules() {
    for name in LIBRARIES
        .map(|(name, _)| name)
        .into_iter()
        .chain(["benches/fleet"])
    {
        let folder = format!("{name}/src");
        let lib = text(&root().join(&folder).join("lib.rs"));
        let is_module = |name: &str| {
            [format!("/{name}.rs"), format!("/{name}/mod.rs")]
                .iter()
                .any(|file| !files(&folder, file).is_empty())
        };
        let uses = lib
            .split("\npub use ")
            .skip(1)
            .filter_map(|rest| rest.split(';').next());
        // The last part of a path, or what is in its braces.
        let names = uses.flat_map(|path| {
            path.split(['{', '}', ','])
                .map(|part| part.rsplit("::").next().unwrap_or(part))
        });
        let n_names = names
            .map(str::trim)
            .filter(|name| !name.is_empty() && !is_module(name))
            .count();
        let is_item = |line: &&str| {
            line.starts_with("pub ")
                && !line.starts_with("pub use ")
                && !line.starts_with("pub mod ")
        };
        let n_exported = n_names + lib.lines().filter(is_item).count();
        assert!(n_exported <= 20, "{name} exports {n_exported} names");
    }
}

#[test]
fn arrows_between_crates_hold() {
    let outside_of_engine = [
        "axum",
        "hyper",
        "tokio",
        "prost",
        "snap",
        "serde",
        "serde_json",
        "serde_yaml_ng",
    ];
    let check = |manifest_path: &str, forbidden: &[&str]| {
        let manifest = text(&root().join(manifest_path));
        let dependencies = manifest
            .split_once("[dependencies]")
            .expect("a crate has dependencies")
            .1;
        let dependencies = dependencies
            .split("\n[")
            .next()
            .expect("a split has a first part");
        let names: BTreeSet<_> = dependencies
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .collect();
        for name in forbidden {
            assert!(!names.contains(name), "{manifest_path} depends on {name}");
        }
    };
    let above_engine = [
        "varve-prometheus",
        "varve-ingest",
        "varve-promql",
        "varve-query",
    ];
    let leaves = [
        "varve-regexp",
        "varve-fs",
        "varve-codec",
        "varve-collections",
    ];
    for leaf in leaves {
        let manifest = format!("tsdb/{}/Cargo.toml", &leaf["varve-".len()..]);
        check(
            &manifest,
            &[
                &outside_of_engine[..],
                &above_engine,
                &["varve-tsdb"],
                &leaves,
            ]
            .concat(),
        );
    }
    check(
        "tsdb/Cargo.toml",
        &[&outside_of_engine[..], &above_engine].concat(),
    );
    check(
        "tsdb/prometheus/Cargo.toml",
        &[
            "varve-ingest",
            "varve-otlp",
            "varve-promql",
            "varve-query",
            "axum",
            "hyper",
            "tokio",
            "prost",
            "serde",
        ],
    );
    let above_wire = [
        "varve-tsdb",
        "varve-otlp",
        "varve-ingest",
        "varve-promql",
        "varve-query",
        "axum",
        "hyper",
        "tokio",
    ];
    check("ingest/protobuf/Cargo.toml", &above_wire);
    check(
        "ingest/otlp/Cargo.toml",
        &[
            "varve-ingest",
            "varve-promql",
            "varve-query",
            "axum",
            "hyper",
            "tokio",
        ],
    );
    let above_query = [
        "varve-template",
        "varve-rules",
        "varve-advise",
        "varve-base",
    ];
    let other_than_ingest = [
        "varve-promql",
        "varve-query",
        "varve-prometheus",
        "axum",
        "hyper",
        "tokio",
    ];
    check(
        "ingest/Cargo.toml",
        &[&above_query[..], &other_than_ingest].concat(),
    );
    let other_than_query = [
        "varve-ingest",
        "varve-otlp",
        "varve-prometheus",
        "axum",
        "hyper",
        "tokio",
        "prost",
        "snap",
    ];
    check(
        "query/Cargo.toml",
        &[&above_query[..], &other_than_query].concat(),
    );
    let above_promql = [
        "varve-query",
        "varve-template",
        "varve-rules",
        "varve-advise",
        "varve-ingest",
        "varve-prometheus",
    ];
    check(
        "query/promql/Cargo.toml",
        &[&outside_of_engine[..], &above_promql].concat(),
    );
    check(
        "query/rules/Cargo.toml",
        &["varve-ingest", "varve-prometheus", "axum", "hyper", "tokio"],
    );
    let above_template = [
        "varve-rules",
        "varve-advise",
        "varve-ingest",
        "varve-prometheus",
    ];
    check(
        "query/rules/template/Cargo.toml",
        &[&outside_of_engine[..], &above_template].concat(),
    );
    check(
        "query/advise/Cargo.toml",
        &[
            "varve-ingest",
            "varve-prometheus",
            "axum",
            "hyper",
            "tokio",
            "clap",
            "anyhow",
        ],
    );
    let above_base = [
        "varve-query",
        "varve-template",
        "varve-prometheus",
        "varve-rules",
        "varve-advise",
        "varve-server",
        "varve-http",
        "varve-tools",
    ];
    check(
        "bin/base/Cargo.toml",
        &[&above_base[..], &["varve", "axum", "prost"]].concat(),
    );
    check(
        "bin/server/Cargo.toml",
        &["varve-http", "varve-tools", "varve"],
    );
    check("bin/http/Cargo.toml", &["varve-tools", "varve", "clap"]);
    check("bin/tools/Cargo.toml", &["varve", "axum"]);
    check(
        "benches/fleet/Cargo.toml",
        &[
            "varve",
            "varve-ingest",
            "varve-query",
            "axum",
            "hyper",
            "tokio",
        ],
    );
}

#[test]
fn crates_forbid_unsafe_code() {
    let libraries = LIBRARIES
        .iter()
        .map(|(name, _)| format!("{name}/src/lib.rs"));
    for root_file in libraries.chain(["bin/main.rs", "tests/main.rs"].map(str::to_owned)) {
        assert!(
            text(&root().join(&root_file)).contains("#![forbid(unsafe_code)]"),
            "{root_file}"
        );
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
            assert!(
                !source.contains(forbidden),
                "{} holds {forbidden}",
                path.display()
            );
        }
    }
}

#[test]
fn docs_use_standard_phrases() {
    // Written in two parts, so that this file does not hold them.
    let forbidden = [
        concat!("in", " vain"),
        concat!("of", " late"),
        concat!("is made", " anew"),
        concat!("who", " waits"),
        concat!("at the", " door"),
    ];
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let holds = |line: &str, words: &str| {
        line.match_indices(words).any(|(at, _)| {
            !is_letter(line[..at].chars().next_back())
                && !is_letter(line[at + words.len()..].chars().next())
        })
    };
    for path in sources() {
        for (number, line) in text(&path).lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            let comment = line.trim_start();
            let doc = comment
                .strip_prefix("///")
                .or_else(|| comment.strip_prefix("//!"))
                .unwrap_or_default();
            assert!(
                !doc.starts_with(concat!(" Te", "lls ")),
                "{place}: say what is returned: {comment}"
            );
            assert!(
                !doc.contains(concat!("Tells", " whether")),
                "{place}: say what is returned: {comment}"
            );
            let line = line.to_lowercase();
            for words in forbidden {
                assert!(!holds(&line, words), "{place} says {words:?}");
            }
        }
    }
}

#[test]
fn every_source_says_at_its_head_what_it_is() {
    // Unit tests are beside a module that has documentation.
    let is_unit_tests = |path: &Path| {
        path.ends_with("tests.rs") || path.parent().is_some_and(|dir| dir.ends_with("tests"))
    };
    for path in sources()
        .iter()
        .filter(|path| !is_unit_tests(path) || path.starts_with(root().join("tests")))
    {
        assert!(
            text(path).starts_with("//! "),
            "{} has no module documentation",
            path.display()
        );
    }
}

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
    let page = text(&root().join("docs/config.md"));
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
    let page = text(&root().join("docs/metrics.md"));
    let missing: Vec<_> = families
        .iter()
        .filter(|family| !page.contains(&format!("`{family}")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/metrics.md does not name {missing:?}"
    );
}

/// Returns the paths in the map of docs/architecture.md. A path that does not exist from the root
/// is beside the first one of its row.
fn mapped() -> Vec<PathBuf> {
    let page = text(&root().join("docs/architecture.md"));
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let in_row = |row: &str| {
        let names: Vec<_> = row.split('`').step_by(2).map(str::to_owned).collect();
        let beside = root()
            .join(&names[0])
            .parent()
            .expect("a file has a folder")
            .to_owned();
        let place = move |name: &String| {
            [root().join(name), beside.join(name)]
                .into_iter()
                .find(|path| path.exists())
        };
        names
            .iter()
            .map(|name| place(name).unwrap_or_else(|| panic!("{name} is not there")))
            .collect::<Vec<_>>()
    };
    rows.flat_map(in_row).collect()
}

#[test]
fn every_source_is_on_the_map() {
    let mapped = mapped();
    let is_there = |path: &Path| {
        mapped
            .iter()
            .any(|of| path == of || path.starts_with(of.with_extension("")))
    };
    let lost: Vec<_> = sources()
        .into_iter()
        .filter(|path| !is_there(path))
        .collect();
    assert!(
        lost.is_empty(),
        "not on the map in docs/architecture.md: {lost:?}"
    );
}

#[test]
fn every_page_on_a_format_is_named_in_the_overview() {
    let overview: String = ["docs/README.md", "docs/architecture.md"]
        .iter()
        .map(|page| text(&root().join(page)))
        .collect();
    for page in files("docs/format", ".md") {
        let name = page
            .strip_prefix(root().join("docs"))
            .expect("it is under docs")
            .display()
            .to_string();
        assert!(
            overview.contains(&name),
            "neither docs/README.md nor docs/architecture.md names {name}"
        );
    }
}

/// A unit test of each format compares the example with the bytes that it writes, and reads them.
#[test]
fn every_page_on_a_format_has_an_example() {
    // The data directory is no file, and the example of a block has an index.
    let has_none = |page: &Path| page.ends_with("directory.md") || page.ends_with("block-index.md");
    for page in files("docs/format", ".md")
        .iter()
        .filter(|page| !has_none(page))
    {
        assert!(
            text(page).contains("\n## Example"),
            "{} has no example",
            page.display()
        );
    }
}

/// Returns the lines of a page outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the anchors of a page: those that GitHub derives from its headings, and its `<a id>`
/// tags.
fn anchors(page: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let heading = line
            .starts_with('#')
            .then(|| line.trim_start_matches('#').trim())?;
        // Keeps the text of a link.
        let heading: String = heading
            .split("](")
            .map(|part| part.split_once(')').map_or(part, |(_, after)| after))
            .collect();
        let kept = heading.to_lowercase().replace(' ', "-");
        Some(
            kept.chars()
                .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
                .collect(),
        )
    };
    let own = page
        .split("<a id=\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    prose(page).filter_map(heading).chain(own).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut dead = Vec::new();
    let pages = files("docs", ".md").into_iter();
    for path in
        pages.chain(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)))
    {
        let page = text(&path);
        let targets = prose(&page)
            .flat_map(|line| line.split("](").skip(1))
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains(':')) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() {
                path.clone()
            } else {
                path.with_file_name(file)
            };
            let is_alive =
                file.exists() && (anchor.is_empty() || anchors(&text(&file)).contains(anchor));
            if !is_alive {
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links: {dead:#?}");
}
