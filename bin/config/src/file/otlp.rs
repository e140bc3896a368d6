//! Section `otlp`: the translation of OpenTelemetry metrics. Keys, defaults and errors are
//! Prometheus'.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use varve_otlp::{OtlpSettings, PromotedAttributes, TranslationStrategy};

use varve_system::yaml::null_is_default;

/// The section as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpConfig {
    /// All resource attributes become labels. Default false.
    promote_all_resource_attributes: bool,
    /// Resource attributes that become labels. Default none.
    #[serde(deserialize_with = "null_is_default")]
    promote_resource_attributes: Vec<String>,
    /// Resource attributes that do not become labels if all others do. Default none.
    #[serde(deserialize_with = "null_is_default")]
    ignore_resource_attributes: Vec<String>,
    /// The translation of names. Default `UnderscoreEscapingWithSuffixes`.
    translation_strategy: String,
    /// `target_info` keeps the attributes that `job` and `instance` are derived from. Default
    /// false.
    keep_identifying_resource_attributes: bool,
    /// Histograms with explicit bounds become native ones. Default false.
    convert_histograms_to_nhcb: bool,
    /// Name, version, schema URL and attributes of a scope become labels. Default false.
    promote_scope_metadata: bool,
    /// A label name with one leading underscore gets the prefix `key`. Default true.
    label_name_underscore_sanitization: bool,
    /// Consecutive underscores are preserved. Default true.
    label_name_preserve_multiple_underscores: bool,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            promote_all_resource_attributes: false,
            promote_resource_attributes: Vec::new(),
            ignore_resource_attributes: Vec::new(),
            translation_strategy: STRATEGIES[0].0.to_owned(),
            keep_identifying_resource_attributes: false,
            convert_histograms_to_nhcb: false,
            promote_scope_metadata: false,
            label_name_underscore_sanitization: true,
            label_name_preserve_multiple_underscores: true,
        }
    }
}

impl OtlpConfig {
    /// Returns the settings. `lookback_ms` is the lookback delta of queries, `delta_to_cumulative`
    /// whether deltas are added up, and `late_delta_max` how late a delta may be.
    ///
    /// # Errors
    /// What Prometheus refuses too.
    pub fn settings(
        &self,
        lookback_ms: i64,
        delta_to_cumulative: bool,
        late_delta_max: Duration,
    ) -> Result<OtlpSettings> {
        Ok(OtlpSettings {
            translation_strategy: self.strategy()?,
            promoted: self.promoted()?,
            keep_identifying_resource_attributes: self.keep_identifying_resource_attributes,
            convert_histograms_to_nhcb: self.convert_histograms_to_nhcb,
            promote_scope_metadata: self.promote_scope_metadata,
            label_name_underscore_sanitization: self.label_name_underscore_sanitization,
            label_name_preserve_multiple_underscores: self.label_name_preserve_multiple_underscores,
            delta_to_cumulative,
            late_delta_max,
            lookback_ms,
        })
    }

    fn strategy(&self) -> Result<TranslationStrategy> {
        match STRATEGIES
            .iter()
            .find(|(name, _)| *name == self.translation_strategy)
        {
            Some((_, strategy)) => Ok(*strategy),
            None => bail!(
                "otlp: unsupported OTLP translation strategy {:?}",
                self.translation_strategy
            ),
        }
    }

    fn promoted(&self) -> Result<PromotedAttributes> {
        let promoted = &self.promote_resource_attributes;
        let ignored = &self.ignore_resource_attributes;
        if !self.promote_all_resource_attributes {
            if !ignored.is_empty() {
                bail!(
                    "otlp: 'ignore_resource_attributes' cannot be configured unless 'promote_all_resource_attributes' is true"
                );
            }
            return Ok(PromotedAttributes::Only(names(
                promoted,
                "promote_resource_attributes",
                "promoted",
            )?));
        }
        if !promoted.is_empty() {
            bail!(
                "otlp: 'promote_all_resource_attributes' and 'promote_resource_attributes' cannot be configured simultaneously"
            );
        }
        Ok(PromotedAttributes::AllBut(names(
            ignored,
            "ignore_resource_attributes",
            "ignored",
        )?))
    }
}

fn names(attributes: &[String], key: &str, adjective: &str) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for name in attributes.iter().map(|name| name.trim()) {
        if name.is_empty() {
            bail!("otlp: invalid '{key}': empty {adjective} OTel resource attribute");
        }
        if !names.insert(name.to_owned()) {
            bail!("otlp: invalid '{key}': duplicated {adjective} OTel resource attribute {name:?}");
        }
    }
    Ok(names)
}

const STRATEGIES: [(&str, TranslationStrategy); 4] = [
    (
        "UnderscoreEscapingWithSuffixes",
        TranslationStrategy::UnderscoreEscapingWithSuffixes,
    ),
    (
        "UnderscoreEscapingWithoutSuffixes",
        TranslationStrategy::UnderscoreEscapingWithoutSuffixes,
    ),
    (
        "NoUTF8EscapingWithSuffixes",
        TranslationStrategy::NoUtf8EscapingWithSuffixes,
    ),
    ("NoTranslation", TranslationStrategy::NoTranslation),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<PromotedAttributes, &str>) {
        let config: OtlpConfig = serde_yaml_ng::from_str(text).unwrap();
        let settings = config
            .settings(1, false, Duration::ZERO)
            .map(|settings| settings.promoted)
            .map_err(|rejected| rejected.to_string());
        match (settings, expect) {
            (Ok(promoted), Ok(expect)) => assert_eq!(promoted, expect),
            (Err(rejected), Err(part)) => assert!(rejected.contains(part), "{rejected}"),
            (got, expect) => panic!("{text}: {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn settings_are_checked_like_prometheus() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        check("{}", Ok(PromotedAttributes::Only(set(&[]))));
        check(
            "promote_resource_attributes: [' a ', b]",
            Ok(PromotedAttributes::Only(set(&["a", "b"]))),
        );
        check(
            "promote_all_resource_attributes: true",
            Ok(PromotedAttributes::AllBut(set(&[]))),
        );
        check(
            "promote_resource_attributes: [a, a]",
            Err("duplicated promoted OTel resource attribute \"a\""),
        );
        check(
            "promote_resource_attributes: ['']",
            Err("empty promoted OTel resource attribute"),
        );
        check(
            "ignore_resource_attributes: [a]",
            Err("cannot be configured unless"),
        );
        check(
            "{promote_all_resource_attributes: true, promote_resource_attributes: [a]}",
            Err("simultaneously"),
        );
        check(
            "translation_strategy: x",
            Err("unsupported OTLP translation strategy \"x\""),
        );
    }
}
