//! Prints results as promtool does, as text and as JSON.

use std::cmp::Ordering;
use std::fmt::Write as _;

use varve_model::labels::METRIC_NAME;
use varve_promql::decimal::{General, Plain};
use varve_promql::quote::quoted;

use super::response::{Histogram, HistogramPoint, Labels, Point, Sample, Stream, Text, Value};

/// Returns a result as text, without a final newline.
pub(super) fn promql(value: &Value) -> String {
    match value {
        Value::Vector(samples) => lines(samples.iter().map(sample)),
        Value::Matrix(streams) => {
            let mut streams: Vec<_> = streams.iter().collect();
            streams.sort_by(|a, b| compare(&a.metric, &b.metric));
            lines(streams.into_iter().map(stream))
        }
        Value::Scalar(Point(time_s, value)) => {
            format!("scalar: {} @[{}]", Plain(*value), seconds(*time_s))
        }
        Value::String(Text(_, text)) => text.clone(),
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn sample(sample: &Sample) -> String {
    let point = match (&sample.value, &sample.histogram) {
        (_, Some(point)) => histogram_point(point),
        (Some(value), None) => point(*value),
        (None, None) => String::new(),
    };
    format!("{} => {point}", metric(&sample.metric))
}

fn stream(stream: &Stream) -> String {
    let points = stream.values.iter().map(|value| point(*value));
    let points = points.chain(stream.histograms.iter().map(histogram_point));
    format!("{} =>\n{}", metric(&stream.metric), lines(points))
}

fn point(Point(time_s, value): Point) -> String {
    format!("{} @[{}]", Plain(value), seconds(time_s))
}

fn histogram_point(HistogramPoint(time_s, histogram): &HistogramPoint) -> String {
    let buckets =
        histogram
            .buckets
            .iter()
            .map(|super::response::Bucket(bounds, lower, upper, count)| {
                let open = if matches!(bounds, 1 | 3) { '[' } else { '(' };
                let close = if matches!(bounds, 0 | 3) { ']' } else { ')' };
                format!(
                    "{open}{},{}{close}:{}",
                    General(*lower),
                    General(*upper),
                    Plain(*count)
                )
            });
    let buckets = buckets.collect::<Vec<_>>().join(" ");
    let Histogram { count, sum, .. } = histogram;
    format!(
        "Count: {}, Sum: {}, Buckets: [{buckets}] @[{}]",
        six_decimals(*count),
        six_decimals(*sum),
        seconds(*time_s)
    )
}

fn six_decimals(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.6}")
    } else {
        Plain(value).to_string()
    }
}

/// Returns a time rounded to milliseconds.
fn seconds(time_s: f64) -> Plain {
    Plain((time_s * 1000.0).round() / 1000.0)
}

/// Returns a metric: its name and the other labels in braces.
pub(super) fn metric(labels: &Labels) -> String {
    let name = labels.get(METRIC_NAME);
    let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
    let mut others: Vec<_> = others
        .map(|(name, value)| format!("{name}={}", quoted(value)))
        .collect();
    others.sort();
    match (name, others.is_empty()) {
        (Some(name), true) => name.clone(),
        (name, _) => format!(
            "{}{{{}}}",
            name.map_or("", String::as_str),
            others.join(", ")
        ),
    }
}

/// Returns a label set, including the name.
pub(super) fn label_set(labels: &Labels) -> String {
    let labels = labels
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(value)));
    format!("{{{}}}", labels.collect::<Vec<_>>().join(", "))
}

/// Compares label sets as promtool does: fewer labels first, then label by label.
fn compare(a: &Labels, b: &Labels) -> Ordering {
    if a.len() != b.len() {
        return a.len().cmp(&b.len());
    }
    let mut names: Vec<_> = a.keys().chain(b.keys()).collect();
    names.sort();
    for name in names {
        let order = match (a.get(name), b.get(name)) {
            (None, _) => Ordering::Less,
            (_, None) => Ordering::Greater,
            (Some(a), Some(b)) => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Returns a result as JSON, in the order of the response.
pub(super) fn json(value: &Value) -> String {
    let json = match value {
        Value::Vector(samples) => serde_json::to_string(samples),
        Value::Matrix(streams) => serde_json::to_string(streams),
        Value::Scalar(point) => serde_json::to_string(point),
        Value::String(text) => serde_json::to_string(text),
    };
    html_escaped(&json.expect("strings, numbers, lists and maps of them are JSON"))
}

/// Escapes the characters that only Go escapes in JSON. They occur only in strings.
pub(super) fn html_escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, as_promql: &str, as_json: &str) {
        let value: Value = serde_json::from_str(value).unwrap();
        assert_eq!(
            (promql(&value).as_str(), json(&value).as_str()),
            (as_promql, as_json)
        );
    }

    #[test]
    fn results_are_printed_as_promtool_prints_them() {
        check(
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"up","job":"<a>"},"value":[1.5,"1e3"]}]}"#,
            "up{job=\"<a>\"} => 1000 @[1.5]",
            "[{\"metric\":{\"__name__\":\"up\",\"job\":\"\\u003ca\\u003e\"},\"value\":[1.5,\"1000\"]}]",
        );
        check(r#"{"resultType":"vector","result":[]}"#, "", "[]");
        check(
            r#"{"resultType":"scalar","result":[2,"NaN"]}"#,
            "scalar: NaN @[2]",
            "[2,\"NaN\"]",
        );
        check(
            r#"{"resultType":"string","result":[2,"a\"b"]}"#,
            "a\"b",
            "[2,\"a\\\"b\"]",
        );
        check(
            r#"{"resultType":"matrix","result":[{"metric":{"b":"1","c":"1"},"values":[[1,"2"],[2,"3"]]},{"metric":{"a":"1"},"values":[[1,"4"]]}]}"#,
            "{a=\"1\"} =>\n4 @[1]\n{b=\"1\", c=\"1\"} =>\n2 @[1]\n3 @[2]",
            r#"[{"metric":{"b":"1","c":"1"},"values":[[1,"2"],[2,"3"]]},{"metric":{"a":"1"},"values":[[1,"4"]]}]"#,
        );
        check(
            r#"{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"3","sum":"2.5","buckets":[[3,"-0.001","0.001","1"],[0,"1","2","2"]]}]}]}"#,
            "{} => Count: 3.000000, Sum: 2.500000, Buckets: [[-0.001,0.001]:1 (1,2]:2] @[1]",
            r#"[{"metric":{},"histogram":[1,{"count":"3","sum":"2.5","buckets":[[3,"-0.001","0.001","1"],[0,"1","2","2"]]}]}]"#,
        );
    }

    #[test]
    fn label_sets_include_the_name() {
        let labels = Labels::from([
            ("__name__".to_owned(), "up".to_owned()),
            ("a".to_owned(), "b\n".to_owned()),
        ]);
        assert_eq!(label_set(&labels), "{__name__=\"up\", a=\"b\\n\"}");
        assert_eq!(metric(&Labels::new()), "{}");
    }
}
