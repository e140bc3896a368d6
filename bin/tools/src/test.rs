//! `varve test rules`: unit tests of rules, with the arguments, the output and the exit codes of
//! promtool.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use varve_context::QueryContext;
use varve_regexp::Regexp;
use varve_rules::unit_test::{TestFile, TestResult, TestSettings};
use varve_system::printing::{error_chain, failure};
use varve_wire::time::parse_time_ms;

use super::features::FeatureArgs;
use super::scratch_dir::ScratchDir;

/// `varve test ...`.
#[derive(Debug, Subcommand)]
pub enum TestCommand {
    /// Run unit tests of recording and alerting rules
    Rules(TestRulesArgs),
}

/// Arguments of `varve test rules`.
#[derive(Debug, Clone, Args)]
pub struct TestRulesArgs {
    /// Files with unit tests
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Run only the test groups whose name matches a regular expression [repeatable]
    #[arg(long, value_name = "REGEXP")]
    run: Vec<String>,

    /// Print all samples of each test group
    #[arg(long)]
    debug: bool,

    /// Print the lines that differ, instead of all expected and found alerts
    #[arg(long)]
    diff: bool,

    /// Write the results to a file in the format of JUnit
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Ignore unknown fields in rule files
    #[arg(long)]
    ignore_unknown_fields: bool,

    #[command(flatten)]
    features: FeatureArgs,
}

/// Maximum number of rule files of a test file.
const RULE_FILES_MAX: usize = 20_000;

/// A test file with the results of its test groups, or with the reason why none ran.
type Suite<'a> = (&'a Path, Result<Vec<TestResult>, String>);

/// Runs `varve test ...`.
pub fn run(TestCommand::Rules(args): &TestCommand) -> ExitCode {
    match test_rules(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => failure(&error),
    }
}

/// Runs all files and returns `true` if all tests passed.
fn test_rules(args: &TestRulesArgs) -> Result<bool> {
    let scratch = ScratchDir::create(None)?;
    let selection = match &args.run[..] {
        [] => None,
        patterns => Some(
            Regexp::parse(&format!("(?s:.*)(?-s:{})(?s:.*)", patterns.join("|")))
                .context("--run")?,
        ),
    };
    let selects = |name: &str| {
        let ctx = QueryContext::unbounded();
        selection
            .as_ref()
            .is_none_or(|regexp| regexp.is_match_in(&ctx, name).unwrap_or(false))
    };
    let n_stores = AtomicU32::new(0);
    let open = || {
        let name = n_stores.fetch_add(1, Ordering::Relaxed).to_string();
        scratch.open_store(&name).map_err(|error| error.to_string())
    };
    let settings = TestSettings {
        features: args.features.features(),
        ignore_unknown_fields: args.ignore_unknown_fields,
        diff: args.diff,
        debug: args.debug,
        selects: &selects,
        parse_time: &parse_time_ms,
        open: &open,
    };
    let mut suites: Vec<Suite<'_>> = Vec::new();
    for file in &args.files {
        println!("Processing test file: {}", file.display());
        let results = test_file(file, &settings).map_err(|error| error_chain(&error));
        print(&results);
        suites.push((file, results));
    }
    if let Some(path) = &args.junit {
        std::fs::write(path, junit(&suites)).with_context(|| format!("write {path:?}"))?;
    }
    Ok(suites
        .iter()
        .all(|(_, results)| failures(results).is_empty()))
}

fn test_file(path: &Path, settings: &TestSettings<'_>) -> Result<Vec<TestResult>> {
    let file = TestFile::parse(&std::fs::read_to_string(path)?).map_err(anyhow::Error::msg)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut rules = Vec::new();
    for pattern in &file.rule_files {
        let whole = folder.join(pattern);
        let whole = whole
            .to_str()
            .context("a path of rule_files is not UTF-8")?;
        let before = rules.len();
        for path in glob::glob(whole).with_context(|| format!("{pattern:?}"))? {
            let path = path?;
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {path:?}"))?;
            rules.push((path.display().to_string(), text));
            anyhow::ensure!(
                rules.len() <= RULE_FILES_MAX,
                "rule_files: more than {RULE_FILES_MAX} files"
            );
        }
        if rules.len() == before {
            eprintln!("  WARNING: no file match pattern {whole}");
        }
    }
    file.run(&rules, settings).map_err(anyhow::Error::msg)
}

fn failures(results: &Result<Vec<TestResult>, String>) -> Vec<&str> {
    match results {
        Ok(results) => results
            .iter()
            .flat_map(|result| &result.failures)
            .map(String::as_str)
            .collect(),
        Err(error) => vec![error],
    }
}

fn print(results: &Result<Vec<TestResult>, String>) {
    for TestResult { name, dump, .. } in results.iter().flatten() {
        if let Some(dump) = dump {
            eprintln!("DEBUG: Dump of all data (input_series and rules) of test {name}:\n{dump}");
        }
    }
    let failures = failures(results);
    if failures.is_empty() {
        println!("  SUCCESS");
    } else {
        eprintln!("  FAILED:");
        for failure in failures {
            eprintln!("{failure}");
            println!();
        }
    }
    println!();
}

/// Returns the results in the format of JUnit, without times and skipped tests.
fn junit(suites: &[Suite<'_>]) -> String {
    let mut out = String::from("<testsuites>");
    for (path, results) in suites {
        let n_tests = results.as_ref().map_or(1, Vec::len);
        let n_failures = if results.is_ok() {
            failures(results).len()
        } else {
            0
        };
        let name = escaped(&path.display().to_string());
        let n_errors = u8::from(results.is_err());
        let counts = format!("tests=\"{n_tests}\" failures=\"{n_failures}\" errors=\"{n_errors}\"");
        let _ = write!(out, "<testsuite name=\"{name}\" {counts}>");
        for TestResult { name, failures, .. } in results.iter().flatten() {
            let failures = failures
                .iter()
                .map(|failure| format!("<failure>{}</failure>", escaped(failure)));
            let failures: String = failures.collect();
            let _ = write!(
                out,
                "<testcase name=\"{}\">{failures}</testcase>",
                escaped(name)
            );
        }
        if let Err(error) = results {
            let _ = write!(
                out,
                "<testcase name=\"unknown\"><error>{}</error></testcase>",
                escaped(error)
            );
        }
        out.push_str("</testsuite>");
    }
    out + "</testsuites>"
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    let escapes = [
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("\"", "&#34;"),
        ("\n", "&#xA;"),
    ];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
