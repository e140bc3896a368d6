//! `varve check config`: configuration files of Varve, and of a Prometheus that writes to Varve.
//!
//! In a Prometheus file it checks keys and values at any depth (`schema`), the parts that Varve
//! also has (external labels, relabeling, storage and OTLP settings), jobs, and rule files. It
//! lists the sections that it does not check.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize as _;
use serde_yaml_ng::{Mapping, Value};
use varve_config::file::Config;
use varve_server::live_config::Prepared;
use varve_system::printing::error_chain;
use varve_system::quantity::{parse_duration, print_duration};

use super::args::ConfigArgs;
use super::{Verdict, read, rules, schema, values};

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
const PROMETHEUS_GLOBAL: [&str; 2] = ["scrape_interval", "scrape_timeout"];
/// Maximum number of rule files.
const RULE_FILES_MAX: usize = 20_000;
const SCRAPE_INTERVAL: Duration = Duration::from_secs(60);

/// Checks files.
pub(super) fn check(args: &ConfigArgs) -> Verdict {
    args.lint
        .warn(&["duplicate-rules", "too-long-scrape-interval"]);
    let verdict = args
        .files
        .iter()
        .map(|file| check_file(file, args))
        .max()
        .unwrap_or(Verdict::Valid);
    args.lint.apply_severity(verdict)
}

fn check_file(file: &Path, args: &ConfigArgs) -> Verdict {
    println!("Checking {}", file.display());
    let checked = match Checked::of(file, args.syntax_only) {
        Ok(checked) => checked,
        Err(error) => {
            eprintln!("  FAILED: {}", error_chain(&error));
            println!();
            return Verdict::Invalid;
        }
    };
    if !checked.unchecked.is_empty() {
        println!(
            "  not checked: {}",
            Vec::from_iter(checked.unchecked.iter().map(String::as_str)).join(", ")
        );
        if args.strict {
            eprintln!("  FAILED: --strict needs every section to be checked");
            return Verdict::Invalid;
        }
    }
    checked.notes.iter().for_each(|note| println!("  {note}"));
    if !checked.rule_files.is_empty() {
        println!("  SUCCESS: {} rule files found", checked.rule_files.len());
    }
    println!(
        " SUCCESS: {} is valid {} config file syntax\n",
        file.display(),
        checked.owner
    );
    if args.syntax_only {
        return Verdict::Valid;
    }
    let too_long = args.lint.is_on("too-long-scrape-interval")
        && checked.has_too_long_interval(args.lookback_delta);
    let verdict = if too_long {
        Verdict::Lint
    } else {
        Verdict::Valid
    };
    verdict.max(rules::check_files(&checked.rule_files, &args.lint))
}

/// The contents of a valid file.
#[derive(Debug, Default)]
struct Checked {
    owner: &'static str,
    rule_files: Vec<PathBuf>,
    /// Jobs and their scrape intervals.
    jobs: Vec<(String, Duration)>,
    unchecked: BTreeSet<String>,
    /// Remarks on the configuration of Varve: files with relabel rules, and warnings.
    notes: Vec<String>,
}

impl Checked {
    fn of(file: &Path, syntax_only: bool) -> Result<Self> {
        let top = match document(&read(file)?)? {
            Value::Null => Mapping::new(),
            Value::Mapping(top) => top,
            _ => bail!("expected a mapping of sections"),
        };
        // Without a folder, the files that the file names are not read.
        let folder = (!syntax_only).then(|| file.parent().unwrap_or(Path::new("")));
        let has = |sections: &[&str]| sections.iter().any(|section| top.contains_key(section));
        let global = top.get("global");
        let is_varve = has(&VARVE_SECTIONS);
        let is_prometheus = has(&PROMETHEUS_SECTIONS)
            || PROMETHEUS_GLOBAL
                .iter()
                .any(|key| global.is_some_and(|global| global.get(key).is_some()));
        let mut checked = match (is_varve, is_prometheus) {
            (false, true) => Self::of_prometheus(&top, folder)?,
            (true, _) => Self::of_varve(file, folder)?,
            // Either may have the other sections. Only an unknown key shows that the file is not
            // one of Varve.
            (false, false) => Self::of_varve(file, folder).or_else(|error| {
                let is_unknown_key = format!("{error:#}").contains("unknown field");
                let prometheus = is_unknown_key.then(|| Self::of_prometheus(&top, folder).ok());
                prometheus.flatten().ok_or(error)
            })?,
        };
        if let Some(folder) = folder {
            checked.rule_files = rule_files(top.get("rule_files"), folder)?;
        }
        Ok(checked)
    }

    fn of_varve(file: &Path, folder: Option<&Path>) -> Result<Self> {
        let config = Config::load(file)?;
        if folder.is_some() {
            match config
                .global
                .query_log_file
                .as_deref()
                .filter(|log| !log.exists())
            {
                None => drop(Prepared::new(&config)?),
                // Preparing would create it.
                Some(log) => {
                    Prepared::clients(&config)?;
                    let dir = log.parent().filter(|dir| !dir.as_os_str().is_empty());
                    ensure!(
                        dir.is_none_or(Path::is_dir),
                        "query_log_file: {log:?} has no directory"
                    );
                }
            }
        }
        let ingest = config.ingest;
        let files = ingest
            .relabel_files()
            .map(|(path, n)| format!("SUCCESS: {}: {n} relabel rules found", path.display()));
        let warning = ingest
            .team_warning()
            .map(|warning| format!("WARNING: {warning}"));
        Ok(Self {
            owner: "varve",
            notes: files.chain(warning).collect(),
            ..Self::default()
        })
    }

