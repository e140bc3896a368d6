//! Translates an export request to series.

use std::collections::{BTreeSet, HashMap};

use prost::Message;
use varve_tsdb::labels::METRIC_NAME;

use super::labels::{Context, LabelMap, TARGET_INFO};
use super::message::{
    Attributes, Exemplar, ExemplarNumber, ExponentialPoint, HistogramPoint, KeyValue, Number, NumberPoint, Scope,
    SummaryPoint,
};
use super::names::{LabelNamer, MetricType, metric_name, unit_name};
use super::{DECODED_SIZE_MAX, OtlpSettings, TARGET_INFO_SAMPLES_MAX, histogram, stale_or, value};
use crate::batch::{BatchBuilder, RouteKey};
use crate::error::{Malformed, WriteError};
use crate::label_set::excerpt;
use crate::outcome::{Reason, Rejects};
use crate::remote_write::wire::{Key, Reader, fixed64_key, len_key, varint_key};

/// Translates a request. Adds metrics and data points that cannot be translated to `rejects`.
///
/// # Errors
/// [`WriteError::Malformed`], [`WriteError::TooLarge`] and [`WriteError::Busy`]. The batch must not be used then.
pub(crate) fn translate(
    message: &[u8],
    settings: &OtlpSettings,
    to: &mut BatchBuilder<'_, '_>,
    rejects: &mut Rejects,
) -> Result<(), WriteError> {
    let namer = LabelNamer {
        escapes: settings.translation_strategy.escapes(),
        sanitizes_underscore: settings.label_name_underscore_sanitization,
        keeps_underscores: settings.label_name_preserve_multiple_underscores,
    };
    let mut translator = Translator { settings, namer, to, rejects, families: BTreeSet::new(), infos: HashMap::new() };
    each_message(Reader::new(message), RESOURCE_METRICS, REQUEST, |resource| translator.resource(resource))
}

struct Translator<'a, 'c, 'p> {
    settings: &'a OtlpSettings,
    namer: LabelNamer,
    to: &'a mut BatchBuilder<'c, 'p>,
    rejects: &'a mut Rejects,
    /// Families whose metadata is in the batch.
    families: BTreeSet<String>,
    /// Timestamps of the samples of `target_info` in the batch, by the key of the series, to add each only once: a
    /// request may contain a resource several times.
    infos: HashMap<RouteKey, BTreeSet<i64>>,
}

/// The name and data of a metric.
#[derive(Debug)]
struct Metric<'a> {
    /// The name in OTLP, and the translated name.
    sent_name: &'a str,
    name: String,
    data: Data<'a>,
}

/// The data of a metric, by type.
#[derive(Debug, Clone, Copy)]
struct Data<'a> {
    data_type: DataType,
    reader: Reader<'a>,
    /// 0 if the type has no temporality.
    temporality: u64,
    is_monotonic: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataType {
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

/// The earliest and the latest time of a resource's data points.
#[derive(Debug, Clone, Copy)]
struct Times {
    first_ns: u64,
    last_ns: u64,
}

/// One sample of a translated data point.
struct Part<'a> {
    suffix: &'a str,
    /// A label in addition to those of the data point, such as `le`.
    label: Option<(&'a str, &'a str)>,
    value: f64,
    exemplars: &'a [Exemplar],
}

/// Timestamp and start timestamp.
#[derive(Debug, Clone, Copy)]
struct At {
    timestamp_ms: i64,
    start_ms: i64,
}

/// An error that ends the translation of a data point, or of the whole request.
enum Failure {
    Point(String),
    Request(WriteError),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Point(reason)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Request(error)
    }
}

