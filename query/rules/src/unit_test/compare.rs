//! Expected and found alerts and samples, and how promtool prints them.

use varve_model::Labels;
use varve_model::labels::is_legacy_name;
use varve_promql::quote::quoted;
use varve_promql::{Features, parse_metric};
use varve_query::VectorSample;

use super::ExpectedSample;
use super::sequence::{Item, parse};
use crate::file::Texts;
use varve_template::scientific;

/// Labels and annotations of an alert.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AlertTexts {
    pub(super) labels: Texts,
    pub(super) annotations: Texts,
}

/// A sample of a result.
#[derive(Debug, Clone)]
pub(super) struct ParsedSample {
    labels: Labels,
    value: f64,
    /// Empty for a float.
    histogram: String,
}

/// Returns the alerts as promtool prints them.
pub(super) fn print_alerts(alerts: &[AlertTexts]) -> String {
    if alerts.is_empty() {
        return "[]".to_owned();
    }
    let alerts: Vec<_> = alerts
        .iter()
        .enumerate()
        .map(|(i, alert)| {
            let texts = format!(
                "\nLabels:{}\nAnnotations:{}",
                print_texts(&alert.labels),
                print_texts(&alert.annotations)
            );
            format!("{i}:{}", indented(&texts, "  "))
        })
        .collect();
    format!("[\n{}\n]", alerts.join(",\n"))
}

fn print_texts(texts: &Texts) -> String {
    format!(
        "{{{}}}",
        texts
            .iter()
            .map(|(name, text)| {
                if is_legacy_name(name) {
                    format!("{name}={}", quoted(text))
                } else {
                    format!("{}={}", quoted(name), quoted(text))
                }
            })
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// Indents all lines except the first.
pub(super) fn indented(text: &str, indent: &str) -> String {
    text.replace('\n', &format!("\n{indent}"))
}

/// Returns the lines that only one of two texts has, with `-` and `+`.
pub(super) fn print_difference(expected: &str, found: &str) -> String {
    let expected: Vec<_> = expected.lines().collect();
    let found: Vec<_> = found.lines().collect();
    let missing = expected
        .iter()
        .filter(|line| !found.contains(line))
        .map(|line| format!("- {}", line.trim()));
    let added = found
        .iter()
        .filter(|line| !expected.contains(line))
        .map(|line| format!("+ {}", line.trim()));
    missing.chain(added).collect::<Vec<_>>().join("\n")
}

impl ParsedSample {
    pub(super) fn of(sample: VectorSample) -> Self {
        let histogram = sample
            .histogram
            .map(|histogram| histogram.test_expression())
            .unwrap_or_default();
        let value = if histogram.is_empty() {
            sample.point.value
        } else {
            0.0
        };
        Self {
            labels: sample.labels,
            value,
            histogram,
        }
    }

    /// Parses an expected sample.
    ///
    /// # Errors
    /// The labels or the histogram are malformed.
    pub(super) fn parse(expected: &ExpectedSample, features: &Features) -> Result<Self, String> {
        let failed = |error| format!("labels {}: {error}", quoted(&expected.labels));
        let labels =
            parse_metric(&expected.labels, features).map_err(|error| failed(error.to_string()))?;
        let mut histogram = String::new();
        if !expected.histogram.is_empty() {
            let sequence = parse(&format!(" {}", expected.histogram)).map_err(failed)?;
            match &sequence.values[..] {
                [Some(Item::Histogram(literal))] => {
                    histogram = varve_query::histogram::FloatHistogram::from(&literal.histogram)
                        .test_expression();
                }
                [_] => {
                    return Err(failed(format!(
                        "expected histogram, got {}",
                        expected.histogram
                    )));
                }
                values => return Err(failed(format!("expected 1 value, got {}", values.len()))),
            }
        }
        let value = if histogram.is_empty() {
            expected.value
        } else {
            0.0
        };
        Ok(Self {
            labels,
            value,
            histogram,
        })
    }
}

/// Sorts samples by labels.
pub(super) fn sort(samples: &mut [ParsedSample]) {
    samples.sort_by(|a, b| a.labels.cmp(&b.labels));
}

/// Returns `true` if the samples are the same. With `is_fuzzy`, values may be neighboring floats.
pub(super) fn are_equal(expected: &[ParsedSample], found: &[ParsedSample], is_fuzzy: bool) -> bool {
    expected.len() == found.len()
        && expected.iter().zip(found).all(|(a, b)| {
            let neighbors =
                is_fuzzy && (a.value.next_up() == b.value || a.value.next_down() == b.value);
            a.labels == b.labels && a.histogram == b.histogram && (a.value == b.value || neighbors)
        })
}

/// Returns the samples as promtool prints them.
pub(super) fn print_samples(samples: &[ParsedSample]) -> String {
    if samples.is_empty() {
        return "nil".to_owned();
    }
    samples
        .iter()
        .map(|sample| match sample.histogram.as_str() {
            "" => format!(
                "{} {}",
                sample.labels,
                scientific(sample.value).replace('e', "E")
            ),
            histogram => format!("{} {histogram}", sample.labels),
        })
        .collect::<Vec<_>>()
        .join(", ")
}
