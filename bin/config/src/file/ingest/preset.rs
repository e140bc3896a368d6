//! Rule sets that come with Varve.

use anyhow::{Context, Result, bail};

use super::RuleConfig;

/// Reads a preset.
///
/// # Errors
/// If the preset is unknown.
pub(super) fn load(name: &str) -> Result<Vec<RuleConfig>> {
    let Some((_, text)) = PRESETS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = PRESETS.iter().map(|(known, _)| *known).collect();
        bail!(
            "ingest.presets: unknown preset {name:?}, known are: {}",
            known.join(", ")
        );
    };
    serde_yaml_ng::from_str(text).with_context(|| format!("preset {name}"))
}

const PRESETS: &[(&str, &str)] = &[(
    "kube-prometheus",
    include_str!("../presets/kube-prometheus.yaml"),
)];
