//! Section `ingest`: relabel rules, budgets and HA pairs.

mod budget;
mod ha;
mod preset;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use varve_env::{Fs, RealFs};
use varve_ingest::admission::{Amounts, Budgets, RULES_TEAM, TeamBudget};
use varve_ingest::ha::HaSettings;
use varve_ingest::relabel::{RelabelConfig, RelabelRuleState, Relabeling};

use budget::{AmountsConfig, TeamConfig};
use ha::HaConfig;
use varve_system::yaml::{null_is_default, yaml_error};

/// The section as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct IngestConfig {
    /// Relabel rules, applied in this order. Default none; up to 4,096 with those of presets.
    #[serde(deserialize_with = "null_is_default")]
    metric_relabel_configs: Vec<RuleConfig>,
    /// Patterns of files with more relabel rules, relative to the directory of the configuration
    /// file. Default none.
    relabel_files: Vec<String>,
    /// These files and their rules, applied after `metric_relabel_configs`. Set by
    /// [`Self::load_files`].
    #[serde(skip)]
    rules_of_files: Vec<(PathBuf, Vec<RuleConfig>)>,
    /// Names of rule sets that come with Varve, applied after the others. Default none.
    presets: Vec<String>,
    /// The budget of all teams together. Default unlimited.
    budget: AmountsConfig,
    /// The label whose value is the team of a series. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    team_label: Option<String>,
    /// Budgets of teams by name; the empty name is for series without a team. Default none; up to 998.
    teams: BTreeMap<String, TeamConfig>,
    /// The maximum of each team without a budget of its own. Default unlimited.
    team_maximum: AmountsConfig,
    /// HA pairs, of which one replica is stored. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    ha: Option<HaConfig>,
}

/// A relabel configuration of Prometheus, with a name and a state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleConfig {
    #[serde(deserialize_with = "null_is_default")]
    source_labels: Vec<String>,
    #[serde(
        deserialize_with = "optional_string",
        skip_serializing_if = "Option::is_none"
    )]
    separator: Option<String>,
    #[serde(
        deserialize_with = "optional_string",
        skip_serializing_if = "Option::is_none"
    )]
    regex: Option<String>,
    modulus: u64,
    #[serde(deserialize_with = "null_is_default")]
    target_label: String,
    #[serde(
        deserialize_with = "optional_string",
        skip_serializing_if = "Option::is_none"
    )]
    replacement: Option<String>,
    #[serde(
        deserialize_with = "optional_string",
        skip_serializing_if = "Option::is_none"
    )]
    action: Option<String>,
    #[serde(
        deserialize_with = "optional_string",
        skip_serializing_if = "Option::is_none"
    )]
    name: Option<String>,
    state: StateConfig,
    /// Whether the rule switches to `dry_run` when a query names a metric that it drops. Default
    /// `false`.
    disable_on_use: bool,
    /// Whether a query without a metric name also disables the rule. Default `false`.
    disable_on_nameless_use: bool,
}

/// A file with relabel rules: a configuration file with nothing but
/// `ingest.metric_relabel_configs`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RulesFile {
    ingest: RulesSection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RulesSection {
    #[serde(deserialize_with = "null_is_default")]
    metric_relabel_configs: Vec<RuleConfig>,
}

/// Maximum number of files with relabel rules.
const FILES_MAX: usize = 1_000;

/// Maximum size of a file with relabel rules in bytes.
const FILE_SIZE_MAX: u64 = 64 << 20;

/// Reads and checks the rules of a file.
fn load_file(path: &Path) -> Result<Vec<RuleConfig>> {
    // Rejects a pipe, which would block, and a device, which may never end.
    let text = String::from_utf8(RealFs.read(path, FILE_SIZE_MAX)?)?;
    let rules = parse_file(&text)?;
    Relabeling::new(rules.iter().map(RuleConfig::to_relabel).collect())?;
    Ok(rules)
}

fn parse_file(text: &str) -> Result<Vec<RuleConfig>> {
    let file: Option<RulesFile> = serde_yaml_ng::from_str(text).map_err(yaml_error)?;
    Ok(file.unwrap_or_default().ingest.metric_relabel_configs)
}

