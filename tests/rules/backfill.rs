//! `varve rules backfill`.

use serde_json::json;

use super::Fixture;
use super::explain::{varve, write_history};
use crate::harness::{WriteRequest, series, wait_for};

/// Runs a backfill of one rule, and returns whether it succeeds, and what it prints.
fn backfill_one(fixture: &Fixture, dir: &str, args: &[&str]) -> (bool, String) {
    let file = fixture.config.dir().join("one.yml");
    let rules = "groups: [{name: g, interval: 1h, rules: [{record: r, expr: vector(1)}]}]";
    std::fs::write(&file, rules).expect("write the file");
    let url = fixture.http().url("");
    let file = file.display().to_string();
    let output = varve(&[&["rules", "backfill", &url, &file, "--path", dir], args].concat());
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8(text).expect("UTF-8"),
    )
}

/// Returns the number of entries in the directory `import` of a data directory.
fn n_staged(dir: &str) -> usize {
    let entries = std::fs::read_dir(std::path::Path::new(dir).join("import"));
    entries.map_or(0, Iterator::count)
}

#[test]
fn a_backfill_writes_recording_rules_over_history_once() {
    let fixture = Fixture::start_with("groups: []", &["--web.enable-admin-api"]);
    let from_ms = write_history(&fixture);
    // A rule reads a later one of the same group, and one of another file.
    let first = "groups: [{name: g, interval: 10s, rules: [
        {record: 'r:twice', expr: 2 * r:sum}, {record: 'r:sum', expr: sum(r:high), labels: {l: x}},
        {record: 'r:self', expr: 'count(r:self offset 10s) or vector(0)'}, {alert: A, expr: m}]},
        {name: dry, state: dry_run, rules: [{record: 'r:dry', expr: m}]}]";
    let second = "groups: [{name: h, interval: 10s, rules: [{record: 'r:high', expr: m > 1}]}]";
    let files = [("first.yml", first), ("second.yml", second)].map(|(name, rules)| {
        let path = fixture.config.dir().join(name);
        std::fs::write(&path, rules).expect("write the file");
        path.display().to_string()
    });
    let dir = fixture.server.data_dir().display().to_string();
    let url = fixture.http().url("");
    let [start, end] = [0, 450].map(|s| (from_ms / 1000 + s).to_string());
    let run = || {
        let output = varve(&[
            "rules", "backfill", &url, &files[0], &files[1], "--path", &dir, "--start", &start,
            "--end", &end,
        ]);
        assert!(output.status.success(), "{output:?}");
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        assert!(
            stderr.contains("rule \"r:self\" depends on itself")
                && stderr.contains("group \"dry\" of "),
            "{stderr}"
        );
        assert!(!stdout.contains("r:dry"), "{stdout}");
        stdout
    };
    let text = run();
    // The history has the value 5 for 300 seconds, and is 1 afterwards.
    for rule in ["r:high", "r:sum", "r:twice"] {
        assert!(text.contains(&format!("{rule}: 30 new samples")), "{text}");
    }
    let found = |query: &str, after_s: i64| {
        let time = (from_ms / 1000 + after_s).to_string();
        let params = [("query", query), ("time", &time)];
        let data = fixture.http().query("/api/v1/query", &params).data();
        data["result"].clone()
    };
    let first = wait_for("the samples", || {
        Some(found("r:twice[10m]", 450)).filter(|found| found[0]["values"].as_array().is_some())
    });
    assert_eq!(first[0]["metric"], json!({"__name__": "r:twice", "l": "x"}));
    let values = first[0]["values"].as_array().expect("a list");
    assert!(
        values.len() == 30 && values.iter().all(|sample| sample[1] == "10"),
        "{first}"
    );
    // The series end when they have no value any more, not after the lookback of five minutes.
    for (after_s, n_series) in [(290, 1), (320, 0)] {
        let current = found("r:twice", after_s);
        assert_eq!(
            current.as_array().map(Vec::len),
            Some(n_series),
            "{after_s}"
        );
    }

    assert!(run().contains("r:twice: 0 new samples"));
    assert_eq!(found("r:twice[10m]", 450), first);
}

