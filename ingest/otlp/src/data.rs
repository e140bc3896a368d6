//! Reads the outer messages of a request in place, and decodes the inner ones.

use std::borrow::Cow;

use prost::Message;
use varve_model::metadata::MetricType;
use varve_protobuf::{Key, Reader, fixed64_key, len_key, varint_key};

use crate::error::Error;
use crate::limits::DECODED_SIZE_MAX;

/// A metric of a request.
#[derive(Debug, Default)]
pub(super) struct SentMetric<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) help: Cow<'a, str>,
    pub(super) unit: Cow<'a, str>,
    pub(super) data: Option<Data<'a>>,
}

/// The data of a metric, by type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) data_type: DataType,
    pub(super) reader: Reader<'a>,
    /// 0 if the type has no temporality.
    pub(super) temporality: u64,
    pub(super) is_monotonic: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataType {
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

/// The earliest and the latest time of a resource's data points.
#[derive(Debug, Clone, Copy)]
pub(super) struct PointTimestamps {
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

impl Data<'_> {
    pub(super) fn check_temporality(&self, name: &str, takes_deltas: bool) -> Result<(), String> {
        let has_one = matches!(
            self.data_type,
            DataType::Sum | DataType::Histogram | DataType::Exponential
        );
        if has_one && self.temporality != CUMULATIVE && !(takes_deltas && self.temporality == DELTA)
        {
            let remedy = if self.temporality == DELTA {
                "; --enable-feature=otlp-deltatocumulative accepts deltas"
            } else {
                ""
            };
            return Err(format!(
                "invalid temporality and type combination for metric {name:?}{remedy}"
            ));
        }
        Ok(())
    }

    /// Returns the type that the name of the metric shows. A sum that may fall has no suffix for
    /// it, unlike a gauge.
    pub(super) fn name_type(&self) -> MetricType {
        match self.data_type {
            DataType::Sum if !self.is_monotonic => MetricType::Unknown,
            _ => self.kind(),
        }
    }

    /// Returns the type for metadata.
    pub(super) fn kind(&self) -> MetricType {
        match self.data_type {
            DataType::Sum if self.is_monotonic => MetricType::Counter,
            DataType::Gauge | DataType::Sum => MetricType::Gauge,
            DataType::Histogram | DataType::Exponential => MetricType::Histogram,
            DataType::Summary => MetricType::Summary,
        }
    }

    pub(super) fn known_fields(&self) -> u32 {
        match self.data_type {
            DataType::Gauge | DataType::Summary => 1 << 1,
            DataType::Histogram | DataType::Exponential => 1 << 1 | 1 << 2,
            DataType::Sum => 1 << 1 | 1 << 2 | 1 << 3,
        }
    }
}

/// Reads a metric. Its data points are read later.
pub(super) fn read_metric(mut reader: Reader<'_>) -> Result<SentMetric<'_>, Error> {
    let mut metric = SentMetric::default();
    while let Some(key) = reader.key()? {
        match key {
            METRIC_NAME_FIELD => metric.name = String::from_utf8_lossy(reader.message()?.rest()),
            METRIC_HELP => metric.help = String::from_utf8_lossy(reader.message()?.rest()),
            METRIC_UNIT => metric.unit = String::from_utf8_lossy(reader.message()?.rest()),
            _ => match DATA_TYPES.iter().find(|(field, _)| *field == key) {
                Some((_, data_type)) => {
                    metric.data = Some(decode_data(*data_type, reader.message()?)?)
                }
                None => reader.skip_unknown(key, METRIC_FIELDS)?,
            },
        }
    }
    Ok(metric)
}

fn decode_data(data_type: DataType, reader: Reader<'_>) -> Result<Data<'_>, Error> {
    let mut data = Data {
        data_type,
        reader,
        temporality: 0,
        is_monotonic: false,
    };
    let mut fields = reader;
    while let Some(key) = fields.key()? {
        match key {
            DATA_POINTS => drop(fields.message()?),
            TEMPORALITY if data_type != DataType::Gauge && data_type != DataType::Summary => {
                data.temporality = fields.varint()?
            }
            IS_MONOTONIC if data_type == DataType::Sum => data.is_monotonic = fields.varint()? != 0,
            _ => fields.skip_unknown(key, data.known_fields())?,
        }
    }
    Ok(data)
}

/// Extends `times` by the data points, translatable or not. Returns their number.
pub(super) fn note_times(data: Reader<'_>, times: &mut PointTimestamps) -> Result<u64, Error> {
    let mut n_points = 0;
    each_message::<Error>(data, DATA_POINTS, 0, |mut point| {
        let mut time_ns = 0;
        while let Some(key) = point.key()? {
            // The time has the same field number in all types.
            match key {
                POINT_TIME => time_ns = point.fixed64()?,
                _ => point.skip_unknown(key, 0)?,
            }
        }
        *times = PointTimestamps {
            first_ns: times.first_ns.min(time_ns),
            last_ns: times.last_ns.max(time_ns),
        };
        n_points += 1;
        Ok(())
    })?;
    Ok(n_points)
}

/// Returns the number of data points of a resource.
pub(super) fn count_points(resource: Reader<'_>) -> Result<u64, Error> {
    let mut n_points = 0;
    each_message::<Error>(resource, SCOPE_METRICS, RESOURCE_METRICS_FIELDS, |scope| {
        each_message(scope, METRICS, SCOPE_METRICS_FIELDS, |metric| {
            n_points += n_points_of(metric)?;
            Ok(())
        })
    })?;
    Ok(n_points)
}

pub(super) fn n_points_of(metric: Reader<'_>) -> Result<u64, Error> {
    let mut times = PointTimestamps {
        first_ns: u64::MAX,
        last_ns: 0,
    };
    let mut n_points = 0;
    for (key, _) in DATA_TYPES {
        each_message::<Error>(metric, *key, METRIC_FIELDS, |data| {
            n_points += note_times(data, &mut times)?;
            Ok(())
        })?;
    }
    Ok(n_points)
}

/// Calls `take` for each field with the key `wanted`, which holds a message. Skips other fields. A
/// field with the number of `wanted` and another wire type is malformed if `known` has its bit.
pub(super) fn each_message<'a, E: From<Error>>(
    mut reader: Reader<'a>,
    wanted: Key,
    known: u32,
    mut take: impl FnMut(Reader<'a>) -> Result<(), E>,
) -> Result<(), E> {
    while let Some(key) = reader.key().map_err(Error::from)? {
        if key == wanted {
            take(reader.message().map_err(Error::from)?)?;
        } else {
            let known = known & 1 << (wanted >> 3);
            reader.skip_unknown(key, known).map_err(Error::from)?;
        }
    }
    Ok(())
}

pub(super) fn decode<M: Message + Default>(reader: Reader<'_>) -> Result<M, Error> {
    let mut message = M::default();
    merge(&mut message, &mut 0, reader)?;
    Ok(message)
}

/// Decodes a message, or a part of it. `size` is the size of all its parts: a field that occurs
/// several times is merged.
pub(super) fn merge<M: Message>(
    to: &mut M,
    size: &mut usize,
    reader: Reader<'_>,
) -> Result<(), Error> {
    *size += reader.rest().len();
    if *size > DECODED_SIZE_MAX {
        let what = "size in bytes of a resource, scope or data point";
        return Err(Error::TooLarge {
            what,
            size: *size as u64,
            limit: DECODED_SIZE_MAX as u64,
        });
    }
    to.merge(reader.rest()).map_err(|error| Error::Message {
        offset: reader.at(),
        reason: error.to_string(),
    })
}

pub(super) const REQUEST_FIELDS: u32 = 1 << 1;
pub(super) const RESOURCE_METRICS: Key = len_key(1);
pub(super) const RESOURCE: Key = len_key(1);
pub(super) const SCOPE_METRICS: Key = len_key(2);
pub(super) const RESOURCE_METRICS_FIELDS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
pub(super) const SCOPE: Key = len_key(1);
pub(super) const METRICS: Key = len_key(2);
pub(super) const SCHEMA_URL: Key = len_key(3);
pub(super) const SCOPE_METRICS_FIELDS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
const METRIC_NAME_FIELD: Key = len_key(1);
const METRIC_HELP: Key = len_key(2);
const METRIC_UNIT: Key = len_key(3);
const METRIC_FIELDS: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 7 | 1 << 9 | 1 << 10 | 1 << 11;
const DATA_TYPES: &[(Key, DataType)] = &[
    (len_key(5), DataType::Gauge),
    (len_key(7), DataType::Sum),
    (len_key(9), DataType::Histogram),
    (len_key(10), DataType::Exponential),
    (len_key(11), DataType::Summary),
];
pub(super) const DATA_POINTS: Key = len_key(1);
pub(super) const TEMPORALITY: Key = varint_key(2);
pub(super) const IS_MONOTONIC: Key = varint_key(3);
pub(super) const POINT_TIME: Key = fixed64_key(3);
/// `AGGREGATION_TEMPORALITY_DELTA`
pub(super) const DELTA: u64 = 1;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
pub(super) const CUMULATIVE: u64 = 2;
