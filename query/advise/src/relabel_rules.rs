//! Findings as relabel rules, ready to paste: scoped by job, in dry-run mode by default, and
//! disabled by use where they drop.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use varve_regexp::Regexp;

use crate::alternation::alternations;
use crate::counted;
use crate::findings::{Finding, Findings, Kind, by_job, spellings};

/// Maximum size of the regular expression of a rule, except for a single long name.
const REGEX_SIZE_MAX: usize = 2_048;

/// The configuration that the rules are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `ingest.metric_relabel_configs` of Varve, with names and states.
    Varve,
    /// `write_relabel_configs` or `metric_relabel_configs` of Prometheus.
    Prometheus,
}

/// Options of the rules.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The configuration that they are for.
    pub dialect: Dialect,
    /// Whether the rules drop series. Otherwise they only count the series that they would drop.
    pub enforce: bool,
    /// Also write rules that remove labels.
    pub labels: bool,
}

/// Relabel rules that drop findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelabelRules {
    /// The rules as YAML.
    pub text: String,
    /// Number of rules.
    pub n_rules: usize,
}

struct Rule {
    name: String,
    /// A description for people.
    comment: String,
    sources: &'static str,
    regex: String,
    /// The label to remove. `None` drops the series.
    label: Option<String>,
}

impl RelabelRules {
    /// Writes rules that drop what was found.
    #[must_use]
    pub fn of(findings: &Findings, options: Options) -> Self {
        let rules = rules(findings, options.labels);
        let mut text = head(findings);
        text.push_str(match options.dialect {
            Dialect::Varve => "ingest:\n  metric_relabel_configs:",
            Dialect::Prometheus => "write_relabel_configs:",
        });
        text.push_str(if rules.is_empty() { " []\n" } else { "\n" });
        for rule in &rules {
            rule.write(&mut text, options);
        }
        Self {
            text,
            n_rules: rules.len(),
        }
    }
}

/// Returns the comment above the rules.
fn head(findings: &Findings) -> String {
    let totals = &findings.totals;
    format!(
        "# Written by `varve advise drops`: what no rule, dashboard or query uses.\n\
         # {} of {} series ({:.1} %), {:.0} of {:.0} samples per second.\n",
        totals.unused_series,
        totals.series,
        totals.unused_percent(),
        totals.unused_samples_per_second,
        totals.samples_per_second,
    )
}

fn rules(findings: &Findings, labels: bool) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (job, unused) in by_job(droppable(findings, Kind::Metric)) {
        add(&mut rules, job, "", &unused, None);
    }
    for finding in droppable(findings, Kind::Buckets) {
        rules.push(of_buckets(finding));
    }
    if !labels {
        number(&mut rules);
        return rules;
    }
    for (job, unused) in by_job(droppable(findings, Kind::Label)) {
        let mut by_label: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
        for finding in &unused {
            by_label.entry(&finding.label).or_default().push(finding);
        }
        for (label, unused) in by_label {
            add(
                &mut rules,
                job,
                &format!("-label-{label}"),
                &unused,
                Some(label),
            );
        }
    }
    number(&mut rules);
    rules
}

/// Returns the findings of a kind that rules can drop.
fn droppable(findings: &Findings, kind: Kind) -> impl Iterator<Item = &Finding> {
    findings
        .unused
        .iter()
        .filter(move |finding| finding.kind == kind && finding.droppable)
}

/// Adds the rules for some metrics of a job. Their names end with `suffix`.
fn add(rules: &mut Vec<Rule>, job: &str, suffix: &str, unused: &[&Finding], label: Option<&str>) {
    let mut sizes: Vec<_> = unused
        .iter()
        .map(|finding| (finding.metric.as_str(), finding.series))
        .collect();
    sizes.sort_unstable();
    let names: Vec<_> = sizes.iter().map(|(name, _)| *name).collect();
    let mut rest = &sizes[..];
    let without = label.map_or_else(String::new, |label| format!(" without label {label:?}"));
    for (part, n_names) in alternations(&names, REGEX_SIZE_MAX) {
        let (own, others) = rest.split_at(n_names);
        rest = others;
        let series: u64 = own.iter().map(|(_, series)| series).sum();
        rules.push(Rule {
            name: format!("unused-{job}{suffix}"),
            comment: format!(
                "job {job:?}: {}{without}, {series} series",
                counted(n_names, "metric")
            ),
            sources: "[job, __name__]",
            regex: format!("{};({part})", Regexp::escape(job)),
            label: label.map(str::to_owned),
        });
    }
}

