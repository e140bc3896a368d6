//! The configuration file: optional YAML, Prometheus' keys where it has them.
//!
//! Every key has an effect. An unknown key is an error, so that nobody relies on a setting without
//! effect.

pub mod alerting;
mod duration;
mod environment;
mod ingest;
mod otlp;
mod retention;
pub mod rules;
pub mod tracing;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use varve_model::labels::METRIC_NAME;
use varve_system::log;
use varve_system::yaml::{labels, null_is_default, yaml_error};
use varve_tsdb::exemplars::EXEMPLARS_MAX;

use alerting::AlertingConfig;
use duration::{duration, print};
use ingest::IngestConfig;
pub use ingest::{parse_relabel_rules, parse_relabeling};
use otlp::OtlpConfig;
pub use retention::RetentionConfig;
use rules::{MAX_WAIT_MAX, RulesConfig};
use tracing::TracingConfig;

/// The configuration file; [`Config::default`] if there is none.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Section `global`.
    #[serde(deserialize_with = "null_is_default")]
    pub global: GlobalConfig,
    /// Section `runtime`.
    #[serde(deserialize_with = "null_is_default")]
    pub runtime: RuntimeConfig,
    /// Section `storage`.
    #[serde(deserialize_with = "null_is_default")]
    pub storage: StorageConfig,
    /// Section `otlp`.
    #[serde(deserialize_with = "null_is_default")]
    pub otlp: OtlpConfig,
    /// Section `alerting`.
    #[serde(deserialize_with = "null_is_default")]
    pub alerting: AlertingConfig,
    /// Section `ingest`.
    #[serde(deserialize_with = "null_is_default")]
    pub ingest: IngestConfig,
    /// Rule files: glob patterns, relative to the directory of the configuration file. Default
    /// none.
    #[serde(deserialize_with = "null_is_default")]
    pub rule_files: Vec<PathBuf>,
    /// Section `rules`.
    #[serde(deserialize_with = "null_is_default")]
    pub rules: RulesConfig,
    /// Default: no traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<TracingConfig>,
}

/// Section `global`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GlobalConfig {
    /// How often senders scrape: Varve scrapes nothing. Clients read it, and advice estimates with
    /// it. Default 1m, also for 0s, as in Prometheus.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub scrape_interval: Duration,
    /// Interval of rule groups that set none. Default 1m, also for 0s; minimum 1ms.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub evaluation_interval: Duration,
    /// How far in the past rule groups that set no `query_offset` are evaluated. Default 0s.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub rule_query_offset: Duration,
    /// Labels that /federate and remote read add to series that do not have them. Up to
    /// [`EXTERNAL_LABELS_MAX`].
    #[serde(deserialize_with = "labels")]
    pub external_labels: BTreeMap<String, String>,
    /// Environment variables in the external labels that are not set or empty.
    #[serde(skip)]
    pub empty_variables: BTreeSet<String>,
    /// The query log, relative to the directory of the configuration file. Default none.
    pub query_log_file: Option<PathBuf>,
}

impl Default for GlobalConfig {
    fn default() -> Self {
        Self {
            scrape_interval: Duration::from_secs(60),
            evaluation_interval: Duration::from_secs(60),
            rule_query_offset: Duration::ZERO,
            external_labels: BTreeMap::new(),
            empty_variables: BTreeSet::new(),
            query_log_file: None,
        }
    }
}

/// Section `runtime`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// Minimum severity of log messages. Default: `--log.level`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<log::Level>,
}

/// Maximum number of external labels.
const EXTERNAL_LABELS_MAX: usize = 64;

/// Section `storage`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// Section `storage.tsdb`.
    #[serde(deserialize_with = "null_is_default")]
    pub tsdb: TsdbConfig,
    /// Section `storage.exemplars`.
    #[serde(deserialize_with = "null_is_default")]
    pub exemplars: ExemplarsConfig,
}

/// Section `storage.exemplars`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExemplarsConfig {
    /// Maximum number of exemplars in memory; the newest stay. Default 100,000; 0 is none; up to
    /// 10,000,000.
    pub max_exemplars: usize,
}

impl Default for ExemplarsConfig {
    fn default() -> Self {
        Self {
            max_exemplars: 100_000,
        }
    }
}

