//! From the data points of a metric to series, histograms and exemplars.

use std::time::Instant;

use varve_model::StoredSeries;
use varve_model::histogram::{Histogram, HistogramCounts};
use varve_model::labels::METRIC_NAME;

use super::data::{self, Data, DataType, decode, each_message};
use super::delta_point::DeltaPoint;
use super::exemplar::{check_exemplars, exemplar_labels, exemplar_value};
use super::histogram;
use super::labels::{Context, LabelMap};
use super::message::{
    Exemplar, ExponentialPoint, HistogramPoint, Number, NumberPoint, SummaryPoint,
};
use super::names::LabelNamer;
use super::request_deltas::{Accumulated, RequestDeltas};
use super::settings::OtlpSettings;
use super::sink::{Position, Sink};
use super::staleness::stale_or;
use super::warnings::Warnings;

/// Translates the data points of one metric.
pub(super) struct PointTranslator<'a, 'd, S: Sink> {
    pub(super) settings: &'a OtlpSettings,
    pub(super) namer: LabelNamer,
    pub(super) deltas: &'a mut RequestDeltas<'d>,
    pub(super) to: &'a mut S,
    pub(super) warnings: &'a mut Warnings,
    pub(super) metric: Metric<'a>,
    pub(super) context: &'a Context,
    /// The place before the samples of the current data point.
    pub(super) first: Position,
}

/// The name and data of a metric.
#[derive(Debug)]
pub(super) struct Metric<'a> {
    /// The name in OTLP, and the translated name.
    pub(super) sent_name: &'a str,
    pub(super) name: String,
    pub(super) data: Data<'a>,
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
    /// The sink has counted the data point as rejected.
    Counted,
    Request(E),
}

impl<E> From<String> for Failure<E> {
    fn from(reason: String) -> Self {
        Self::Point(reason)
    }
}

impl<S: Sink> PointTranslator<'_, '_, S> {
    /// Translates all data points of the metric.
    pub(super) fn translate(&mut self) -> Result<(), S::Error> {
        let data = self.metric.data;
        each_message(
            data.reader,
            data::DATA_POINTS,
            data.known_fields(),
            |point| {
                self.first = self.to.position();
                let done = match data.data_type {
                    DataType::Gauge | DataType::Sum => self.number(decode(point)?),
                    DataType::Histogram => self.explicit(decode(point)?),
                    DataType::Exponential => self.exponential(decode(point)?),
                    DataType::Summary => self.summary(&decode(point)?),
                };
                match done {
                    Ok(()) => {
                        let samples = self.first..self.to.position();
                        self.deltas.end_point(samples.clone());
                        self.to.end_point(samples)
                    }
                    Err(Failure::Request(error)) => Err(error),
                    Err(Failure::Counted) => Ok(()),
                    Err(Failure::Point(reason)) => {
                        self.deltas.roll_back_point();
                        self.to.reject_point(self.metric.sent_name, &reason);
                        Ok(())
                    }
                }
            },
        )
    }

    fn number(&mut self, mut point: NumberPoint) -> PointResult<S> {
        let labels =
            self.context
                .data_point_labels(&point.attributes, self.namer, self.warnings)?;
        if !self.accumulate(&mut point, &labels, "", Self::number_series)? {
            return Ok(());
        }
        self.number_series(&point, labels)
    }

    fn number_series(&mut self, point: &NumberPoint, labels: LabelMap) -> PointResult<S> {
        let value = point.value.map_or(0.0, Number::as_f64);
        let exemplars = if self.metric.data.data_type == DataType::Sum {
            &point.exemplars[..]
        } else {
            &[]
        };
        let value = stale_or(point.flags, value);
        self.parts(
            labels,
            at(point.time_ns, point.start_ns),
            &[Part {
                suffix: "",
                label: None,
                value,
                exemplars,
            }],
        )
    }

    fn explicit(&mut self, mut point: HistogramPoint) -> PointResult<S> {
        let labels =
            self.context
                .data_point_labels(&point.attributes, self.namer, self.warnings)?;
        let suffix = if self.settings.convert_histograms_to_nhcb {
            ""
        } else {
            COUNT
        };
        if !self.accumulate(&mut point, &labels, suffix, Self::explicit_series)? {
            return Ok(());
        }
        self.explicit_series(&point, labels)
    }

    fn explicit_series(&mut self, point: &HistogramPoint, labels: LabelMap) -> PointResult<S> {
        if !self.settings.convert_histograms_to_nhcb {
            return self.classic(point, labels);
        }
        let at = at(point.time_ns, point.start_ns);
        self.histogram(histogram::custom(point)?, at, labels, &point.exemplars)
    }

    fn classic(&mut self, point: &HistogramPoint, labels: LabelMap) -> PointResult<S> {
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
        parts.push(Part::plain(COUNT, count));
        parts.extend(buckets);
        self.parts(labels, at, &parts)
    }

    fn summary(&mut self, point: &SummaryPoint) -> PointResult<S> {
        let quantiles: Vec<_> = point
            .quantiles
            .iter()
            .map(|quantile| (bound_text(quantile.quantile), quantile.value))
            .collect();
        let count = stale_or(point.flags, point.count as f64);
        let mut parts = vec![
            Part::plain("_sum", stale_or(point.flags, point.sum)),
            Part::plain(COUNT, count),
        ];
        for (quantile, value) in &quantiles {
            parts.push(Part {
                label: Some(("quantile", quantile)),
                ..Part::plain("", stale_or(point.flags, *value))
            });
        }
        let labels =
            self.context
                .data_point_labels(&point.attributes, self.namer, self.warnings)?;
        self.parts(labels, at(point.time_ns, point.start_ns), &parts)
    }