    fn of_prometheus(top: &Mapping, folder: Option<&Path>) -> Result<Self> {
        let mut checked = Self {
            owner: "prometheus",
            ..Self::default()
        };
        checked.unchecked = schema::check(&Value::Mapping(top.clone()))?;
        checked.check(top, folder)?;
        Ok(checked)
    }

    fn check(&mut self, top: &Mapping, folder: Option<&Path>) -> Result<()> {
        let global = top.get("global").cloned().unwrap_or_default();
        check_shared(top)?;
        let interval = duration(&global, "scrape_interval")
            .context("global")?
            .filter(|interval| !interval.is_zero());
        let default = interval.unwrap_or(SCRAPE_INTERVAL);
        let timeout = duration(&global, "scrape_timeout")
            .context("global")?
            .unwrap_or_default();
        ensure!(
            timeout <= default,
            "global: scrape_timeout is greater than scrape_interval"
        );
        let mut names = BTreeSet::new();
        for (job, i) in items(top.get("scrape_configs")).zip(1..) {
            let name = text(job, "job_name").unwrap_or_default();
            ensure!(
                !name.is_empty(),
                "scrape_configs: entry {i} has no job_name"
            );
            ensure!(
                names.insert(name.clone()),
                "found multiple scrape configs with job name {name:?}"
            );
            let interval =
                check_job(job, default, folder).with_context(|| format!("job {name:?}"))?;
            self.jobs.push((name, interval));
        }
        values::check(top, folder)
    }

    fn has_too_long_interval(&self, lookback_delta: Duration) -> bool {
        let found = self
            .jobs
            .iter()
            .find(|(_, interval)| *interval >= lookback_delta);
        if let Some((job, interval)) = found {
            let interval = print_duration(*interval);
            eprintln!(
                "  FAILED: too long scrape interval found, data point will be marked as stale - job: {job}, interval: {interval}"
            );
        }
        found.is_some()
    }
}

/// Checks the sections that Varve's configuration also has, as Varve does at startup.
fn check_shared(top: &Mapping) -> Result<()> {
    let mut ours = Mapping::new();
    let mut take = |section: &str, value: Option<&Value>| {
        ours.extend(value.map(|value| (Value::from(section), value.clone())));
    };
    take("otlp", top.get("otlp"));
    let storage = top.get("storage").cloned().unwrap_or_default();
    let tsdb = storage
        .get("tsdb")
        .and_then(|tsdb| pick(tsdb, &["out_of_order_time_window"]));
    let exemplars = storage
        .get("exemplars")
        .and_then(|exemplars| pick(exemplars, &["max_exemplars"]));
    let parts = [("tsdb", tsdb), ("exemplars", exemplars)];
    let parts: Mapping = parts
        .into_iter()
        .filter_map(|(key, value)| Some((Value::from(key), value?)))
        .collect();
    take("storage", Some(&Value::Mapping(parts)));
    Config::parse(&serde_yaml_ng::to_string(&ours)?).map(drop)
}

/// Returns a mapping of those keys that exist.
fn pick(of: &Value, keys: &[&str]) -> Option<Value> {
    let picked: Mapping = keys
        .iter()
        .filter_map(|key| Some((Value::from(*key), of.get(key)?.clone())))
        .collect();
    (!picked.is_empty()).then_some(Value::Mapping(picked))
}

/// Checks a job and returns its scrape interval.
fn check_job(job: &Value, default: Duration, folder: Option<&Path>) -> Result<Duration> {
    let interval = duration(job, "scrape_interval")?.unwrap_or(default);
    let timeout = duration(job, "scrape_timeout")?.unwrap_or_default();
    ensure!(
        timeout <= interval,
        "scrape_timeout is greater than the scrape interval"
    );
    let needs_address = items(job.get("relabel_configs")).next().is_none();
    let mut targets =
        items(job.get("static_configs")).flat_map(|group| items(group.get("targets")));
    let is_empty = |target: &Value| target.as_str().is_none_or(str::is_empty);
    ensure!(
        !needs_address || !targets.any(is_empty),
        "static_configs: a target has no address"
    );
    let inner = |section: &str, key| job.get(section).and_then(|section| text(section, key));
    let files = [
        text(job, "bearer_token_file"),
        inner("authorization", "credentials_file"),
        inner("tls_config", "cert_file"),
        inner("tls_config", "key_file"),
    ];
    for file in files.iter().flatten().filter(|file| !file.is_empty()) {
        let path = folder.map(|folder| folder.join(file));
        ensure!(
            path.is_none_or(|path| path.exists()),
            "the file {file:?} does not exist"
        );
    }
    Ok(interval)
}

