//! `varve check rules`: validates rule files as Prometheus does.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::args::{LintArgs, RulesArgs};
use super::rule_file::{RuleFile, duplicates};
use super::{INPUT_SIZE_MAX, Verdict, read};
use crate::printing::error_chain;

/// Checks files, or standard input.
pub(super) fn check(args: &RulesArgs) -> Verdict {
    args.lint.warn(&["duplicate-rules"]);
    let verdict = match &args.files[..] {
        [] => {
            println!("Checking standard input");
            check_text("", standard_input(), &args.lint)
        }
        files => check_files(files, &args.lint),
    };
    args.lint.apply_severity(verdict)
}

/// Checks files and prints the number of rules, or the errors, of each.
pub(super) fn check_files(files: &[PathBuf], lint: &LintArgs) -> Verdict {
    let check = |file: &PathBuf| {
        println!("Checking {}", file.display());
        check_text(&format!("{}: ", file.display()), read(file), lint)
    };
    files.iter().map(check).max().unwrap_or(Verdict::Valid)
}

fn standard_input() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().take(INPUT_SIZE_MAX + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= INPUT_SIZE_MAX, "the input is longer than {INPUT_SIZE_MAX} bytes");
    Ok(text)
}

/// Checks a text. `place` precedes each error.
fn check_text(place: &str, text: Result<String>, lint: &LintArgs) -> Verdict {
    let file = text.map_err(|error| vec![error_chain(&error)]);
    let file = file.and_then(|text| RuleFile::parse(&text, lint.ignore_unknown_fields));
    let file = match file {
        Ok(file) => file,
        Err(errors) => {
            eprintln!("  FAILED:");
            errors.iter().for_each(|error| eprintln!("{place}{error}"));
            return Verdict::Invalid;
        }
    };
    let found = if lint.is_on("duplicate-rules") { duplicates(&file) } else { Vec::new() };
    if found.is_empty() {
        println!("  SUCCESS: {} rules found\n", file.n_rules());
        return Verdict::Valid;
    }
    eprintln!("  FAILED:\nlint error {} duplicate rule(s) found.", found.len());
    for (name, labels) in found {
        eprintln!("Metric: {name}\nLabel(s):");
        labels.iter().for_each(|(name, value)| eprintln!("\t{name}: {value}"));
    }
    eprintln!("Might cause inconsistency while recording expressions");
    println!();
    Verdict::Lint
}
