//! Decodes records: series, samples, histograms, exemplars, metadata, tombstones.
//!
//! A decoder appends items as it reads them. After an error, the items before the damage have been
//! appended. Source: Prometheus `tsdb/record/record.go`, types 1 to 14 as of version 3.16.

mod histograms;
mod items;
mod record_type;
mod refs;
mod samples;
mod series;
#[cfg(test)]
mod tests;

use varve_model::metadata::MetricType;

pub(crate) use histograms::decode_histograms;
use items::decode;
pub use items::{
    RecordError, RefExemplar, RefHistogram, RefMetadata, RefSample, RefTombstone, SeriesDefinition,
};
pub use record_type::RecordType;
use refs::RefDecoder;
pub(crate) use samples::for_each_sample;
use series::decode_definitions;
pub(crate) use series::{DefinedLabel, for_each_definition};

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
