//! Perses: what differs from Grafana.
//!
//! Each query and variable is a plugin, `{"kind": ..., "spec": {...}}`. Those of the Prometheus plugin
//! (<https://perses.dev/plugins/docs/prometheus/model>) are PromQL.

use serde_json::{Map, Value};

/// A variable whose values are label names or values of selected series.
pub(super) struct LabelQuery<'a> {
    /// The label whose values are listed. It is empty for a list of names.
    pub(super) label: &'a str,
    /// Selectors. Without one, all series are selected, but no particular metric is needed.
    pub(super) matchers: Vec<&'a str>,
}

/// Returns the expression of a query plugin. `PrometheusPromQLVariable` has it in `expr`, as Grafana
/// does.
pub(super) fn query(object: &Map<String, Value>) -> Option<&Value> {
    if object.get("kind")? != "PrometheusTimeSeriesQuery" {
        return None;
    }
    object.get("spec")?.get("query")
}

/// Returns the matchers of a variable plugin.
pub(super) fn label_query(object: &Map<String, Value>) -> Option<LabelQuery<'_>> {
    let kind = object.get("kind")?.as_str()?;
    if !matches!(
        kind,
        "PrometheusLabelValuesVariable" | "PrometheusLabelNamesVariable"
    ) {
        return None;
    }
    let spec = object.get("spec")?;
    let matchers = spec.get("matchers").and_then(Value::as_array);
    Some(LabelQuery {
        label: spec
            .get("labelName")
            .and_then(Value::as_str)
            .unwrap_or_default(),
        matchers: matchers
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
    })
}

/// Returns the title of a panel.
pub(super) fn panel_title(object: &Map<String, Value>) -> Option<&str> {
    if object.get("kind")? != "Panel" {
        return None;
    }
    object.get("spec")?.get("display")?.get("name")?.as_str()
}