impl Translator<'_, '_, '_> {
    fn resource(&mut self, reader: Reader<'_>) -> Result<(), WriteError> {
        let (mut resource, mut size) = (Attributes::default(), 0);
        each_message(reader, RESOURCE, RESOURCE_METRICS_FIELDS, |inner| merge(&mut resource, &mut size, inner))?;
        let attributes = resource.attributes;
        let mut context = match Context::new(&attributes, self.settings, self.namer) {
            Ok(context) => context,
            Err(reason) => {
                self.reject(reason, count_points(reader)?);
                return Ok(());
            }
        };
        let mut times = Times { first_ns: u64::MAX, last_ns: 0 };
        each_message(reader, SCOPE_METRICS, RESOURCE_METRICS_FIELDS, |scope| {
            self.scope(scope, &mut context, &mut times)
        })?;
        if times.first_ns == u64::MAX {
            return Ok(());
        }
        match context.target_info_labels(&attributes, self.settings, self.namer) {
            Ok(Some(labels)) => self.target_info(&labels, times),
            Ok(None) => Ok(()),
            Err(reason) => {
                self.reject(reason, 1);
                Ok(())
            }
        }
    }

    fn scope(&mut self, reader: Reader<'_>, context: &mut Context, times: &mut Times) -> Result<(), WriteError> {
        let (mut scope, mut size, mut schema_url) = (Scope::default(), 0, "");
        each_message(reader, SCOPE, SCOPE_METRICS_FIELDS, |inner| merge(&mut scope, &mut size, inner))?;
        each_message(reader, SCHEMA_URL, SCOPE_METRICS_FIELDS, |inner| {
            schema_url = utf8(inner)?;
            Ok(())
        })?;
        if let Err(reason) = context.set_scope(&scope, schema_url, self.settings, self.namer) {
            let mut n_points = 0;
            each_message(reader, METRICS, SCOPE_METRICS_FIELDS, |metric| {
                n_points += n_points_of(metric)?;
                Ok(())
            })?;
            self.reject(reason, n_points);
            return Ok(());
        }
        each_message(reader, METRICS, SCOPE_METRICS_FIELDS, |metric| self.metric(metric, context, times))
    }

    fn metric(&mut self, mut reader: Reader<'_>, context: &Context, times: &mut Times) -> Result<(), WriteError> {
        let (mut name, mut help, mut unit, mut data) = ("", "", "", None);
        while let Some(key) = reader.key()? {
            match key {
                METRIC_NAME_FIELD => name = utf8(reader.message()?)?,
                METRIC_HELP => help = utf8(reader.message()?)?,
                METRIC_UNIT => unit = utf8(reader.message()?)?,
                _ => match DATA_TYPES.iter().find(|(field, _)| *field == key) {
                    Some((_, data_type)) => data = Some(decode_data(*data_type, reader.message()?)?),
                    None => reader.skip_unknown(key, METRIC)?,
                },
            }
        }
        let Some(data) = data else {
            self.reject(
                format!("could not get aggregation temporality for {name} as it has unsupported metric type"),
                0,
            );
            return Ok(());
        };
        let n_points = note_times(data.reader, times)?;
        let named = data
            .check_temporality(name)
            .and_then(|()| metric_name(name, unit, data.name_type(), self.settings.translation_strategy));
        match named {
            Ok(full_name) => {
                if n_points > 0 && self.families.insert(full_name.clone()) {
                    self.to.family(&full_name, data.kind(), help, &unit_name(unit))?;
                }
                self.points(&Metric { sent_name: name, name: full_name, data }, context)
            }
            Err(reason) => {
                self.reject(reason, n_points);
                Ok(())
            }
        }
    }

    fn points(&mut self, metric: &Metric<'_>, context: &Context) -> Result<(), WriteError> {
        each_message(metric.data.reader, DATA_POINTS, metric.data.known_fields(), |point| {
            let done = match metric.data.data_type {
                DataType::Gauge | DataType::Sum => self.number(&decode(point)?, metric, context),
                DataType::Histogram if self.settings.convert_histograms_to_nhcb => {
                    self.custom(&decode(point)?, metric, context)
                }
                DataType::Histogram => self.classic(&decode(point)?, metric, context),
                DataType::Exponential => self.exponential(&decode(point)?, metric, context),
                DataType::Summary => self.summary(&decode(point)?, metric, context),
            };
            match done {
                Ok(()) => Ok(()),
                Err(Failure::Request(error)) => Err(error),
                Err(Failure::Point(reason)) => {
                    let name = excerpt(metric.sent_name.as_bytes()).into_owned();
                    self.rejects.add(Reason::Untranslatable, 1, 1, || format!("metric {name:?}: {reason}"));
                    Ok(())
                }
            }
        })
    }

    fn number(&mut self, point: &NumberPoint, metric: &Metric<'_>, context: &Context) -> Result<(), Failure> {
        let value = match point.value {
            Some(Number::Double(value)) => value,
            Some(Number::Int(value)) => value as f64,
            None => 0.0,
        };
        let exemplars = if metric.data.data_type == DataType::Sum { &point.exemplars[..] } else { &[] };
        let labels = context.data_point_labels(&point.attributes, self.namer)?;
        let value = stale_or(point.flags, value);
        self.parts(
            labels,
            metric,
            at(point.time_ns, point.start_ns),
            &[Part { suffix: "", label: None, value, exemplars }],
        )
    }

    fn classic(&mut self, point: &HistogramPoint, metric: &Metric<'_>, context: &Context) -> Result<(), Failure> {
        let at = at(point.time_ns, point.start_ns);
        let stale_or = |value| stale_or(point.flags, value);
        let plain = |suffix, value| Part { suffix, label: None, value: stale_or(value), exemplars: &[] };
        let sum = point.sum.map(|sum| plain("_sum", sum));
        let (mut count, mut exemplars) = (0_u64, &point.exemplars[..]);
        let mut buckets = Vec::new();
        for (&bound, bucket_count) in point.explicit_bounds.iter().zip(&point.bucket_counts) {
            count = count.wrapping_add(*bucket_count);
            // The series of +Inf has the count of the data point.
            if bound == f64::INFINITY {
                continue;
            }
            // Bounds and exemplars ascend.
            let n = exemplars
                .iter()
                .take_while(|exemplar| exemplar_value(exemplar).is_none_or(|value| value <= bound))
                .count();
            let (bucket_exemplars, others) = exemplars.split_at(n);
            exemplars = others;
            buckets.push((bound_text(bound), count as f64, bucket_exemplars));
        }
        buckets.push(("+Inf".to_owned(), point.count as f64, exemplars));
        let buckets = buckets.iter().map(|(bound, count, exemplars)| Part {
            suffix: "_bucket",
            label: Some(("le", bound)),
            value: stale_or(*count),
            exemplars,
        });
        let parts: Vec<_> = sum.into_iter().chain([plain("_count", point.count as f64)]).chain(buckets).collect();
        self.parts(context.data_point_labels(&point.attributes, self.namer)?, metric, at, &parts)
    }

    fn summary(&mut self, point: &SummaryPoint, metric: &Metric<'_>, context: &Context) -> Result<(), Failure> {
        let stale_or = |value| stale_or(point.flags, value);
        let quantiles: Vec<_> =
            point.quantiles.iter().map(|quantile| (bound_text(quantile.quantile), quantile.value)).collect();
        let plain = |suffix, value| Part { suffix, label: None, value: stale_or(value), exemplars: &[] };
        let mut parts = vec![plain("_sum", point.sum), plain("_count", point.count as f64)];
        parts.extend(
            quantiles.iter().map(|(quantile, value)| Part { label: Some(("quantile", quantile)), ..plain("", *value) }),
        );
        let labels = context.data_point_labels(&point.attributes, self.namer)?;
        self.parts(labels, metric, at(point.time_ns, point.start_ns), &parts)
    }

    fn exponential(&mut self, point: &ExponentialPoint, metric: &Metric<'_>, context: &Context) -> Result<(), Failure> {
        let histogram = histogram::exponential(point)?;
        let at = at(point.time_ns, point.start_ns);
        self.histogram(histogram, at, &point.attributes, &point.exemplars, metric, context)
    }

    fn custom(&mut self, point: &HistogramPoint, metric: &Metric<'_>, context: &Context) -> Result<(), Failure> {
        let histogram = histogram::custom(point)?;
        let at = at(point.time_ns, point.start_ns);
        self.histogram(histogram, at, &point.attributes, &point.exemplars, metric, context)
    }

    fn histogram(
        &mut self,
        histogram: varve_tsdb::histogram::Histogram,
        at: At,
        attributes: &[KeyValue],
        exemplars: &[Exemplar],
        metric: &Metric<'_>,
        context: &Context,
    ) -> Result<(), Failure> {
        check_exemplars(exemplars)?;
        let mut labels = context.data_point_labels(attributes, self.namer)?;
        labels.set(METRIC_NAME, &metric.name);
        self.to.series(labels.iter())?;
        self.to.histogram(at.timestamp_ms, histogram, at.start_ms)?;
        self.exemplars(exemplars)?;
        Ok(self.to.end_series()?)
    }

    /// Adds a series for each part. `labels` are the labels of the data point.
    fn parts(&mut self, labels: LabelMap, metric: &Metric<'_>, at: At, parts: &[Part<'_>]) -> Result<(), Failure> {
        parts.iter().try_for_each(|part| check_exemplars(part.exemplars))?;
        // Parts without a label come first, since the others replace the data point's label of the same name.
        let mut labels = labels;
        for part in parts {
            labels.set(METRIC_NAME, &format!("{}{}", metric.name, part.suffix));
            if let Some((name, value)) = part.label {
                labels.set(name, value);
            }
            self.to.series(labels.iter())?;
            self.to.sample(at.timestamp_ms, part.value, at.start_ms)?;
            self.exemplars(part.exemplars)?;
            self.to.end_series()?;
        }
        Ok(())
    }

    fn exemplars(&mut self, exemplars: &[Exemplar]) -> Result<(), WriteError> {
        for exemplar in exemplars {
            let labels = exemplar_labels(exemplar);
            let value = exemplar_value(exemplar).unwrap_or_default();
            let labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            self.to.exemplar(labels, value, milliseconds(exemplar.time_ns))?;
        }
        Ok(())
    }

    /// Adds samples of `target_info` from the first to the last timestamp, so close that queries find one at any time
    /// in between.
    fn target_info(&mut self, labels: &LabelMap, times: Times) -> Result<(), WriteError> {
        let interval_ms = (self.settings.lookback_ms / 2).max(1);
        let (first_ms, last_ms) = (milliseconds(times.first_ns), milliseconds(times.last_ns));
        let first_ms = first_ms.max(last_ms.saturating_sub(interval_ms.saturating_mul(TARGET_INFO_SAMPLES_MAX)));
        if self.families.insert(TARGET_INFO.to_owned()) {
            self.to.family(TARGET_INFO, KIND_GAUGE, "Target metadata", "")?;
        }
        let key = self.to.series(labels.iter())?;
        let added = self.infos.entry(key).or_default();
        let mut timestamp_ms = first_ms;
        loop {
            let timestamp = timestamp_ms.min(last_ms);
            if added.insert(timestamp) {
                self.to.grow(INFO_SIZE)?;
                self.to.sample(timestamp, 1.0, 0)?;
            }
            if timestamp == last_ms {
                return self.to.end_series();
            }
            timestamp_ms = timestamp_ms.saturating_add(interval_ms);
        }
    }

    fn reject(&mut self, reason: String, n_points: u64) {
        self.rejects.add(Reason::Untranslatable, n_points.max(1), n_points, || reason);
    }
}

