//! Dashboards of Grafana and of Perses: the expressions of panels, annotations and variables.
//!
//! The schema of dashboards has changed many times: rows with panels, panels in panels, library
//! panels, and since version 2 elements with specs. In all schemas a Prometheus query is an object
//! with the string `expr`, and the data source is beside it or in an enclosing object. So the whole
//! tree is searched, whatever its schema. This search also finds Grafana's alert rules. In Perses,
//! the plugins for Prometheus have queries and matchers (`perses`).

mod documents;
mod perses;
mod sources;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::index::Needs;
use super::need::{Consumer, Location};
use super::template;
use super::variables::Variables;
use sources::Sources;

/// Keys of dashboards, of which one without queries has at least one.
const DASHBOARD_KEYS: [&str; 5] = ["panels", "rows", "templating", "elements", "layouts"];

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
    /// Number of queries that were found, PromQL or not.
    n_queries: usize,
}

impl<'a> Dashboards<'a> {
    /// Creates a collection that adds to `needs`.
    pub fn new(needs: &'a mut Needs) -> Self {
        Self {
            needs,
            library: BTreeSet::new(),
            wanted: BTreeMap::new(),
            rule_files: BTreeSet::new(),
            n_queries: 0,
        }
    }

    /// Adds the needs of a file: dashboards, a response of Grafana's API, or manifests with
    /// dashboards (ConfigMap, GrafanaDashboard, PersesDashboard). Other manifests are ignored. A
    /// file of which nothing is known here is reported.
    pub fn read(&mut self, file: &Rc<str>, text: &str) {
        if !self.read_text(file, text) {
            let reason = "contains no dashboard of Grafana or Perses, and no manifest".to_owned();
            let location = Location::new(file, String::new());
            self.needs.report(location, reason, "");
        }
    }

    /// Adds the needs of a text. Returns `false` if nothing of it is known here.
    fn read_text(&mut self, file: &Rc<str>, text: &str) -> bool {
        match documents::parse(text) {
            Ok(documents) => {
                let mut is_known = documents.is_empty();
                for document in &documents {
                    is_known |= self.read_document(file, document);
                }
                is_known
            }
            Err(reason) => {
                let location = Location::new(file, String::new());
                self.needs.report(location, reason, "");
                true
            }
        }
    }

    /// Adds the needs of a document. Returns `false` if it is not known here.
    fn read_document(&mut self, file: &Rc<str>, document: &Value) -> bool {
        let has_rules = has_rules(document);
        if has_rules {
            self.rule_files.insert(Rc::clone(file));
        }
        let kind = document.get("kind").and_then(Value::as_str);
        if kind == Some("GrafanaDashboard")
            && let Some(text) = document.pointer("/spec/json").and_then(Value::as_str)
        {
            return self.read_text(file, text);
        }
        match kind {
            Some("ConfigMap") => {
                self.read_config_map(file, document);
                true
            }
            None | Some("DashboardWithAccessInfo" | "Variable" | "GlobalVariable") => {
                self.add(file, document.get("dashboard").unwrap_or(document)) || has_rules
            }
            Some(kind) if kind.ends_with("Dashboard") => self.add(file, document),
            Some(_) => true,
        }
    }

    fn read_config_map(&mut self, file: &Rc<str>, config_map: &Value) {
        let data = config_map.get("data").and_then(Value::as_object);
        for (key, text) in data.into_iter().flatten() {
            if key.ends_with(".json")
                && let Some(text) = text.as_str()
            {
                // The map may have other files, too.
                let _is_known = self.read_text(&format!("{file}: {key}").into(), text);
            }
        }
    }

