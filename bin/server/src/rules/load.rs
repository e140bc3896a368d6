//! Reads the rule files that a configuration names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_config::file::Config;
use varve_env::{Fs, RealFs};
use varve_promql::Features;
use varve_rules::file::{self, FileError, RuleFile, RuleKind, Texts};

/// Maximum number of rules.
const RULES_MAX: usize = 100_000;
/// Maximum size of a rule file in bytes.
const FILE_SIZE_MAX: u64 = 64 << 20;
/// Maximum number of log lines about alerting rules with the same name and labels.
const REPEATED_LOGGED_MAX: usize = 10;

/// The rule files of a configuration, with their names.
pub(super) type Files = Vec<(Arc<str>, RuleFile)>;

/// Reads and checks all rule files. Expressions may use the parts of PromQL that `features` enable.
///
/// # Errors
/// The first file that cannot be read or is invalid, with all of its errors.
pub(super) fn load(config: &Config, features: Features) -> Result<Files> {
    let mut files = Files::new();
    let mut n_rules = 0;
    let missing =
        |pattern: &Path| tracing::warn!(?pattern, "No file matches a pattern of rule_files");
    for path in matching(&config.rule_files, missing)? {
        let name = path.to_string_lossy().into_owned();
        for file in read(&path, features).with_context(|| format!("rule file {name:?}"))? {
            n_rules += file
                .groups
                .iter()
                .map(|group| group.rules.len())
                .sum::<usize>();
            if n_rules > RULES_MAX {
                bail!("rule_files: more than {RULES_MAX} rules");
            }
            // Groups of several manifests may have the same name.
            let name = match &file.manifest {
                Some(manifest) => format!("{name}#{manifest}"),
                None => name.clone(),
            };
            files.push((name.into(), file));
        }
    }
    warn_of_repeated_alerts(&files);
    Ok(files)
}

/// Warns of alerting rules with the same name and labels: their alerts may have the same series, of
/// which only one is stored, and the same identity at Alertmanager.
fn warn_of_repeated_alerts(files: &Files) {
    let repeated = repeated_alerts(files);
    for RepeatedAlert { name, first, other } in repeated.iter().take(REPEATED_LOGGED_MAX) {
        tracing::warn!(
            alert = name,
            first,
            other,
            "Two alerting rules have the same name and labels; if both match, only the series of one alert is stored, and Alertmanager sees one alert"
        );
    }
    if repeated.len() > REPEATED_LOGGED_MAX {
        let n_more = repeated.len() - REPEATED_LOGGED_MAX;
        tracing::warn!(n_more, "More alerting rules have the same name and labels");
    }
}

/// Two alerting rules with the same name and labels, and their groups.
#[derive(Debug, PartialEq, Eq)]
struct RepeatedAlert<'a> {
    name: &'a str,
    first: String,
    other: String,
}

fn repeated_alerts(files: &Files) -> Vec<RepeatedAlert<'_>> {
    let mut seen: BTreeMap<(&str, &Texts), String> = BTreeMap::new();
    let mut repeated = Vec::new();
    for (path, file) in files {
        for group in &file.groups {
            for rule in &group.rules {
                if !matches!(rule.kind, RuleKind::Alerting(_)) {
                    continue;
                }
                let place = format!("{path};{}", group.name);
                match seen.entry((&rule.name, &rule.labels)) {
                    Entry::Vacant(entry) => {
                        entry.insert(place);
                    }
                    Entry::Occupied(entry) => repeated.push(RepeatedAlert {
                        name: &rule.name,
                        first: entry.get().clone(),
                        other: place,
                    }),
                }
            }
        }
    }
    repeated
}

/// Returns a hash of the names and contents of the rule files. It changes when a file does.
pub(crate) fn hash_files(patterns: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in matching(patterns, |_| ()).unwrap_or_default() {
        (&path, RealFs.read(&path, FILE_SIZE_MAX).unwrap_or_default()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the files that match patterns, each once, sorted. Calls `missing` for each pattern that
/// matches none.
fn matching(patterns: &[PathBuf], missing: impl Fn(&Path)) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for pattern in patterns {
        let text = pattern.to_string_lossy();
        let found = glob::glob(&text).with_context(|| format!("rule_files: pattern {text:?}"))?;
        let n_before = paths.len();
        for path in found {
            paths.push(path.with_context(|| format!("rule_files: pattern {text:?}"))?);
        }
        if paths.len() == n_before {
            missing(pattern);
        }
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn read(path: &Path, features: Features) -> Result<Vec<RuleFile>> {
    let size = fs::metadata(path)?.len();
    if size > FILE_SIZE_MAX {
        bail!("its {size} bytes exceed the limit of {FILE_SIZE_MAX}");
    }
    // Rejects a pipe, which would block, and a device, which may never end.
    let text = String::from_utf8(RealFs.read(path, FILE_SIZE_MAX)?)?;
    let parsed = file::parse(
        &text,
        &file::Options {
            features,
            ..file::Options::default()
        },
    );
    parsed
        .map(|parsed| parsed.files)
        .map_err(|errors| anyhow::anyhow!(print(&errors)))
}

fn print(errors: &[FileError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_may_use_what_the_features_enable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yml");
        fs::write(
            &path,
            "groups: [{name: g, rules: [{record: r, expr: 'limitk(1, up)'}]}]",
        )
        .unwrap();
        let config = Config {
            rule_files: vec![path],
            ..Config::default()
        };
        let enabled = Features {
            experimental_functions: true,
            ..Features::default()
        };
        assert_eq!(
            load(&config, enabled).unwrap()[0].1.groups[0].rules.len(),
            1
        );
        let error = format!("{:#}", load(&config, Features::default()).unwrap_err());
        assert!(error.contains("limitk"), "{error}");
    }

    #[test]
    fn alerting_rules_with_the_same_name_and_labels_are_found() {
        let text = "groups:\n\
            - {name: g, rules: [{alert: A, expr: a}, {alert: A, expr: a, labels: {s: x}}, {record: A, expr: a}]}\n\
            - {name: h, labels: {s: x}, rules: [{alert: A, expr: b}, {alert: B, expr: b}]}\n";
        let parsed = file::parse(text, &file::Options::default()).unwrap();
        let mut files = Files::new();
        for file in parsed.files {
            files.push(("f".into(), file));
        }
        let expect = RepeatedAlert {
            name: "A",
            first: "f;g".to_owned(),
            other: "f;h".to_owned(),
        };
        assert_eq!(repeated_alerts(&files), [expect]);
    }

    /// A pipe blocked this reload and all later ones.
    #[test]
    fn a_pipe_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yml");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let config = Config {
            rule_files: vec![path],
            ..Config::default()
        };
        let error = format!("{:#}", load(&config, Features::default()).unwrap_err());
        assert!(
            error.contains("not a file but a directory, a pipe or a device"),
            "{error}"
        );
        assert_eq!(
            hash_files(&config.rule_files),
            hash_files(&config.rule_files)
        );
    }
}
