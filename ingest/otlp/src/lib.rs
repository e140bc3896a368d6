//! OpenTelemetry metrics, an `ExportMetricsServiceRequest` in protobuf or JSON:
//! <https://opentelemetry.io/docs/specs/otlp/>.
//!
//! Names, types, labels and values are translated like in Prometheus' receiver
//! (`storage/remote/otlptranslator`). The attributes of a resource become the labels `job` and
//! `instance`, promoted labels, and a series `target_info`. A histogram becomes the series of a
//! classic histogram, or a native one with custom buckets; an exponential histogram becomes a
//! native one.
//!
//! A data point that cannot be translated is rejected. A metric with delta temporality is rejected
//! completely, unless [`OtlpSettings::delta_to_cumulative`] is set (`delta`). The response contains
//! the reasons.
//!
//! Bounds: the outer messages are read in place. A decoded inner message has at most
//! [`DECODED_SIZE_MAX`] bytes, and a resource gets at most [`TARGET_INFO_SAMPLES_MAX`] samples of
//! `target_info`.
//!
//! The translated series go to a [`Sink`], which limits their number and their memory.

#![forbid(unsafe_code)]

mod data;
mod delta;
mod error;
mod exemplar;
mod histogram;
mod json;
mod labels;
mod message;
mod names;
mod sink;
mod translate;
mod value;

use std::collections::BTreeSet;

use varve_model::staleness::STALE_NAN_BITS;

pub use delta::DeltaStreams;
pub use error::Error;
pub use json::transcode;
pub use names::TranslationStrategy;
pub use sink::Sink;
pub use translate::translate;

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
            lookback_ms: 300_000,
        }
    }
}

/// Returns `true` if a data point marks its series as stale.
fn is_stale(flags: u32) -> bool {
    flags & NO_RECORDED_VALUE != 0
}

fn stale_or(flags: u32, value: f64) -> f64 {
    if is_stale(flags) {
        f64::from_bits(STALE_NAN_BITS)
    } else {
        value
    }
}

const NO_RECORDED_VALUE: u32 = 1;
/// Maximum size of a resource, scope or data point. Decoded it takes up to forty times as much.
const DECODED_SIZE_MAX: usize = 1 << 20;
const TARGET_INFO_SAMPLES_MAX: i64 = 1_000;

#[cfg(test)]
mod tests;
