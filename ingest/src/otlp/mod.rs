//! OpenTelemetry metrics, an `ExportMetricsServiceRequest` in protobuf: <https://opentelemetry.io/docs/specs/otlp/>.
//!
//! Names, types, labels and values are translated as Prometheus' receiver does it (`storage/remote/otlptranslator`): a
//! resource becomes labels `job`, `instance` and those promoted, and a series `target_info`; a histogram becomes the
//! series of a classic one, or a native one of custom buckets; an exponential histogram a native one.
//!
//! A data point that cannot be translated costs that data point, and its metric's temporality the metric; the sender is
//! told. Delta temporality is refused: nothing adds it up here.
//!
//! Bounds: the outer messages are walked through in place; one that is decoded is at most [`DECODED_SIZE_MAX`] bytes, and
//! [`TARGET_INFO_SAMPLES_MAX`] samples of `target_info` are made of a resource.

mod histogram;
mod labels;
mod message;
mod names;
mod translate;
mod value;

use std::collections::BTreeSet;

use varve_tsdb::staleness::STALE_NAN_BITS;

pub use names::TranslationStrategy;
pub(crate) use translate::translate;

/// How OTLP is translated; the names are those of Prometheus' configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpSettings {
    /// What becomes of names.
    pub translation_strategy: TranslationStrategy,
    /// Which attributes of a resource become labels of all its series.
    pub promoted: PromotedAttributes,
    /// Whether `target_info` has the attributes that `job` and `instance` are made of.
    pub keep_identifying_resource_attributes: bool,
    /// Whether histograms of explicit bounds become native ones.
    pub convert_histograms_to_nhcb: bool,
    /// Whether name, version, schema URL and attributes of a scope become labels.
    pub promote_scope_metadata: bool,
    /// Whether `key` is put before a label name that begins with one underscore.
    pub label_name_underscore_sanitization: bool,
    /// Whether underscores that follow each other stay.
    pub label_name_preserve_multiple_underscores: bool,
    /// How far back a query looks for a sample, in milliseconds: `target_info` has one for each half of that.
    pub lookback_ms: i64,
}

/// Which attributes of a resource become labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromotedAttributes {
    /// Those named.
    Only(BTreeSet<String>),
    /// All but those named.
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
            lookback_ms: 300_000,
        }
    }
}

/// Tells whether a data point says that there is no value any more.
fn is_stale(flags: u32) -> bool {
    flags & NO_RECORDED_VALUE != 0
}

fn stale_or(flags: u32, value: f64) -> f64 {
    if is_stale(flags) { f64::from_bits(STALE_NAN_BITS) } else { value }
}

const NO_RECORDED_VALUE: u32 = 1;
/// Bytes of a resource, a scope or a data point. Decoded it takes some forty times as much at worst.
const DECODED_SIZE_MAX: usize = 1 << 20;
const TARGET_INFO_SAMPLES_MAX: i64 = 1_000;

#[cfg(test)]
mod tests;
