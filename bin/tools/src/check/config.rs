//! `varve check config`: configuration files of Varve, with the rule files that they name.
//!
//! A file of Prometheus is refused: `promtool check config` knows the keys of its release.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize as _;
use serde_yaml_ng::{Mapping, Value};
use varve_config::file::Config;
use varve_system::printing::error_chain;

use super::args::ConfigArgs;
use super::input::read;
use super::rules;
use super::verdict::Verdict;

/// Sections that only a Varve file has.
const VARVE_SECTIONS: [&str; 2] = ["ingest", "rules"];
/// Sections that only a Prometheus file has.
const PROMETHEUS_SECTIONS: [&str; 4] = [
    "remote_read",
    "remote_write",
    "scrape_config_files",
    "scrape_configs",
];
/// Keys that only Prometheus' `global` has, except rare ones.
const PROMETHEUS_GLOBAL: [&str; 1] = ["scrape_timeout"];
/// Maximum number of rule files.
const RULE_FILES_MAX: usize = 20_000;

/// Checks files.
pub(super) fn check(args: &ConfigArgs) -> Verdict {
    args.lint.warn(&["duplicate-rules"]);
    let mut verdict = Verdict::Valid;
    for file in &args.files {
        verdict = verdict.max(check_file(file, args));
    }
    args.lint.apply_severity(verdict)
}

fn check_file(file: &Path, args: &ConfigArgs) -> Verdict {
    println!("Checking {}", file.display());
    let checked = match Checked::read(file, args.syntax_only) {
        Ok(checked) => checked,
        Err(error) => {
            eprintln!("  FAILED: {}", error_chain(&error));
            println!();
            return Verdict::Invalid;
        }
    };
    for note in &checked.notes {
        println!("  {note}");
    }
    if !checked.rule_files.is_empty() {
        println!("  SUCCESS: {} rule files found", checked.rule_files.len());
    }
    println!(
        " SUCCESS: {} is valid varve config file syntax\n",
        file.display()
    );
    rules::check_files(&checked.rule_files, &args.lint)
}

/// What a valid file names.
#[derive(Debug)]
struct Checked {
    rule_files: Vec<PathBuf>,
    /// Remarks: files with relabel rules, and warnings.
    notes: Vec<String>,
}

impl Checked {
    /// Reads and checks a file. With `syntax_only`, the files that it names are not read.
    fn read(file: &Path, syntax_only: bool) -> Result<Self> {
        let top = match document(&read(file)?)? {
            Value::Null => Mapping::new(),
            Value::Mapping(top) => top,
            _ => bail!("expected a mapping of sections"),
        };
        if let Some(key) = key_of_prometheus(&top) {
            bail!(
                "this is a configuration file of Prometheus, since it has {key}; check it with \
                 `promtool check config`"
            );
        }
        let config = Config::load(file)?;
        let mut rule_files = Vec::new();
        if !syntax_only {
            check_named_files(&config)?;
            let folder = file.parent().unwrap_or(Path::new(""));
            rule_files = find_rule_files(top.get("rule_files"), folder)?;
        }

        let mut notes = Vec::new();
        for (path, n_rules) in config.ingest.relabel_files() {
            notes.push(format!(
                "SUCCESS: {}: {n_rules} relabel rules found",
                path.display()
            ));
        }
        if let Some(warning) = config.ingest.team_warning() {
            notes.push(format!("WARNING: {warning}"));
        }
        Ok(Self { rule_files, notes })
    }
}

/// Returns the key which shows that a file is one of Prometheus. A file with a section that only
/// Varve has is one of Varve.
fn key_of_prometheus(top: &Mapping) -> Option<String> {
    if VARVE_SECTIONS
        .iter()
        .any(|section| top.contains_key(section))
    {
        return None;
    }
    for section in PROMETHEUS_SECTIONS {
        if top.contains_key(section) {
            return Some(section.to_owned());
        }
    }
    let global = top.get("global")?;
    for key in PROMETHEUS_GLOBAL {
        if global.get(key).is_some() {
            return Some(format!("global.{key}"));
        }
    }
    None
}

/// Checks the query log, credentials and certificates that a configuration names, as at startup.
fn check_named_files(config: &Config) -> Result<()> {
    config.check_access()?;
    match &config.global.query_log_file {
        // Opening it would create it.
        Some(log) if !log.exists() => {
            let dir = log.parent().filter(|dir| !dir.as_os_str().is_empty());
            ensure!(
                dir.is_none_or(Path::is_dir),
                "query_log_file: {log:?} has no directory"
            );
        }
        _ => drop(config.open_query_log()?),
    }
    Ok(())
}

/// Returns the first document of a text, with the mappings that `<<` merges.
fn document(text: &str) -> Result<Value> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = serde_yaml_ng::Deserializer::from_str(text).next();
    let mut document = document.map_or(Ok(Value::Null), Value::deserialize)?;
    document.apply_merge()?;
    Ok(document)
}

