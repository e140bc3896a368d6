//! The settings of the translation.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::names::TranslationStrategy;

/// The settings of the translation, with the names of Prometheus' configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpSettings {
    /// The translation of names.
    pub translation_strategy: TranslationStrategy,
    /// The attributes of a resource that become labels of all its series.
    pub promoted: PromotedAttributes,
    /// Whether `target_info` keeps the attributes that `job` and `instance` are derived from.
    pub keep_identifying_resource_attributes: bool,
    /// Whether histograms with explicit bounds become native ones.
    pub convert_histograms_to_nhcb: bool,
    /// Whether name, version, schema URL and attributes of a scope become labels.
    pub promote_scope_metadata: bool,
    /// Whether a label name with one leading underscore gets the prefix `key`.
    pub label_name_underscore_sanitization: bool,
    /// Whether consecutive underscores are preserved.
    pub label_name_preserve_multiple_underscores: bool,
    /// Whether deltas are added up, as with Prometheus' feature `otlp-deltatocumulative`.
    pub delta_to_cumulative: bool,
    /// Maximum time by which a delta may end before the newest one of its stream.
    pub late_delta_max: Duration,
    /// The lookback delta of queries in milliseconds: `target_info` gets a sample for each half of
    /// it.
    pub lookback_ms: i64,
}

/// The resource attributes that become labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromotedAttributes {
    /// Only these attributes.
    Only(BTreeSet<String>),
    /// All attributes except these.
    AllBut(BTreeSet<String>),
}

impl Default for OtlpSettings {
    fn default() -> Self {
        Self {
            translation_strategy: TranslationStrategy::default(),
            promoted: PromotedAttributes::Only(BTreeSet::new()),
            keep_identifying_resource_attributes: false,
            convert_histograms_to_nhcb: false,
            promote_scope_metadata: false,
            label_name_underscore_sanitization: true,
            label_name_preserve_multiple_underscores: true,
            delta_to_cumulative: false,
            late_delta_max: Duration::ZERO,
            lookback_ms: 300_000,
        }
    }
}
