//! Template variables of a dashboard: their values, and the queries for them.

use serde_json::Value;
use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher};
use varve_query::usage::LabelSet;
use varve_regexp::Regexp;

use super::super::need::Selector;
use super::super::template::{self, Extracted};
use super::super::variables::{Values, Variables};
use super::sources::Sources;

/// A variable.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) values: Values,
    /// The Prometheus query for its values, if any.
    pub(super) query: Option<String>,
    /// Whether viewers can add matchers or groupings to all queries through this variable.
    pub(super) is_filter: bool,
}

/// Returns the variables of a dashboard of Grafana, of version 1 or 2, or of Perses.
pub(super) fn of(dashboard: &Value, sources: &Sources) -> Vec<Variable> {
    let lists = [
        "/templating/list",
        "/variables",
        "/spec/variables",
        "/spec/config/variables",
    ];
    let lists = lists
        .iter()
        .filter_map(|pointer| dashboard.pointer(pointer)?.as_array());
    lists
        .flatten()
        .filter_map(|variable| read(variable, sources))
        .collect()
}

fn read(variable: &Value, sources: &Sources) -> Option<Variable> {
    // In version 2 and in Perses a variable is `{"kind": "QueryVariable", "spec": {...}}`.
    let spec = variable.get("spec").unwrap_or(variable);
    let name = spec.get("name")?.as_str()?.to_owned();
    let kind = variable
        .get("type")
        .or_else(|| variable.get("kind"))?
        .as_str()?;
    let kind = kind.trim_end_matches("Variable").to_ascii_lowercase();
    let query = (kind == "query" && is_promql(variable, sources))
        .then(|| query_text(spec))
        .flatten();
    let values = match kind.as_str() {
        "custom" | "interval" | "constant" | "switch" => known(spec),
        "list" => listed(spec),
        "text" if spec.get("constant") == Some(&Value::Bool(true)) => {
            let value = spec.get("value").and_then(Value::as_str);
            value.map(|value| Values::Known(vec![value.to_owned()]))
        }
        "textbox" | "text" => number(spec),
        "query" => query.as_deref().and_then(names_of_metrics_call),
        _ => None,
    };
    Some(Variable {
        name,
        values: values.unwrap_or_else(|| Values::Pattern(".*".to_owned())),
        query,
        is_filter: matches!(kind.as_str(), "adhoc" | "groupby"),
    })
}

/// Returns whether the query of a variable is PromQL. The data source is beside the query, in it, or
/// around it.
fn is_promql(variable: &Value, sources: &Sources) -> bool {
    let places = ["/spec/query", "/spec", ""];
    let stated = places.iter().find_map(|pointer| {
        let object = variable.pointer(pointer)?.as_object()?;
        sources.is_promql(object)
    });
    stated.unwrap_or(true)
}

/// Returns the query, which is a string or nested in an object.
fn query_text(spec: &Value) -> Option<String> {
    let candidates = [
        "/query",
        "/query/query",
        "/query/spec/query",
        "/query/spec/expr",
        "/query/expr",
        "/definition",
    ];
    candidates
        .iter()
        .find_map(|pointer| spec.pointer(pointer)?.as_str().map(str::to_owned))
        .filter(|text| !text.trim().is_empty())
}