/// Section `storage.tsdb`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TsdbConfig {
    /// Maximum age of an in-order sample, counted back from the newest sample of the store or the
    /// clock, whichever is earlier. Default 3h; from 1m to 365d.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub in_order_max_age: Duration,
    /// Maximum age of an out-of-order sample, counted back from the same time. Default 30m; 0s is
    /// none, as in Prometheus; up to 365d.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub out_of_order_time_window: Duration,
    /// How far ahead of the clock a sample may be. Default 10m; up to 365d.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub ahead_max: Duration,
    /// Retention, the only part of the section that a reload changes.
    #[serde(deserialize_with = "null_is_default")]
    pub retention: RetentionConfig,
}

impl Default for TsdbConfig {
    fn default() -> Self {
        Self {
            in_order_max_age: Duration::from_secs(3 * 3600),
            out_of_order_time_window: Duration::from_secs(1800),
            ahead_max: Duration::from_secs(600),
            retention: RetentionConfig::default(),
        }
    }
}

const IN_ORDER_MAX_AGE_MIN: Duration = Duration::from_secs(60);
const AGE_MAX: Duration = Duration::from_secs(365 * 86_400);

/// The query log, open for appending.
#[derive(Debug)]
pub struct QueryLogFile {
    /// Its path.
    pub path: PathBuf,
    /// The open file.
    pub file: File,
}

