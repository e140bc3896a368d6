//! The items of records, and the loop that decodes them.

use std::sync::Arc;

use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;

use crate::cursor::Cursor;

/// A record with a valid checksum and invalid content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("record of type {record_type} is invalid at byte {offset}")]
pub struct RecordError {
    /// Offset in the decompressed record.
    pub offset: usize,
    /// First byte of the record.
    pub record_type: u8,
}

/// Definition of a series: its ref, by which other records refer to it, and its labels.
#[derive(Debug, Clone)]
pub struct SeriesDefinition<'a> {
    /// Series ref.
    pub series: u64,
    pub(super) labels: Cursor<'a>,
    pub(super) n_labels: usize,
}

impl<'a> SeriesDefinition<'a> {
    /// Iterates over names and values as written, normally in ascending order of names.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut labels = self.labels;
        (0..self.n_labels).map_while(move |_| Some((labels.string()?, labels.string()?)))
    }
}

/// A float sample.
#[derive(Debug, Clone, Copy)]
pub struct RefSample {
    /// Series ref.
    pub series: u64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Start timestamp, or 0 if it is unknown.
    pub start_ms: i64,
    /// Value.
    pub value: f64,
}

/// A histogram sample.
#[derive(Debug, Clone)]
pub struct RefHistogram {
    /// Series ref.
    pub series: u64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Start timestamp, or 0 if it is unknown.
    pub start_ms: i64,
    /// Histogram.
    pub histogram: Arc<Histogram>,
}

/// A tombstone: a time range, ends included, in which samples of a series are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefTombstone {
    /// Series ref.
    pub series: u64,
    /// First timestamp.
    pub min_ms: i64,
    /// Last timestamp.
    pub max_ms: i64,
}

/// An exemplar.
#[derive(Debug, Clone)]
pub struct RefExemplar<'a> {
    /// Series ref.
    pub series: u64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Value.
    pub value: f64,
    /// Names and values.
    pub labels: Vec<(&'a str, &'a str)>,
}

/// Metadata of a series.
#[derive(Debug, Clone, Copy)]
pub struct RefMetadata<'a> {
    /// Series ref.
    pub series: u64,
    /// Type.
    pub metric_type: MetricType,
    /// Unit.
    pub unit: &'a str,
    /// Help text.
    pub help: &'a str,
}

/// Decodes the items of a record up to its end.
pub(super) fn decode<'a>(
    record: &'a [u8],
    item: impl FnMut(&mut Cursor<'a>) -> Option<()>,
) -> Result<(), RecordError> {
    decode_rest(
        record,
        Cursor::new(record.get(1..).unwrap_or_default()),
        item,
    )
}

/// Decodes the items of a record from a position on.
pub(super) fn decode_rest<'a>(
    record: &'a [u8],
    mut src: Cursor<'a>,
    mut item: impl FnMut(&mut Cursor<'a>) -> Option<()>,
) -> Result<(), RecordError> {
    let record_type = record.first().copied().unwrap_or(0);
    while !src.is_empty() {
        let left = src.len();
        item(&mut src).ok_or(RecordError {
            offset: record.len() - left,
            record_type,
        })?;
    }
    Ok(())
}
