//! The file for samples of unknown series: those whose definition is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use varve_env::{Fs, remove_if_exists};
use varve_model::histogram::{BucketSpan, Histogram, HistogramCounts};
use varve_tsdb::Result;

use super::report::{Report, UNKNOWN_SERIES_MAX, UnknownSeries};
use super::shard::Value;
use crate::block::buffered_file::BufferedFile;

/// The file inside the target for samples of unknown series, one JSON object per line. The first
/// sample creates it.
pub const UNKNOWN_SAMPLES: &str = "unknown-series.jsonl";

/// A sample of an unknown series.
#[derive(Debug)]
pub(super) struct UnknownSample {
    pub(super) series: u64,
    pub(super) timestamp_ms: i64,
    pub(super) value: Value,
}

/// The file, created for the first sample.
#[derive(Debug)]
pub(super) struct UnknownSeriesFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    file: Option<BufferedFile>,
}

impl UnknownSeriesFile {
    /// Removes the file of an earlier run.
    pub(super) fn create(fs: &Arc<dyn Fs>, path: &Path) -> Result<Self> {
        remove_if_exists(&**fs, path)?;
        Ok(Self {
            fs: Arc::clone(fs),
            path: path.to_owned(),
            file: None,
        })
    }

    /// Writes a sample.
    pub(super) fn push(&mut self, sample: &UnknownSample, report: &mut Report) -> Result<()> {
        report.n_unknown_samples += 1;
        let time = sample.timestamp_ms;
        let is_full = report.unknown_series.len() >= UNKNOWN_SERIES_MAX;
        if let Some(lost) = report.unknown_series.get_mut(&sample.series) {
            lost.n_samples += 1;
            lost.min_ms = lost.min_ms.min(time);
            lost.max_ms = lost.max_ms.max(time);
        } else if !is_full {
            report.unknown_series.insert(
                sample.series,
                UnknownSeries {
                    n_samples: 1,
                    min_ms: time,
                    max_ms: time,
                },
            );
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self
                .file
                .insert(BufferedFile::create(&*self.fs, &self.path)?),
        };
        file.write(line(sample).as_bytes())
    }

    /// Syncs the file.
    pub(super) fn finish(self) -> Result<()> {
        self.file.map_or(Ok(()), |file| file.finish().map(|_| ()))
    }
}

fn line(sample: &UnknownSample) -> String {
    let UnknownSample {
        series,
        timestamp_ms,
        value,
    } = sample;
    let mut json = match value {
        Value::Float(value) => {
            json!({"value": format!("{value:?}"), "bits": format!("{:016x}", value.to_bits())})
        }
        Value::Histogram(histogram) => histogram_json(histogram),
    };
    json["series"] = json!(series);
    json["timestamp_ms"] = json!(timestamp_ms);
    format!("{json}\n")
}

/// Returns a histogram as JSON. Doubles that JSON has no number for, and those that counts may be,
/// are strings.
#[must_use]
pub fn histogram_json(histogram: &Histogram) -> serde_json::Value {
    let (count, zero_count, positive, negative) = match &histogram.counts {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => (
            json!(count),
            json!(zero_count),
            json!(positive),
            json!(negative),
        ),
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => (
            json!(format!("{count:?}")),
            json!(format!("{zero_count:?}")),
            strings(positive),
            strings(negative),
        ),
    };
    json!({
        "schema": histogram.schema,
        "sum": format!("{:?}", histogram.sum),
        "count": count,
        "zeroThreshold": histogram.zero_threshold,
        "zeroCount": zero_count,
        "positiveSpans": spans_json(&histogram.positive_spans),
        "positive": positive,
        "negativeSpans": spans_json(&histogram.negative_spans),
        "negative": negative,
        "customBounds": histogram.custom_bounds,
    })
}

fn spans_json(spans: &[BucketSpan]) -> serde_json::Value {
    spans
        .iter()
        .map(|span| json!([span.offset, span.length]))
        .collect()
}

/// Returns doubles as strings.
fn strings(values: &[f64]) -> serde_json::Value {
    values.iter().map(|value| format!("{value:?}")).collect()
}
