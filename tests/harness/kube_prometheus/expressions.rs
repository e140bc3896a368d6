//! The expressions of ../shared/kube-prometheus/expressions.json, with variables that match
//! everything.

use serde_json::Value;

use super::shared;

/// An expression without variables.
pub(crate) struct Expression {
    pub(crate) text: String,
    /// It is from a rule or dashboard of kube-prometheus itself.
    pub(crate) is_of_kube_prometheus: bool,
    /// It is only used by template variables.
    pub(crate) is_of_variable: bool,
}

/// Returns all expressions.
pub(crate) fn expressions() -> Vec<Expression> {
    let path = shared("kube-prometheus/expressions.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    file["expressions"]
        .as_array()
        .unwrap()
        .iter()
        .map(expression)
        .collect()
}

fn expression(json: &Value) -> Expression {
    let origins = json["origins"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |origin: &Value| {
        text(if origin["file"].is_null() {
            &origin["dashboard"]
        } else {
            &origin["file"]
        })
    };
    let filled = fill(&text(&json["raw"]));
    Expression {
        // The remaining variables are in places that need a value.
        text: if filled.contains('$') {
            text(&json["expr"])
        } else {
            filled
        },
        is_of_kube_prometheus: origins
            .iter()
            .any(|origin| of(origin).starts_with("kube-prometheus/")),
        is_of_variable: origins.iter().all(|origin| origin["kind"] == "variable"),
    }
}

/// Makes matchers on variables match everything, and replaces Grafana's built-in variables.
fn fill(raw: &str) -> String {
    let known = [
        ("$__rate_interval", "5m"),
        ("$__interval", "1m"),
        ("$__range", "1h"),
        ("${__rate_interval}", "5m"),
        ("[$interval]", "[5m]"),
        ("$k", "10"),
    ];
    let text = known.iter().fold(raw.to_owned(), |text, (name, value)| {
        text.replace(name, value)
    });
    let (mut filled, mut rest) = (String::new(), text.as_str());
    while let Some(at) = rest.find('"') {
        let (before, quoted) = rest.split_at(at);
        let end = 1 + quoted[1..].find('"').expect("quotes come in pairs");
        let value = &quoted[..=end];
        let operator = ["!=", "!~", "=~", "="]
            .into_iter()
            .find(|op| before.trim_end().ends_with(op));
        match operator.filter(|_| value.contains('$') || value.contains("[[")) {
            Some(operator) => {
                filled.push_str(
                    before
                        .trim_end()
                        .strip_suffix(operator)
                        .expect("it was just found there"),
                );
                filled.push_str(if operator.starts_with('!') {
                    "!=\"none\""
                } else {
                    "=~\".*\""
                });
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
