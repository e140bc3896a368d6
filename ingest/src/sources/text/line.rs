//! What a line of a scrape body says.

use std::borrow::Cow;

use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;

use super::nan::NanMeaning;
use super::number::{float, openmetrics_float};

/// A parsed line.
#[derive(Debug, PartialEq)]
pub enum Line<'a> {
    /// A sample of a series.
    Sample(SampleLine<'a>),
    /// A histogram or a summary, only in OpenMetrics 2.0.
    Composite(CompositeLine<'a>),
    /// Metadata of a family.
    Metadata(MetadataLine<'a>),
    /// Samples of a series, only in JSON lines.
    Series(SeriesLine<'a>),
    /// An empty line or a comment.
    Nothing,
}

/// Label names and values.
pub type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// A line with a sample.
#[derive(Debug, PartialEq)]
pub struct SampleLine<'a> {
    /// The labels, including the metric name, in the order of the line.
    pub labels: Pairs<'a>,
    /// The value.
    pub value: f64,
    /// The timestamp in milliseconds, if the line has one.
    pub timestamp_ms: Option<i64>,
    /// The start timestamp in milliseconds, only in OpenMetrics 2.0. 0 if unknown.
    pub start_ms: i64,
    /// The exemplars, only in OpenMetrics. Version 1.0 has at most one.
    pub exemplars: Vec<ExemplarPart<'a>>,
}

/// A line with a histogram or a summary.
#[derive(Debug, PartialEq)]
pub struct CompositeLine<'a> {
    /// The labels, including the name of the family, in the order of the line.
    pub labels: Pairs<'a>,
    /// The value.
    pub value: CompositeValue,
    /// The timestamp in milliseconds, if the line has one.
    pub timestamp_ms: Option<i64>,
    /// The start timestamp in milliseconds. 0 if unknown.
    pub start_ms: i64,
    /// The exemplars, ascending by value, NaN last.
    pub exemplars: Vec<ExemplarPart<'a>>,
}

/// A histogram or a summary.
#[derive(Debug, Default)]
pub struct CompositeValue {
    /// The native histogram, if the line has native buckets.
    pub histogram: Option<Histogram>,
    /// The samples of a classic histogram or a summary, buckets ascending. Empty if the line has
    /// native buckets only.
    pub samples: Vec<CompositeSample>,
}

/// A sample of a classic histogram or a summary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompositeSample {
    /// The series.
    pub series: CompositeSeries,
    /// The value.
    pub value: f64,
}

/// A series of a classic histogram or a summary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CompositeSeries {
    /// `_count`.
    Count,
    /// `_sum`.
    Sum,
    /// `_gcount`.
    GaugeCount,
    /// `_gsum`.
    GaugeSum,
    /// `_bucket` with a label `le`.
    Bucket(f64),
    /// The label `quantile`.
    Quantile(f64),
}

/// A line with the samples of a series.
#[derive(Debug, PartialEq)]
pub struct SeriesLine<'a> {
    /// The labels, including the metric name, ascending.
    pub labels: Pairs<'a>,
    /// Timestamps in milliseconds, and values.
    pub samples: Vec<(i64, f64)>,
}

/// The exemplar of a line.
#[derive(Debug, PartialEq)]
pub struct ExemplarPart<'a> {
    /// The labels, ascending.
    pub labels: Pairs<'a>,
    /// The observed value.
    pub value: f64,
    /// The timestamp in milliseconds, if the line has one.
    pub timestamp_ms: Option<i64>,
}

/// Metadata of a family: its name and one property.
#[derive(Debug, PartialEq)]
pub enum MetadataLine<'a> {
    /// Name and help text.
    Help(Cow<'a, str>, Cow<'a, str>),
    /// Name and type.
    Type(Cow<'a, str>, MetricType),
    /// Name and unit.
    Unit(Cow<'a, str>, &'a str),
}

impl MetadataLine<'_> {
    /// Returns the family's name.
    #[must_use]
    pub fn name(&self) -> &str {
        let (Self::Help(name, _) | Self::Type(name, _) | Self::Unit(name, _)) = self;
        name
    }
}

impl Line<'_> {
    /// Gives each NaN a meaning, instead of what its format says. The sum of a native histogram
    /// stays: it is NaN if an observation was.
    #[must_use]
    pub fn with_nan(mut self, nan: NanMeaning) -> Self {
        match &mut self {
            Self::Sample(sample) => match nan.apply(sample.value) {
                Some(value) => sample.value = value,
                None => return Self::Nothing,
            },
            Self::Series(series) => series.samples.retain_mut(|(_, value)| {
                let applied = nan.apply(*value);
                *value = applied.unwrap_or_default();
                applied.is_some()
            }),
            Self::Composite(line) => line.value.samples.retain_mut(|sample| {
                let applied = nan.apply(sample.value);
                sample.value = applied.unwrap_or_default();
                applied.is_some()
            }),
            Self::Metadata(_) | Self::Nothing => {}
        }
        self
    }
}