/// Parses and compiles relabel rules: a file with relabel rules, or a list of rules.
///
/// # Errors
/// A syntax error, or an invalid rule, in Prometheus' words.
pub fn parse_relabeling(text: &str) -> Result<Relabeling> {
    Ok(Relabeling::new(parse_relabel_rules(text)?)?)
}

/// Parses relabel rules like [`parse_relabeling`], without checking them.
///
/// # Errors
/// A syntax error.
pub fn parse_relabel_rules(text: &str) -> Result<Vec<RelabelConfig>> {
    let first_line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && *line != "---" && !line.starts_with('#'));
    let is_list = text.lines().any(|line| line.starts_with("- "))
        || first_line.is_some_and(|line| line.starts_with('['));
    let rules = if is_list {
        serde_yaml_ng::from_str(text).map_err(yaml_error)?
    } else {
        parse_file(text)?
    };
    Ok(rules.iter().map(RuleConfig::to_relabel).collect())
}

/// The state of a rule as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum StateConfig {
    #[default]
    Enforce,
    DryRun,
}

impl IngestConfig {
    /// Returns the rules, those of presets last.
    ///
    /// # Errors
    /// An unknown preset, or an invalid rule, in Prometheus' words.
    pub fn relabeling(&self) -> Result<Relabeling> {
        let own = self
            .metric_relabel_configs
            .iter()
            .chain(self.rules_of_files.iter().flat_map(|(_, rules)| rules));
        let mut configs: Vec<RelabelConfig> = own.map(RuleConfig::to_relabel).collect();
        for name in &self.presets {
            let preset = preset::load(name)?;
            configs.extend(preset.iter().map(RuleConfig::to_relabel));
        }
        Relabeling::new(configs).context("ingest.metric_relabel_configs")
    }

    /// Reads the files that match `relabel_files`, in the order of the patterns and then of the
    /// paths.
    ///
    /// # Errors
    /// An invalid pattern, a file without wildcards that does not exist, more than [`FILES_MAX`]
    /// files, or an invalid file.
    pub(super) fn load_files(&mut self, folder: &Path) -> Result<()> {
        let mut files = Vec::new();
        for pattern in &self.relabel_files {
            let path = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(pattern);
            let found = glob::glob(&path.to_string_lossy())
                .with_context(|| format!("ingest.relabel_files: {pattern:?}"))?;
            let n_before = files.len();
            files.extend(found.take(FILES_MAX + 1).filter_map(Result::ok));
            if files.len() == n_before && !pattern.contains(['*', '?', '[']) {
                bail!("ingest.relabel_files: {pattern:?} does not exist");
            }
            ensure!(
                files.len() <= FILES_MAX,
                "ingest.relabel_files: more than {FILES_MAX} files"
            );
        }
        for file in files {
            let rules =
                load_file(&file).with_context(|| format!("ingest.relabel_files: {file:?}"))?;
            self.rules_of_files.push((file, rules));
        }
        Ok(())
    }

