//! `varve check rules`: validates rule files as Prometheus does.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use varve_rules::file::{self, Options, RuleFile, Texts};
use varve_system::printing::error_chain;

use super::args::{CheckRulesArgs, LintArgs};
use super::input::{read, standard_input};
use super::verdict::Verdict;

/// Checks files, or standard input.
pub(super) fn check(args: &CheckRulesArgs) -> Verdict {
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
    let mut verdict = Verdict::Valid;
    for file in files {
        println!("Checking {}", file.display());
        verdict = verdict.max(check_text(
            &format!("{}: ", file.display()),
            read(file),
            lint,
        ));
    }
    verdict
}

/// Checks a text. `prefix` precedes each error.
fn check_text(prefix: &str, text: Result<String>, lint: &LintArgs) -> Verdict {
    let options = Options {
        ignore_unknown_fields: lint.ignore_unknown_fields,
        features: lint.features.features(),
        request: None,
    };
    let parsed = text
        .map_err(|error| vec![error_chain(&error)])
        .and_then(|text| {
            file::parse(&text, &options)
                .map_err(|errors| errors.iter().map(ToString::to_string).collect())
        });
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(errors) => {
            eprintln!("  FAILED:");
            for error in errors {
                eprintln!("{prefix}{error}");
            }
            return Verdict::Invalid;
        }
    };
    if parsed.n_ignored_documents > 0 {
        eprintln!(
            "{prefix}only the first document is read, {} are ignored",
            parsed.n_ignored_documents
        );
    }
    let found = if lint.is_on("duplicate-rules") {
        duplicates(&parsed.files)
    } else {
        BTreeSet::new()
    };
    if found.is_empty() {
        let n_rules: usize = parsed
            .files
            .iter()
            .flat_map(|file| &file.groups)
            .map(|group| group.rules.len())
            .sum();
        println!("  SUCCESS: {n_rules} rules found\n");
        return Verdict::Valid;
    }
    eprintln!(
        "  FAILED:\nlint error {} duplicate rule(s) found.",
        found.len()
    );
    for (name, labels) in found {
        eprintln!("Metric: {name}\nLabel(s):");
        for (name, value) in labels {
            eprintln!("\t{name}: {value}");
        }
    }
    eprintln!("Might cause inconsistency while recording expressions");
    println!();
    Verdict::Lint
}

/// Returns the name and labels of rules that are not unique.
fn duplicates(files: &[RuleFile]) -> BTreeSet<(&str, &Texts)> {
    let rules = files
        .iter()
        .flat_map(|file| &file.groups)
        .flat_map(|group| &group.rules);
    let mut seen = BTreeSet::new();
    rules
        .map(|rule| (rule.name.as_str(), &rule.labels))
        .filter(|rule| !seen.insert(*rule))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_have_the_same_name_and_labels() {
        let text = "groups:\n- name: g\n  labels: {x: '1'}\n  rules:\n  - {record: a, expr: up}\n- name: h\n  rules:\n\
                    \x20 - {record: a, expr: up, labels: {x: 1}}\n  - {record: a, expr: up}\n";
        let files = file::parse(text, &Options::default()).unwrap().files;
        let found: Vec<_> = duplicates(&files).into_iter().collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, found[0].1["x"].as_str()), ("a", "1"));
    }
}
