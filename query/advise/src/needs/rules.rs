//! The needs of rules: of Prometheus' own rule files, PrometheusRule manifests, lists of them, and
//! ConfigMaps with rule files; and of the rules that a server evaluates.

use std::rc::Rc;

use varve_promql::print_matchers;
use varve_rules::RuleSet;
use varve_rules::file::{self, RawRule, RuleKind};

use super::index::Needs;
use super::need::{Consumer, Location, Selector};
use super::template;

impl Needs {
    /// Adds the needs of the rules in the text of a file. Manifests of other kinds are ignored.
    pub fn add_rule_file(&mut self, name: &Rc<str>, text: &str) {
        let files = match file::read(text) {
            Ok(files) => files,
            Err(error) => {
                return self.report(Location::new(name, String::new()), error.to_string(), "");
            }
        };
        for file in files {
            if file.groups.is_empty() {
                self.report(
                    Location::new(name, file.manifest.clone().unwrap_or_default()),
                    "no rule groups",
                    "",
                );
            }
            for group in &file.groups {
                for rule in &group.rules {
                    self.add_raw_rule(name, &group.name, rule);
                }
            }
        }
    }

    fn add_raw_rule(&mut self, file: &Rc<str>, group: &str, rule: &RawRule) {
        let location = location(file, group, rule.record.is_some(), rule.name());
        let templates = rule.labels.values().chain(rule.annotations.values());
        match &rule.expr {
            Some(expr) => self.add_rule(location, rule.record.as_deref(), expr, templates),
            None => self.report(location, "rule without expr", ""),
        }
    }

    /// Adds the needs of the rules that a server evaluates.
    pub fn add_rule_set(&mut self, set: &RuleSet) {
        for group in set.groups() {
            let file = Rc::from(&*group.file);
            for rule in &group.rules {
                let rule = &rule.definition;
                let (record, annotations) = match &rule.kind {
                    RuleKind::Recording => (Some(&*rule.name), None),
                    RuleKind::Alerting(alerting) => (None, Some(&alerting.annotations)),
                };
                let location = location(&file, group.name(), record.is_some(), &rule.name);
                let templates = rule
                    .labels
                    .values()
                    .chain(annotations.into_iter().flat_map(|all| all.values()));
                self.add_rule(location, record, &rule.expr.text, templates);
            }
        }
    }

    /// Adds the needs of a rule. `record` is the name that a recording rule writes.
    fn add_rule<'a>(
        &mut self,
        location: Location,
        record: Option<&str>,
        expr: &str,
        templates: impl Iterator<Item = &'a String>,
    ) {
        let mut extracted = template::read_plain(expr);
        for selector in template_selectors(templates) {
            extracted.exprs.push(print_matchers(&selector.matchers));
            extracted.selectors.push(selector);
        }
        let consumer = record.map_or(Consumer::Reader, |name| Consumer::Record(name.to_owned()));
        self.add_extracted(location, consumer, expr, extracted);
    }
}

fn location(file: &Rc<str>, group: &str, is_recording: bool, rule: &str) -> Location {
    let kind = if is_recording {
        "recording rule"
    } else {
        "alert"
    };
    Location::new(file, format!("group {group}, {kind} {rule}"))
}

/// Returns the selectors of queries in labels and annotations: `{{ query "up" }}`.
fn template_selectors<'a>(
    texts: impl Iterator<Item = &'a String>,
) -> impl Iterator<Item = Selector> {
    texts
        .filter(|text| text.contains("{{") && text.contains("query"))
        .flat_map(|text| template::words(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::Nameless;

    /// Checks which of the metrics `a` to `d` are needed, and the number of problems.
    fn check(text: &str, expect: &[&str], n_problems: usize) {
        let mut needs = Needs::default();
        needs.add_rule_file(&"file".into(), text);
        let problems = needs.problems();
        let found: Vec<_> = ["a", "b", "c", "d"]
            .into_iter()
            .filter(|name| needs.of_metric(name, Nameless::All).next().is_some())
            .collect();
        assert_eq!(
            (found, problems.len()),
            (expect.to_vec(), n_problems),
            "{text}: {problems:?}"
        );
    }

    #[test]
    fn rules_are_read_from_files_and_manifests() {
        let groups = "groups: [{name: g, rules: [{record: r, expr: a}, {alert: A, expr: 'b > 0'}, {record: s, expr: 1}]}]";
        check(groups, &["a", "b"], 0);
        check(
            &format!("kind: PrometheusRule\nspec:\n  {groups}"),
            &["a", "b"],
            0,
        );
        check(
            &format!(
                "kind: List\nitems:\n- kind: Deployment\n- kind: PrometheusRule\n  spec:\n    {groups}"
            ),
            &["a", "b"],
            0,
        );
        check(
            &format!("{groups}\n---\ngroups: [{{name: h, rules: [{{record: r, expr: c}}]}}]"),
            &["a", "b", "c"],
            0,
        );
        check(
            &format!("kind: ConfigMap\ndata:\n  rules.yml: |\n    {groups}\n  other: text"),
            &["a", "b"],
            0,
        );
    }

    #[test]
    fn queries_in_annotations_are_needed() {
        let rule = "{alert: A, expr: a, annotations: {x: '{{ query \"c\" | first | value }}', y: 'd is no query'}}";
        check(
            &format!("groups: [{{name: g, rules: [{rule}]}}]"),
            &["a", "c"],
            0,
        );
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
