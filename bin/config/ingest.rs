//! Section `ingest`: what becomes of series at the door.

mod budget;
mod ha;
mod preset;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Deserializer, Serialize};
use varve_ingest::admission::Budgets;
use varve_ingest::ha::HaSettings;
use varve_ingest::relabel::{RelabelConfig, RuleState, Rules};

use budget::{AmountsConfig, TeamConfig};
use ha::HaConfig;

/// What the section says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IngestConfig {
    /// Relabel configurations, put in force in this order. Default none; up to 4,096 with those of presets.
    metric_relabel_configs: Vec<RuleConfig>,
    /// Rules that come with Varve, by name; they stand behind the others. Default none.
    presets: Vec<String>,
    /// How much may come in of all teams together. Default any number.
    budget: AmountsConfig,
    /// The label whose value is the team of a series. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    team_label: Option<String>,
    /// How much may come in of teams, by name; the empty name is for what belongs to none. Default none; up to 998.
    teams: BTreeMap<String, TeamConfig>,
    /// How much may come in of each team that is not among them. Default any number.
    team_maximum: AmountsConfig,
    /// HA pairs, of which one is stored. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    ha: Option<HaConfig>,
}

/// A relabel configuration as Prometheus has it, with a name and a state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct RuleConfig {
    source_labels: Vec<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    separator: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    regex: Option<String>,
    modulus: u64,
    #[serde(deserialize_with = "plain_text")]
    target_label: String,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    replacement: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    state: StateConfig,
    /// Whether the rule falls back to shadow when somebody asks for what it drops. Default not.
    armed: bool,
}

/// How a rule's state is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum StateConfig {
    #[default]
    Enforce,
    Shadow,
}

impl IngestConfig {
    /// Returns the rules, those of presets behind the others.
    ///
    /// # Errors
    /// A preset that there is not, or what Prometheus refuses of a rule, in its words.
    pub(crate) fn rules(&self) -> Result<Rules> {
        let mut configs: Vec<RelabelConfig> = self.metric_relabel_configs.iter().map(RuleConfig::to_relabel).collect();
        for name in &self.presets {
            let preset = preset::load(name)?;
            configs.extend(preset.iter().map(RuleConfig::to_relabel));
        }
        Rules::new(configs).context("ingest.metric_relabel_configs")
    }

    /// Returns the label whose value is the team of a series; empty if there is none.
    pub(crate) fn team_label(&self) -> &str {
        self.team_label.as_deref().unwrap_or_default()
    }

    /// Returns the budgets.
    ///
    /// # Errors
    /// What cannot be had, by its key.
    pub(crate) fn budgets(&self) -> Result<Budgets> {
        let budgets = Budgets {
            team_label: self.team_label.clone().filter(|label| !label.is_empty()),
            total: self.budget.amounts(),
            teams: self.teams.iter().map(|(name, config)| (name.clone(), config.budget())).collect(),
            team_maximum: self.team_maximum.amounts(),
        };
        budgets.check().context("ingest")?;
        Ok(budgets)
    }

    /// Returns how HA pairs are known, if there are any.
    ///
    /// # Errors
    /// A label that cannot be, or a timeout out of its bounds.
    pub(crate) fn ha(&self) -> Result<Option<HaSettings>> {
        self.ha.as_ref().map(HaConfig::settings).transpose()
    }
}

impl RuleConfig {
    fn to_relabel(&self) -> RelabelConfig {
        let Self { source_labels, separator, regex, modulus, target_label, replacement, action, name, state, armed } =
            self.clone();
        let state = match state {
            StateConfig::Enforce => RuleState::Enforce,
            StateConfig::Shadow => RuleState::Shadow,
        };
        RelabelConfig {
            source_labels,
            separator,
            regex,
            modulus,
            target_label,
            replacement,
            action,
            name,
            state,
            armed,
        }
    }
}

/// Reads a scalar of any type as it is written, as Prometheus does: `replacement: 1` is a text, and so is nothing.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    plain_text(deserializer).map(Some)
}

fn plain_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer)
}

#[cfg(test)]
mod tests;