    /// Adds the needs of a dashboard, or of any other object with expressions. Returns `false` if
    /// it has no queries and is no dashboard.
    pub fn add(&mut self, file: &Rc<str>, dashboard: &Value) -> bool {
        let n_queries_before = self.n_queries;
        let titles = [
            "/title",
            "/spec/title",
            "/spec/display/name",
            "/metadata/name",
        ];
        let title = titles
            .iter()
            .find_map(|pointer| dashboard.pointer(pointer)?.as_str())
            .unwrap_or_default();
        let sources = Sources::of(dashboard);
        let variables = variables::of(dashboard, &sources);
        let mut reader = Reader {
            file,
            sources,
            variables: Variables::default(),
            all: self,
        };
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
        self.n_queries > n_queries_before || is_dashboard(dashboard)
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

/// Returns `true` if an object is a dashboard, even one without queries.
fn is_dashboard(object: &Value) -> bool {
    let places = ["", "/spec", "/spec/config"];
    places
        .iter()
        .filter_map(|pointer| object.pointer(pointer)?.as_object())
        .any(|part| DASHBOARD_KEYS.iter().any(|key| part.contains_key(*key)))
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
    sources: Sources,
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
        let title = object
            .get("title")
            .and_then(Value::as_str)
            .or_else(|| perses::panel_title(object));
        if !is_root && let Some(title) = title {
            here.path = format!("{}, panel {title:?}", around.path);
            if let Some(id) = object.get("id").and_then(Value::as_u64) {
                here.path.push_str(&format!(" ({id})"));
            }
        }
        let stated = self.sources.is_promql(object);
        here.is_promql = stated.unwrap_or(around.is_promql);
        self.record_library_panel(object, &here);
        // Prometheus rules in the same directory are not dashboards.
        let is_rule = object.contains_key("alert") || object.contains_key("record");
        let expr = object
            .get("expr")
            .or_else(|| perses::query(object))
            .and_then(Value::as_str)
            .filter(|expr| !is_rule && !expr.trim().is_empty());
        if let Some(expr) = expr {
            self.all.n_queries += 1;
            if here.is_promql {
                self.add_target(object, expr, &here);
            }
        }
        self.add_matchers(object, &here);
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

    /// Adds the matchers of a variable of Perses.
    fn add_matchers(&mut self, object: &Map<String, Value>, here: &Enclosing) {
        let Some(values) = perses::label_query(object) else {
            return;
        };
        self.all.n_queries += 1;
        for matcher in values.matchers {
            let extracted = template::read(matcher, &self.variables);
            self.all.needs.add_extracted(
                Location::new(self.file, here.path.clone()),
                Consumer::Reader,
                matcher,
                variables::of_label(extracted, values.label),
            );
        }
    }

    fn add_variable(&mut self, within: String, variable: &variables::Variable) {
        self.all.n_queries += usize::from(variable.query.is_some());
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

/// Returns the text of a key.
fn text_of(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::Nameless;
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
            .filter(|name| needs.of_metric(name, Nameless::All).next().is_some())
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
            ["a", "b", "c"].map(|name| needs.of_metric(name, Nameless::All).next().is_some()),
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
        let source = |kind: &str| json!({"name": kind, "type": "datasource", "query": kind});
        let variable = |name: &str, source: Value, query: &str| json!({"name": name, "type": "query", "datasource": source, "query": query});
        let variables = json!([
            source("prometheus"),
            source("loki"),
            variable(
                "a",
                json!({"type": "loki", "uid": "x"}),
                "label_values({namespace=\"prod\"}, pod)"
            ),
            variable(
                "b",
                json!("${loki}"),
                "label_values({namespace=\"prod\"}, pod)"
            ),
            variable(
                "c",
                json!({"type": "mysql", "uid": "x"}),
                "SELECT name FROM hosts"
            ),
            variable("d", json!("$prometheus"), "label_values(d, pod)"),
        ]);
        check(
            &json!({"templating": {"list": variables}, "panels": [target("a")]}),
            &["a", "d"],
            0,
        );
    }

    /// Dashboards of Perses were skipped in silence, and their metrics proposed for dropping.
    #[test]
    fn dashboards_of_perses_are_read() {
        let query = |kind: &str, query: &str| json!({"kind": "TimeSeriesQuery", "spec": {"plugin": {"kind": kind, "spec": {"query": query}}}});
        let panel = json!({"kind": "Panel", "spec": {"display": {"name": "p"}, "queries": [
            query("PrometheusTimeSeriesQuery", "sum by (x) (rate(a{pod=~\"$pod\"}[$__rate_interval]))"),
            query("LokiTimeSeriesQuery", "b"),
        ]}});
        let variable = |plugin: Value| json!({"kind": "ListVariable", "spec": {"name": "pod", "plugin": plugin}});
        let variables = json!([
            variable(
                json!({"kind": "PrometheusLabelValuesVariable", "spec": {"labelName": "pod", "matchers": ["c{x=\"$y\"}"]}})
            ),
            variable(
                json!({"kind": "PrometheusPromQLVariable", "spec": {"expr": "group by (x) (d)", "labelName": "x"}})
            ),
            variable(json!({"kind": "PrometheusLabelNamesVariable", "spec": {"matchers": ["e"]}})),
        ]);
        let spec = json!({"panels": {"p": panel}, "variables": variables, "layouts": []});
        let needed = ["a", "c", "d", "e"];
        check(&json!({"kind": "Dashboard", "spec": spec}), &needed, 0);
        check(
            &json!({"kind": "PersesDashboard", "apiVersion": "perses.dev/v1alpha1", "spec": spec}),
            &needed,
            0,
        );
        check(
            &json!({"kind": "PersesDashboard", "spec": {"config": spec}}),
            &needed,
            0,
        );
        let plugin = json!({"kind": "PrometheusLabelValuesVariable", "spec": {"labelName": "pod", "matchers": ["f"]}});
        check(
            &json!({"kind": "GlobalVariable", "spec": variable(plugin)}),
            &["f"],
            0,
        );
    }

    #[test]
    fn a_file_of_which_nothing_is_known_is_reported() {
        for unknown in [
            json!({"version": 3, "widgets": [{"q": "a"}]}),
            json!({"kind": "OtherDashboard", "spec": {"widgets": []}}),
        ] {
            check(&unknown, &[], 1);
        }
        for known in [
            json!({"title": "only text", "panels": [{"type": "text"}]}),
            json!({"kind": "Deployment", "apiVersion": "apps/v1"}),
            json!({"panels": [{"datasource": {"type": "loki"}, "targets": [{"expr": "b"}]}]}),
            json!([]),
        ] {
            check(&known, &[], 0);
        }
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
        check(&json!("text"), &[], 1);
    }
}