impl Data<'_> {
    fn check_temporality(&self, name: &str) -> Result<(), String> {
        let has_one = matches!(self.data_type, DataType::Sum | DataType::Histogram | DataType::Exponential);
        if has_one && self.temporality != CUMULATIVE {
            return Err(format!("invalid temporality and type combination for metric {name:?}"));
        }
        Ok(())
    }

    fn name_type(&self) -> MetricType {
        match self.data_type {
            DataType::Gauge => MetricType::Gauge,
            DataType::Sum if self.is_monotonic => MetricType::MonotonicSum,
            _ => MetricType::Other,
        }
    }

    /// Returns the value of the type in remote write's enum.
    fn kind(&self) -> i32 {
        match self.data_type {
            DataType::Sum if self.is_monotonic => KIND_COUNTER,
            DataType::Gauge | DataType::Sum => KIND_GAUGE,
            DataType::Histogram | DataType::Exponential => KIND_HISTOGRAM,
            DataType::Summary => KIND_SUMMARY,
        }
    }

    fn known_fields(&self) -> u32 {
        match self.data_type {
            DataType::Gauge | DataType::Summary => 1 << 1,
            DataType::Histogram | DataType::Exponential => 1 << 1 | 1 << 2,
            DataType::Sum => 1 << 1 | 1 << 2 | 1 << 3,
        }
    }
}