/// Returns the selectable values, the current one first.
fn known(spec: &Value) -> Option<Values> {
    let mut selectable = vec![spec.pointer("/current/value")];
    if let Some(options) = spec.get("options").and_then(Value::as_array) {
        selectable.extend(options.iter().map(|option| option.get("value")));
    }
    selectable.push(spec.get("allValue"));
    let mut values = Vec::new();
    for value in selectable {
        match value {
            Some(Value::String(text)) if !text.starts_with('$') => values.push(text.clone()),
            Some(Value::Array(texts)) => {
                values.extend(texts.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => {}
        }
    }
    // `a,b` or `text : a,text : b`. A comma in a value is escaped as `\,`.
    let query = spec
        .get("query")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .replace("\\,", "\u{0}");
    for part in query
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty() && !part.starts_with('$'))
    {
        let value = part
            .split_once(" : ")
            .map_or(part, |(_, value)| value.trim());
        values.push(value.replace('\u{0}', ","));
    }
    values.retain(|value| !value.starts_with("$__"));
    let mut seen = std::collections::BTreeSet::new();
    values.retain(|value| seen.insert(value.clone()));
    (!values.is_empty()).then_some(Values::Known(values))
}

/// Returns the number that a text box has: its current text, else its default.
fn number(spec: &Value) -> Option<Values> {
    let places = ["/current/value", "/query", "/value"];
    let mut texts = places
        .iter()
        .filter_map(|pointer| spec.pointer(pointer)?.as_str());
    let text = texts.next()?;
    let is_number = text.parse::<f64>().is_ok();
    is_number.then(|| Values::Number(text.to_owned()))
}

/// Returns the values of a list variable of Perses, if its plugin lists them.
fn listed(spec: &Value) -> Option<Values> {
    if spec.pointer("/plugin/kind")? != "StaticListVariable" {
        return None;
    }
    let mut values: Vec<String> = spec
        .pointer("/plugin/spec/values")?
        .as_array()?
        .iter()
        .filter_map(|value| value.as_str().or_else(|| value.get("value")?.as_str()))
        .map(str::to_owned)
        .collect();
    let all = spec.get("customAllValue").and_then(Value::as_str);
    values.extend(all.map(str::to_owned));
    (!values.is_empty()).then_some(Values::Known(values))
}

/// Returns the pattern of the names that `metrics(pattern)` returns.
fn names_of_metrics_call(query: &str) -> Option<Values> {
    let name = call(query, "metrics")?;
    if Regexp::parse(name).is_err() || name.contains('$') {
        return None;
    }
    Some(Values::Pattern(format!(".*(?:{name}).*")))
}

/// Returns the text in the parentheses of `function(...)`.
fn call<'a>(query: &'a str, function: &str) -> Option<&'a str> {
    let inner = query
        .trim()
        .strip_prefix(function)?
        .trim_start()
        .strip_prefix('(')?;
    Some(inner.strip_suffix(')')?.trim())
}

impl Variable {
    /// Extracts the selectors of the variable's query.
    pub(super) fn read(&self, variables: &Variables) -> Extracted {
        let Some(query) = self.query.as_deref() else {
            return nothing();
        };
        if let Some(inner) = call(query, "label_values") {
            return match split_label(inner) {
                (Some(selector), label) => of_label(template::read(selector, variables), label),
                // All values of a label: this needs no particular metric.
                (None, _) => nothing(),
            };
        }
        if let Some(expr) = call(query, "query_result") {
            return template::read(expr, variables);
        }
        if call(query, "label_names").is_some() {
            return nothing();
        }
        if call(query, "metrics").is_some() {
            let Some(Values::Pattern(pattern)) = names_of_metrics_call(query) else {
                return every_metric();
            };
            return named(&pattern);
        }
        // Anything else is a series selector.
        template::read(query, variables)
    }
}

fn split_label(inner: &str) -> (Option<&str>, &str) {
    match inner.rsplit_once(',') {
        Some((selector, label)) if !label.contains(['}', ')', '"']) => {
            (Some(selector.trim()), label.trim())
        }
        _ => (None, inner),
    }
}

/// Reduces the used labels to `label` and the labels of the matchers.
pub(super) fn of_label(mut reading: Extracted, label: &str) -> Extracted {
    let has_variable = label.contains('$') || label.contains("[[");
    if !has_variable {
        for expr in &mut reading.exprs {
            *expr = format!("group by ({}) ({expr})", varve_promql::print_label(label));
        }
    }
    for selector in &mut reading.selectors {
        let mut labels = LabelSet::Only([label.to_owned()].into());
        for matcher in &selector.matchers {
            labels = labels.union(LabelSet::Only([matcher.name().to_owned()].into()));
        }
        selector.labels = if has_variable {
            LabelSet::all()
        } else {
            labels
        };
    }
    reading
}

