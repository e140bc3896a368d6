//! PromQL test scripts: those of Prometheus, read in place, and Varve's own in `tests/data/promql`.
//! A table has the number of evaluations of each file, so that none is lost.

mod at_modifier;
mod compare;
pub(crate) mod differential;
mod histogram;
mod runner;
mod script;

use std::path::{Path, PathBuf};

use runner::{Mode, Outcome, run};

/// Number of evaluations in the scripts of Prometheus 3.14.
const PROMETHEUS_3_14: &[(&str, usize)] = &[
    ("aggregators.test", 160),
    ("duration_expression.test", 59),
    ("extended_vectors.test", 169),
    ("fill-modifier.test", 46),
    ("functions.test", 431),
    ("histograms.test", 185),
    ("info.test", 53),
    ("literals.test", 25),
    ("native_histograms.test", 522),
    ("operators.test", 214),
    ("selectors.test", 31),
    ("start_timestamps.test", 26),
    ("trig_functions.test", 19),
    ("type_and_unit.test", 58),
];

/// Number of evaluations in the scripts of Prometheus 3.16.
const PROMETHEUS_3_16: &[(&str, usize)] = &[
    ("aggregators.test", 167),
    ("at_modifier.test", 78),
    ("collision.test", 2),
    ("duration_expression.test", 59),
    ("extended_vectors.test", 174),
    ("fill-modifier.test", 50),
    ("functions.test", 516),
    ("histograms.test", 195),
    ("info.test", 70),
    ("limit.test", 37),
    ("literals.test", 25),
    ("name_label_dropping.test", 30),
    ("native_histograms.test", 557),
    ("operators.test", 214),
    ("range_queries.test", 18),
    ("selectors.test", 31),
    ("staleness.test", 17),
    ("start_timestamps.test", 40),
    ("subquery.test", 41),
    ("trig_functions.test", 21),
    ("type_and_unit.test", 65),
    ("unquoted_utf8_names.test", 27),
];

/// The scripts of Prometheus 3.16 in the module cache of Go, where `../shared/peers/install-go`
/// builds it.
const MODULE_SCRIPTS: &str = "github.com/prometheus/prometheus@v0.316.0/promql/promqltest/testdata";

/// Beginnings of the failures of evaluations that Prometheus changed in 3.16. Varve follows 3.16.
const CHANGED: &[&str] = &[
    "line 185: node_meta * on(instance) group_right fill_left(1) cpu_info: ",
    "line 191: node_meta * on(instance) group_right fill_right(0) cpu_info: ",
    "line 144: increase(series[5m]): ",
    "line 265: http_requests_total{group=\"canary\"} / ignoring(group) http_requests_total{group=\"production\"}: ",
];

fn scripts(folder: &Path) -> Vec<(String, String)> {
    let mut scripts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "test")
        })
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    scripts.sort();
    scripts
}

fn assert_no_failures(file: &str, outcome: &Outcome) {
    println!("{file}: {} passed", outcome.n_passed);
    assert!(
        outcome.failures.is_empty(),
        "{}",
        runner::print(file, outcome)
    );
}

/// Runs the scripts of a directory. `expected` has the number of evaluations of each file,
/// `changed` the beginnings of expected failures.
fn check_scripts(folder: &Path, expected: &[(&str, usize)], changed: &[&str]) {
    let mut failed = false;
    for (file, text) in scripts(folder) {
        let mut outcome = run(&text, Mode::Delayed);
        let n_failed = outcome.failures.len();
        outcome
            .failures
            .retain(|failure| !changed.iter().any(|changed| failure.starts_with(changed)));
        let n_changed = n_failed - outcome.failures.len();
        println!(
            "{file}: {} passed, {} failed",
            outcome.n_passed,
            outcome.failures.len()
        );
        print!("{}", runner::print(&file, &outcome));
        failed |= !outcome.failures.is_empty();
        if let Some((_, n_expected)) = expected.iter().find(|(known, _)| *known == file)
            && outcome.n_passed + n_changed != *n_expected
        {
            println!("{file}: expected {n_expected} passed");
            failed = true;
        }
    }
    assert!(!failed, "some evaluations differ, see above");
}

#[test]
fn prometheus_scripts_pass() {
    let folder = std::env::var_os("PROMQLTEST_DIR").map(PathBuf::from);
    if let Some(folder) = folder.or_else(|| varve_oracle::shared("promqltest")) {
        check_scripts(&folder, PROMETHEUS_3_14, CHANGED);
    }
}

#[test]
fn prometheus_3_16_scripts_pass() {
    let home = || std::env::home_dir().map(|home| home.join("go/pkg/mod"));
    let cache = std::env::var_os("GOMODCACHE")
        .map(PathBuf::from)
        .or_else(home)
        .unwrap_or_default();
    let folder = cache.join(MODULE_SCRIPTS);
    if folder.is_dir() {
        check_scripts(&folder, PROMETHEUS_3_16, &[]);
    } else {
        varve_oracle::skip(&format!("there is no {}", folder.display()));
    }
}

#[test]
fn own_scripts_pass_with_and_without_delayed_name_removal() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/promql");
    for (file, text) in scripts(&folder) {
        for mode in [Mode::Immediate, Mode::Delayed] {
            let outcome = run(&text, mode);
            assert_no_failures(&file, &outcome);
        }
    }
}
