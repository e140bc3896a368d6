//! Comparison of two responses.
//!
//! Values are equal if their texts are, or if they differ by at most [`TOLERANCE`], relative to the
//! larger one. Series are compared as a set, as Prometheus mostly returns them in the order of a
//! hash map, unless the query sorts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use varve_promql::ast::ExprKind;
use varve_promql::{Features, parse};

use crate::harness::Answer;

/// Maximum difference between two values, relative to the larger one.
const TOLERANCE: f64 = 1e-12;

/// Maximum number of annotations of a kind in Prometheus; the order of a hash map decides which.
const ANNOTATIONS_MAX: usize = 10;

/// The compared part of a response.
#[derive(Debug)]
pub(crate) struct Outcome {
    status: u16,
    json: Value,
}

/// How equal two responses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sameness {
    Exact,
    /// Apart from rounding.
    Close,
}

impl Outcome {
    pub(crate) fn of(answer: &Answer) -> Self {
        Self {
            status: answer.status,
            json: answer.json(),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.status != 200
    }

    /// Returns the message of an error; empty if there is none.
    pub(crate) fn error(&self) -> &str {
        self.json["error"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.json["data"]["result"]
            .as_array()
            .is_some_and(Vec::is_empty)
    }

    /// Returns the series of a vector or a matrix.
    pub(crate) fn series(&self) -> &[Value] {
        self.json["data"]["result"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    /// Returns `true` if a value is a native histogram.
    pub(crate) fn has_histograms(&self) -> bool {
        self.series()
            .iter()
            .any(|series| !(series["histogram"].is_null() && series["histograms"].is_null()))
    }

    /// Returns the response without the warnings that contain `text`.
    pub(crate) fn without_warnings(&self, text: &str) -> Self {
        let mut json = self.json.clone();
        if let Some(warnings) = json["warnings"].as_array_mut() {
            warnings.retain(|warning| {
                warning
                    .as_str()
                    .is_none_or(|warning| !warning.contains(text))
            });
        }
        Self {
            status: self.status,
            json,
        }
    }

    /// Returns a short form of the response to print.
    pub(crate) fn print(&self) -> String {
        const SHOWN: usize = 500;
        let mut text = self.json.to_string();
        if let Some((cut, _)) = text.char_indices().nth(SHOWN) {
            text.truncate(cut);
            text.push('…');
        }
        format!("{} {text}", self.status)
    }
}

/// Compares two responses and their sample statistics; `same` returns how equal two values are.
///
/// # Errors
/// The first difference.
pub(crate) fn compare(
    query: &str,
    ours: &Outcome,
    theirs: &Outcome,
    same: &dyn Fn(&str, &str) -> Option<Sameness>,
) -> Result<Sameness, String> {
    let sameness = compare_responses(query, ours, theirs, same)?;
    for count in ["totalQueryableSamples", "totalQueryableSamplesPerStep"] {
        let [ours, theirs] =
            [ours, theirs].map(|outcome| &outcome.json["data"]["stats"]["samples"][count]);
        equal(count, ours, theirs)?;
    }
    Ok(sameness)
}

/// Compares two responses.
///
/// # Errors
/// The first difference.
pub(crate) fn compare_responses(
    query: &str,
    ours: &Outcome,
    theirs: &Outcome,
    same: &dyn Fn(&str, &str) -> Option<Sameness>,
) -> Result<Sameness, String> {
    equal("status", &ours.status, &theirs.status)?;
    for key in ["status", "errorType"] {
        equal(key, &ours.json[key], &theirs.json[key])?;
    }
    if theirs.is_error() {
        let [ours, theirs] = [ours, theirs].map(|outcome| without_labels(outcome.error()));
        return equal("error", &ours, &theirs).map(|()| Sameness::Exact);
    }
    for kind in ["warnings", "infos"] {
        compare_annotations(kind, query, &ours.json[kind], &theirs.json[kind])?;
    }
    let (ours, theirs) = (&ours.json["data"], &theirs.json["data"]);
    equal("resultType", &ours["resultType"], &theirs["resultType"])?;
    if !matches!(theirs["resultType"].as_str(), Some("vector" | "matrix")) {
        return compare_point("the result", &ours["result"], &theirs["result"], same);
    }
    compare_order(query, &ours["result"], &theirs["result"], same)?;
    let (ours, theirs) = (by_series(ours), by_series(theirs));
    equal(
        "series",
        &ours.keys().collect::<Vec<_>>(),
        &theirs.keys().collect::<Vec<_>>(),
    )?;
    let mut sameness = Sameness::Exact;
    for (series, theirs) in theirs {
        let ours = &ours[&series];
        equal(&format!("times of {series}"), &times(ours), &times(&theirs))?;
        for (ours, theirs) in ours.iter().zip(&theirs) {
            sameness = sameness.max(compare_point(&series, ours, theirs, same)?);
        }
    }
    Ok(sameness)
}

/// Returns an error message without the part that depends on the order of series.
fn without_labels(text: &str) -> String {
    match text.split_once("found duplicate series for the match group") {
        Some((before, _)) => format!("{before}found duplicate series for the match group"),
        None => text.to_owned(),
    }
}

fn compare_annotations(
    kind: &str,
    query: &str,
    ours: &Value,
    theirs: &Value,
) -> Result<(), String> {
    let texts = |list: &Value| -> BTreeSet<String> {
        let texts = list
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        texts.filter_map(|text| annotation(query, text)).collect()
    };
    let n_listed = |list: &Value| list.as_array().map_or(0, Vec::len);
    if n_listed(ours).max(n_listed(theirs)) > ANNOTATIONS_MAX {
        return equal(
            &format!("presence of {kind}"),
            &(n_listed(ours) > 0),
            &(n_listed(theirs) > 0),
        );
    }
    equal(kind, &texts(ours), &texts(theirs))
}

/// Returns an annotation without the parts that differ between Prometheus 3.5 and 3.16
/// (docs/promql.md).
fn annotation(query: &str, text: &str) -> Option<String> {
    const DETAILED: [&str; 2] = [
        "bucket label \"le\" is missing",
        "needed to be fixed for monotonicity",
    ];
    if text.contains("sort is ineffective for range queries") {
        return None;
    }
    if DETAILED.iter().any(|detailed| text.contains(detailed)) {
        // Texts that differ by metric name have different positions.
        let end = [" for metric name ", ", from buckets ", " ("]
            .iter()
            .filter_map(|part| text.rfind(part))
            .min();
        return Some(text[..end.unwrap_or(text.len())].to_owned());
    }
    let Some((before, place)) = text.rsplit_once(" (1:") else {
        return Some(text.to_owned());
    };
    let column: usize = place
        .trim_end_matches(')')
        .parse()
        .expect("a position is a number");
    let parentheses = query.as_bytes()[column - 1..]
        .iter()
        .take_while(|&&byte| byte == b'(')
        .count();
    Some(format!("{before} (1:{})", column + parentheses))
}

/// Compares the order of values, or of labels, if the query sorts.
fn compare_order(
    query: &str,
    ours: &Value,
    theirs: &Value,
    same: &dyn Fn(&str, &str) -> Option<Sameness>,
) -> Result<(), String> {
    let features = Features {
        experimental_functions: true,
        ..Features::default()
    };
    let mut names = Vec::new();
    let sorts = match parse(query, &features).map(|expr| expr.kind) {
        Ok(ExprKind::Call(call)) => {
            let strings = call.args.iter().filter_map(|arg| match &arg.kind {
                ExprKind::String(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            });
            names.extend(strings);
            call.function.name
        }
        Ok(ExprKind::Aggregate(aggregate)) if aggregate.grouping.is_empty() => {
            aggregate.op.as_str()
        }
        _ => return Ok(()),
    };
    let list = |result: &Value| result.as_array().cloned().unwrap_or_default();
    let complete = list(theirs)
        .iter()
        .all(|series| names.iter().all(|name| !series["metric"][name].is_null()));
    for (a, b) in list(ours).iter().zip(&list(theirs)) {
        match sorts {
            // Prometheus' order of series without one of the labels is inconsistent.
            "sort_by_label" | "sort_by_label_desc" if !complete => {}
            "sort_by_label" | "sort_by_label_desc" => equal("order", &a["metric"], &b["metric"])?,
            "sort" | "sort_desc" | "topk" | "bottomk" if a["value"].is_array() => {
                compare_point("order", &a["value"], &b["value"], same)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the points of each series.
fn by_series(data: &Value) -> BTreeMap<String, Vec<Value>> {
    let result = data["result"]
        .as_array()
        .expect("a vector or matrix is an array");
    let points = |series: &Value| -> Vec<Value> {
        let single = ["value", "histogram"]
            .into_iter()
            .map(|kind| &series[kind])
            .filter(|point| point.is_array());
        let many = ["values", "histograms"]
            .into_iter()
            .filter_map(|kind| series[kind].as_array())
            .flatten();
        single.chain(many).cloned().collect()
    };
    let mut by_series: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for series in result {
        by_series
            .entry(rounded(&series["metric"]))
            .or_default()
            .extend(points(series));
    }
    by_series
}

/// Formats labels; numbers, which are results of `count_values`, are rounded.
fn rounded(metric: &Value) -> String {
    let mut metric = metric.clone();
    for (_, value) in metric.as_object_mut().expect("a metric is an object") {
        let text = value.as_str().unwrap_or_default();
        // These separate the numbers of a histogram.
        let pieces: Vec<_> = text
            .split_inclusive([':', ',', '[', '(', ']', ')', '}'])
            .map(rounded_number)
            .collect();
        *value = Value::from(pieces.concat());
    }
    metric.to_string()
}

/// Rounds a number, which may have a separator at its end.
fn rounded_number(text: &str) -> String {
    let number = text.trim_end_matches([':', ',', '[', '(', ']', ')', '}']);
    match number.parse::<f64>() {
        Ok(float) => format!("{float:.11e}{}", &text[number.len()..]),
        Err(_) => text.to_owned(),
    }
}

fn times(points: &[Value]) -> Vec<&Value> {
    points.iter().map(|point| &point[0]).collect()
}

fn compare_point(
    series: &str,
    ours: &Value,
    theirs: &Value,
    same: &dyn Fn(&str, &str) -> Option<Sameness>,
) -> Result<Sameness, String> {
    if ours[1].is_object() || theirs[1].is_object() {
        return compare_histograms(series, &ours[1], &theirs[1], same);
    }
    let [a, b] = [ours, theirs].map(|point| point[1].as_str().unwrap_or_default());
    same(a, b).ok_or_else(|| format!("{series}: varve has {ours}, prometheus {theirs}"))
}

/// Compares histograms without empty buckets, which depend on chunks.
fn compare_histograms(
    series: &str,
    ours: &Value,
    theirs: &Value,
    same: &dyn Fn(&str, &str) -> Option<Sameness>,
) -> Result<Sameness, String> {
    let numbers = |histogram: &Value| -> Vec<String> {
        let buckets = histogram["buckets"].as_array().cloned().unwrap_or_default();
        let full = buckets
            .iter()
            .filter(|bucket| bucket[3].as_str().is_none_or(|count| count != "0"));
        let of_buckets = full.flat_map(|bucket| bucket.as_array().cloned().unwrap_or_default());
        let all = [histogram["count"].clone(), histogram["sum"].clone()]
            .into_iter()
            .chain(of_buckets);
        all.map(|number| {
            number
                .as_str()
                .map_or_else(|| number.to_string(), str::to_owned)
        })
        .collect()
    };
    let different = || format!("{series}: varve has {ours}, prometheus {theirs}");
    let (a, b) = (numbers(ours), numbers(theirs));
    if a.len() != b.len() {
        return Err(different());
    }
    let pairs = a
        .iter()
        .zip(&b)
        .map(|(a, b)| same(a, b).ok_or_else(different));
    pairs
        .into_iter()
        .try_fold(Sameness::Exact, |all, pair| Ok(all.max(pair?)))
}

/// Returns how equal two printed values are.
pub(crate) fn compare_values(ours: &str, theirs: &str) -> Option<Sameness> {
    compare_within(TOLERANCE, ours, theirs)
}

/// As [`compare_values`], with another tolerance.
pub(crate) fn compare_within(tolerance: f64, ours: &str, theirs: &str) -> Option<Sameness> {
    if ours == theirs {
        return Some(Sameness::Exact);
    }
    let (Ok(ours), Ok(theirs)) = (ours.parse::<f64>(), theirs.parse::<f64>()) else {
        return None;
    };
    let close = (ours - theirs).abs() <= tolerance * ours.abs().max(theirs.abs());
    (ours.is_finite() && theirs.is_finite() && close).then_some(Sameness::Close)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("{what}: varve has {ours:?}, prometheus {theirs:?}"))
    }
}
