//! Writes the value of a query as Prometheus' JSON.

use std::sync::Arc;

use varve_context::Charge;
use varve_query::stats::QueryStats;
use varve_query::{HistogramPoint, MatrixSeries, Value, VectorSample};
use varve_server::queries::query_stats::{self, StatsLevel};

use super::points::PointWriter;
use crate::error::Result;
use crate::json;
use crate::serving::run::Work;

/// Points written between two steps of the response writer.
const POINTS_PER_STEP: usize = 64;

/// Writes the data of a response: a value and its statistics. `charge` is that of the value, and is
/// released once the value is written. Returns `true` if `limit` truncated the value.
pub(crate) fn write_result(
    work: &mut Work,
    mut value: Value,
    mut charge: Charge,
    stats: Option<(&QueryStats, StatsLevel)>,
    limit: usize,
) -> Result<bool> {
    let is_truncated = truncate(&mut value, limit);
    let size_of_texts = if matches!(value, Value::Matrix(_)) {
        PointWriter::SIZE_MAX
    } else {
        0
    };
    let size = value.size();
    // The evaluation has charged the value, except the points of a scalar over a range.
    charge.grow(size.saturating_sub(charge.size()))?;
    charge.grow(size_of_texts)?;
    work.open();
    // The text of most values is a little longer than the value in memory.
    work.out.reserve(size)?;
    write_value(work, value)?;
    if let Some((stats, level)) = stats {
        work.out.buffer().extend_from_slice(b",\"stats\":");
        let memory_peak = work.ctx.memory().peak();
        let queued = work.record.queued();
        query_stats::write(work.out.buffer(), stats, queued, memory_peak, level);
    }
    work.out.buffer().push(b'}');
    Ok(is_truncated)
}

/// Removes the series after the first `limit`. Returns `true` if there are any.
fn truncate(value: &mut Value, limit: usize) -> bool {
    fn cut<T>(series: &mut Vec<T>, limit: usize) -> bool {
        let is_longer = series.len() > limit;
        series.truncate(limit);
        is_longer
    }
    match value {
        Value::Scalar(_) | Value::String { .. } => false,
        Value::Vector(samples) => cut(samples, limit),
        Value::Matrix(series) => cut(series, limit),
    }
}

/// Writes a value with its type, as the start of an object.
fn write_value(work: &mut Work, value: Value) -> Result<()> {
    let kind = match value {
        Value::Scalar(_) => "scalar",
        Value::String { .. } => "string",
        Value::Vector(_) => "vector",
        Value::Matrix(_) => "matrix",
    };
    work.out
        .buffer()
        .extend_from_slice(format!("{{\"resultType\":\"{kind}\",\"result\":").as_bytes());
    match value {
        Value::Scalar(point) => write_pair(work, point.timestamp_ms, |out| {
            json::write_scalar(out, point.value)
        }),
        Value::String {
            timestamp_ms,
            value,
        } => {
            write_pair(work, timestamp_ms, |out| {
                json::write_html_string(out, &value)
            });
        }
        Value::Vector(samples) => work.array(samples, write_sample)?,
        Value::Matrix(series) => write_matrix(work, series)?,
    }
    Ok(())
}

fn write_pair(work: &mut Work, timestamp_ms: i64, write: impl FnOnce(&mut Vec<u8>)) {
    let out = work.out.buffer();
    out.push(b'[');
    json::write_float_timestamp(out, timestamp_ms);
    out.push(b',');
    write(out);
    out.push(b']');
}

fn write_sample(out: &mut Vec<u8>, sample: VectorSample) {
    out.extend_from_slice(b"{\"metric\":");
    json::write_labels(out, &sample.labels);
    let timestamp_ms = sample.point.timestamp_ms;
    match &sample.histogram {
        None => {
            out.extend_from_slice(b",\"value\":");
            json::write_point(out, timestamp_ms, sample.point.value);
        }
        Some(histogram) => {
            out.extend_from_slice(b",\"histogram\":");
            json::write_histogram_point(out, timestamp_ms, histogram);
        }
    }
    out.push(b'}');
}

fn write_matrix(work: &mut Work, matrix: Vec<Arc<MatrixSeries>>) -> Result<()> {
    let mut writer = PointWriter::default();
    work.out.buffer().push(b'[');
    for (i, series) in matrix.into_iter().enumerate() {
        work.comma(i);
        let out = work.out.buffer();
        out.extend_from_slice(b"{\"metric\":");
        json::write_labels(out, &series.labels);
        write_points(work, b",\"values\":", &series.points, |out, points| {
            writer.write(out, points)
        })?;
        write_points(
            work,
            b",\"histograms\":",
            &series.histograms,
            write_histograms,
        )?;
        work.out.buffer().push(b'}');
    }
    work.out.buffer().push(b']');
    Ok(())
}

fn write_histograms(out: &mut Vec<u8>, points: &[HistogramPoint]) {
    for (i, point) in points.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        json::write_histogram_point(out, point.timestamp_ms, &point.histogram);
    }
}

/// Writes the points of a series as an array after its key, unless there are none. `write` appends
/// some of them, separated by commas.
fn write_points<P>(
    work: &mut Work,
    key: &[u8],
    points: &[P],
    mut write: impl FnMut(&mut Vec<u8>, &[P]),
) -> Result<()> {
    for (n, points) in points.chunks(POINTS_PER_STEP).enumerate() {
        let out = work.out.buffer();
        if n == 0 {
            out.extend_from_slice(key);
        }
        out.push(if n == 0 { b'[' } else { b',' });
        write(out, points);
        work.out.step()?;
    }
    if !points.is_empty() {
        work.out.buffer().push(b']');
    }
    Ok(())
}
