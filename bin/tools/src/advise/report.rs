//! The report, as a table for people or as YAML or JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;
use varve_advise::Advice;
use varve_advise::counted;
use varve_advise::findings::{Finding, Kept, Kind};
use varve_advise::needs::Problem;
use varve_wire::api::advice::AdviceReport;

use crate::output::table;
use varve_system::quantity::print_rounded_size;

/// The report of `varve advise drops`.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) advice: &'a Advice,
    /// When the youngest usage record began.
    pub(super) since_ms: Option<i64>,
    /// Inputs that could not be parsed. Each counts as using every metric that it names.
    pub(super) problems: &'a [Problem],
    /// Remarks on the reliability of the report.
    pub(super) notes: Vec<String>,
}

/// The report in JSON: the response of /api/v1/status/advice, and what is said about the inputs.
#[derive(Debug, Serialize)]
pub(super) struct JsonReport<'a> {
    #[serde(flatten)]
    advice: AdviceReport,
    problems: Vec<Unparsed<'a>>,
    notes: &'a [String],
}

/// An input that could not be parsed.
#[derive(Debug, Serialize)]
pub(super) struct Unparsed<'a> {
    file: &'a str,
    place: &'a str,
    reason: &'a str,
    /// The expression, or empty.
    text: &'a str,
}

impl<'a> From<&'a Problem> for Unparsed<'a> {
    fn from(
        Problem {
            file,
            place,
            reason,
            text,
        }: &'a Problem,
    ) -> Self {
        Self {
            file,
            place,
            reason,
            text,
        }
    }
}

impl Report<'_> {
    /// Returns the report for programs.
    pub(super) fn json(&self) -> JsonReport<'_> {
        JsonReport {
            advice: AdviceReport::of(self.since_ms, self.advice.clone(), usize::MAX),
            problems: self.problems.iter().map(Unparsed::from).collect(),
            notes: &self.notes,
        }
    }

    /// Returns the report as text, with at most `lines_max` lines per table.
    pub(super) fn table(&self, lines_max: usize) -> String {
        let findings = &self.advice.findings;
        let mut text = self.totals();
        unused(&mut text, &findings.unused, lines_max);
        kept(&mut text, &findings.kept, lines_max);
        let title =
            "Metrics used only by recording rules whose results nothing reads (not dropped)";
        let unread: Vec<_> = findings.unread.iter().collect();
        part(&mut text, title, &unread, lines_max);
        let title = "Classic buckets beside a native histogram, whose queries can replace theirs (not dropped)";
        let classic: Vec<_> = findings.classic_beside_native.iter().collect();
        part(&mut text, title, &classic, lines_max);
        list(
            &mut text,
            "Selectors without a metric name",
            &findings.nameless,
            lines_max,
        );
        list(
            &mut text,
            "Exploration: recorded queries without a metric name, which are no use",
            &findings.exploration,
            lines_max,
        );
        // A problem without an expression is that of a whole file.
        let mut unread = Vec::new();
        let mut unparsed = Vec::new();
        for problem in self.problems {
            let lines = if problem.text.is_empty() {
                &mut unread
            } else {
                &mut unparsed
            };
            lines.push(problem.to_string());
        }
        let title = "Not read: nothing in it counts as used";
        list(&mut text, title, &unread, lines_max);
        list(
            &mut text,
            "Not parsed, and counted as using every metric that it names",
            &unparsed,
            lines_max,
        );
        list(&mut text, "Notes", &self.notes, lines_max);
        text
    }

    fn totals(&self) -> String {
        let totals = &self.advice.findings.totals;
        let mut text = format!(
            "{} of {} series ({:.1} %) belong to unused metrics: {} of {} metrics.\n",
            totals.unused_metric_series,
            totals.series,
            totals.unused_metric_percent(),
            totals.unused_metrics,
            totals.metrics
        );
        let _ = writeln!(
            text,
            "With unused buckets {} series ({:.1} %), {:.1} of {:.1} samples per second, {} on disk. \
             Read {}.",
            totals.unused_series,
            totals.unused_percent(),
            totals.unused_samples_per_second,
            totals.samples_per_second,
            print_rounded_size(totals.unused_bytes),
            counted(self.advice.n_expressions, "expression")
        );
        text
    }
}

/// Appends the tables of what is unused.
fn unused(text: &mut String, findings: &[Finding], lines_max: usize) {
    let mut metrics_and_buckets = Vec::new();
    let mut labels = Vec::new();
    let mut n_useless_labels = 0;
    for finding in findings {
        match finding.kind {
            Kind::Metric | Kind::Buckets => metrics_and_buckets.push(finding),
            Kind::Label if finding.series > 0 => labels.push(finding),
            Kind::Label => n_useless_labels += 1,
        }
    }
    part(
        text,
        "Unused metrics and buckets",
        &metrics_and_buckets,
        lines_max,
    );
    part(text, "Unused labels", &labels, lines_max);
    if n_useless_labels > 0 {
        let _ = writeln!(
            text,
            "\n{n_useless_labels} unused labels distinguish no series: dropping them saves none."
        );
    }
}

