//! Grafana dashboards: the expressions of panels, annotations and template variables.
//!
//! The schema of dashboards has changed many times: rows with panels, panels in panels, library
//! panels, and since version 2 elements with specs. In all schemas a Prometheus query is an object
//! with the string `expr`, and the data source is beside it or in an enclosing object. So the whole
//! tree is searched, whatever its schema. This search also finds Grafana's alert rules.

mod documents;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::index::Needs;
use super::need::{Consumer, Location};
use super::template;
use super::variables::Variables;

/// Data sources whose queries are not PromQL, though some have an `expr`.
const OTHER_SOURCES: &str = "__expr__ alertmanager cloudwatch dashboard elasticsearch grafana graphite influxdb jaeger loki mssql \
                             mysql opentsdb parca postgres pyroscope stackdriver tempo testdata zipkin \
                             grafana-azure-monitor-datasource";
/// The name of Grafana's built-in data source.
const BUILT_IN_SOURCE: &str = "-- Grafana --";

/// Collects the needs of dashboards.
#[derive(Debug)]
pub struct Dashboards<'a> {
    needs: &'a mut Needs,
    /// Library panels that were read.
    library: BTreeSet<String>,
    /// Library panels that dashboards refer to.
    wanted: BTreeMap<String, Location>,
    /// Files with rules, which are ignored.
    rule_files: BTreeSet<Rc<str>>,
}

impl<'a> Dashboards<'a> {
    /// Creates a collection that adds to `needs`.
    pub fn new(needs: &'a mut Needs) -> Self {
        Self {
            needs,
            library: BTreeSet::new(),
            wanted: BTreeMap::new(),
            rule_files: BTreeSet::new(),
        }
    }

    /// Adds the needs of a file: dashboards, a response of Grafana's API, or manifests with
    /// dashboards (ConfigMap, GrafanaDashboard). Other manifests are ignored.
    pub fn read(&mut self, file: &Rc<str>, text: &str) {
        match documents::parse(text) {
            Ok(documents) => {
                for document in &documents {
                    self.read_document(file, document);
                }
            }
            Err(reason) => self
                .needs
                .report(Location::new(file, String::new()), reason, ""),
        }
    }

    fn read_document(&mut self, file: &Rc<str>, document: &Value) {
        if has_rules(document) {
            self.rule_files.insert(Rc::clone(file));
        }
        let kind = document.get("kind").and_then(Value::as_str);
        if kind == Some("GrafanaDashboard")
            && let Some(text) = document.pointer("/spec/json").and_then(Value::as_str)
        {
            self.read(file, text);
            return;
        }
        match kind {
            Some("ConfigMap") => {
                let Some(data) = document.get("data").and_then(Value::as_object) else {
                    return;
                };
                for (key, text) in data {
                    if key.ends_with(".json")
                        && let Some(text) = text.as_str()
                    {
                        self.read(&format!("{file}: {key}").into(), text);
                    }
                }
            }
            None | Some("Dashboard" | "DashboardWithAccessInfo" | "GrafanaDashboard") => {
                self.add(file, document.get("dashboard").unwrap_or(document));
            }
            Some(_) => {}
        }
    }

    /// Adds the needs of a dashboard, or of any other object with expressions.
    pub fn add(&mut self, file: &Rc<str>, dashboard: &Value) {
        let title = dashboard
            .pointer("/title")
            .and_then(Value::as_str)
            .or_else(|| dashboard.pointer("/spec/title").and_then(Value::as_str))
            .unwrap_or_default();
        let mut reader = Reader {
            file,
            variables: Variables::default(),
            all: self,
        };
        let variables = variables::of(dashboard);
        for variable in &variables {
            reader.variables.has_filters |= variable.is_filter;
            reader
                .variables
                .values
                .insert(variable.name.clone(), variable.values.clone());
        }
        for variable in &variables {
            reader.add_variable(
                format!("dashboard {title:?}, variable {}", variable.name),
                variable,
            );
        }
        let root = Enclosing {
            path: format!("dashboard {title:?}"),
            is_promql: true,
        };
        reader.visit(dashboard, &root, true);
    }

    /// Reports library panels that dashboards refer to and that were not read. Returns the files
    /// with rules, which were ignored.
    #[must_use]
    pub fn finish(mut self) -> BTreeSet<Rc<str>> {
        for (id, location) in std::mem::take(&mut self.wanted) {
            if !self.library.contains(&id) {
                let reason = format!(
                    "library panel {id} is not among the inputs; read it from Grafana or export it"
                );
                self.needs.report(location, reason, "");
            }
        }
        self.rule_files
    }
}