fn decode_data(data_type: DataType, reader: Reader<'_>) -> Result<Data<'_>, Malformed> {
    let mut data = Data { data_type, reader, temporality: 0, is_monotonic: false };
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
fn note_times(data: Reader<'_>, times: &mut Times) -> Result<u64, WriteError> {
    let mut n_points = 0;
    each_message(data, DATA_POINTS, 0, |mut point| {
        let mut time_ns = 0;
        while let Some(key) = point.key()? {
            // The time has the same field number in all types.
            match key {
                POINT_TIME => time_ns = point.fixed64()?,
                _ => point.skip_unknown(key, 0)?,
            }
        }
        *times = Times { first_ns: times.first_ns.min(time_ns), last_ns: times.last_ns.max(time_ns) };
        n_points += 1;
        Ok(())
    })?;
    Ok(n_points)
}

/// Returns the number of data points of a resource.
fn count_points(resource: Reader<'_>) -> Result<u64, WriteError> {
    let mut n_points = 0;
    each_message(resource, SCOPE_METRICS, RESOURCE_METRICS_FIELDS, |scope| {
        each_message(scope, METRICS, SCOPE_METRICS_FIELDS, |metric| {
            n_points += n_points_of(metric)?;
            Ok(())
        })
    })?;
    Ok(n_points)
}

fn n_points_of(metric: Reader<'_>) -> Result<u64, WriteError> {
    let (mut times, mut n_points) = (Times { first_ns: u64::MAX, last_ns: 0 }, 0);
    for (key, _) in DATA_TYPES {
        each_message(metric, *key, METRIC, |data| {
            n_points += note_times(data, &mut times)?;
            Ok(())
        })?;
    }
    Ok(n_points)
}

/// Calls `take` for each field with the key `wanted`, which holds a message. Skips other fields. A field with a `known`
/// number and a wrong wire type is malformed.
fn each_message<'a>(
    mut reader: Reader<'a>,
    wanted: Key,
    known: u32,
    mut take: impl FnMut(Reader<'a>) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    while let Some(key) = reader.key()? {
        if key == wanted {
            take(reader.message()?)?;
        } else {
            let is_message = key & 7 == len_key(0);
            reader.skip_unknown(key, if is_message { 0 } else { known & 1 << (wanted >> 3) })?;
        }
    }
    Ok(())
}

fn decode<M: Message + Default>(reader: Reader<'_>) -> Result<M, WriteError> {
    let mut message = M::default();
    merge(&mut message, &mut 0, reader)?;
    Ok(message)
}

/// Decodes a message, or a part of it. `size` is the size of all its parts: a field that occurs several times is
/// merged.
fn merge<M: Message>(to: &mut M, size: &mut usize, reader: Reader<'_>) -> Result<(), WriteError> {
    *size += reader.rest().len();
    if *size > DECODED_SIZE_MAX {
        let what = "size in bytes of a resource, scope or data point";
        return Err(WriteError::TooLarge { what, size: *size as u64, limit: DECODED_SIZE_MAX as u64, flag: "OTLP" });
    }
    let malformed = |error: prost::DecodeError| Malformed::Message { offset: reader.at(), reason: error.to_string() };
    Ok(to.merge(reader.rest()).map_err(malformed)?)
}

fn utf8(reader: Reader<'_>) -> Result<&str, Malformed> {
    let invalid = |_| Malformed::Protobuf { offset: reader.at(), reason: "string is not UTF-8" };
    std::str::from_utf8(reader.rest()).map_err(invalid)
}

fn at(time_ns: u64, start_ns: u64) -> At {
    At { timestamp_ms: milliseconds(time_ns), start_ms: milliseconds(start_ns) }
}

fn milliseconds(time_ns: u64) -> i64 {
    time_ns.cast_signed() / 1_000_000
}

/// Prints a bound or a quantile like Go, without exponent.
fn bound_text(bound: f64) -> String {
    match bound {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => bound.to_string(),
    }
}

fn check_exemplars(exemplars: &[Exemplar]) -> Result<(), String> {
    let without = exemplars.iter().any(|exemplar| exemplar.value.is_none());
    if without { Err("unsupported exemplar value type: Empty".to_owned()) } else { Ok(()) }
}

fn exemplar_value(exemplar: &Exemplar) -> Option<f64> {
    exemplar.value.map(|value| match value {
        ExemplarNumber::Double(value) => value,
        ExemplarNumber::Int(value) => value as f64,
    })
}

/// Returns the sorted labels of an exemplar: trace and span, and all other attributes unless they are too long in
/// total.
fn exemplar_labels(exemplar: &Exemplar) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for (name, id, size) in
        [("trace_id", &exemplar.trace_id, TRACE_ID_SIZE), ("span_id", &exemplar.span_id, SPAN_ID_SIZE)]
    {
        if id.len() == size && id.iter().any(|byte| *byte != 0) {
            labels.push((name.to_owned(), id.iter().map(|byte| format!("{byte:02x}")).collect::<String>()));
        }
    }
    let pair = |attribute: &KeyValue| (attribute.key.clone(), value::print(attribute.value.as_ref()));
    let is_other = |attribute: &&KeyValue| labels.iter().all(|(name, _)| *name != attribute.key);
    let attributes: Vec<_> = exemplar.attributes.iter().filter(is_other).map(pair).collect();
    let n_chars: usize = labels.iter().chain(&attributes).map(|(n, v)| n.chars().count() + v.chars().count()).sum();
    if n_chars <= EXEMPLAR_CHARS_MAX {
        labels.extend(attributes);
    }
    labels.sort();
    labels
}

