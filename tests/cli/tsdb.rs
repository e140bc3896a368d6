//! `varve tsdb`, on a directory of a real Prometheus and on an import of it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::TempDir;

use super::{check_alike, run, text, varve};
use crate::harness::{Server, WriteRequest, missing, promtool, series, wait_until};
use crate::recovery::recorded;

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of a test is text")
}

fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

/// Imports the recorded directory.
fn imported(dir: &TempDir, original: &Path) -> PathBuf {
    let data = dir.path().join("data");
    import(original, &data);
    data
}

/// Imports a directory and returns the output. Progress may be on standard error.
fn import(from: &Path, to: &Path) -> String {
    let output = varve(&["tsdb", "import", path(from), path(to)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Creates Prometheus blocks with a sample at each of some times, in seconds.
fn blocks_of(dir: &Path, times_s: &[i64]) {
    let mut lines = String::new();
    for time_s in times_s {
        lines.push_str(&format!("a 1 {time_s}\n"));
    }
    let history = dir.with_extension("om");
    std::fs::write(&history, lines + "# EOF\n").expect("write a file");
    let args = ["tsdb", "create-blocks-from", "openmetrics", "-q"];
    succeeded(varve(&[&args[..], &[path(&history), path(dir)]].concat()));
}

/// The import succeeded, and retention removed the blocks in the same second.
#[test]
fn blocks_older_than_the_retention_are_not_imported_unasked() {
    let flags = [
        "--storage.tsdb.retention.time=30d",
        "--web.enable-admin-api",
    ];
    let mut server = Server::start(&flags);
    let dir = TempDir::new().expect("make a temporary directory");
    let blocks = dir.path().join("blocks");
    let now_s = crate::harness::now_ms() / 1000;
    let write = |name: &str| {
        let now = series(&[("__name__", name)], &[(now_s * 1000, 1.0)]);
        server
            .http()
            .write(&WriteRequest::new([now]))
            .expect_status(204);
    };
    write("now");
    blocks_of(&blocks, &[1_700_000_000, now_s - 86_400]);
    let said = import(&blocks, &server.data_dir());
    assert!(said.contains("varve admin import"), "{said}");
    let path_of_import = "/api/v1/admin/tsdb/import";
    let refused = server.http().post(path_of_import, &[], b"");
    assert_eq!(refused.status, 422, "{refused:?}");
    let reason = refused.json()["error"].to_string();
    assert!(
        reason.contains("would remove 1 of the blocks to import"),
        "{reason}"
    );
    assert!(reason.contains("--storage.tsdb.retention.time"), "{reason}");
    let refused = varve(&["admin", "import", &server.http().url("")]);
    let said = text(&refused.stderr);
    assert!(
        said.contains("would remove 1 of the blocks to import"),
        "{said}"
    );
    // A start does not import them, and says so.
    server.kill();
    server.restart(&flags);
    wait_until("a log line", || {
        server
            .log()
            .contains("Blocks in the directory import are not part of the store")
    });
    let imported = varve(&["admin", "import", "--expired", &server.http().url("")]);
    assert_eq!(text(&imported.stdout), "2 blocks are imported\n");
}

/// Returns the paths below a directory.
fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).expect("list a directory") {
        let path = entry.expect("list a directory").path();
        if path.is_dir() {
            paths.extend(tree(&path));
        }
        paths.push(path);
    }
    paths.sort();
    paths
}

/// The error named no remedy.
#[test]
fn a_directory_that_a_server_has_open_is_an_error_that_names_another_command() {
    let server = Server::start(&[]);
    let dir = server.data_dir();
    for (args, command) in [
        (["tsdb", "compact", path(&dir)], "varve admin compact"),
        (["tsdb", "analyze", path(&dir)], "varve admin snapshot"),
    ] {
        let output = varve(&args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("in use by another process")
                && said.contains("stop the server, or")
                && said.contains(command),
            "{said}"
        );
    }
}

/// They began an empty store among the files of Prometheus, with exit code 0. Blocks of Prometheus
/// in a directory of Varve were never read.
#[test]
fn writers_refuse_a_directory_of_the_other_program() {
    let dir = TempDir::new().expect("make a temporary directory");
    let theirs = dir.path().join("theirs");
    let ours = dir.path().join("ours");
    let empty = dir.path().join("empty");
    blocks_of(&theirs, &[1_700_000_000]);
    let said = import(&theirs, &ours);
    assert!(said.contains("--storage.tsdb.retention.time"), "{said}");
    std::fs::create_dir(&empty).expect("make a directory");
    let history = dir.path().join("theirs.om");
    let out = dir.path().join("out");
    let calls: [(&Path, &str, &[&str]); 9] = [
        (&theirs, "`varve tsdb import`", &["compact", path(&theirs)]),
        (&empty, "it is empty", &["compact", path(&empty)]),
        (
            &theirs,
            "`varve tsdb import`",
            &["import", path(&theirs), path(&theirs)],
        ),
        (
            &theirs,
            "`varve tsdb import`",
            &["export", path(&theirs), "--to-blocks", path(&out)],
        ),
        (
            &empty,
            "it is empty",
            &["export", path(&empty), "--to-blocks", path(&out)],
        ),
        (
            &ours,
            "`varve tsdb import`",
            &["export", path(&ours), "--to-blocks", path(&ours)],
        ),
        (
            &ours,
            "`varve tsdb import`",
            &[
                "create-blocks-from",
                "openmetrics",
                path(&history),
                path(&ours),
            ],
        ),
        (
            &ours,
            "of Varve, not of Prometheus",
            &["import", path(&ours), path(&out)],
        ),
        (&empty, "it is empty", &["import", path(&empty), path(&out)]),
    ];
    for (unchanged, reason, args) in calls {
        let before = tree(unchanged);
        let output = varve(&[&["tsdb"], args].concat());
        assert!(!output.status.success(), "{args:?}: {output:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(reason), "{args:?}: {errors}");
        assert!(tree(unchanged) == before, "{args:?} changed the directory");
        assert!(!out.exists(), "{args:?} wrote something");
    }
}

/// These printed "0 blocks", with exit code 0.
#[test]
fn an_import_that_finds_nothing_fails_and_says_why() {
    let dir = TempDir::new().expect("make a temporary directory");
    let parent = dir.path().join("parent");
    let data = parent.join("prometheus");
    let target = dir.path().join("data");
    std::fs::create_dir(&parent).expect("make a directory");
    blocks_of(&data, &[1_700_000_000]);
    let block = std::fs::read_dir(&data)
        .expect("list a directory")
        .map(|entry| entry.expect("list a directory").path())
        .next()
        .expect("there is a block");
    let no_samples = dir.path().join("no-samples");
    std::fs::create_dir_all(no_samples.join("chunks_head")).expect("make a directory");
    for (source, code, reason) in [
        (&parent, 2, "it contains data directories"),
        (&block, 2, "a single block of Prometheus"),
        (&no_samples, 1, "nothing was imported"),
    ] {
        let output = varve(&["tsdb", "import", path(source), path(&target)]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(reason), "{source:?}: {errors}");
    }
}

#[test]
fn imports_into_a_directory_in_use_are_staged_separately() {
    let server = Server::start(&[
        "--storage.tsdb.retention.time=100y",
        "--web.enable-admin-api",
    ]);
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    for metric in ["one", "two"] {
        let (history, blocks) = (
            dir.path().join(metric),
            dir.path().join(format!("{metric}.blocks")),
        );
        std::fs::write(&history, format!("{metric} 1 1700000000\n# EOF\n"))
            .expect("a file can be written");
        succeeded(varve(&[
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "-q",
            path(&history),
            path(&blocks),
        ]));
        let said = import(&blocks, &server.data_dir());
        assert!(
            said.starts_with("built 1 block with 1 sample") && said.contains("varve admin import"),
            "{said}"
        );
    }
    let imported = server
        .http()
        .post("/api/v1/admin/tsdb/import", &[], b"")
        .json();
    assert_eq!(imported["data"]["blocks"], 2, "{imported}");
    for metric in ["one", "two"] {
        let found = server
            .http()
            .query(
                "/api/v1/query",
                &[("query", metric), ("time", "1700000000")],
            )
            .data();
        assert_eq!(found["result"][0]["value"][1], "1", "{metric}: {found}");
    }
    let left = std::fs::read_dir(server.data_dir().join("import"))
        .expect("the folder is there")
        .count();
    assert_eq!(left, 0, "nothing is imported twice");
}

#[test]
fn both_kinds_of_directory_are_dumped_as_promtool_dumps_them() {
    let Some((dir, original)) = recorded(&["promtool"]) else {
        return;
    };
    let theirs = succeeded(promtool(&["tsdb", "dump", path(&original)]));
    let ours = succeeded(varve(&["tsdb", "dump", path(&original)]));
    let floats = |dump: &str| {
        dump.lines()
            .filter(|line| !line.contains("{count:"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(floats(&theirs).len() > 900_000);
    assert!(floats(&ours) == floats(&theirs), "the floats differ");
    // promtool skips the first one or two histograms of each series in a block.
    let ours_all: HashSet<_> = ours.lines().collect();
    let missing: Vec<_> = theirs
        .lines()
        .filter(|line| !ours_all.contains(line))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(ours.lines().count() - theirs.lines().count() < 100);
    let data = imported(&dir, &original);
    assert!(
        succeeded(varve(&["tsdb", "dump", path(&data)])) == ours,
        "the dumps of what was imported differ"
    );
}

/// Runs `promtool tsdb dump-openmetrics`, and quotes the names that are no legacy names. promtool
/// does not, and cannot read its own output.
fn dump_openmetrics_of_promtool(args: &[String]) -> String {
    succeeded(run("promtool", args, ""))
        .replace("demo.dotted.metric{", "{\"demo.dotted.metric\",")
        .replace(",label.with.dots=", ",\"label.with.dots\"=")
}

#[test]
fn selections_are_dumped_as_promtool_dumps_them() {
    let Some((dir, original)) = recorded(&["promtool"]) else {
        return;
    };
    let data = imported(&dir, &original);
    let flags = [
        "--min-time=1795252700000",
        "--max-time=1795254400000",
        "--match={job='ooo'}",
        "--match=demo_odd",
    ];
    for command in ["dump", "dump-openmetrics"] {
        let of = |dir: &Path| {
            let args = ["tsdb", command, path(dir)].into_iter().chain(flags);
            args.map(str::to_owned).collect::<Vec<_>>()
        };
        let theirs = match command {
            "dump" => succeeded(run("promtool", &of(&original), "")),
            _ => dump_openmetrics_of_promtool(&of(&original)),
        };
        assert!(theirs.lines().count() > 1000, "{command}");
        for of_dir in [&original, &data] {
            assert!(
                succeeded(varve(&of(of_dir))) == theirs,
                "{command} of {of_dir:?} differs"
            );
        }
    }
    let args = ["tsdb", "dump-openmetrics", path(&original)].map(str::to_owned);
    let theirs = dump_openmetrics_of_promtool(&args);
    assert!(
        succeeded(varve(&["tsdb", "dump-openmetrics", path(&original)])) == theirs,
        "the dumps differ"
    );
}

#[test]
fn blocks_are_listed_as_promtool_lists_them() {
    let Some((dir, original)) = recorded(&["promtool"]) else {
        return;
    };
    check_alike(&["tsdb", "list", path(&original)], "");
    check_alike(&["tsdb", "list", "-r", path(&original)], "");
    let data = imported(&dir, &original);
    let list = succeeded(varve(&["tsdb", "list", path(&data)]));
    assert!(
        list.starts_with("BLOCK ULID") && list.lines().count() > 1,
        "{list}"
    );
    let nowhere = varve(&["tsdb", "list", path(dir.path())]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        text(&nowhere.stderr).contains("it contains data directories"),
        "{nowhere:?}"
    );
}

/// Splits the output of `analyze` into the head and the lists with their titles. Only the numbers
/// of a list count, as promtool prints entries with the same number in any order.
fn lists(text: &str) -> (String, Vec<(String, Vec<u64>)>) {
    let mut parts = text.split("\n\n");
    let head = parts.next().unwrap_or_default().to_owned();
    let parts = parts.take_while(|part| !part.starts_with("Compaction analysis"));
    let list = |part: &str| {
        let (title, lines) = part.split_once('\n').unwrap_or((part, ""));
        let number = |line: &str| {
            line.split(' ')
                .next()
                .and_then(|number| number.parse().ok())
        };
        (title.to_owned(), lines.lines().filter_map(number).collect())
    };
    (head, parts.map(list).collect())
}

#[test]
fn blocks_are_analyzed_as_by_promtool_and_with_their_sizes() {
    let Some((dir, original)) = recorded(&["promtool"]) else {
        return;
    };
    let calls: [&[&str]; 4] = [
        &["--extended"],
        &["--limit=5", "01M7YQXBGDD17SX867WS6E6B9M"],
        &["--match={job='prometheus'}"],
        &[
            "--extended",
            "--match={__name__=~'nh_.+|prometheus_http_request_duration_seconds'}",
            "01M7YQXBGDD17SX867WS6E6B9M",
        ],
    ];
    for call in calls {
        let args = [&["tsdb", "analyze", path(&original)][..], call].concat();
        let (ours, theirs) = (succeeded(varve(&args)), succeeded(promtool(&args)));
        let ((our_head, our_lists), (their_head, their_lists)) = (lists(&ours), lists(&theirs));
        assert_eq!(our_head, their_head, "{call:?}");
        assert_eq!(our_lists[..their_lists.len()], their_lists, "{call:?}");
        let compaction = |text: &str| {
            text.split_once("Compaction analysis:")
                .map(|(_, part)| part.to_owned())
        };
        assert_eq!(compaction(&ours), compaction(&theirs), "{call:?}");
        assert!(ours.contains("\nBytes of samples by encoding:\n"), "{ours}");
    }
    let data = imported(&dir, &original);
    let ours = succeeded(varve(&["tsdb", "analyze", path(&data)]));
    for title in [
        "Most common label pairs:",
        "Metric names with most bytes of samples:",
        "Bytes of the file by part:",
    ] {
        assert!(ours.contains(title), "{ours}");
    }
    let json = |dir: &Path| {
        let output = succeeded(varve(&["tsdb", "analyze", "--output=json", path(dir)]));
        serde_json::from_str::<serde_json::Value>(&output).expect("JSON")
    };
    for dir in [&original, &data] {
        let json = json(dir);
        assert!(
            json["series"].as_u64() > Some(0) && json["encodings"][0]["bytes"].as_u64() > Some(0),
            "{json}"
        );
        assert!(
            json["top"]["seriesByMetric"][0]["name"].is_string(),
            "{json}"
        );
    }
    assert!(json(&data)["partBytes"]["index"].as_u64() > Some(0));
    let verified = succeeded(varve(&["wal", "verify", path(&original)]));
    assert!(verified.ends_with(" samples: sound\n"), "{verified}");
    assert_eq!(
        varve(&["tsdb", "analyze", path(&data), "nothing"])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn blocks_are_created_from_open_metrics_as_by_promtool() {
    if missing(&["promtool"]) {
        return;
    }
    let dir = TempDir::new().expect("make a temporary directory");
    let input = dir.path().join("input.om");
    let mut lines = "# HELP a help\n# TYPE a counter\n".to_owned();
    for i in 0..2000 {
        let time = 1_700_000_000 + i * 13;
        for job in ["x", "y\\\"z"] {
            lines.push_str(&format!("a_total{{job=\"{job}\"}} {}.5 {time}.25\n", i * i));
        }
    }
    lines.push_str("# TYPE g gauge\ng NaN 1700000000\ng +Inf 1700007200\n# EOF\n");
    std::fs::write(&input, lines).expect("write a file");
    for flags in [&[][..], &["--label=cluster=c", "--label=job=w"]] {
        let of = |name: &str| dir.path().join(format!("{name}-{}", flags.len()));
        let made = |program: &str, target: &Path| {
            let args = [
                &[
                    "tsdb",
                    "create-blocks-from",
                    "openmetrics",
                    path(&input),
                    path(target),
                ][..],
                flags,
            ]
            .concat();
            let said = succeeded(run(program, &args, ""));
            std::fs::create_dir_all(target.join("wal")).expect("make a folder");
            // Without names, chunks and sizes.
            let columns = |line: &str| {
                line.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let rows: Vec<_> = said
                .lines()
                .map(columns)
                .filter(|row| row.len() == 8)
                .collect();
            rows.into_iter()
                .map(|row| [&row[1..5], &row[6..7]].concat())
                .collect::<Vec<_>>()
        };
        let (ours, theirs) = (of("ours"), of("theirs"));
        let rows = made(env!("CARGO_BIN_EXE_varve"), &ours);
        assert_eq!(rows, made("promtool", &theirs), "{flags:?}");
        assert!(rows.len() >= 4, "{rows:?}");
        let dumps =
            [&ours, &theirs].map(|target| succeeded(promtool(&["tsdb", "dump", path(target)])));
        assert!(
            dumps[0] == dumps[1] && dumps[0].lines().count() > 1000,
            "{flags:?}"
        );
        check_alike(&["tsdb", "list", path(&ours)], "");
        assert!(promtool(&["tsdb", "analyze", path(&ours)]).status.success());
    }
    let quiet = varve(&[
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "-q",
        path(&input),
        path(&dir.path().join("q")),
    ]);
    assert_eq!(succeeded(quiet), "");
    std::fs::write(&input, "a 1 1\n").expect("write a file");
    let cut = varve(&[
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        path(&input),
        path(dir.path()),
    ]);
    assert_eq!(cut.status.code(), Some(1));
    assert!(
        text(&cut.stderr).contains("data does not end with # EOF"),
        "{cut:?}"
    );
}

#[test]
fn damage_is_reported_and_the_rest_is_dumped() {
    let Some((_dir, original)) = recorded(&[]) else {
        return;
    };
    let whole = succeeded(varve(&["tsdb", "dump", path(&original)]))
        .lines()
        .count();
    let chunks = original.join("01M7YQXBGDD17SX867WS6E6B9M/chunks/000001");
    let mut bytes = std::fs::read(&chunks).expect("read a file");
    bytes[5000] ^= 0xff;
    std::fs::write(&chunks, bytes).expect("write a file");
    let output = varve(&["tsdb", "dump", path(&original)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("chunks/000001: byte "),
        "{}",
        text(&output.stderr)
    );
    let left = text(&output.stdout).lines().count();
    assert!(left < whole && left > whole - 1000, "{left} of {whole}");
}
