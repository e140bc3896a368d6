//! PromQL test scripts: those of Prometheus, read in place, and Varve's own in `tests/data/promql`.
//! A table has the number of evaluations of each file, so that none is lost.

mod at_modifier;
mod compare;
pub(crate) mod differential;
mod histogram;
mod runner;
mod script;
mod sequence;

use std::path::{Path, PathBuf};

use runner::{Mode, Outcome, run};

/// Number of evaluations in Prometheus' scripts.
const PROMETHEUS: &[(&str, usize)] = &[
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
        .filter(|path| path.extension().is_some_and(|extension| extension == "test"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    scripts.sort();
    scripts
}

fn assert_no_failures(file: &str, outcome: &Outcome) {
    println!("{file}: {} passed", outcome.n_passed);
    assert!(outcome.failures.is_empty(), "{}", runner::print(file, outcome));
}

#[test]
fn prometheus_scripts_pass() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/promqltest");
    let folder = std::env::var_os("PROMQLTEST_DIR").map_or(default, PathBuf::from);
    if !folder.is_dir() {
        println!("skipped: no Prometheus test scripts in {}", folder.display());
        return;
    }
    let mut failed = false;
    for (file, text) in scripts(&folder) {
        let mut outcome = run(&text, Mode::Delayed);
        let n_failed = outcome.failures.len();
        outcome.failures.retain(|failure| !CHANGED.iter().any(|changed| failure.starts_with(changed)));
        let n_changed = n_failed - outcome.failures.len();
        println!("{file}: {} passed, {} failed", outcome.n_passed, outcome.failures.len());
        print!("{}", runner::print(&file, &outcome));
        failed |= !outcome.failures.is_empty();
        if let Some((_, n_passed)) = PROMETHEUS.iter().find(|(known, _)| *known == file)
            && outcome.n_passed + n_changed != *n_passed
        {
            println!("{file}: expected {n_passed} passed");
            failed = true;
        }
    }
    assert!(!failed, "some evaluations differ, see above");
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