impl QueryLogFile {
    /// Opens the file, and creates it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.with_context(|| format!("open query log {path:?}"))?,
        })
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not YAML, or has an unknown key or a value out of bounds. The
    /// message names the key.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("read configuration file {path:?}"))?;
        let about = || format!("configuration file {path:?}");
        let mut config = Self::parse(&text).with_context(about)?;
        config.global.empty_variables =
            environment::expand_labels(&mut config.global.external_labels);
        let folder = path.parent().unwrap_or(Path::new(""));
        config
            .ingest
            .load_files(folder)
            .and_then(|()| config.ingest.relabeling().map(drop))
            .with_context(about)?;
        config.resolve_paths(folder);
        Ok(config)
    }

    /// Parses and checks a configuration. Paths and environment variables stay as written.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str) -> Result<Self> {
        // An empty document is YAML's null.
        let mut config: Self = serde_yaml_ng::from_str::<Option<Self>>(text)
            .map_err(yaml_error)?
            .unwrap_or_default();
        // As in Prometheus, 0s is no interval.
        let global = GlobalConfig::default();
        if config.global.scrape_interval.is_zero() {
            config.global.scrape_interval = global.scrape_interval;
        }
        if config.global.evaluation_interval.is_zero() {
            config.global.evaluation_interval = global.evaluation_interval;
        }
        let TsdbConfig {
            in_order_max_age,
            out_of_order_time_window,
            ahead_max,
            ..
        } = config.storage.tsdb;
        if !(IN_ORDER_MAX_AGE_MIN..=AGE_MAX).contains(&in_order_max_age) {
            bail!("storage.tsdb.in_order_max_age: must be from 1m to 365d");
        }
        if out_of_order_time_window > AGE_MAX {
            bail!("storage.tsdb.out_of_order_time_window: must be at most 365d");
        }
        if ahead_max > AGE_MAX {
            bail!("storage.tsdb.ahead_max: must be at most 365d");
        }
        if config.rules.max_wait > MAX_WAIT_MAX {
            bail!("rules.max_wait: must be at most 5m");
        }
        let external_labels = &config.global.external_labels;
        if external_labels.len() > EXTERNAL_LABELS_MAX {
            bail!("global.external_labels: must be at most {EXTERNAL_LABELS_MAX}");
        }
        if external_labels
            .keys()
            .any(|name| name.is_empty() || name == METRIC_NAME)
        {
            bail!("global.external_labels: a name is empty or {METRIC_NAME}");
        }
        if config.storage.exemplars.max_exemplars > EXEMPLARS_MAX {
            bail!("storage.exemplars.max_exemplars: must be at most {EXEMPLARS_MAX}");
        }
        let retention = &config.storage.tsdb.retention;
        retention.rules(retention.time.unwrap_or_default())?;
        config.alerting.check()?;
        config.tracing.iter().try_for_each(TracingConfig::check)?;
        config.ingest.relabeling()?;
        config.ingest.budgets()?;
        config.ingest.ha()?;
        config.otlp.settings(0, false, Duration::ZERO)?;
        Ok(config)
    }

    /// Returns the keys whose values differ, down to two levels, sorted: `ingest.teams`.
    pub fn keys_that_differ(&self, other: &Self) -> Vec<String> {
        let new = self.values();
        let old = other.values();
        let all: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
        all.into_iter()
            .filter(|key| new.get(*key) != old.get(*key))
            .cloned()
            .collect()
    }

    /// Returns the path of the first value in which two configurations differ below a key of
    /// [`Self::keys_that_differ`]: `storage.tsdb.out_of_order_time_window` for `storage.tsdb`.
    pub fn first_difference(&self, other: &Self, key: &str) -> String {
        let new = self.values();
        let old = other.values();
        let mut path = key.to_owned();
        let mut pair = (new.get(key), old.get(key));
        while let (Some(Value::Object(new)), Some(Value::Object(old))) = pair {
            let mut names = new.keys().chain(old.keys());
            let Some(name) = names.find(|name| new.get(*name) != old.get(*name)) else {
                break;
            };
            path = format!("{path}.{name}");
            pair = (new.get(name), old.get(name));
        }
        path
    }

    /// Returns the values of the keys, down to two levels, and retention, which a reload changes.
    fn values(&self) -> BTreeMap<String, Value> {
        let mut values = BTreeMap::new();
        let mut whole =
            serde_json::to_value(self).expect("strings, numbers and maps of them are JSON");
        if let Some(files) = whole.pointer_mut("/ingest/relabel_files") {
            *files = self.ingest.relabel_files_value();
        }
        let retention = whole
            .pointer_mut("/storage/tsdb/retention")
            .map(Value::take)
            .unwrap_or_default();
        values.insert(RETENTION.to_owned(), retention);
        for (section, keys) in whole.as_object().into_iter().flatten() {
            match keys.as_object() {
                Some(keys) => {
                    values.extend(
                        keys.iter()
                            .map(|(key, value)| (format!("{section}.{key}"), value.clone())),
                    );
                }
                None => drop(values.insert(section.clone(), keys.clone())),
            }
        }
        values
    }

    /// Makes paths relative to `folder`. An empty path is none.
    fn resolve_paths(&mut self, folder: &Path) {
        let log_file = self
            .global
            .query_log_file
            .take()
            .filter(|file| !file.as_os_str().is_empty());
        self.global.query_log_file = log_file.map(|file| folder.join(file));
        for pattern in &mut self.rule_files {
            *pattern = folder.join(&*pattern);
        }
        self.alerting.resolve_paths(folder);
        if let Some(tracing) = &mut self.tracing {
            tracing.resolve_paths(folder);
        }
    }

    /// Reads and checks the credentials and certificates for Alertmanagers and traces. Blocks.
    ///
    /// # Errors
    /// If some are invalid.
    pub fn check_access(&self) -> Result<()> {
        for (idx, alertmanager) in self.alerting.alertmanagers.iter().enumerate() {
            alertmanager
                .check_access()
                .with_context(|| format!("alerting.alertmanagers[{idx}]"))?;
        }
        if let Some(tracing) = &self.tracing {
            tracing.check_access().context("tracing")?;
        }
        Ok(())
    }

    /// Opens the query log for appending, if there is one.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_query_log(&self) -> Result<Option<QueryLogFile>> {
        match &self.global.query_log_file {
            Some(path) => QueryLogFile::open(path).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the configuration with absolute paths, and with the contents of the files that it
    /// includes. Printed and loaded elsewhere, it is the same.
    ///
    /// # Errors
    /// If the working directory is not known.
    pub fn self_contained(&self) -> std::io::Result<Self> {
        let mut config = Self {
            ingest: self.ingest.self_contained(),
            ..self.clone()
        };
        config.resolve_paths(&std::env::current_dir()?);
        // Loading replaced environment variables, and `$$` by `$`.
        for value in config.global.external_labels.values_mut() {
            *value = value.replace('$', "$$");
        }
        Ok(config)
    }

    /// Prints the configuration with all defaults.
    pub fn to_yaml(&self) -> String {
        serde_yaml_ng::to_string(self).expect("strings, numbers and maps of them are YAML")
    }
}

