//! Data sources: whether a query is PromQL.
//!
//! Grafana refers to a data source in many ways: by an object with its type, by its name, by a
//! variable of the dashboard (`$datasource`), or by an input of an exported dashboard
//! (`${DS_PROMETHEUS}`). Version 2 of the schema has the type in `group`, version 2alpha1 in `kind`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Parts of the types of data sources whose queries are PromQL. Plugins of vendors have such names:
/// `grafana-amazonprometheus-datasource`, `victoriametrics-metrics-datasource`.
const PROMQL_TYPES: [&str; 6] = [
    "prometheus",
    "victoriametrics-datasource",
    "victoriametrics-metrics",
    "mimir",
    "thanos",
    "cortex",
];
/// The name of a panel's source if each of its queries has its own.
const MIXED: &str = "-- Mixed --";
/// Names of data sources that are not PromQL: those of Grafana itself, and the default names of
/// Grafana's core plugins. Only a reference without a type is looked up here.
const OTHER_NAMES: &str = "-- Grafana --|-- Dashboard --|__expr__|alertmanager|cloudwatch|dashboard|elasticsearch|grafana\
                           |graphite|influxdb|jaeger|loki|mssql|mysql|opentsdb|parca|postgres|postgresql|pyroscope\
                           |stackdriver|tempo|testdata|zipkin";

/// The data sources that a dashboard names.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The types of inputs, required plugins and data source variables, by name.
    types: BTreeMap<String, String>,
}

impl Sources {
    /// Returns the data sources that a dashboard declares.
    pub(super) fn of(dashboard: &Value) -> Self {
        let mut sources = Self::default();
        for plugin in list(dashboard, "/__requires") {
            if plugin.get("type").is_some_and(|kind| kind == "datasource") {
                sources.add(plugin.get("name"), plugin.get("id"));
            }
        }
        for input in list(dashboard, "/__inputs") {
            sources.add(input.get("name"), input.get("pluginId"));
        }
        for variable in list(dashboard, "/templating/list") {
            if variable
                .get("type")
                .is_some_and(|kind| kind == "datasource")
            {
                sources.add(variable.get("name"), variable.get("query"));
            }
        }
        for pointer in ["/variables", "/spec/variables"] {
            for variable in list(dashboard, pointer) {
                let name = variable.pointer("/spec/name");
                sources.add(name, variable.pointer("/spec/pluginId"));
            }
        }
        sources
    }

    fn add(&mut self, name: Option<&Value>, kind: Option<&Value>) {
        if let Some(name) = name.and_then(Value::as_str)
            && let Some(kind) = kind.and_then(Value::as_str)
        {
            self.types.insert(name.to_owned(), kind.to_owned());
        }
    }

    /// Returns whether the queries of an object are PromQL. A source whose name is unknown counts as
    /// PromQL. Returns `None` if the object names no single source: then the enclosing object does, or
    /// the default data source answers.
    pub(super) fn is_promql(&self, object: &Map<String, Value>) -> Option<bool> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let kind = text(object.get("kind")).unwrap_or_default();
        let stated = match &*kind {
            "DataQuery" => text(object.get("group")),
            // In version 2alpha1, the kind of a query is the type of its source.
            "PanelQuery" | "QueryVariable" | "AnnotationQuery" => {
                let query = object.get("spec").and_then(|spec| spec.get("query"));
                text(query.and_then(|query| query.get("kind"))).filter(|kind| kind != "DataQuery")
            }
            _ => None,
        };
        if let Some(stated) = stated.filter(|stated| !stated.is_empty()) {
            return self.is_promql_type(&stated);
        }
        match object.get("datasource")? {
            Value::String(name) => self.is_promql_name(name),
            Value::Object(source) => {
                // Perses has the type in `kind`.
                let kind = text(source.get("type")).or_else(|| text(source.get("kind")));
                let name = text(source.get("uid")).or_else(|| text(source.get("name")));
                kind.and_then(|kind| self.is_promql_type(&kind))
                    .or_else(|| self.is_promql_name(&name?))
            }
            _ => None,
        }
    }

    /// Returns whether a type of data sources speaks PromQL. A variable may stand for the type.
    fn is_promql_type(&self, kind: &str) -> Option<bool> {
        if let Some(name) = variable_name(kind) {
            let kind = self.types.get(name)?;
            return Some(is_promql_type(kind));
        }
        // Grafana's type of mixed and built-in sources is `datasource`.
        (!matches!(kind, "" | "datasource" | "mixed")).then(|| is_promql_type(kind))
    }

    /// Returns whether a data source speaks PromQL that only its name or a variable refers to.
    fn is_promql_name(&self, name: &str) -> Option<bool> {
        let name = variable_name(name).unwrap_or(name);
        if name.is_empty() || name == MIXED {
            return None;
        }
        if let Some(kind) = self.types.get(name) {
            return Some(is_promql_type(kind));
        }
        let is_other = OTHER_NAMES
            .split('|')
            .any(|other| name.eq_ignore_ascii_case(other));
        Some(!is_other)
    }
}