/// Returns `true` if a document has rules of Prometheus: a rule file or a PrometheusRule.
fn has_rules(document: &Value) -> bool {
    let groups = document
        .get("groups")
        .or(document.pointer("/spec/groups"))
        .and_then(Value::as_array);
    let mut rules = groups
        .into_iter()
        .flatten()
        .filter_map(|group| group.get("rules")?.as_array())
        .flatten();
    rules.any(|rule| rule.get("alert").or(rule.get("record")).is_some())
}

/// The context of a part of a dashboard.
#[derive(Debug, Clone)]
struct Enclosing {
    path: String,
    is_promql: bool,
}

struct Reader<'a, 'b> {
    file: &'a Rc<str>,
    variables: Variables,
    all: &'a mut Dashboards<'b>,
}

impl Reader<'_, '_> {
    fn visit(&mut self, value: &Value, around: &Enclosing, is_root: bool) {
        match value {
            Value::Array(items) => {
                for item in items {
                    self.visit(item, around, false);
                }
            }
            Value::Object(object) => self.visit_object(object, around, is_root),
            _ => {}
        }
    }

    fn visit_object(&mut self, object: &Map<String, Value>, around: &Enclosing, is_root: bool) {
        let mut here = around.clone();
        if !is_root && let Some(title) = object.get("title").and_then(Value::as_str) {
            here.path = format!("{}, panel {title:?}", around.path);
            if let Some(id) = object.get("id").and_then(Value::as_u64) {
                here.path.push_str(&format!(" ({id})"));
            }
        }
        here.is_promql = is_promql(object).unwrap_or(around.is_promql);
        self.record_library_panel(object, &here);
        // Prometheus rules in the same directory are not dashboards.
        let is_query =
            here.is_promql && !object.contains_key("alert") && !object.contains_key("record");
        let expr = object
            .get("expr")
            .and_then(Value::as_str)
            .filter(|expr| is_query && !expr.trim().is_empty());
        if let Some(expr) = expr {
            self.add_target(object, expr, &here);
        }
        for part in object.values() {
            self.visit(part, &here, false);
        }
    }

    fn add_target(&mut self, object: &Map<String, Value>, expr: &str, here: &Enclosing) {
        let target = object.get("refId").and_then(Value::as_str);
        let within = target.map_or_else(
            || here.path.clone(),
            |target| format!("{}, query {target}", here.path),
        );
        let extracted = template::read(expr, &self.variables);
        self.all.needs.add_extracted(
            Location::new(self.file, within),
            Consumer::Reader,
            expr,
            extracted,
        );
    }

    fn add_variable(&mut self, within: String, variable: &variables::Variable) {
        let extracted = variable.read(&self.variables);
        let text = variable.query.as_deref().unwrap_or_default();
        if extracted.problem.is_some() || !extracted.selectors.is_empty() {
            self.all.needs.add_extracted(
                Location::new(self.file, within),
                Consumer::Reader,
                text,
                extracted,
            );
        }
    }

    /// Records a library panel. Its model is here or elsewhere.
    fn record_library_panel(&mut self, object: &Map<String, Value>, here: &Enclosing) {
        if object.contains_key("model") {
            self.all.library.extend(text_of(object, "uid"));
        }
        if let Some(library) = object.get("libraryPanel").and_then(Value::as_object) {
            let Some(id) = text_of(library, "uid").or_else(|| text_of(library, "name")) else {
                return;
            };
            if object.contains_key("targets") || library.contains_key("model") {
                self.all.library.insert(id);
            } else {
                let location = Location::new(self.file, here.path.clone());
                self.all.wanted.entry(id).or_insert(location);
            }
        }
    }
}

/// Returns whether the queries of an object are PromQL. Returns `None` if it has no data source.
fn is_promql(object: &Map<String, Value>) -> Option<bool> {
    let source = match object.get("datasource") {
        Some(Value::Object(source)) => text_of(source, "type"),
        Some(Value::String(name)) => Some(name.clone()),
        // Version 2 has the type of the data source in `group`.
        _ if object.get("kind").is_some_and(|kind| kind == "DataQuery") => text_of(object, "group"),
        _ => None,
    };
    let mut others = OTHER_SOURCES.split(' ').chain([BUILT_IN_SOURCE]);
    source.map(|source| !others.any(|other| source.eq_ignore_ascii_case(other)))
}