impl SampleLine<'_> {
    /// Writes the bound of a bucket, or the quantile of a summary, with a fraction or an exponent,
    /// as in OpenMetrics: `1` becomes `1.0`. Prometheus does the same since version 3.0
    /// (`model/textparse`). `kind` is the type of the family.
    pub(super) fn normalize(&mut self, kind: MetricType) {
        let name = match kind {
            MetricType::Histogram => "le",
            MetricType::Summary => "quantile",
            _ => return,
        };
        for (_, value) in self.labels.iter_mut().filter(|(label, _)| label == name) {
            if let Some(number) = float(value) {
                *value = Cow::Owned(openmetrics_float(number));
            }
        }
    }
}

impl CompositeLine<'_> {
    /// Returns the samples of the series of a classic histogram or a summary. As in Prometheus, a
    /// bucket has the exemplars within it, and other series have none.
    pub fn samples(&self) -> impl Iterator<Item = SampleLine<'_>> {
        let mut next_exemplar = 0;
        self.value.samples.iter().map(move |sample| {
            let mut exemplars = Vec::new();
            if let CompositeSeries::Bucket(bound) = sample.series {
                let first = next_exemplar;
                next_exemplar = self.n_exemplars_up_to(bound);
                exemplars.extend(self.exemplars[first..next_exemplar].iter().map(borrowed));
            }
            SampleLine {
                labels: self.labels_of(sample.series),
                value: sample.value,
                timestamp_ms: self.timestamp_ms,
                start_ms: self.start_ms,
                exemplars,
            }
        })
    }

    fn n_exemplars_up_to(&self, bound: f64) -> usize {
        if bound == f64::INFINITY {
            return self.exemplars.len();
        }
        self.exemplars
            .partition_point(|exemplar| exemplar.value <= bound)
    }

    fn labels_of(&self, series: CompositeSeries) -> Pairs<'_> {
        let mut labels = Vec::with_capacity(self.labels.len() + 1);
        for (name, value) in &self.labels {
            let value = if name == "__name__" {
                Cow::Owned(format!("{value}{}", series.suffix()))
            } else {
                Cow::Borrowed(&**value)
            };
            labels.push((Cow::Borrowed(&**name), value));
        }
        if let Some((name, bound)) = series.label() {
            labels.push((Cow::Borrowed(name), Cow::Owned(openmetrics_float(bound))));
        }
        labels
    }
}

fn borrowed<'a>(exemplar: &'a ExemplarPart<'_>) -> ExemplarPart<'a> {
    let labels = exemplar.labels.iter();
    ExemplarPart {
        labels: labels
            .map(|(name, value)| (Cow::Borrowed(&**name), Cow::Borrowed(&**value)))
            .collect(),
        value: exemplar.value,
        timestamp_ms: exemplar.timestamp_ms,
    }
}

impl CompositeValue {
    /// Returns the number of samples, where each number of a native histogram counts as one.
    #[must_use]
    pub fn n_samples(&self) -> usize {
        let n_cells = self.histogram.as_ref().map_or(0, Histogram::n_cells);
        self.samples.len() + n_cells
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let histogram_size = self.histogram.as_ref().map_or(0, Histogram::size);
        size_of_val(&self.samples[..]) + histogram_size
    }
}

impl PartialEq for CompositeValue {
    fn eq(&self, other: &Self) -> bool {
        let is_same_histogram = match (&self.histogram, &other.histogram) {
            (Some(one), Some(two)) => one.is_same(two) && one.reset_hint == two.reset_hint,
            (None, None) => true,
            _ => false,
        };
        is_same_histogram && self.samples == other.samples
    }
}

impl CompositeSeries {
    /// Returns what is added to the name of the family.
    fn suffix(self) -> &'static str {
        match self {
            Self::Count => "_count",
            Self::Sum => "_sum",
            Self::GaugeCount => "_gcount",
            Self::GaugeSum => "_gsum",
            Self::Bucket(_) => "_bucket",
            Self::Quantile(_) => "",
        }
    }

    /// Returns the label that the series has besides those of the line.
    fn label(self) -> Option<(&'static str, f64)> {
        match self {
            Self::Bucket(bound) => Some(("le", bound)),
            Self::Quantile(quantile) => Some(("quantile", quantile)),
            Self::Count | Self::Sum | Self::GaugeCount | Self::GaugeSum => None,
        }
    }
}