    /// Returns the files of `relabel_files`, each with its number of rules.
    pub fn relabel_files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.rules_of_files
            .iter()
            .map(|(path, rules)| (path.as_path(), rules.len()))
    }

    /// Returns the value of `relabel_files` with the contents of the files.
    pub(super) fn relabel_files_value(&self) -> Value {
        let rules: Vec<_> = self.rules_of_files.iter().map(|(_, rules)| rules).collect();
        json!([self.relabel_files, rules])
    }

    /// Returns the section with the rules of files in place of their patterns.
    pub(super) fn self_contained(&self) -> Self {
        let mut whole = self.clone();
        whole.metric_relabel_configs.extend(
            std::mem::take(&mut whole.rules_of_files)
                .into_iter()
                .flat_map(|(_, rules)| rules),
        );
        whole.relabel_files.clear();
        whole
    }

    /// Returns the label whose value is the team of a series; empty if not set.
    pub fn team_label(&self) -> &str {
        self.team_label.as_deref().unwrap_or_default()
    }

    /// Returns a warning if there are budgets of teams that no label and no known sender selects.
    pub fn team_warning(&self) -> Option<&'static str> {
        let has_budgets = self
            .teams
            .keys()
            .any(|name| !matches!(&**name, "" | RULES_TEAM))
            || self.team_maximum != AmountsConfig::default();
        let has_senders = self.teams.values().any(|team| team.senders.is_some());
        (has_budgets && self.team_label().is_empty() && !has_senders).then_some(
            "ingest.teams and ingest.team_maximum have no effect without ingest.team_label, except on requests with \
             the header X-Scope-OrgID",
        )
    }

    /// Returns the budgets.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn budgets(&self) -> Result<Budgets> {
        let budgets = Budgets {
            team_label: self.team_label.clone().filter(|label| !label.is_empty()),
            total: self.budget.amounts(),
            teams: self
                .teams
                .iter()
                .map(|(name, config)| (name.clone(), config.budget()))
                .collect(),
            senders: self
                .teams
                .iter()
                .filter_map(|(name, cluster)| Some((name.clone(), cluster.senders.clone()?)))
                .collect(),
            team_maximum: self.team_maximum.amounts(),
        };
        budgets.check().context("ingest")?;
        Ok(budgets)
    }

    /// Returns the budgets of a server that evaluates rules: the team of rules has a guarantee.
    ///
    /// # Errors
    /// The errors of [`IngestConfig::budgets`].
    pub fn budgets_with_rules(&self) -> Result<Budgets> {
        let mut budgets = self.budgets()?;
        if !budgets.teams.contains_key(RULES_TEAM) {
            let guaranteed = rules_guarantee(&budgets);
            budgets.teams.insert(
                RULES_TEAM.to_owned(),
                TeamBudget {
                    guaranteed,
                    ..TeamBudget::default()
                },
            );
        }
        Ok(budgets)
    }

    /// Returns the settings of HA pairs, if configured.
    ///
    /// # Errors
    /// An invalid label, or a timeout out of bounds.
    pub fn ha(&self) -> Result<Option<HaSettings>> {
        self.ha.as_ref().map(HaConfig::settings).transpose()
    }
}

/// Returns the default guarantee of rules: a part of the total budget, as far as other guarantees
/// leave room.
fn rules_guarantee(budgets: &Budgets) -> Amounts {
    let part = |amount: fn(&Amounts) -> Option<u64>| {
        let total = amount(&budgets.total)?;
        let guaranteed: u64 = budgets
            .teams
            .values()
            .filter_map(|team| amount(&team.guaranteed))
            .sum();
        Some((total / RULES_SHARE).min(total.saturating_sub(guaranteed))).filter(|&part| part > 0)
    };
    Amounts {
        active_series: part(|amounts| amounts.active_series),
        new_series_per_second: part(|amounts| amounts.new_series_per_second),
        samples_per_second: part(|amounts| amounts.samples_per_second),
    }
}

/// Rules are guaranteed 1/`RULES_SHARE` of the total budget by default.
const RULES_SHARE: u64 = 20;

impl RuleConfig {
    /// Compiles rules that apply to other label sets than those of written series.
    ///
    /// # Errors
    /// As [`IngestConfig::rules`], and if a rule has `disable_on_use`.
    pub(super) fn compile(configs: &[Self]) -> Result<Relabeling> {
        for (idx, config) in configs.iter().enumerate() {
            ensure!(
                !config.disable_on_use,
                "rule {idx}: only ingest.metric_relabel_configs can have disable_on_use"
            );
        }
        Ok(Relabeling::new(
            configs.iter().map(Self::to_relabel).collect(),
        )?)
    }

    fn to_relabel(&self) -> RelabelConfig {
        let config = self.clone();
        RelabelConfig {
            source_labels: config.source_labels,
            separator: config.separator,
            regex: config.regex,
            modulus: config.modulus,
            target_label: config.target_label,
            replacement: config.replacement,
            action: config.action,
            name: config.name,
            state: match config.state {
                StateConfig::Enforce => RelabelRuleState::Enforce,
                StateConfig::DryRun => RelabelRuleState::DryRun,
            },
            disable_on_use: config.disable_on_use,
            disable_on_nameless_use: config.disable_on_nameless_use,
        }
    }
}

/// Reads a scalar of any type as a string, like Prometheus: `replacement: 1`. Null is the empty
/// string.
fn optional_string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    null_is_default(deserializer).map(Some)
}

#[cfg(test)]
mod tests;