#[test]
fn a_backfill_leaves_out_evaluations_that_fail() {
    let fixture = Fixture::start_with("groups: []", &["--web.enable-admin-api"]);
    let from_ms = write_history(&fixture);
    let now_ms = from_ms + 590_000;
    let other: Vec<_> = (0..5)
        .map(|i| (now_ms - 300_000 + i * 10_000, 1.0))
        .collect();
    fixture
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", "m"), ("a", "1"), ("b", "2")],
            &other,
        )]))
        .expect_status(204);
    let rules =
        "groups: [{name: g, interval: 10s, rules: [{record: r, expr: vector(1) * on () m}]}]";
    let file = fixture.config.dir().join("rules.yml");
    std::fs::write(&file, rules).expect("write the file");
    let (file, dir) = (
        file.display().to_string(),
        fixture.server.data_dir().display().to_string(),
    );
    let url = fixture.http().url("");
    let [start, end] = [0, 580].map(|s| (from_ms / 1000 + s).to_string());
    let output = varve(&[
        "rules", "backfill", &url, &file, "--path", &dir, "--start", &start, "--end", &end,
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
    // The second series is there from the 29th evaluation on, to the end because of the lookback.
    assert!(
        stdout.contains("r: 29 new samples, 29 failed evaluations"),
        "{stdout}"
    );
    assert!(
        stderr.contains("rule \"r\" fails at ") && stderr.contains("many-to-many"),
        "{stderr}"
    );
}

/// The import used to fail for its oldest block, after the evaluation, and so did each repetition.
#[test]
fn a_backfill_starts_where_the_retention_does() {
    let fixture = Fixture::start_with("groups: []", &["--web.enable-admin-api"]);
    write_history(&fixture);
    let dir = fixture.server.data_dir().display().to_string();
    let (is_success, text) = backfill_one(&fixture, &dir, &["--start=-16d"]);
    assert!(is_success, "{text}");
    assert!(text.contains("the retention of 15d "), "{text}");
    // One per hour.
    let new = [359, 360].map(|n| format!("r: {n} new samples"));
    assert!(new.iter().any(|new| text.contains(new)), "{text}");
    assert_eq!(n_staged(&dir), 0);
    let (is_success, text) = backfill_one(&fixture, &dir, &["--start=-17d", "--end=-16d"]);
    assert!(
        !is_success && text.contains("would remove all samples"),
        "{text}"
    );
}

/// The rules used to be evaluated first, and the blocks remained in the wrong directory.
#[test]
fn a_backfill_checks_the_server_and_its_arguments_first() {
    let fixture = Fixture::start_with("groups: []", &["--web.enable-admin-api"]);
    let other = Fixture::start("groups: []");
    for (path, start, end, expect) in [
        (
            other.server.data_dir(),
            "-2h",
            "-1h",
            "the data directory of the server is",
        ),
        (
            fixture.config.dir().to_path_buf(),
            "-2h",
            "-1h",
            "neither of Prometheus nor of Varve",
        ),
        (
            fixture.server.data_dir(),
            "-1h",
            "-2h",
            "must be before --end",
        ),
        (
            fixture.server.data_dir(),
            "-1h",
            "-1h",
            "must be before --end",
        ),
        (
            fixture.server.data_dir(),
            "-1h",
            "9999-01-01T00:00:00Z",
            "must not be after now",
        ),
    ] {
        let path = path.display().to_string();
        let args = [format!("--start={start}"), format!("--end={end}")];
        let (is_success, text) = backfill_one(&fixture, &path, &args.each_ref().map(|arg| &**arg));
        assert!(!is_success && text.contains(expect), "{expect}: {text}");
        assert_eq!(n_staged(&path), 0, "{expect}");
    }
    let path = other.server.data_dir().display().to_string();
    let (is_success, text) = backfill_one(&other, &path, &["--start=-2h"]);
    assert!(
        !is_success && text.contains("--web.enable-admin-api"),
        "{text}"
    );
    assert_eq!(n_staged(&path), 0);
}
