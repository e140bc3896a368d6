//! PromQL test scripts: those of Prometheus, read in place, and our own in `tests/data/promql`.
//!
//! Evaluations that need what is not there yet (start timestamps) and do not pass for that are counted as "not yet"; how
//! many of each file pass is a table here, so that none is lost.

mod at_modifier;
mod compare;
mod differential;
mod histogram;
mod runner;
mod script;
mod sequence;
mod tree;

use std::path::{Path, PathBuf};

use runner::{Mode, Outcome, run};

/// Evaluations of Prometheus' scripts that pass, and that wait for what is not there yet.
const PROMETHEUS: &[(&str, usize, usize)] = &[
    ("aggregators.test", 160, 0),
    ("duration_expression.test", 59, 0),
    ("extended_vectors.test", 169, 0),
    ("fill-modifier.test", 46, 0),
    ("functions.test", 431, 0),
    ("histograms.test", 185, 0),
    ("info.test", 53, 0),
    ("literals.test", 25, 0),
    ("native_histograms.test", 522, 0),
    ("operators.test", 214, 0),
    ("selectors.test", 31, 0),
    ("start_timestamps.test", 3, 23),
    ("trig_functions.test", 19, 0),
    ("type_and_unit.test", 58, 0),
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
    println!("{file}: {} passed, {} not yet", outcome.n_passed, outcome.n_not_yet);
    assert!(outcome.failures.is_empty(), "{}", runner::print(file, outcome));
}

#[test]
fn prometheus_scripts_give_what_they_say() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/promqltest");
    let folder = std::env::var_os("PROMQLTEST_DIR").map_or(default, PathBuf::from);
    if !folder.is_dir() {
        println!("skipped: no Prometheus test scripts in {}", folder.display());
        return;
    }
    let mut failed = false;
    for (file, text) in scripts(&folder) {
        let outcome = run(&text, Mode::Delayed);
        println!(
            "{file}: {} passed, {} not yet, {} failed",
            outcome.n_passed,
            outcome.n_not_yet,
            outcome.failures.len()
        );
        print!("{}", runner::print(&file, &outcome));
        failed |= !outcome.failures.is_empty();
        if let Some((_, n_passed, n_not_yet)) = PROMETHEUS.iter().find(|(known, ..)| *known == file) {
            let counted = (outcome.n_passed, outcome.n_not_yet);
            if counted != (*n_passed, *n_not_yet) {
                println!("{file}: expected {n_passed} passed, {n_not_yet} not yet");
                failed = true;
            }
        }
    }
    assert!(!failed, "some evaluations differ, see above");
}

#[test]
fn our_scripts_give_what_they_say_with_and_without_delayed_name_removal() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/promql");
    for (file, text) in scripts(&folder) {
        for mode in [Mode::Immediate, Mode::Delayed] {
            let outcome = run(&text, mode);
            assert_no_failures(&file, &outcome);
            assert_eq!(outcome.n_not_yet, 0, "{file}");
        }
    }
}
