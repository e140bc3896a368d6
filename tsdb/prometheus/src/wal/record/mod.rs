//! Decodes records: series, samples, histograms, exemplars, metadata, tombstones.
//!
//! A decoder appends items as it reads them. After an error, the items before the damage have been
//! appended. Source: Prometheus `tsdb/record/record.go`, types 1 to 14 as of version 3.16.

mod histograms;
mod refs;
mod samples;
mod series;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;

use crate::cursor::Cursor;
pub(crate) use histograms::decode_histograms;
use refs::RefDecoder;
pub(crate) use samples::for_each_sample;
use series::decode_definitions;
pub(crate) use series::{DefinedLabel, for_each_definition};

/// Type of a record. The discriminants are the codes of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordType {
    /// Series definitions.
    Series = 1,
    /// Float samples.
    Samples = 2,
    /// Tombstones.
    Tombstones = 3,
    /// Exemplars.
    Exemplars = 4,
    /// In the WBL: which out-of-order samples are in head chunks.
    MmapMarkers = 5,
    /// Metadata: types, units and help texts.
    Metadata = 6,
    /// Histograms with integer counts.
    Histograms = 7,
    /// Histograms with float counts.
    FloatHistograms = 8,
    /// Like type 7, with custom buckets.
    CustomHistograms = 9,
    /// Like type 8, with custom buckets.
    CustomFloatHistograms = 10,
    /// Float samples with start timestamps.
    SamplesV2 = 11,
    /// Histograms with integer counts and start timestamps.
    HistogramsV2 = 12,
    /// Histograms with float counts and start timestamps.
    FloatHistogramsV2 = 13,
    /// First in a checkpoint: the timestamp before which the WAL was truncated.
    MinValidTime = 14,
}

impl RecordType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 14] = [
        Self::Series,
        Self::Samples,
        Self::Tombstones,
        Self::Exemplars,
        Self::MmapMarkers,
        Self::Metadata,
        Self::Histograms,
        Self::FloatHistograms,
        Self::CustomHistograms,
        Self::CustomFloatHistograms,
        Self::SamplesV2,
        Self::HistogramsV2,
        Self::FloatHistogramsV2,
        Self::MinValidTime,
    ];
    /// Prometheus' names of the types.
    const NAMES: [&str; Self::ALL.len()] = [
        "series",
        "samples",
        "tombstones",
        "exemplars",
        "mmapmarkers",
        "metadata",
        "histogram_samples",
        "float_histogram_samples",
        "custom_buckets_histogram_samples",
        "custom_buckets_float_histogram_samples",
        "samples_v2",
        "histogram_samples_v2",
        "float_histogram_samples_v2",
        "min_valid_time",
    ];

    /// Returns the type of a record, or `None` if it is empty or unknown.
    #[must_use]
    pub fn of(record: &[u8]) -> Option<Self> {
        let code = *record.first()?;
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Describes a record without a known type.
    pub(crate) fn unknown_reason(record: &[u8]) -> String {
        match record.first() {
            Some(code) => format!("unknown record type {code}"),
            None => "empty record".to_owned(),
        }
    }

    /// Returns Prometheus' name for the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1]
    }
}

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
    labels: Cursor<'a>,
    n_labels: usize,
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

