//! Translates an export request to series.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use varve_model::metadata::MetricType;
use varve_protobuf::Reader;

use super::data::{
    self, PointTimestamps, SentMetric, count_points, each_message, merge, n_points_of, note_times,
};
use super::error::Error;
use super::labels::{Context, LabelMap, TARGET_INFO};
use super::limits::TARGET_INFO_SAMPLES_MAX;
use super::message::{Attributes, Scope};
use super::names::{LabelNamer, metric_name, unit_name};
use super::points::{Metric, PointTranslator, milliseconds};
use super::request_deltas::RequestDeltas;
use super::settings::OtlpSettings;
use super::sink::{Position, Sink};
use super::warnings::{WarningCounts, Warnings};

/// Translates a request in protobuf. Metrics and data points that cannot be translated are
/// rejected.
///
/// # Errors
/// If the request is malformed, or the sink fails. Discard the contents of the sink after an error,
/// and take the deltas back.
pub fn translate<S: Sink>(
    message: &[u8],
    settings: &OtlpSettings,
    deltas: &mut RequestDeltas<'_>,
    to: &mut S,
) -> Result<Translated, S::Error> {
    let namer = LabelNamer {
        escapes: settings.translation_strategy.escapes(),
        sanitizes_underscore: settings.label_name_underscore_sanitization,
        keeps_underscores: settings.label_name_preserve_multiple_underscores,
    };
    let mut translator = Translator {
        settings,
        namer,
        deltas,
        to,
        families: BTreeSet::new(),
        infos: HashMap::new(),
        warnings: Warnings::default(),
        merges_scopes: false,
    };
    each_message(
        Reader::new(message),
        data::RESOURCE_METRICS,
        data::REQUEST_FIELDS,
        |resource| translator.resource(resource),
    )?;
    Ok(Translated {
        warnings: translator.warnings.counts(),
        merges_scopes: translator.merges_scopes,
    })
}

/// Warnings about a translated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translated {
    /// The numbers of warnings.
    pub warnings: WarningCounts,
    /// A resource has several scopes, and no label tells them apart.
    pub merges_scopes: bool,
}

struct Translator<'a, 'd, S: Sink> {
    settings: &'a OtlpSettings,
    namer: LabelNamer,
    deltas: &'a mut RequestDeltas<'d>,
    to: &'a mut S,
    /// Families whose metadata is in the sink.
    families: BTreeSet<String>,
    /// Timestamps of the samples of `target_info` in the sink, by the key of the series, to add
    /// each only once: a request may contain a resource several times.
    infos: HashMap<S::Key, BTreeSet<i64>>,
    warnings: Warnings,
    merges_scopes: bool,
}

impl<S: Sink> Translator<'_, '_, S> {
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
        let mut times = PointTimestamps {
            first_ns: u64::MAX,
            last_ns: 0,
        };
        let mut n_scopes = 0;
        each_message(
            reader,
            data::SCOPE_METRICS,
            data::RESOURCE_METRICS_FIELDS,
            |scope| {
                n_scopes += 1;
                self.scope(scope, &mut context, &mut times)
            },
        )?;
        self.merges_scopes |= n_scopes > 1 && !self.settings.promote_scope_metadata;
        if times.first_ns == u64::MAX {
            return Ok(());
        }
        let labels =
            context.target_info_labels(&attributes, self.settings, self.namer, &mut self.warnings);
        match labels {
            Ok(Some(mut labels)) => {
                if labels.cut(self.to.labels_max()) {
                    self.warnings.note_cut_info(&labels);
                }
                self.target_info(&labels, times)
            }
            Ok(None) => Ok(()),
            Err(reason) => {
                self.to.reject_info(reason);
                Ok(())
            }
        }
    }

    fn scope(
        &mut self,
        reader: Reader<'_>,
        context: &mut Context,
        times: &mut PointTimestamps,
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
        times: &mut PointTimestamps,
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
                let mut points = PointTranslator {
                    settings: self.settings,
                    namer: self.namer,
                    deltas: &mut *self.deltas,
                    to: &mut *self.to,
                    warnings: &mut self.warnings,
                    metric: Metric {
                        sent_name: &name,
                        name: full_name,
                        data,
                    },
                    context,
                    first: Position::default(),
                };
                points.translate()
            }
            Err(reason) => {
                self.to.reject(n_points, reason);
                Ok(())
            }
        }
    }

    /// Adds samples of `target_info` from the first to the last timestamp, so close that queries
    /// find one at any time in between.
    fn target_info(&mut self, labels: &LabelMap, times: PointTimestamps) -> Result<(), S::Error> {
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

/// Bytes of a sample of `target_info` in memory: in the sink, and its timestamp in a set.
const INFO_SIZE: usize = 32;