/// Appends a table of findings.
fn part(text: &mut String, title: &str, findings: &[&Finding], lines_max: usize) {
    let head = ["series", "samples/s", "disk", "job", "metric", ""];
    let rows = findings.iter().take(lines_max).map(|finding| {
        let what = match finding.kind {
            Kind::Metric => String::new(),
            Kind::Buckets => format!("le: {}", finding.buckets.join(" ")),
            Kind::Label if finding.droppable => {
                format!("label {}: no two series differ only by it", finding.label)
            }
            Kind::Label => format!("label {}: needs an aggregation to remove it", finding.label),
        };
        [
            finding.series.to_string(),
            format!("{:.1}", finding.samples_per_second),
            print_rounded_size(finding.bytes),
            finding.job.clone(),
            finding.metric.clone(),
            what,
        ]
    });
    if !findings.is_empty() {
        let _ = write!(text, "\n{title}\n{}", table(&head, rows));
        more(text, findings.len(), lines_max);
    }
}

/// Appends the table of what the keep list keeps.
fn kept(text: &mut String, kept: &[Kept], lines_max: usize) {
    let head = ["series", "samples/s", "disk", "job", "metric", "kept by"];
    let rows = kept
        .iter()
        .take(lines_max)
        .map(|Kept { finding, kept_by }| {
            [
                finding.series.to_string(),
                format!("{:.1}", finding.samples_per_second),
                print_rounded_size(finding.bytes),
                finding.job.clone(),
                finding.metric.clone(),
                kept_by.clone(),
            ]
        });
    if !kept.is_empty() {
        let title = "Kept although nothing uses them (--no-keep drops them, --keep adds)";
        let _ = write!(text, "\n{title}\n{}", table(&head, rows));
        more(text, kept.len(), lines_max);
    }
}

pub(super) fn list(text: &mut String, title: &str, lines: &[String], lines_max: usize) {
    if !lines.is_empty() {
        let _ = writeln!(text, "\n{title}");
        for line in lines.iter().take(lines_max) {
            let _ = writeln!(text, "  {line}");
        }
        more(text, lines.len(), lines_max);
    }
}

fn more(text: &mut String, n: usize, lines_max: usize) {
    if n > lines_max {
        let _ = writeln!(text, "  and {} more, see --limit", n - lines_max);
    }
}

#[cfg(test)]
mod tests {
    use varve_advise::findings::{Findings, Totals};
    use varve_advise::relabel_rules::RelabelRules;

    use super::*;

    fn check(check: impl FnOnce(&Report<'_>)) {
        let finding = |kind, metric: &str, series| Finding {
            kind,
            job: "j".into(),
            metric: metric.into(),
            label: if kind == Kind::Label {
                "x".into()
            } else {
                String::new()
            },
            buckets: if kind == Kind::Buckets {
                vec!["1".into(), "5".into()]
            } else {
                Vec::new()
            },
            series,
            samples_per_second: 0.5,
            bytes: 2048.0,
            droppable: kind != Kind::Label,
        };
        let unused = [
            (Kind::Metric, "a", 20),
            (Kind::Buckets, "b_bucket", 5),
            (Kind::Label, "c", 1),
            (Kind::Label, "d", 0),
        ];
        let unused = unused
            .into_iter()
            .map(|(kind, metric, n)| finding(kind, metric, n))
            .collect();
        let totals = Totals {
            metrics: 4,
            series: 50,
            unused_metrics: 1,
            unused_metric_series: 20,
            unused_series: 25,
            ..Totals::default()
        };
        let kept = vec![Kept {
            finding: finding(Kind::Metric, "e", 3),
            kept_by: "gpu-health".into(),
        }];
        let findings = Findings {
            totals,
            unused,
            kept,
            unread: Vec::new(),
            classic_beside_native: Vec::new(),
            nameless: vec!["file: panel".into()],
            exploration: vec!["record: selector {job=\"x\"}".into()],
        };
        let problem = Problem {
            file: "f".into(),
            place: "p".into(),
            reason: "r".into(),
            text: "sum(".into(),
        };
        let rules = RelabelRules {
            text: "rules".to_owned(),
            n_rules: 2,
        };
        let advice = Advice {
            findings,
            rules,
            n_expressions: 7,
        };
        check(&Report {
            advice: &advice,
            since_ms: None,
            problems: &[problem],
            notes: Vec::new(),
        });
    }

    #[test]
    fn tables_list_what_is_unused_and_what_was_not_parsed() {
        let expect = "\
20 of 50 series (40.0 %) belong to unused metrics: 1 of 4 metrics.
With unused buckets 25 series (50.0 %), 0.0 of 0.0 samples per second, 0.0 B on disk. Read 7 expressions.

Unused metrics and buckets
  series  samples/s     disk  job  metric
      20        0.5  2.0 KiB  j    a
  and 1 more, see --limit

Unused labels
  series  samples/s     disk  job  metric
       1        0.5  2.0 KiB  j    c       label x: needs an aggregation to remove it

1 unused labels distinguish no series: dropping them saves none.

Kept although nothing uses them (--no-keep drops them, --keep adds)
  series  samples/s     disk  job  metric  kept by
       3        0.5  2.0 KiB  j    e       gpu-health

Selectors without a metric name
  file: panel

Exploration: recorded queries without a metric name, which are no use
  record: selector {job=\"x\"}

Not parsed, and counted as using every metric that it names
  f: p: r: sum(
";
        check(|report| assert_eq!(report.table(1), expect));
    }

    #[test]
    fn reports_are_machine_readable() {
        check(|report| {
            let json = serde_json::to_value(report.json()).unwrap();
            assert_eq!(json["unused"][1]["buckets"], serde_json::json!(["1", "5"]));
            assert_eq!(
                (
                    &json["totals"]["unusedSeries"],
                    &json["problems"][0]["file"]
                ),
                (&25.into(), &"f".into())
            );
            assert_eq!(
                (&json["rulesCount"], &json["sinceMs"]),
                (&2.into(), &serde_json::Value::Null)
            );
        });
    }
}