/// Bytes of a sample of `target_info` in memory: in the batch, and its timestamp in a set.
const INFO_SIZE: usize = 32;

const REQUEST: u32 = 1 << 1;
const RESOURCE_METRICS: Key = len_key(1);
const RESOURCE: Key = len_key(1);
const SCOPE_METRICS: Key = len_key(2);
const RESOURCE_METRICS_FIELDS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
const SCOPE: Key = len_key(1);
const METRICS: Key = len_key(2);
const SCHEMA_URL: Key = len_key(3);
const SCOPE_METRICS_FIELDS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
const METRIC_NAME_FIELD: Key = len_key(1);
const METRIC_HELP: Key = len_key(2);
const METRIC_UNIT: Key = len_key(3);
const METRIC: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 7 | 1 << 9 | 1 << 10 | 1 << 11;
const DATA_TYPES: &[(Key, DataType)] = &[
    (len_key(5), DataType::Gauge),
    (len_key(7), DataType::Sum),
    (len_key(9), DataType::Histogram),
    (len_key(10), DataType::Exponential),
    (len_key(11), DataType::Summary),
];
const DATA_POINTS: Key = len_key(1);
const TEMPORALITY: Key = varint_key(2);
const IS_MONOTONIC: Key = varint_key(3);
const POINT_TIME: Key = fixed64_key(3);
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u64 = 2;

const KIND_COUNTER: i32 = 1;
const KIND_GAUGE: i32 = 2;
const KIND_HISTOGRAM: i32 = 3;
const KIND_SUMMARY: i32 = 5;

const TRACE_ID_SIZE: usize = 16;
const SPAN_ID_SIZE: usize = 8;
/// Maximum number of characters of an exemplar's labels in OpenMetrics.
const EXEMPLAR_CHARS_MAX: usize = 128;