fn of_buckets(finding: &Finding) -> Rule {
    let bounds: Vec<_> = finding
        .buckets
        .iter()
        .flat_map(|bound| spellings(bound))
        .collect();
    let bounds: Vec<_> = bounds.iter().map(|bound| Regexp::escape(bound)).collect();
    let job = Regexp::escape(&finding.job);
    let metric = Regexp::escape(&finding.metric);
    Rule {
        name: format!("unused-{}-buckets-{}", finding.job, finding.metric),
        comment: format!(
            "job {:?}: {}, {} series",
            finding.job,
            counted(finding.buckets.len(), "bucket"),
            finding.series
        ),
        sources: "[job, __name__, le]",
        regex: format!("{job};{metric};({})", bounds.join("|")),
        label: None,
    }
}

/// Makes rule names unique.
fn number(rules: &mut [Rule]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for rule in rules {
        let n = seen.entry(rule.name.clone()).or_default();
        *n += 1;
        if *n > 1 {
            let name = format!("{}-{n}", rule.name);
            rule.name = name;
        }
    }
}

impl Rule {
    fn write(&self, text: &mut String, options: Options) {
        let mut line = |line: std::fmt::Arguments<'_>| {
            writeln!(text, "  {line}").expect("writing to a String cannot fail")
        };
        line(format_args!("# {}", self.comment));
        let sources = self.sources;
        if options.dialect == Dialect::Varve {
            line(format_args!("- name: {}", quote(&self.name)));
            line(format_args!(
                "  state: {}",
                if options.enforce {
                    "enforce"
                } else {
                    "dry_run"
                }
            ));
            // A metric that is unused now may be queried later. Only rules that drop can be
            // disabled by use.
            if self.label.is_none() {
                line(format_args!("  disable_on_use: true"));
            }
            line(format_args!("  source_labels: {sources}"));
        } else {
            line(format_args!("- source_labels: {sources}"));
        }
        line(format_args!("  regex: {}", quote(&self.regex)));
        match &self.label {
            None => line(format_args!("  action: drop")),
            Some(label) => {
                line(format_args!("  action: replace"));
                line(format_args!("  target_label: {}", quote(label)));
                line(format_args!("  replacement: ''"));
            }
        }
    }
}

