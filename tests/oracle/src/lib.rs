//! Oracles: data beside the checkout and programs on the PATH that tests compare Varve with.
//!
//! A test whose oracle is missing, or has an older version than the test needs, prints
//! `skipped: <reason> (<test>)` and passes, so that `cargo test` needs nothing but the checkout.
//! `.ci/run` then runs the tests that were skipped again, with all oracles and with
//! `VARVE_REQUIRE_ORACLES=1`: what is still missing fails.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the shared data. The default is `shared`, beside the checkout.
const SHARED: &str = "VARVE_SHARED";
/// If set, a missing oracle fails the test.
const REQUIRE: &str = "VARVE_REQUIRE_ORACLES";
/// The oldest versions that the tests were written for; older programs answer differently.
const OLDEST: [(&str, Version); 2] = [("prometheus", (3, 5)), ("promtool", (3, 5))];

/// The programs that the installers of the shared data bring. Others, such as `kubectl` and
/// `helm`, are tools of the machine: without them a test is skipped, also if all oracles are required.
const ORACLES: [&str; 10] = [
    "amtool",
    "azurite-blob",
    "prometheus",
    "prometheus-alertmanager",
    "prometheus-node-exporter",
    "promtool",
    "thanos",
    "victoria-metrics",
    "vmagent",
    "vmalert",
];

/// Major and minor version.
pub type Version = (u32, u32);

/// Returns the path of a file or folder of the shared data. If it does not exist, returns `None`
/// and says that the test is skipped.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os(SHARED)
        .map_or_else(beside, PathBuf::from)
        .join(path);
    if path.exists() {
        return Some(path);
    }
    skip(&format!("there is no {}", path.display()));
    None
}

/// Returns `true` if one of the programs is not on the PATH or too old for all tests, and says that
/// the test is skipped.
pub fn missing(programs: &[&str]) -> bool {
    programs.iter().any(|program| {
        let oldest = OLDEST.iter().find(|(name, _)| name == program);
        missing_version(program, oldest.map(|(_, version)| *version))
    })
}

/// Returns `true` if the program is not on the PATH or older than `needed`, and says that the test
/// is skipped.
pub fn missing_since(program: &str, needed: Version) -> bool {
    missing_version(program, Some(needed))
}

fn missing_version(program: &str, needed: Option<Version>) -> bool {
    let Some(path) = find_all(program).next() else {
        let reason = format!("{program} is not on PATH");
        if ORACLES.contains(&program) {
            skip(&reason);
        } else {
            unsupported(&reason);
        }
        return true;
    };
    let Some(needed) = needed else {
        return false;
    };
    let found = version(&path);
    if found.is_some_and(|found| found >= needed) {
        return false;
    }
    let found = found.map_or("an unknown version".to_owned(), print_version);
    skip(&format!(
        "{program} {found} found, {} needed",
        print_version(needed)
    ));
    true
}

/// Returns all programs of this name on the PATH, in its order.
pub fn find_all(program: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let files: Vec<_> = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .collect();
    files.into_iter().filter(|file| file.is_file())
}

/// Returns the version that `--version` prints, or `None` if the program prints none.
pub fn version(program: &Path) -> Option<Version> {
    let output = Command::new(program).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(
        &[output.stdout, output.stderr].concat(),
    ))
}

/// Returns `true` if programs of this version are too old for all tests.
pub fn is_too_old(program: &str, found: Version) -> bool {
    OLDEST
        .iter()
        .any(|(name, oldest)| *name == program && found < *oldest)
}

/// Says that a test is skipped because an oracle is missing.
///
/// # Panics
/// If all oracles are required.
pub fn skip(reason: &str) {
    assert!(std::env::var_os(REQUIRE).is_none(), "{reason}");
    print_skipped(reason);
}

/// Says that a test is skipped because this machine lacks a tool or does not permit what the test
/// does, such as mounts. That is no oracle, so it never fails.
pub fn unsupported(reason: &str) {
    print_skipped(reason);
}

fn print_skipped(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    let line = format!("skipped: {reason} ({test})\n");
    // Not eprintln!, whose output the test harness hides while tests pass.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn print_version((major, minor): Version) -> String {
    format!("{major}.{minor}")
}

/// Parses major and minor version of `prometheus, version 3.16.0 (branch: …`.
fn parse_version(text: &str) -> Option<Version> {
    let (_, after) = text.split_once("version ")?;
    let mut parts = after.split('.').map(str::parse);
    let major = parts.next()?.ok()?;
    let minor = parts.next()?.ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed() {
        for (text, expected) in [
            (
                "prometheus, version 3.16.0 (branch: , revision: unknown)",
                Some((3, 16)),
            ),
            (
                "promtool, version 3.5.0+ds1 (branch: debian/sid)",
                Some((3, 5)),
            ),
            ("no version", None),
        ] {
            assert_eq!(parse_version(text), expected, "{text}");
        }
    }

    #[test]
    fn older_programs_are_too_old() {
        assert!(is_too_old("promtool", (2, 53)));
        assert!(!is_too_old("promtool", (3, 5)));
        assert!(!is_too_old("thanos", (0, 42)));
    }
}
