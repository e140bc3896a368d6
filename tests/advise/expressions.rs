//! The expressions of ../shared/kube-prometheus/expressions.json, with variables that let through what is there.

use std::path::Path;

use serde_json::Value;

/// An expression that can be asked.
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) is_of_kube_prometheus: bool,
    /// Only a template variable asks for it.
    pub(super) is_of_variable: bool,
    /// The names under which rules record it.
    pub(super) records: Vec<String>,
}

pub(super) fn read(path: &Path) -> Vec<Expression> {
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    file["expressions"].as_array().unwrap().iter().map(expression).collect()
}

fn expression(json: &Value) -> Expression {
    let origins = json["origins"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |origin: &Value| text(if origin["file"].is_null() { &origin["dashboard"] } else { &origin["file"] });
    let filled = fill(&text(&json["raw"]));
    Expression {
        // What is left of variables stands where a value must be known.
        text: if filled.contains('$') { text(&json["expr"]) } else { filled },
        is_of_kube_prometheus: origins.iter().any(|origin| of(origin).starts_with("kube-prometheus/")),
        is_of_variable: origins.iter().all(|origin| origin["kind"] == "variable"),
        records: origins
            .iter()
            .filter(|origin| origin["kind"] == "record")
            .map(|origin| text(&origin["name"]))
            .collect(),
    }
}

/// Lets matchers on variables pass everything, and gives Grafana's own variables their values.
fn fill(raw: &str) -> String {
    let known = [
        ("$__rate_interval", "5m"),
        ("$__interval", "1m"),
        ("$__range", "1h"),
        ("${__rate_interval}", "5m"),
        ("[$interval]", "[5m]"),
        ("$k", "10"),
    ];
    let text = known.iter().fold(raw.to_owned(), |text, (name, value)| text.replace(name, value));
    let (mut filled, mut rest) = (String::new(), text.as_str());
    while let Some(at) = rest.find('"') {
        let (before, quoted) = rest.split_at(at);
        let end = 1 + quoted[1..].find('"').expect("quotes come in pairs");
        let value = &quoted[..=end];
        let operator = ["!=", "!~", "=~", "="].into_iter().find(|op| before.trim_end().ends_with(op));
        match operator.filter(|_| value.contains('$') || value.contains("[[")) {
            Some(operator) => {
                filled.push_str(before.trim_end().strip_suffix(operator).expect("it was just found there"));
                filled.push_str(if operator.starts_with('!') { "!=\"none\"" } else { "=~\".*\"" });
            }
            None => {
                filled.push_str(before);
                filled.push_str(value);
            }
        }
        rest = &quoted[end + 1..];
    }
    filled + rest
}

/// Tells whether answers agree but for the order of samples and the last digits of sums, both of which depend on the labels
/// that series have.
pub(super) fn agree(a: &Value, b: &Value) -> bool {
    let samples = |answer: &Value| match &answer["result"] {
        Value::Array(samples) if answer["resultType"] == "vector" => {
            let mut samples: Vec<_> =
                samples.iter().map(|s| (s["metric"].to_string(), s["value"][1].clone())).collect();
            samples.sort_by(|a, b| a.0.cmp(&b.0));
            samples
        }
        other => vec![(String::new(), other.clone())],
    };
    let (a, b) = (samples(a), samples(b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0 == b.0 && is_near(&a.1, &b.1))
}

fn is_near(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok());
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    a == b || number(a).zip(number(b)).is_some_and(|(a, b)| near(a, b))
}
