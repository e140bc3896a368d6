//! Rule files: Prometheus' own, PrometheusRule manifests, lists of them, and ConfigMaps with rule files.

use std::rc::Rc;

use serde_json::Value;

use super::documents;
use super::needs::{Consumer, Need, Needs, Place, Selector};
use super::problems::Problem;
use super::template;

/// Adds the needs of the rules in a text. Manifests of other kinds are ignored.
pub(super) fn read(file: &Rc<str>, text: &str, needs: &mut Needs, problems: &mut Vec<Problem>) {
    let place = |within: &str| Place { file: Rc::clone(file), within: within.to_owned() };
    let documents = match documents::parse(text) {
        Ok(documents) => documents,
        Err(reason) => return problems.push(Problem::new(&place(""), reason, "")),
    };
    for document in documents {
        match document.get("kind").and_then(Value::as_str) {
            Some("PrometheusRule") => match document.pointer("/spec/groups") {
                Some(groups) => Rules { file, needs, problems }.add_groups(groups),
                None => problems.push(Problem::new(&place(""), "PrometheusRule without spec.groups", "")),
            },
            Some("ConfigMap") => read_config_map(file, &document, needs, problems),
            Some(_) => {}
            None => match document.get("groups") {
                Some(groups) => Rules { file, needs, problems }.add_groups(groups),
                None => problems.push(Problem::new(&place(""), "neither rule groups nor a manifest", "")),
            },
        }
    }
}

fn read_config_map(file: &Rc<str>, document: &Value, needs: &mut Needs, problems: &mut Vec<Problem>) {
    for (key, text) in document.get("data").and_then(Value::as_object).into_iter().flatten() {
        let is_rules = |text: &&str| text.contains("groups:") && !key.ends_with(".json");
        if let Some(text) = text.as_str().filter(is_rules) {
            read(&format!("{file}: {key}").into(), text, needs, problems);
        }
    }
}

struct Rules<'a> {
    file: &'a Rc<str>,
    needs: &'a mut Needs,
    problems: &'a mut Vec<Problem>,
}

impl Rules<'_> {
    fn add_groups(&mut self, groups: &Value) {
        for group in groups.as_array().into_iter().flatten() {
            let name = group.get("name").and_then(Value::as_str).unwrap_or("without a name");
            for rule in group.get("rules").and_then(Value::as_array).into_iter().flatten() {
                self.add_rule(name, rule);
            }
        }
    }

    fn add_rule(&mut self, group: &str, rule: &Value) {
        let text = |key: &str| rule.get(key).and_then(Value::as_str);
        let (kind, name) = match (text("record"), text("alert")) {
            (Some(name), _) => ("recording rule", name),
            (None, alert) => ("alert", alert.unwrap_or("without a name")),
        };
        let place = Place { file: Rc::clone(self.file), within: format!("group {group}, {kind} {name}") };
        let consumer = text("record").map_or(Consumer::Reader, |name| Consumer::Record(name.to_owned()));
        let mut selectors = match rule.get("expr") {
            Some(Value::String(expr)) => {
                let reading = template::read_plain(expr);
                self.problems.extend(reading.problem.map(|reason| Problem::new(&place, reason, expr)));
                reading.selectors
            }
            Some(Value::Number(_)) => Vec::new(),
            _ => return self.problems.push(Problem::new(&place, "rule without expr", "")),
        };
        selectors.extend(of_templates(rule));
        self.needs.add(Need { place, consumer, selectors });
    }
}

/// Returns the selectors of queries in labels and annotations: `{{ query "up" }}`.
fn of_templates(rule: &Value) -> Vec<Selector> {
    let texts = ["labels", "annotations"].iter().filter_map(|key| rule.get(key)?.as_object());
    let texts = texts.flat_map(|texts| texts.values().filter_map(Value::as_str));
    texts.filter(|text| text.contains("{{") && text.contains("query")).flat_map(template::words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which of the metrics `a` to `d` are needed, and the number of problems.
    fn check(text: &str, expect: &[&str], n_problems: usize) {
        let (mut needs, mut problems) = (Needs::default(), Vec::new());
        read(&"file".into(), text, &mut needs, &mut problems);
        let found: Vec<_> =
            ["a", "b", "c", "d"].into_iter().filter(|name| needs.of_metric(name).next().is_some()).collect();
        assert_eq!((found, problems.len()), (expect.to_vec(), n_problems), "{text}: {problems:?}");
    }

    #[test]
    fn rules_are_read_from_files_and_manifests() {
        let groups =
            "groups: [{name: g, rules: [{record: r, expr: a}, {alert: A, expr: 'b > 0'}, {record: s, expr: 1}]}]";
        check(groups, &["a", "b"], 0);
        check(&format!("kind: PrometheusRule\nspec:\n  {groups}"), &["a", "b"], 0);
        check(
            &format!("kind: List\nitems:\n- kind: Deployment\n- kind: PrometheusRule\n  spec:\n    {groups}"),
            &["a", "b"],
            0,
        );
        check(&format!("{groups}\n---\ngroups: [{{name: h, rules: [{{record: r, expr: c}}]}}]"), &["a", "b", "c"], 0);
        check(&format!("kind: ConfigMap\ndata:\n  rules.yml: |\n    {groups}\n  other: text"), &["a", "b"], 0);
    }

    #[test]
    fn queries_in_annotations_are_needed() {
        let rule = "{alert: A, expr: a, annotations: {x: '{{ query \"c\" | first | value }}', y: 'd is no query'}}";
        check(&format!("groups: [{{name: g, rules: [{rule}]}}]"), &["a", "c"], 0);
    }

    #[test]
    fn unparsable_rules_are_reported_and_need_their_metrics() {
        check(
            "groups: [{name: g, rules: [{alert: A, expr: 'sum(a'}, {alert: B}, {alert: C, expr: b}]}]",
            &["a", "b"],
            2,
        );
        check("a: [", &[], 1);
        check("a: 1", &[], 1);
        check("kind: PrometheusRule", &[], 1);
        check("", &[], 0);
    }
}