/// Returns the files that the patterns match. A pattern without a wildcard must match a file.
fn find_rule_files(patterns: Option<&Value>, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let patterns = patterns.and_then(Value::as_sequence).into_iter().flatten();
    for pattern in patterns.filter_map(Value::as_str) {
        let path = folder.join(pattern);
        let path = path.to_str().context("a path of rule_files is not UTF-8")?;
        let n_before = found.len();
        for path in glob::glob(path).with_context(|| format!("{pattern:?}"))? {
            found.push(path?);
            ensure!(
                found.len() <= RULE_FILES_MAX,
                "rule_files: more than {RULE_FILES_MAX} files"
            );
        }
        let exists = found.len() > n_before || pattern.contains('*');
        ensure!(exists, "{pattern:?} does not point to an existing file");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Checked> {
        let dir = tempfile::tempdir().unwrap();
        let relabel = "ingest: {metric_relabel_configs: [{action: keep}]}";
        for (name, text) in [("rules.yml", "groups: []"), ("relabel.yml", relabel)] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let file = dir.path().join("config.yml");
        std::fs::write(&file, text).unwrap();
        Checked::read(&file, false)
    }

    #[test]
    fn rule_files_are_found() {
        assert!(check("").unwrap().rule_files.is_empty());
        assert!(check("storage: {tsdb: {ahead_max: 5m}}").is_ok());
        assert!(check("global: {scrape_interval: 30s}").is_ok());
        let shared = "global: {evaluation_interval: 30s}\nrule_files: ['*rules.yml', 'more*.yml']\n\
                      runtime: {log_level: warn}\n\
                      alerting: {alertmanagers: [{static_configs: [{targets: ['a:9093']}]}]}\n";
        for more in ["", "ingest: {relabel_files: []}", "rules: {wait: none}"] {
            let checked = check(&format!("{shared}{more}")).unwrap();
            assert_eq!(checked.rule_files.len(), 1, "{more}");
        }
    }

    #[test]
    fn files_of_prometheus_are_refused() {
        for (text, key) in [
            ("global: {scrape_timeout: 1m}", "global.scrape_timeout"),
            (
                "global: {external_labels: {a: b}}\nscrape_configs: []",
                "scrape_configs",
            ),
            ("remote_write: [{url: 'http://v'}]", "remote_write"),
        ] {
            let error = format!("{:#}", check(text).unwrap_err());
            assert_eq!(
                error,
                format!(
                    "this is a configuration file of Prometheus, since it has {key}; check it \
                     with `promtool check config`"
                )
            );
        }
        // A file with a section of Varve is one of Varve, with an error.
        let error = format!(
            "{:#}",
            check("{ingest: {}, scrape_configs: []}").unwrap_err()
        );
        assert!(error.contains("unknown field `scrape_configs`"), "{error}");
    }

    #[test]
    fn notes_name_relabel_files_and_budgets_without_effect() {
        let notes = |text: &str| check(text).unwrap().notes;
        let found = notes("ingest: {relabel_files: ['rel*.yml']}");
        assert!(
            matches!(&found[..], [one] if one.ends_with("relabel.yml: 1 relabel rules found")),
            "{found:?}"
        );
        for (ingest, expect) in [
            ("teams: {a: {maximum: {active_series: 1}}}", 1),
            ("team_maximum: {active_series: 1}", 1),
            ("team_label: '', team_maximum: {active_series: 1}", 1),
            (
                "team_label: x, teams: {a: {maximum: {active_series: 1}}}",
                0,
            ),
            ("teams: {a: {maximum: {active_series: 1}, senders: [x]}}", 0),
            ("teams: {'': {maximum: {active_series: 1}}}", 0),
            ("budget: {active_series: 1}", 0),
        ] {
            let notes = notes(&format!("ingest: {{{ingest}}}"));
            assert_eq!(notes.len(), expect, "{ingest}: {notes:?}");
            assert!(
                notes
                    .iter()
                    .all(|note| note.contains("without ingest.team_label")),
                "{notes:?}"
            );
        }
    }

    #[test]
    fn errors_name_their_location() {
        let fails = |text: &str, expect: &str| {
            let error = format!("{:#}", check(text).unwrap_err());
            assert!(error.contains(expect), "{error}");
        };
        fails(
            "storage: {tsdb: {nonsense: 1}}",
            "storage.tsdb: unknown field `nonsense`",
        );
        fails(
            "{rule_files: [nowhere.yml]}",
            "\"nowhere.yml\" does not point to an existing file",
        );
        fails(
            "{rule_files: [], global: {external_labels: {__name__: a}}}",
            "external_labels",
        );
        fails("{rule_files: [], scrapes: 1}", "unknown field `scrapes`");
        fails(
            "{ingest: {team_label: a}, rule_files: [nowhere.yml]}",
            "\"nowhere.yml\" does not point to",
        );
        fails("- a", "expected a mapping of sections");
    }
}
