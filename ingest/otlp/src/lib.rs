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
//! 1 MiB, and a resource gets at most 1,000 samples of `target_info`
//! (`limits`).
//!
//! The translated series go to a [`Sink`], which limits their number and their memory.

#![forbid(unsafe_code)]

mod bucket_merge;
mod covered_time;
mod data;
mod delta;
mod delta_point;
mod error;
mod exemplar;
mod histogram;
mod json;
mod labels;
mod limits;
mod message;
mod names;
mod points;
mod request_deltas;
mod settings;
mod sink;
mod staleness;
mod stream_key;
mod stream_shares;
mod translate;
mod value;
mod warnings;

pub use delta::DeltaStreams;
pub use error::Error;
pub use json::transcode;
pub use names::TranslationStrategy;
pub use request_deltas::RequestDeltas;
pub use settings::{OtlpSettings, PromotedAttributes};
pub use sink::{Position, Sink};
pub use translate::{Translated, translate};
pub use warnings::WarningCounts;

#[cfg(test)]
mod tests;
