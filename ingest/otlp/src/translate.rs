//! Translates an export request to series.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use varve_model::histogram::Histogram;
use varve_model::labels::METRIC_NAME;
use varve_model::metadata::MetricType;
use varve_protobuf::Reader;

use super::data::{
    self, Data, DataType, SentMetric, Times, count_points, decode, each_message, merge,
    n_points_of, note_times,
};
use super::delta::{DeltaPoint, DeltaStreams};
use super::error::Error;
use super::exemplar::{check_exemplars, exemplar_labels, exemplar_value};
use super::histogram;
use super::labels::{Context, LabelMap, TARGET_INFO};
use super::limits::TARGET_INFO_SAMPLES_MAX;
use super::message::{
    Attributes, Exemplar, ExponentialPoint, HistogramPoint, Number, NumberPoint, Scope,
    SummaryPoint,
};
use super::names::{LabelNamer, metric_name, unit_name};
use super::settings::OtlpSettings;
use super::sink::Sink;
use super::staleness::stale_or;

/// Translates a request in protobuf. Metrics and data points that cannot be translated are
/// rejected.
///
/// # Errors
/// If the request is malformed, or the sink fails. Discard the contents of the sink after an error.
pub fn translate<S: Sink>(
    message: &[u8],
    settings: &OtlpSettings,
    streams: &DeltaStreams,
    to: &mut S,
) -> Result<(), S::Error> {
    let namer = LabelNamer {
        escapes: settings.translation_strategy.escapes(),
        sanitizes_underscore: settings.label_name_underscore_sanitization,
        keeps_underscores: settings.label_name_preserve_multiple_underscores,
    };
    let mut translator = Translator {
        settings,
        namer,
        streams,
        to,
        families: BTreeSet::new(),
        infos: HashMap::new(),
    };
    each_message(
        Reader::new(message),
        data::RESOURCE_METRICS,
        data::REQUEST,
        |resource| translator.resource(resource),
    )
}

struct Translator<'a, S: Sink> {
    settings: &'a OtlpSettings,
    namer: LabelNamer,
    streams: &'a DeltaStreams,
    to: &'a mut S,
    /// Families whose metadata is in the sink.
    families: BTreeSet<String>,
    /// Timestamps of the samples of `target_info` in the sink, by the key of the series, to add
    /// each only once: a request may contain a resource several times.
    infos: HashMap<S::Key, BTreeSet<i64>>,
}

/// The name and data of a metric.
#[derive(Debug)]
struct Metric<'a> {
    /// The name in OTLP, and the translated name.
    sent_name: &'a str,
    name: String,
    data: Data<'a>,
}

/// One sample of a translated data point.
struct Part<'a> {
    suffix: &'a str,
    /// A label in addition to those of the data point, such as `le`.
    label: Option<(&'a str, &'a str)>,
    value: f64,
    exemplars: &'a [Exemplar],
}

impl<'a> Part<'a> {
    /// A part without a label of its own and without exemplars.
    fn plain(suffix: &'a str, value: f64) -> Self {
        Self {
            suffix,
            label: None,
            value,
            exemplars: &[],
        }
    }
}

/// Timestamp and start timestamp.
#[derive(Debug, Clone, Copy)]
struct At {
    timestamp_ms: i64,
    start_ms: i64,
}

/// The result of the translation of a data point.
type PointResult<S> = Result<(), Failure<<S as Sink>::Error>>;

/// An error that ends the translation of a data point, or of the whole request.
enum Failure<E> {
    Point(String),
    Request(E),
}

impl<E> From<String> for Failure<E> {
    fn from(reason: String) -> Self {
        Self::Point(reason)
    }
}

