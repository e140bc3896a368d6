//! Rule files: Prometheus' own, PrometheusRule manifests, lists of them, and ConfigMaps with rule files.

use std::rc::Rc;

use varve_rules::file::{self, RawRule};

use super::needs::{Consumer, Location, Need, Needs, Selector};
use super::problems::Problem;
use super::template;

/// Adds the needs of the rules in a text. Manifests of other kinds are ignored.
pub(super) fn read(name: &Rc<str>, text: &str, needs: &mut Needs, problems: &mut Vec<Problem>) {
    let location = |within: String| Location { file: Rc::clone(name), within };
    let files = match file::read(text) {
        Ok(files) => files,
        Err(error) => return problems.push(Problem::new(&location(String::new()), error.to_string(), "")),
    };
    for file in files {
        if file.groups.is_empty() {
            problems.push(Problem::new(&location(file.manifest.clone().unwrap_or_default()), "no rule groups", ""));
        }
        for group in &file.groups {
            for rule in &group.rules {
                let kind = if rule.record.is_some() { "recording rule" } else { "alert" };
                let location = location(format!("group {}, {kind} {}", group.name, rule.name()));
                add_rule(location, rule, needs, problems);
            }
        }
    }
}

fn add_rule(location: Location, rule: &RawRule, needs: &mut Needs, problems: &mut Vec<Problem>) {
    let Some(expr) = &rule.expr else { return problems.push(Problem::new(&location, "rule without expr", "")) };
    let reading = template::read_plain(expr);
    problems.extend(reading.problem.map(|reason| Problem::new(&location, reason, expr)));
    let mut selectors = reading.selectors;
    selectors.extend(template_selectors(rule.labels.values().chain(rule.annotations.values())));
    let consumer = rule.record.as_ref().map_or(Consumer::Reader, |name| Consumer::Record(name.clone()));
    needs.add(Need { location, consumer, selectors });
}

/// Returns the selectors of queries in labels and annotations: `{{ query "up" }}`.
pub(super) fn template_selectors<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<Selector> {
    texts.filter(|text| text.contains("{{") && text.contains("query")).flat_map(|text| template::words(text)).collect()
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
