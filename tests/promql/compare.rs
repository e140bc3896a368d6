//! Compares results with expectations.

use std::sync::Arc;

use varve_model::Labels;
use varve_model::histogram::{Histogram, HistogramCounts};
use varve_model::staleness::is_stale_nan;
use varve_query::histogram::FloatHistogram;
use varve_query::{Annotations, MatrixSeries, Point, Value, VectorSample};
use varve_regexp::Regexp;

use super::script::{Eval, Expected, Notes, Text};
use varve_rules::unit_test::sequence::{Item, Literal, Sequence};

/// Maximum difference between two numbers, relative to their sum.
const TOLERANCE: f64 = 0.000_001;

type Check = Result<(), String>;

/// Returns `true` if a text is as expected.
pub(super) fn text_matches(expected: &Text, text: &str) -> bool {
    match expected {
        Text::Any => true,
        Text::Equal(expected) => expected == text,
        Text::Matching(pattern) => Regexp::parse(&format!("(?s:.*)(?:{pattern})(?s:.*)"))
            .unwrap()
            .is_match(text),
    }
}

/// Checks warnings and infos.
pub(super) fn annotations(eval: &Eval, annotations: &Annotations) -> Check {
    let (infos, warnings): (Vec<_>, Vec<_>) = annotations
        .all()
        .partition(|text| text.starts_with("PromQL info"));
    notes("warning", &eval.warnings, &warnings)?;
    notes("info", &eval.infos, &infos)
}

fn notes(kind: &str, expected: &Notes, found: &[String]) -> Check {
    if expected.none && !found.is_empty() {
        return Err(format!("unexpected {kind}s {found:?}"));
    }
    let missing = expected
        .texts
        .iter()
        .find(|text| !found.iter().any(|found| text_matches(text, found)));
    let extra = found
        .iter()
        .find(|found| !expected.texts.iter().any(|text| text_matches(text, found)));
    if missing.is_some() || (!expected.texts.is_empty() && extra.is_some()) {
        return Err(format!(
            "expected {kind}s {:?}, found {found:?}",
            expected.texts
        ));
    }
    if expected.at_least_one && found.is_empty() {
        return Err(format!("expected a {kind}"));
    }
    Ok(())
}

/// Checks the value of an instant query.
pub(super) fn instant(eval: &Eval, value: &Value) -> Check {
    let (Expected::Series(expected), Value::Vector(vector), true) =
        (&eval.expected, value, eval.ordered)
    else {
        return unordered(eval, value);
    };
    let labels: Vec<_> = vector.iter().map(|sample| &sample.labels).collect();
    if !expected
        .iter()
        .map(|(labels, _)| labels)
        .eq(labels.iter().copied())
    {
        return Err(format!(
            "expected the order {:?}, found {labels:?}",
            expected.iter().map(|e| &e.0).collect::<Vec<_>>()
        ));
    }
    unordered(eval, value)
}

/// Checks the value of an instant query, in any order.
pub(super) fn unordered(eval: &Eval, value: &Value) -> Check {
    match (&eval.expected, value) {
        (Expected::Scalar(expected), Value::Scalar(point)) => number(*expected, point.value),
        (Expected::String(expected), Value::String { value, .. }) if **expected == **value => {
            Ok(())
        }
        (Expected::Series(expected), Value::Vector(vector)) => self::vector(expected, vector),
        (
            Expected::RangeVector {
                start_ms,
                step_ms,
                series,
            },
            Value::Matrix(found),
        ) => matrix(series, found, *start_ms, *step_ms),
        (expected, found) => Err(format!("expected {expected:?}, found {found:?}")),
    }
}

/// Checks that series ascend by labels.
pub(super) fn sorted(matrix: &[Arc<MatrixSeries>]) -> Check {
    let ascending = matrix.is_sorted_by(|a, b| a.labels < b.labels);
    if ascending {
        Ok(())
    } else {
        Err("series are not sorted by labels".into())
    }
}

/// Extracts the points of one time from a matrix, as a vector or scalar.
pub(super) fn slice(matrix: &[Arc<MatrixSeries>], time_ms: i64, expected: &Expected) -> Value {
    let samples = matrix.iter().filter_map(|series| {
        let labels = series.labels.clone();
        if let Some(found) = series
            .histograms
            .iter()
            .find(|point| point.timestamp_ms == time_ms)
        {
            let (point, histogram) = (
                Point {
                    timestamp_ms: time_ms,
                    value: 0.0,
                },
                Some(Arc::clone(&found.histogram)),
            );
            return Some(VectorSample {
                labels,
                point,
                histogram,
            });
        }
        let point = *series
            .points
            .iter()
            .find(|point| point.timestamp_ms == time_ms)?;
        Some(VectorSample {
            labels,
            point,
            histogram: None,
        })
    });
    let samples: Vec<_> = samples.collect();
    match (expected, &samples[..]) {
        (Expected::Scalar(_), [sample]) => Value::Scalar(sample.point),
        _ => Value::Vector(samples),
    }
}