/// Content of a record.
#[derive(Debug, Clone)]
pub enum RecordContent<'a> {
    /// Type 1.
    Series(Vec<SeriesDefinition<'a>>),
    /// Types 2 and 11.
    Samples(Vec<RefSample>),
    /// Types 7 to 10, 12 and 13, without histograms of an unknown schema.
    Histograms(Vec<RefHistogram>),
    /// Type 3.
    Tombstones(Vec<RefTombstone>),
    /// Type 4.
    Exemplars(Vec<RefExemplar<'a>>),
    /// Type 6.
    Metadata(Vec<RefMetadata<'a>>),
    /// Type 5, which is not decoded.
    MmapMarkers,
    /// Type 14, one item.
    MinValidTime(Vec<i64>),
}

impl<'a> RecordContent<'a> {
    /// Decodes a record of type `record_type`. Returns an error at invalid bytes, for example a
    /// string that is not UTF-8, along with what precedes them.
    #[must_use]
    pub fn decode(record_type: RecordType, record: &'a [u8]) -> (Self, Option<RecordError>) {
        fn collect<'a, T>(
            wrap: fn(Vec<T>) -> RecordContent<'a>,
            decode: impl FnOnce(&mut Vec<T>) -> Result<(), RecordError>,
        ) -> (RecordContent<'a>, Option<RecordError>) {
            let mut items = Vec::new();
            let error = decode(&mut items).err();
            (wrap(items), error)
        }
        match record_type {
            RecordType::Series => collect(Self::Series, |dst| decode_definitions(record, dst)),
            RecordType::Samples | RecordType::SamplesV2 => collect(Self::Samples, |dst| {
                for_each_sample(record, |sample| dst.push(sample))
            }),
            RecordType::Tombstones => {
                collect(Self::Tombstones, |dst| decode_tombstones(record, dst))
            }
            RecordType::Exemplars => collect(Self::Exemplars, |dst| decode_exemplars(record, dst)),
            RecordType::Metadata => collect(Self::Metadata, |dst| decode_metadata(record, dst)),
            RecordType::MmapMarkers => (Self::MmapMarkers, None),
            RecordType::MinValidTime => {
                collect(Self::MinValidTime, |dst| decode_min_valid_time(record, dst))
            }
            RecordType::Histograms
            | RecordType::FloatHistograms
            | RecordType::CustomHistograms
            | RecordType::CustomFloatHistograms
            | RecordType::HistogramsV2
            | RecordType::FloatHistogramsV2 => collect(Self::Histograms, |dst| {
                decode_histograms(record, dst).map(|_| ())
            }),
        }
    }
}

/// Decodes the items of a record up to its end.
fn decode<'a>(
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
fn decode_rest<'a>(
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

fn decode_min_valid_time(record: &[u8], dst: &mut Vec<i64>) -> Result<(), RecordError> {
    decode(record, |src| {
        if !dst.is_empty() || src.len() != size_of::<i64>() {
            return None;
        }
        dst.push(src.be_u64()?.cast_signed());
        Some(())
    })
}

pub(crate) fn decode_tombstones(
    record: &[u8],
    dst: &mut Vec<RefTombstone>,
) -> Result<(), RecordError> {
    decode(record, |src| {
        dst.push(RefTombstone {
            series: src.be_u64()?,
            min_ms: src.varint()?,
            max_ms: src.varint()?,
        });
        Some(())
    })
}

fn decode_exemplars<'a>(
    record: &'a [u8],
    dst: &mut Vec<RefExemplar<'a>>,
) -> Result<(), RecordError> {
    let mut series = RefDecoder::of(record);
    decode(record, |src| {
        let (series, timestamp_ms, _) = series.take(src)?;
        let value = src.f64()?;
        let mut labels = Vec::new();
        for _ in 0..src.n_items()? {
            labels.push((src.string()?, src.string()?));
        }
        dst.push(RefExemplar {
            series,
            timestamp_ms,
            value,
            labels,
        });
        Some(())
    })
}

fn decode_metadata<'a>(
    record: &'a [u8],
    dst: &mut Vec<RefMetadata<'a>>,
) -> Result<(), RecordError> {
    decode(record, |src| {
        let series = src.uvarint()?;
        let metric_type = MetricType::from_number(src.u8()?.into());
        let mut metadata = RefMetadata {
            series,
            metric_type,
            unit: "",
            help: "",
        };
        for _ in 0..src.n_items()? {
            match (src.string()?, src.string()?) {
                ("UNIT", unit) => metadata.unit = unit,
                ("HELP", help) => metadata.help = help,
                _ => {}
            }
        }
        dst.push(metadata);
        Some(())
    })
}