fn named(pattern: &str) -> Extracted {
    let matchers: Vec<_> = Matcher::new(MatchOp::Regexp, METRIC_NAME, pattern)
        .into_iter()
        .collect();
    Extracted {
        selectors: vec![Selector {
            matchers,
            labels: LabelSet::none(),
        }],
        exprs: Vec::new(),
        has_variables: false,
        problem: None,
    }
}

fn every_metric() -> Extracted {
    named(".*")
}

fn nothing() -> Extracted {
    Extracted {
        selectors: Vec::new(),
        exprs: Vec::new(),
        has_variables: false,
        problem: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn variable(json: Value) -> Variable {
        read(&json, &Sources::default()).unwrap()
    }

    /// Checks which of a few names are selected.
    fn check(query: &str, expect: &[&str]) {
        let reading = variable(json!({"name": "v", "type": "query", "query": query}))
            .read(&Variables::default());
        assert_eq!(reading.problem, None, "{query}");
        let taken = |name: &&str| {
            reading
                .selectors
                .iter()
                .any(|selector| selector.may_match(METRIC_NAME, name))
        };
        assert_eq!(
            ["a", "node_a"]
                .into_iter()
                .filter(taken)
                .collect::<Vec<_>>(),
            expect,
            "{query}"
        );
    }

    #[test]
    fn queries_of_variables_select_what_grafana_requests() {
        check("label_values(a, job)", &["a"]);
        check("label_values(a{x=~\"$y\", z=\"1,2\"},  job) ", &["a"]);
        check("label_values(job)", &[]);
        check(
            "label_values({__name__=~\"node.*\"}, __name__)",
            &["node_a"],
        );
        check(
            "query_result(topk(5, sum by (x) (rate(a[$__range]))))",
            &["a"],
        );
        check("metrics(node_)", &["node_a"]);
        check("metrics($x)", &["a", "node_a"]);
        check("label_names()", &[]);
        check("a{x=\"1\"}", &["a"]);
    }

    #[test]
    fn only_the_label_of_label_values_is_used() {
        let read =
            variable(json!({"name": "v", "type": "query", "query": "label_values(a{x=\"1\"}, y)"}))
                .read(&Variables::default());
        let labels = &read.selectors[0].labels;
        assert_eq!(
            ["x", "y", "z"].map(|label| labels.contains(label)),
            [true, true, false]
        );
    }

    #[test]
    fn values_are_read_from_all_kinds_of_variables() {
        let known = |json: Value| match variable(json).values {
            Values::Known(values) => values,
            Values::Pattern(pattern) => vec![format!("pattern {pattern}")],
            Values::Number(number) => vec![format!("number {number}")],
        };
        let custom = json!({"name": "v", "type": "custom", "query": "one : 1, 2,a\\,b", "current": {"value": "2"}});
        assert_eq!(known(custom), ["2", "1", "a,b"]);
        let interval = json!({"name": "v", "type": "interval", "query": "5m,10m", "current": {"value": "$__auto_interval_v"}});
        assert_eq!(known(interval), ["5m", "10m"]);
        let v2 = json!({"kind": "CustomVariable", "spec": {"name": "v", "query": "x", "current": {"value": ["x", "y"]}}});
        assert_eq!(known(v2), ["x", "y"]);
        assert_eq!(
            known(json!({"name": "v", "type": "textbox", "query": "x"})),
            ["pattern .*"]
        );
        let grafana =
            json!({"name": "v", "type": "textbox", "query": "1", "current": {"value": "2"}});
        assert_eq!(known(grafana), ["number 2"]);
        let replaced =
            json!({"name": "v", "type": "textbox", "query": "1", "current": {"value": "up"}});
        assert_eq!(known(replaced), ["pattern .*"]);
        let perses = json!({"kind": "TextVariable", "spec": {"name": "v", "value": "1e3"}});
        assert_eq!(known(perses), ["number 1e3"]);
        assert!(variable(json!({"name": "v", "type": "adhoc"})).is_filter);
    }
}