/// Checks the series of a range; the first expected value is at `start_ms`.
pub(super) fn matrix(
    expected: &[(Labels, Sequence)],
    found: &[Arc<MatrixSeries>],
    start_ms: i64,
    step_ms: i64,
) -> Check {
    let points = |sequence: &Sequence| -> Vec<(i64, Item)> {
        let values = sequence.values.iter().enumerate();
        values
            .filter_map(|(i, value)| Some((start_ms + i as i64 * step_ms, value.clone()?)))
            .collect()
    };
    let expected: Vec<_> = expected
        .iter()
        .map(|(labels, sequence)| (labels, points(sequence)))
        .collect();
    let found: Vec<_> = found
        .iter()
        .map(|series| (&series.labels, points_of(series)))
        .collect();
    same(&expected, &found)
}

/// Returns floats and histograms in order of time.
fn points_of(series: &MatrixSeries) -> Vec<(i64, Item)> {
    let floats = series
        .points
        .iter()
        .map(|point| (point.timestamp_ms, Item::Float(point.value)));
    let histograms = series
        .histograms
        .iter()
        .map(|point| (point.timestamp_ms, item_of(&point.histogram)));
    let mut points: Vec<_> = floats.chain(histograms).collect();
    points.sort_by_key(|(time_ms, _)| *time_ms);
    points
}

fn item_of(histogram: &FloatHistogram) -> Item {
    Item::Histogram(Box::new(Literal {
        histogram: compacted(histogram),
        has_hint: false,
    }))
}

fn compacted(histogram: &FloatHistogram) -> Histogram {
    let mut histogram = histogram.clone();
    histogram.compact();
    histogram.to_stored()
}

fn vector(expected: &[(Labels, Sequence)], found: &[VectorSample]) -> Check {
    let expected = expected.iter().map(|(labels, sequence)| {
        let points = sequence
            .values
            .iter()
            .flatten()
            .map(|value| (0, value.clone()))
            .collect();
        (labels, points)
    });
    let found = found.iter().map(|sample| {
        let item = sample
            .histogram
            .as_deref()
            .map_or(Item::Float(sample.point.value), item_of);
        (&sample.labels, vec![(0, item)])
    });
    same(&expected.collect::<Vec<_>>(), &found.collect::<Vec<_>>())
}

type Points<'a> = (&'a Labels, Vec<(i64, Item)>);

fn same(expected: &[Points<'_>], found: &[Points<'_>]) -> Check {
    for (labels, points) in found {
        let Some((_, expected)) = expected.iter().find(|(known, _)| known == labels) else {
            return Err(format!("unexpected series {labels} {points:?}"));
        };
        if expected.len() != points.len() {
            return Err(format!(
                "{labels}: expected {} points {expected:?}, found {points:?}",
                expected.len()
            ));
        }
        for (expected, point) in expected.iter().zip(points) {
            if expected.0 != point.0 {
                return Err(format!("{labels}: expected {expected:?}, found {point:?}"));
            }
            item(&expected.1, &point.1).map_err(|why| format!("{labels} at {}: {why}", point.0))?;
        }
    }
    match expected
        .iter()
        .find(|(labels, _)| !found.iter().any(|(known, _)| known == labels))
    {
        Some((labels, _)) => Err(format!(
            "missing series {labels}, found {:?}",
            found.iter().map(|f| f.0).collect::<Vec<_>>()
        )),
        None if expected.len() == found.len() => Ok(()),
        None => Err("a series occurs twice".into()),
    }
}

fn item(expected: &Item, found: &Item) -> Check {
    match (expected, found) {
        (Item::Float(expected), Item::Float(found)) => number(*expected, *found),
        (Item::Histogram(expected), Item::Histogram(found)) => {
            histogram(expected, &found.histogram)
        }
        _ => Err(format!("expected {expected:?}, found {found:?}")),
    }
}

/// Compares histograms, ignoring empty buckets.
fn histogram(expected: &Literal, found: &Histogram) -> Check {
    let has_hint = expected.has_hint;
    let expected = compacted(&FloatHistogram::from(&expected.histogram));
    let text = |histogram: &Histogram| FloatHistogram::from(histogram).test_expression();
    let (numbers, found_numbers) = (numbers_of(&expected), numbers_of(found));
    let is_same = expected.schema == found.schema
        && expected.zero_threshold == found.zero_threshold
        && expected.positive_spans == found.positive_spans
        && expected.negative_spans == found.negative_spans
        && expected.custom_bounds == found.custom_bounds
        && numbers.len() == found_numbers.len()
        && numbers
            .iter()
            .zip(&found_numbers)
            .all(|(a, b)| equal(*a, *b))
        && (!has_hint || expected.reset_hint == found.reset_hint);
    if is_same {
        Ok(())
    } else {
        Err(format!(
            "expected {}, found {}",
            text(&expected),
            text(found)
        ))
    }
}

fn numbers_of(histogram: &Histogram) -> Vec<f64> {
    match &histogram.counts {
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => [
            &[histogram.sum, *count, *zero_count],
            &positive[..],
            &negative[..],
        ]
        .concat(),
        HistogramCounts::Integer { .. } => Vec::new(),
    }
}

fn number(expected: f64, found: f64) -> Check {
    if equal(expected, found) {
        Ok(())
    } else {
        Err(format!("expected {expected}, found {found}"))
    }
}

/// Returns `true` if two numbers are equal apart from rounding.
fn equal(a: f64, b: f64) -> bool {
    if is_stale_nan(a) || is_stale_nan(b) {
        return is_stale_nan(a) && is_stale_nan(b);
    }
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}
