//! What a line of a scrape body says.

use std::borrow::Cow;

use varve_model::metadata::MetricType;

use super::nan::NanMeaning;
use super::number::{float, openmetrics_float};

/// A parsed line.
#[derive(Debug, PartialEq)]
pub enum Line<'a> {
    /// A sample of a series.
    Sample(SampleLine<'a>),
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
    /// The exemplar, only in OpenMetrics.
    pub exemplar: Option<ExemplarPart<'a>>,
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
    /// Gives each NaN a meaning, instead of what its format says.
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