/// Returns the text of a key.
fn text_of(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks which of the metrics `a` to `f` are needed, and the number of problems.
    fn check(document: &Value, expect: &[&str], n_problems: usize) {
        let mut needs = Needs::default();
        let mut dashboards = Dashboards::new(&mut needs);
        dashboards.read(&"file".into(), &document.to_string());
        let _rule_files = dashboards.finish();
        let problems = needs.problems();
        let found: Vec<_> = ["a", "b", "c", "d", "e", "f"]
            .into_iter()
            .filter(|name| needs.of_metric(name).next().is_some())
            .collect();
        assert_eq!(
            (found, problems.len()),
            (expect.to_vec(), n_problems),
            "{document}: {problems:?}"
        );
    }

    #[test]
    fn files_with_rules_are_reported() {
        let mut needs = Needs::default();
        let mut dashboards = Dashboards::new(&mut needs);
        let groups = |rule: Value| json!({"groups": [{"name": "g", "rules": [rule]}]});
        let rules = groups(json!({"alert": "A", "expr": "a"}));
        // Provisioned alert rules of Grafana have groups, too.
        let grafana = groups(json!({"title": "A", "data": [{"model": {"expr": "b"}}]}));
        for (name, document) in [
            ("file", rules.clone()),
            ("manifest", json!({"kind": "PrometheusRule", "spec": rules})),
            ("grafana", grafana),
            ("dashboard", target("c")),
        ] {
            dashboards.read(&name.into(), &document.to_string());
        }
        assert!(
            dashboards
                .finish()
                .iter()
                .map(|name| &**name)
                .eq(["file", "manifest"])
        );
        assert_eq!(
            ["a", "b", "c"].map(|name| needs.of_metric(name).next().is_some()),
            [false, true, true]
        );
    }

    fn target(expr: &str) -> Value {
        json!({"title": "p", "targets": [{"expr": expr, "refId": "A"}]})
    }

    #[test]
    fn expressions_are_found_in_every_schema() {
        let row = json!({"type": "row", "panels": [target("b")]});
        check(
            &json!({
                "title": "t", "panels": [target("a{x=\"$x\"}"), row], "rows": [{"panels": [target("c")]}],
                "annotations": {"list": [{"expr": "d"}, {"target": {"expr": "e"}}]},
            }),
            &["a", "b", "c", "d", "e"],
            0,
        );
        check(
            &json!({"meta": {}, "dashboard": {"panels": [target("a")]}}),
            &["a"],
            0,
        );
        check(
            &json!([{"panels": [target("a")]}, {"panels": [target("b")]}]),
            &["a", "b"],
            0,
        );
        let query = json!({"kind": "DataQuery", "group": "prometheus", "spec": {"expr": "a"}});
        let logs = json!({"kind": "DataQuery", "group": "loki", "spec": {"expr": "b"}});
        let panel =
            json!({"kind": "Panel", "spec": {"data": {"spec": {"queries": [query, logs]}}}});
        check(
            &json!({"kind": "Dashboard", "spec": {"title": "t", "elements": {"panel-1": panel}}}),
            &["a"],
            0,
        );
        let text = json!({"panels": [target("a")]}).to_string();
        check(
            &json!({"kind": "ConfigMap", "data": {"x.json": text, "y.txt": "b"}}),
            &["a"],
            0,
        );
        check(
            &json!({"kind": "GrafanaDashboard", "spec": {"json": text}}),
            &["a"],
            0,
        );
        let rules = json!({"groups": [{"rules": [{"record": "r", "expr": "a"}]}]});
        check(&rules, &[], 0);
        check(&json!({"kind": "PrometheusRule", "spec": rules}), &[], 0);
    }

    #[test]
    fn variables_have_queries() {
        let variables = json!([
            {"name": "x", "type": "query", "query": "label_values(a{y=\"$y\"}, x)"},
            {"name": "y", "type": "query", "query": {"query": "query_result(sum(b))"}},
            {"name": "z", "type": "custom", "query": "d,e"},
        ]);
        check(
            &json!({"panels": [target("${z}")], "templating": {"list": variables}}),
            &["a", "b", "d", "e"],
            0,
        );
    }

    #[test]
    fn queries_of_other_data_sources_are_ignored() {
        let mut logs = target("{app=\"x\"} |= \"y\"");
        logs["datasource"] = json!({"type": "loki", "uid": "$datasource"});
        let mut mixed = target("a");
        mixed["datasource"] = json!({"type": "datasource", "uid": "-- Mixed --"});
        check(&json!({"panels": [logs, mixed]}), &["a"], 0);
    }

    #[test]
    fn missing_library_panels_are_reported() {
        let reference = json!({"libraryPanel": {"uid": "u", "name": "n"}});
        check(&json!({"panels": [reference]}), &[], 1);
        let element = json!({"u": {"uid": "u", "kind": 1, "model": target("a")}});
        check(
            &json!({"panels": [reference], "__elements": element}),
            &["a"],
            0,
        );
    }

    #[test]
    fn unparsable_expressions_are_reported_and_need_their_metrics() {
        check(
            &json!({"panels": [target("sum(a"), target("b")]}),
            &["a", "b"],
            1,
        );
        check(&json!("text"), &[], 0);
    }
}