/// Returns `true` if a change of a key, as [`Config::keys_that_differ`] returns it, takes effect
/// with a restart only.
pub fn needs_restart(key: &str) -> bool {
    key.starts_with("storage.") && key != RETENTION
}

const RETENTION: &str = "storage.tsdb.retention";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<Duration, &str>) {
        match (Config::parse(text), expect) {
            (Ok(config), Ok(age)) => assert_eq!(config.storage.tsdb.in_order_max_age, age),
            (Err(rejected), Err(part)) => {
                assert!(rejected.to_string().contains(part), "{rejected}")
            }
            (got, expect) => panic!("{text:?}: {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn settings_are_read_and_have_defaults() {
        check("", Ok(Duration::from_secs(10_800)));
        check("storage: {tsdb: {}}", Ok(Duration::from_secs(10_800)));
        check(
            "storage:\n  tsdb:\n    in_order_max_age: 1h30m\n",
            Ok(Duration::from_secs(5_400)),
        );
    }

    #[test]
    fn a_change_of_a_relabel_file_changes_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("varve.yml");
        let rules = dir.path().join("rules.yml");
        std::fs::write(&path, "ingest: {relabel_files: [rules.yml]}").unwrap();
        let load = |name: &str| {
            std::fs::write(
                &rules,
                format!("ingest: {{metric_relabel_configs: [{{action: keep, name: {name}}}]}}"),
            )
            .unwrap();
            Config::load(&path).unwrap()
        };
        assert_eq!(
            load("a").keys_that_differ(&load("b")),
            ["ingest.relabel_files"]
        );
        assert!(load("a").keys_that_differ(&load("a")).is_empty());
    }

    #[test]
    fn a_difference_is_named_down_to_its_value() {
        let new = Config::parse("storage: {tsdb: {in_order_max_age: 1h30m}}").unwrap();
        let old = Config::default();
        assert_eq!(new.keys_that_differ(&old), ["storage.tsdb"]);
        assert_eq!(
            new.first_difference(&old, "storage.tsdb"),
            "storage.tsdb.in_order_max_age"
        );
        assert_eq!(old.first_difference(&old, "rule_files"), "rule_files");
    }

    #[test]
    fn a_printed_configuration_is_parsed_back() {
        let text =
            "global: {external_labels: {b: x, a: '1'}}\nstorage: {tsdb: {in_order_max_age: 1h30m}}";
        let config = Config::parse(text).unwrap();
        let printed = config.to_yaml();
        assert!(
            printed.contains("  external_labels:\n    a: '1'\n    b: x\n"),
            "{printed}"
        );
        assert!(
            printed.contains("    in_order_max_age: 1h30m\n"),
            "{printed}"
        );
        assert_eq!(Config::parse(&printed).unwrap(), config);
        for (size, print) in [
            ("0", "0B"),
            ("1000", "1000B"),
            ("1536MiB", "1536MiB"),
            ("1024GiB", "1TiB"),
        ] {
            let config = Config::parse(&format!(
                "storage: {{tsdb: {{retention: {{time: 0s, size: '{size}'}}}}}}"
            ))
            .unwrap();
            let printed = config.to_yaml();
            assert!(
                printed.contains(&format!("      time: 0s\n      size: {print}\n")),
                "{printed}"
            );
            assert_eq!(Config::parse(&printed).unwrap(), config);
        }
    }

    #[test]
    fn the_page_lists_each_key_and_whether_a_reload_applies_it() {
        let page = include_str!("../../../../docs/config.md");
        let (_, example) = page.split_once("```yaml\nglobal:").unwrap();
        let (example, rest) = example.split_once("```").unwrap();
        let config = Config::parse(&format!("global:{example}")).unwrap();
        let (_, table) = rest.split_once("| key | takes effect on reload |").unwrap();
        let row = |line: &str| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let keys: Vec<_> = cells
                .next()?
                .split(", ")
                .map(|key| key.trim_matches('`').to_owned())
                .collect();
            Some((keys, cells.next()?.starts_with("yes")))
        };
        let rows = table.trim_start().lines().skip(1).map_while(row);
        let listed: BTreeMap<_, _> = rows
            .flat_map(|(keys, is_applied)| keys.into_iter().map(move |key| (key, is_applied)))
            .collect();
        let expect: BTreeMap<_, _> = config
            .values()
            .into_keys()
            .map(|key| (key.clone(), !needs_restart(&key)))
            .collect();
        assert_eq!(listed, expect);
    }

    #[test]
    fn null_sections_and_an_interval_of_zero_are_the_default() {
        let sections = [
            "global",
            "runtime",
            "storage",
            "otlp",
            "alerting",
            "ingest",
            "rule_files",
            "rules",
            "tracing",
        ];
        for text in sections.map(|section| format!("{section}:\n")) {
            assert_eq!(Config::parse(&text).unwrap(), Config::default(), "{text}");
        }
        for text in [
            "storage: {tsdb: , exemplars: ~}",
            "global: {external_labels: ~, scrape_interval: 0s, evaluation_interval: 0s}",
        ] {
            assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text}");
        }
        let lists = [
            "otlp: {promote_resource_attributes: ~, ignore_resource_attributes: null}",
            "alerting: {alertmanagers: ~, alert_relabel_configs: null}",
            "storage: {tsdb: {retention: null}}",
            "ingest: {metric_relabel_configs: ~}",
        ];
        for text in lists {
            assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text}");
        }
    }

    #[test]
    fn null_is_an_empty_string() {
        let parse = |text: &str| Config::parse(text).unwrap();
        assert_eq!(
            parse("global: {external_labels: {a: null, b: 'null'}}"),
            parse("global: {external_labels: {a: '', b: 'null'}}")
        );
        let rule = |null: &str| {
            format!(
                "{{source_labels: [a], target_label: b, separator: {null}, regex: {null}, replacement: {null}}}"
            )
        };
        let rules = |null: &str| format!("alerting: {{alert_relabel_configs: [{}]}}", rule(null));
        assert_eq!(parse(&rules("~")), parse(&rules("''")));
        let alertmanager = |null: &str| {
            let entries = [
                format!("{{bearer_token: {null}, bearer_token_file: {null}, path_prefix: {null}}}"),
                format!(
                    "{{basic_auth: {{username: u, password: {null}}}, tls_config: {{ca_file: {null}}}}}"
                ),
                format!("{{static_configs: [{{targets: ['a:1'], labels: {{x: {null}}}}}]}}"),
            ];
            format!("alerting: {{alertmanagers: [{}]}}", entries.join(", "))
        };
        assert_eq!(parse(&alertmanager("null")), parse(&alertmanager("''")));
        check(
            "alerting: {alert_relabel_configs: [{target_label: null}]}",
            Err("alerting.alert_relabel_configs"),
        );
    }

    #[test]
    fn unknown_keys_are_errors() {
        check(
            "global: {scrape_timeout: 15s}",
            Err("global: unknown field `scrape_timeout`"),
        );
        check(
            "global: {external_labels: {__name__: b}}",
            Err("global.external_labels: a name is empty or __name__"),
        );
        check(
            "rules: {max_wait: 6m}",
            Err("rules.max_wait: must be at most 5m"),
        );
        check("rules: {wait: x}", Err("rules.wait: unknown variant `x`"));
        check(
            "storage: {tsdb: {path: x}}",
            Err("storage.tsdb: unknown field `path`"),
        );
        check(
            "storage: {tsdb: {in_order_max_age: 5}}",
            Err("storage.tsdb.in_order_max_age"),
        );
        check(
            "storage: {tsdb: {in_order_max_age: 5 minutes}}",
            Err("unknown unit \" minutes\""),
        );
        check(
            "storage: {tsdb: {in_order_max_age: 1s}}",
            Err("must be from 1m to 365d"),
        );
        check(
            "storage: {tsdb: {ahead_max: 2y}}",
            Err("storage.tsdb.ahead_max"),
        );
        check(
            "storage: {exemplars: {max_exemplars: 10000001}}",
            Err("storage.exemplars.max_exemplars"),
        );
        check(
            "storage: {exemplars: {max_exemplars: -1}}",
            Err("storage.exemplars.max_exemplars"),
        );
        check("[]", Err("invalid type: sequence, expected a mapping"));
        check(
            "storage: 5",
            Err("storage: invalid type: integer `5`, expected a mapping at line 1 column 10"),
        );
    }
}