    fn exponential(&mut self, mut point: ExponentialPoint) -> PointResult<S> {
        let labels =
            self.context
                .data_point_labels(&point.attributes, self.namer, self.warnings)?;
        histogram::check_zero_threshold(&point)?;
        if !self.accumulate(&mut point, &labels, "", Self::exponential_series)? {
            return Ok(());
        }
        self.exponential_series(&point, labels)
    }

    fn exponential_series(&mut self, point: &ExponentialPoint, labels: LabelMap) -> PointResult<S> {
        let at = at(point.time_ns, point.start_ns);
        self.histogram(histogram::exponential(point)?, at, labels, &point.exemplars)
    }

    /// Replaces a delta by the total of its stream. `put` stores the series of a point; the name of
    /// the first has `suffix`. Returns `false` if there is nothing to store.
    ///
    /// If the delta starts the stream, a zero is stored shortly after its start, and after the
    /// samples of an earlier total: `increase()` sees that this has ended, and counts all of the new
    /// one.
    fn accumulate<P: DeltaPoint>(
        &mut self,
        point: &mut P,
        labels: &LabelMap,
        suffix: &str,
        put: impl FnOnce(&mut Self, &P, LabelMap) -> PointResult<S>,
    ) -> Result<bool, Failure<S::Error>> {
        if self.metric.data.temporality != data::DELTA {
            return Ok(true);
        }
        // IMPORTANT: before the stream moves. Otherwise the next delta of the request, or of a
        // concurrent one, would precede the stream.
        let timestamp_ms = milliseconds(point.time_ns());
        if !self.to.takes_time(timestamp_ms) {
            self.to.reject_time(self.metric.sent_name, timestamp_ms);
            return Err(Failure::Counted);
        }
        let key = self.deltas.key(&self.metric.name, labels);
        let now = Instant::now();
        let mut earlier_ns = 0;
        let mut added = self.deltas.accumulate(key, point, None, now)?;
        if added == Accumulated::AskStore {
            let stored = self.stored(labels, suffix, timestamp_ms);
            let stored = stored.map_err(Failure::Request)?;
            if stored.has_sample {
                return Ok(false);
            }
            earlier_ns = nanoseconds(stored.newest_ms.unwrap_or(0).max(0));
            added = self.deltas.accumulate(key, point, Some(earlier_ns), now)?;
        }
        let Accumulated::Store { size } = added else {
            return Ok(false);
        };
        self.to.reserve(size).map_err(Failure::Request)?;
        if !self.deltas.starts_stream() {
            return Ok(true);
        }
        // A point that is rejected must not leave a zero.
        point.check(self.settings.convert_histograms_to_nhcb)?;
        // At the start itself an earlier total may have its last sample.
        let start_ms = milliseconds(point.start_ns().max(earlier_ns));
        let zero_ms = start_ms.saturating_add(1);
        if start_ms > 0 && zero_ms < milliseconds(point.time_ns()) && self.to.takes_time(zero_ms) {
            let zero = point.zero_at(nanoseconds(zero_ms));
            put(self, &zero, labels.clone())?;
            // The zero is no sample of the sender.
            self.first = self.to.position();
        }
        Ok(true)
    }

    /// Returns what the store has of the series of the metric with a suffix.
    fn stored(
        &self,
        labels: &LabelMap,
        suffix: &str,
        timestamp_ms: i64,
    ) -> Result<StoredSeries, S::Error> {
        let mut labels = labels.clone();
        labels.set(METRIC_NAME, &format!("{}{suffix}", self.metric.name));
        self.to.stored(labels.iter(), timestamp_ms)
    }

    fn histogram(
        &mut self,
        histogram: Histogram,
        at: At,
        mut labels: LabelMap,
        exemplars: &[Exemplar],
    ) -> PointResult<S> {
        check_exemplars(exemplars)?;
        let is_empty = matches!(histogram.counts, HistogramCounts::Integer { count: 0, .. });
        if is_empty && histogram.sum != 0.0 {
            self.warnings.note_zero_count(histogram.sum);
        }
        labels.set(METRIC_NAME, &self.metric.name);
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
    fn parts(&mut self, labels: LabelMap, at: At, parts: &[Part<'_>]) -> PointResult<S> {
        for part in parts {
            check_exemplars(part.exemplars)?;
        }
        self.put_parts(labels, at, parts).map_err(Failure::Request)
    }

    fn put_parts(
        &mut self,
        mut labels: LabelMap,
        at: At,
        parts: &[Part<'_>],
    ) -> Result<(), S::Error> {
        // Parts without a label come first, since the others replace the data point's label of the
        // same name.
        for part in parts {
            labels.set(METRIC_NAME, &format!("{}{}", self.metric.name, part.suffix));
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
}

/// The suffix of the number of observations.
const COUNT: &str = "_count";

fn at(time_ns: u64, start_ns: u64) -> At {
    At {
        timestamp_ms: milliseconds(time_ns),
        start_ms: milliseconds(start_ns),
    }
}

/// Returns milliseconds.
pub(super) fn milliseconds(time_ns: u64) -> i64 {
    time_ns.cast_signed() / 1_000_000
}

/// Returns the nanoseconds of OTLP for milliseconds.
fn nanoseconds(timestamp_ms: i64) -> u64 {
    timestamp_ms.cast_unsigned().saturating_mul(1_000_000)
}

/// Prints a bound or a quantile like Go, without exponent.
fn bound_text(bound: f64) -> String {
    match bound {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => bound.to_string(),
    }
}