/// Returns the first document of a text, with the mappings that `<<` merges.
fn document(text: &str) -> Result<Value> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = serde_yaml_ng::Deserializer::from_str(text).next();
    let mut document = document.map_or(Ok(Value::Null), Value::deserialize)?;
    document.apply_merge()?;
    Ok(document)
}

pub(super) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_sequence).into_iter().flatten()
}

pub(super) fn text(of: &Value, key: &str) -> Option<String> {
    of.get(key)?.as_str().map(str::to_owned)
}

/// Returns the text of a duration. YAML reads a duration without a unit, such as 0, as a number.
pub(super) fn duration_text(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        value => value.as_str().map(str::to_owned),
    }
}

/// Returns a boolean in the spelling of YAML 1.1, as Prometheus reads it.
pub(super) fn boolean(value: &Value) -> Option<bool> {
    match value.as_str() {
        Some("y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON") => Some(true),
        Some("n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF") => Some(false),
        _ => value.as_bool(),
    }
}

pub(super) fn duration(of: &Value, key: &str) -> Result<Option<Duration>> {
    let Some(value) = of.get(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let text = duration_text(value).with_context(|| format!("{key}: expected a duration"))?;
    parse_duration(&text)
        .map(Some)
        .map_err(|reason| anyhow::anyhow!("{key}: {reason}"))
}

/// Returns the files that match the patterns. A pattern without a wildcard must match a file.
fn rule_files(patterns: Option<&Value>, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for pattern in items(patterns).filter_map(Value::as_str) {
        let whole = folder.join(pattern);
        let whole = whole
            .to_str()
            .context("a path of rule_files is not UTF-8")?;
        let before = found.len();
        for path in glob::glob(whole).with_context(|| format!("{pattern:?}"))? {
            found.push(path?);
            ensure!(
                found.len() <= RULE_FILES_MAX,
                "rule_files: more than {RULE_FILES_MAX} files"
            );
        }
        let exists = found.len() > before || pattern.contains('*');
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
        Checked::of(&file, false)
    }

    #[test]
    fn files_of_varve_and_prometheus_are_distinguished() {
        assert_eq!(
            check("storage: {tsdb: {ahead_max: 5m}}").unwrap().owner,
            "varve"
        );
        assert_eq!(check("").unwrap().owner, "varve");
        let shared = "global: {evaluation_interval: 30s}\nrule_files: ['*rules.yml']\nruntime: {log_level: warn}\n\
                      alerting: {alertmanagers: [{static_configs: [{targets: ['a:9093']}]}]}\n";
        for more in ["", "ingest: {relabel_files: []}", "rules: {wait: none}"] {
            let checked = check(&format!("{shared}{more}")).unwrap();
            assert_eq!(
                (checked.owner, checked.rule_files.len()),
                ("varve", 1),
                "{more}"
            );
        }
        assert_eq!(
            check("storage: {tsdb: {retention: {percentage: 80}}}")
                .unwrap()
                .owner,
            "prometheus"
        );
        let checked = check(
            "global: {scrape_interval: 6m, external_labels: {a: b}}\nrule_files: [rules.yml, 'more*.yml']\nalerting: {}\n\
             scrape_configs:\n- {job_name: x, relabel_configs: [{action: drop, source_labels: [a], regex: b}]}\n\
             - {job_name: y, scrape_interval: 1m}\nremote_write: [{url: 'http://v', azuread: {}}]\n",
        );
        let checked = checked.unwrap();
        assert_eq!(
            (checked.owner, checked.rule_files.len(), &checked.unchecked),
            (
                "prometheus",
                1,
                &BTreeSet::from(["remote_write.azuread".to_owned()])
            )
        );
        assert!(checked.has_too_long_interval(Duration::from_secs(300)));
        assert!(!checked.has_too_long_interval(Duration::from_secs(600)));
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
            "scrape_configs: [{}]",
            "scrape_configs: entry 1 has no job_name",
        );
        fails(
            "scrape_configs: [{job_name: a}, {job_name: a}]",
            "multiple scrape configs with job name \"a\"",
        );
        fails(
            "scrape_configs: [{job_name: a, scrape_interval: x}]",
            "scrape_configs: entry 1: scrape_interval: not a valid duration",
        );
        fails(
            "global: {scrape_interval: 5s, scrape_timeout: 10s}",
            "global: scrape_timeout is greater than",
        );
        fails(
            "scrape_configs: [{job_name: a, scrape_timeout: 2m}]",
            "job \"a\": scrape_timeout is greater than",
        );
        fails(
            "scrape_configs: [{job_name: a, metric_relabel_configs: [{action: no}]}]",
            "scrape_configs: entry 1: metric_relabel_configs: rule 0: unknown relabel action \"no\"",
        );
        fails(
            "remote_write: [{}]",
            "remote_write: entry 1: url for remote_write is empty",
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
        fails("{scrape_configs: [], scrapes: 1}", "unknown key scrapes");
        fails(
            "{ingest: {team_label: a}, rule_files: [nowhere.yml]}",
            "\"nowhere.yml\" does not point to",
        );
        fails("- a", "expected a mapping of sections");
    }
}