/// Returns a text as a YAML scalar.
fn quote(text: &str) -> String {
    // JSON strings are valid YAML, and the only form that can contain control characters.
    if text.contains(|c: char| c.is_control()) {
        return serde_json::Value::from(text).to_string();
    }
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Totals;

    fn finding(kind: Kind, job: &str, metric: &str) -> Finding {
        Finding {
            kind,
            job: job.to_owned(),
            metric: metric.to_owned(),
            label: if kind == Kind::Label {
                "x".to_owned()
            } else {
                String::new()
            },
            buckets: if kind == Kind::Buckets {
                vec!["0.5".to_owned(), "5".to_owned()]
            } else {
                Vec::new()
            },
            series: 3,
            samples_per_second: 0.1,
            bytes: 1.0,
            droppable: true,
        }
    }

    fn findings() -> Findings {
        let unused = vec![
            finding(Kind::Metric, "j's", "a_c"),
            finding(Kind::Metric, "j's", "a_b"),
            finding(Kind::Buckets, "j's", "h_bucket"),
            finding(Kind::Label, "j's", "d"),
            Finding {
                droppable: false,
                ..finding(Kind::Label, "j's", "e")
            },
        ];
        Findings {
            totals: Totals::default(),
            unused,
            kept: Vec::new(),
            unread: Vec::new(),
            classic_beside_native: Vec::new(),
            nameless: Vec::new(),
            exploration: Vec::new(),
        }
    }

    fn check(options: Options, expect: &serde_json::Value) {
        let RelabelRules { text, n_rules } = RelabelRules::of(&findings(), options);
        assert_eq!(n_rules, text.matches("  - ").count(), "{text}");
        assert_eq!(
            &serde_yaml_ng::from_str::<serde_json::Value>(&text).unwrap(),
            expect,
            "{text}"
        );
    }

    #[test]
    fn rules_are_scoped_by_job_and_dry_run() {
        let rule = |name: &str, labels: serde_json::Value, regex: &str| serde_json::json!({"name": name, "state": "dry_run", "disable_on_use": true, "source_labels": labels, "regex": regex, "action": "drop"});
        let names = rule(
            "unused-j's",
            serde_json::json!(["job", "__name__"]),
            "j's;(a_(b|c))",
        );
        let bounds = serde_json::json!(["job", "__name__", "le"]);
        let buckets = rule(
            "unused-j's-buckets-h_bucket",
            bounds,
            "j's;h_bucket;(0\\.5|5|5\\.0)",
        );
        let options = Options {
            dialect: Dialect::Varve,
            enforce: false,
            labels: false,
        };
        check(
            options,
            &serde_json::json!({"ingest": {"metric_relabel_configs": [names, buckets]}}),
        );
    }

    /// The comment of a rule for one metric said `1 metrics`.
    #[test]
    fn comments_count_metrics_and_buckets() {
        let options = Options {
            dialect: Dialect::Varve,
            enforce: false,
            labels: true,
        };
        let RelabelRules { text, .. } = RelabelRules::of(&findings(), options);
        for comment in [
            "# job \"j's\": 2 metrics, 6 series\n",
            "# job \"j's\": 2 buckets, 3 series\n",
            "# job \"j's\": 1 metric without label \"x\", 3 series\n",
        ] {
            assert!(text.contains(comment), "{text}");
        }
    }

    #[test]
    fn rules_for_prometheus_have_only_its_keys() {
        let options = Options {
            dialect: Dialect::Prometheus,
            enforce: true,
            labels: true,
        };
        let drop = |labels: serde_json::Value, regex: &str| serde_json::json!({"source_labels": labels, "regex": regex, "action": "drop"});
        let label = serde_json::json!({
            "source_labels": ["job", "__name__"], "regex": "j's;(d)", "action": "replace", "target_label": "x",
            "replacement": "",
        });
        let rules = [
            drop(serde_json::json!(["job", "__name__"]), "j's;(a_(b|c))"),
            drop(
                serde_json::json!(["job", "__name__", "le"]),
                "j's;h_bucket;(0\\.5|5|5\\.0)",
            ),
            label,
        ];
        check(
            options,
            &serde_json::json!({"write_relabel_configs": rules}),
        );
    }

    #[test]
    fn a_label_name_cannot_add_rules() {
        let label = "x\n  - action: drop".to_owned();
        let unused = vec![Finding {
            label,
            ..finding(Kind::Label, "j", "d")
        }];
        let findings = Findings {
            totals: Totals::default(),
            unused,
            kept: Vec::new(),
            unread: Vec::new(),
            classic_beside_native: Vec::new(),
            nameless: Vec::new(),
            exploration: Vec::new(),
        };
        let options = Options {
            dialect: Dialect::Prometheus,
            enforce: true,
            labels: true,
        };
        let text = RelabelRules::of(&findings, options).text;
        let rules: serde_json::Value = serde_yaml_ng::from_str(&text).unwrap();
        assert_eq!(
            rules["write_relabel_configs"].as_array().unwrap().len(),
            1,
            "{text}"
        );
    }

    #[test]
    fn any_text_can_be_a_scalar() {
        for text in ["it's", "a: b # c", "\n\t\"", "é"] {
            assert_eq!(
                serde_yaml_ng::from_str::<String>(&quote(text)).unwrap(),
                text
            );
        }
    }
}