fn is_promql_type(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    PROMQL_TYPES.iter().any(|promql| kind.contains(promql))
}

/// Returns the name in `$name`, `${name}`, `${name:format}` or `[[name]]`.
fn variable_name(reference: &str) -> Option<&str> {
    let inner = if let Some(rest) = reference.strip_prefix("${") {
        rest.strip_suffix('}')?
    } else if let Some(rest) = reference.strip_prefix("[[") {
        rest.strip_suffix("]]")?
    } else {
        reference.strip_prefix('$')?
    };
    Some(inner.split(':').next().unwrap_or(inner))
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_of_a_reference_is_resolved() {
        let dashboard = json!({
            "__inputs": [{"name": "DS_PROMETHEUS", "type": "datasource", "pluginId": "prometheus"},
                         {"name": "DS_LOKI", "type": "datasource", "pluginId": "loki"}],
            "__requires": [{"type": "datasource", "id": "loki", "name": "Our logs"},
                           {"type": "panel", "id": "prometheus", "name": "Our logs"}],
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {"name": "logs", "type": "datasource", "query": "loki"},
                {"name": "sql", "type": "datasource", "query": "grafana-postgresql-datasource"},
            ]},
            "spec": {"variables": [
                {"kind": "DatasourceVariable", "spec": {"name": "ds2", "pluginId": "prometheus"}},
                {"kind": "DatasourceVariable", "spec": {"name": "logs2", "pluginId": "loki"}},
            ]},
        });
        let sources = Sources::of(&dashboard);
        let promql = [
            json!({"datasource": {"type": "prometheus", "uid": "x"}}),
            json!({"datasource": {"type": "Prometheus"}}),
            json!({"datasource": {"type": "grafana-amazonprometheus-datasource"}}),
            json!({"datasource": {"type": "our-prometheus-proxy", "uid": "x"}}),
            json!({"datasource": "$datasource"}),
            json!({"datasource": "${datasource}"}),
            json!({"datasource": "${datasource:raw}"}),
            json!({"datasource": "[[datasource]]"}),
            json!({"datasource": "${DS_PROMETHEUS}"}),
            json!({"datasource": {"uid": "${DS_PROMETHEUS}"}}),
            json!({"datasource": {"type": "datasource", "uid": "$ds2"}}),
            json!({"datasource": {"type": "$datasource", "uid": "x"}}),
            json!({"kind": "DataQuery", "group": "prometheus", "datasource": {"name": "$logs"}}),
            json!({"kind": "PanelQuery", "spec": {"query": {"kind": "prometheus", "spec": {}}}}),
            json!({"datasource": {"kind": "PrometheusDatasource", "name": "main"}}),
            json!({"datasource": "default"}),
            json!({"datasource": "My Prometheus"}),
            json!({"datasource": "$unknown"}),
        ];
        let other = [
            json!({"datasource": {"type": "loki", "uid": "$datasource"}}),
            json!({"datasource": {"type": "some-new-datasource", "uid": "x"}}),
            json!({"datasource": "$logs"}),
            json!({"datasource": "${DS_LOKI}"}),
            json!({"datasource": {"uid": "[[sql]]"}}),
            json!({"datasource": {"type": "datasource", "uid": "grafana"}}),
            json!({"datasource": {"type": "datasource", "uid": "-- Dashboard --"}}),
            json!({"datasource": {"type": "__expr__", "uid": "__expr__"}}),
            json!({"datasource": "-- Grafana --"}),
            json!({"datasource": "Loki"}),
            json!({"datasource": "Our logs"}),
            json!({"kind": "DataQuery", "group": "loki", "datasource": {"name": "$ds2"}}),
            json!({"kind": "DataQuery", "group": "", "datasource": {"name": "$logs2"}}),
            json!({"kind": "QueryVariable", "spec": {"query": {"kind": "loki", "spec": {}}}}),
            json!({"datasource": {"kind": "TempoDatasource", "name": "main"}}),
        ];
        let unknown = [
            json!({}),
            json!({"datasource": null}),
            json!({"datasource": "-- Mixed --"}),
            json!({"datasource": {"type": "datasource", "uid": "-- Mixed --"}}),
            json!({"kind": "PanelQuery", "spec": {"query": {"kind": "DataQuery"}}}),
        ];
        for (objects, expect) in [
            (&promql[..], Some(true)),
            (&other[..], Some(false)),
            (&unknown[..], None),
        ] {
            for object in objects {
                let found = sources.is_promql(object.as_object().unwrap());
                assert_eq!(found, expect, "{object}");
            }
        }
    }
}