impl<S: Sink> Translator<'_, S> {
    fn resource(&mut self, reader: Reader<'_>) -> Result<(), S::Error> {
        let mut resource = Attributes::default();
        let mut size = 0;
        each_message(
            reader,
            data::RESOURCE,
            data::RESOURCE_METRICS_FIELDS,
            |inner| merge(&mut resource, &mut size, inner),
        )?;
        let attributes = resource.attributes;
        let mut context = match Context::new(&attributes, self.settings, self.namer) {
            Ok(context) => context,
            Err(reason) => {
                self.to.reject(count_points(reader)?, reason);
                return Ok(());
            }
        };
        let mut times = Times {
            first_ns: u64::MAX,
            last_ns: 0,
        };
        each_message(
            reader,
            data::SCOPE_METRICS,
            data::RESOURCE_METRICS_FIELDS,
            |scope| self.scope(scope, &mut context, &mut times),
        )?;
        if times.first_ns == u64::MAX {
            return Ok(());
        }
        match context.target_info_labels(&attributes, self.settings, self.namer) {
            Ok(Some(labels)) => self.target_info(&labels, times),
            Ok(None) => Ok(()),
            Err(reason) => {
                self.to.reject(1, reason);
                Ok(())
            }
        }
    }

    fn scope(
        &mut self,
        reader: Reader<'_>,
        context: &mut Context,
        times: &mut Times,
    ) -> Result<(), S::Error> {
        let mut scope = Scope::default();
        let mut size = 0;
        let mut schema_url = Cow::Borrowed("");
        each_message(reader, data::SCOPE, data::SCOPE_METRICS_FIELDS, |inner| {
            merge(&mut scope, &mut size, inner)
        })?;
        each_message::<Error>(
            reader,
            data::SCHEMA_URL,
            data::SCOPE_METRICS_FIELDS,
            |inner| {
                schema_url = String::from_utf8_lossy(inner.rest());
                Ok(())
            },
        )?;
        if let Err(reason) = context.set_scope(&scope, &schema_url, self.settings, self.namer) {
            let mut n_points = 0;
            each_message::<Error>(
                reader,
                data::METRICS,
                data::SCOPE_METRICS_FIELDS,
                |metric| {
                    n_points += n_points_of(metric)?;
                    Ok(())
                },
            )?;
            self.to.reject(n_points, reason);
            return Ok(());
        }
        each_message(
            reader,
            data::METRICS,
            data::SCOPE_METRICS_FIELDS,
            |metric| self.metric(metric, context, times),
        )
    }

    fn metric(
        &mut self,
        reader: Reader<'_>,
        context: &Context,
        times: &mut Times,
    ) -> Result<(), S::Error> {
        let SentMetric {
            name,
            help,
            unit,
            data,
        } = data::read_metric(reader)?;
        let Some(data) = data else {
            let reason = format!(
                "could not get aggregation temporality for {name} as it has unsupported metric type"
            );
            self.to.reject(0, reason);
            return Ok(());
        };
        let n_points = note_times(data.reader, times)?;
        let named = data
            .check_temporality(&name, self.settings.delta_to_cumulative)
            .and_then(|()| {
                metric_name(
                    &name,
                    &unit,
                    data.name_type(),
                    self.settings.translation_strategy,
                )
            });
        match named {
            Ok(full_name) => {
                if n_points > 0 && self.families.insert(full_name.clone()) {
                    self.to
                        .family(&full_name, data.kind(), &help, &unit_name(&unit))?;
                }
                self.points(
                    &Metric {
                        sent_name: &name,
                        name: full_name,
                        data,
                    },
                    context,
                )
            }
            Err(reason) => {
                self.to.reject(n_points, reason);
                Ok(())
            }
        }
    }

    fn points(&mut self, metric: &Metric<'_>, context: &Context) -> Result<(), S::Error> {
        each_message(
            metric.data.reader,
            data::DATA_POINTS,
            metric.data.known_fields(),
            |point| {
                let done = match metric.data.data_type {
                    DataType::Gauge | DataType::Sum => self.number(decode(point)?, metric, context),
                    DataType::Histogram => self.explicit(decode(point)?, metric, context),
                    DataType::Exponential => self.exponential(decode(point)?, metric, context),
                    DataType::Summary => self.summary(&decode(point)?, metric, context),
                };
                match done {
                    Ok(()) => Ok(()),
                    Err(Failure::Request(error)) => Err(error),
                    Err(Failure::Point(reason)) => {
                        self.to.reject_point(metric.sent_name, &reason);
                        Ok(())
                    }
                }
            },
        )
    }

    fn number(
        &mut self,
        mut point: NumberPoint,
        metric: &Metric<'_>,
        context: &Context,
    ) -> PointResult<S> {
        let labels = context.data_point_labels(&point.attributes, self.namer)?;
        self.accumulate(&mut point, metric, &labels)?;
        let value = point.value.map_or(0.0, Number::as_f64);
        let exemplars = if metric.data.data_type == DataType::Sum {
            &point.exemplars[..]
        } else {
            &[]
        };
        let value = stale_or(point.flags, value);
        self.parts(
            labels,
            metric,
            at(point.time_ns, point.start_ns),
            &[Part {
                suffix: "",
                label: None,
                value,
                exemplars,
            }],
        )
    }

    fn explicit(
        &mut self,
        mut point: HistogramPoint,
        metric: &Metric<'_>,
        context: &Context,
    ) -> PointResult<S> {
        let labels = context.data_point_labels(&point.attributes, self.namer)?;
        self.accumulate(&mut point, metric, &labels)?;
        if !self.settings.convert_histograms_to_nhcb {
            return self.classic(&point, labels, metric);
        }
        let at = at(point.time_ns, point.start_ns);
        self.histogram(
            histogram::custom(&point)?,
            at,
            labels,
            &point.exemplars,
            metric,
        )
    }

    fn classic(
        &mut self,
        point: &HistogramPoint,
        labels: LabelMap,
        metric: &Metric<'_>,
    ) -> PointResult<S> {
        let at = at(point.time_ns, point.start_ns);
        let mut count = 0_u64;
        let mut exemplars = &point.exemplars[..];
        let mut buckets = Vec::new();
        for (&bound, bucket_count) in point.explicit_bounds.iter().zip(&point.bucket_counts) {
            count = count.wrapping_add(*bucket_count);
            // The series of +Inf has the count of the data point.
            if bound == f64::INFINITY {
                continue;
            }
            // Bounds and exemplars ascend. As in Prometheus, NaN stays in the bucket.
            let n = exemplars
                .iter()
                .take_while(|exemplar| {
                    exemplar_value(exemplar).is_none_or(|value| value <= bound || value.is_nan())
                })
                .count();
            let (bucket_exemplars, others) = exemplars.split_at(n);
            exemplars = others;
            buckets.push((bound_text(bound), count as f64, bucket_exemplars));
        }
        buckets.push(("+Inf".to_owned(), point.count as f64, exemplars));
        let buckets = buckets.iter().map(|(bound, count, exemplars)| Part {
            suffix: "_bucket",
            label: Some(("le", bound)),
            value: stale_or(point.flags, *count),
            exemplars,
        });
        let mut parts = Vec::with_capacity(2 + buckets.len());
        if let Some(sum) = point.sum {
            parts.push(Part::plain("_sum", stale_or(point.flags, sum)));
        }
        let count = stale_or(point.flags, point.count as f64);
        parts.push(Part::plain("_count", count));
        parts.extend(buckets);
        self.parts(labels, metric, at, &parts)
    }

    fn summary(
        &mut self,
        point: &SummaryPoint,
        metric: &Metric<'_>,
        context: &Context,
    ) -> PointResult<S> {
        let quantiles: Vec<_> = point
            .quantiles
            .iter()
            .map(|quantile| (bound_text(quantile.quantile), quantile.value))
            .collect();
        let count = stale_or(point.flags, point.count as f64);
        let mut parts = vec![
            Part::plain("_sum", stale_or(point.flags, point.sum)),
            Part::plain("_count", count),
        ];
        for (quantile, value) in &quantiles {
            parts.push(Part {
                label: Some(("quantile", quantile)),
                ..Part::plain("", stale_or(point.flags, *value))
            });
        }
        let labels = context.data_point_labels(&point.attributes, self.namer)?;
        self.parts(labels, metric, at(point.time_ns, point.start_ns), &parts)
    }

    fn exponential(
        &mut self,
        mut point: ExponentialPoint,
        metric: &Metric<'_>,
        context: &Context,
    ) -> PointResult<S> {
        let labels = context.data_point_labels(&point.attributes, self.namer)?;
        self.accumulate(&mut point, metric, &labels)?;
        let at = at(point.time_ns, point.start_ns);
        self.histogram(
            histogram::exponential(&point)?,
            at,
            labels,
            &point.exemplars,
            metric,
        )
    }

    /// Replaces a delta by the total of its stream.
    fn accumulate(
        &self,
        point: &mut impl DeltaPoint,
        metric: &Metric<'_>,
        labels: &LabelMap,
    ) -> Result<(), String> {
        if metric.data.temporality != data::DELTA {
            return Ok(());
        }
        self.streams
            .accumulate(&metric.name, labels, point, Instant::now())
    }

    fn histogram(
        &mut self,
        histogram: Histogram,
        at: At,
        mut labels: LabelMap,
        exemplars: &[Exemplar],
        metric: &Metric<'_>,
    ) -> PointResult<S> {
        check_exemplars(exemplars)?;
        labels.set(METRIC_NAME, &metric.name);
        self.put_histogram(histogram, at, &labels, exemplars)
            .map_err(Failure::Request)
    }

    fn put_histogram(
        &mut self,
        histogram: Histogram,
        at: At,
        labels: &LabelMap,
        exemplars: &[Exemplar],
    ) -> Result<(), S::Error> {
        self.to.series(labels.iter())?;
        self.to.histogram(at.timestamp_ms, histogram, at.start_ms)?;
        self.exemplars(exemplars)?;
        self.to.end_series()
    }

    /// Adds a series for each part. `labels` are the labels of the data point.
    fn parts(
        &mut self,
        labels: LabelMap,
        metric: &Metric<'_>,
        at: At,
        parts: &[Part<'_>],
    ) -> PointResult<S> {
        for part in parts {
            check_exemplars(part.exemplars)?;
        }
        self.put_parts(labels, metric, at, parts)
            .map_err(Failure::Request)
    }

    fn put_parts(
        &mut self,
        mut labels: LabelMap,
        metric: &Metric<'_>,
        at: At,
        parts: &[Part<'_>],
    ) -> Result<(), S::Error> {
        // Parts without a label come first, since the others replace the data point's label of the
        // same name.
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

    fn exemplars(&mut self, exemplars: &[Exemplar]) -> Result<(), S::Error> {
        for exemplar in exemplars {
            let labels = exemplar_labels(exemplar);
            let value = exemplar_value(exemplar).unwrap_or_default();
            let labels = labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            self.to
                .exemplar(labels, value, milliseconds(exemplar.time_ns))?;
        }
        Ok(())
    }

    /// Adds samples of `target_info` from the first to the last timestamp, so close that queries
    /// find one at any time in between.
    fn target_info(&mut self, labels: &LabelMap, times: Times) -> Result<(), S::Error> {
        let interval_ms = (self.settings.lookback_ms / 2).max(1);
        let first_ms = milliseconds(times.first_ns);
        let last_ms = milliseconds(times.last_ns);
        let first_ms = first_ms
            .max(last_ms.saturating_sub(interval_ms.saturating_mul(TARGET_INFO_SAMPLES_MAX)));
        if self.families.insert(TARGET_INFO.to_owned()) {
            self.to
                .family(TARGET_INFO, MetricType::Gauge, "Target metadata", "")?;
        }
        let key = self.to.series(labels.iter())?;
        let added = self.infos.entry(key).or_default();
        let mut timestamp_ms = first_ms;
        loop {
            let timestamp = timestamp_ms.min(last_ms);
            if added.insert(timestamp) {
                self.to.reserve(INFO_SIZE)?;
                self.to.sample(timestamp, 1.0, 0)?;
            }
            if timestamp == last_ms {
                return self.to.end_series();
            }
            timestamp_ms = timestamp_ms.saturating_add(interval_ms);
        }
    }
}

fn at(time_ns: u64, start_ns: u64) -> At {
    At {
        timestamp_ms: milliseconds(time_ns),
        start_ms: milliseconds(start_ns),
    }
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

/// Bytes of a sample of `target_info` in memory: in the sink, and its timestamp in a set.
const INFO_SIZE: usize = 32;
