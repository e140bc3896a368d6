//! `varve check metrics`: lints a scrape body with the messages of Prometheus' linter.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _};

use anyhow::{Context, Result, ensure};
use varve_model::metadata::MetricType;

use super::args::MetricsArgs;
use super::families::{self, Family};
use super::input::INPUT_SIZE_MAX;
use super::verdict::Verdict;
use crate::output::table;

/// Lints standard input.
pub(super) fn check(args: &MetricsArgs) -> Result<Verdict> {
    let mut input = std::io::stdin().take(INPUT_SIZE_MAX + 1);
    let families = families::read(BufReader::new(&mut input)).context("error while linting")?;
    ensure!(
        input.limit() > 0,
        "error while linting: the input is longer than {INPUT_SIZE_MAX} bytes"
    );
    let problems = problems(&families);
    for (metric, text) in &problems {
        eprintln!("{metric} {text}");
    }
    if args.extended {
        print!("{}", cardinalities(&families));
    }
    Ok(if problems.is_empty() {
        Verdict::Valid
    } else {
        Verdict::Lint
    })
}

/// Returns the lint errors, sorted by metric and message.
fn problems(families: &BTreeMap<String, Family>) -> Vec<(&str, String)> {
    let mut problems = Vec::new();
    for (name, family) in families {
        let mut family_problems = name_problems(name, family.kind);
        family_problems.extend(type_problems(name, family));
        if !family.has_help {
            family_problems.push("no help text".to_owned());
        }
        for label in &family.label_names {
            if is_camel_case(label) {
                family_problems.push(
                    "label names should be written in 'snake_case' not 'camelCase'".to_owned(),
                );
            }
        }
        for _ in 0..family.n_repeated {
            family_problems.push("metric not unique".to_owned());
        }
        family_problems.sort();
        problems.extend(
            family_problems
                .into_iter()
                .map(|text| (name.as_str(), text)),
        );
    }
    problems
}

fn name_problems(name: &str, kind: MetricType) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some((unit, base)) = unit_of(name).filter(|(unit, base)| unit != base) {
        problems.push(format!("use base unit {base:?} instead of {unit:?}"));
    }
    if name.contains(':') {
        problems.push("metric names should not contain ':'".to_owned());
    }
    if is_camel_case(name) {
        problems.push("metric names should be written in 'snake_case' not 'camelCase'".to_owned());
    }
    let name = name.to_lowercase();
    let has_word =
        |word: &str| name.contains(&format!("_{word}_")) || name.ends_with(&format!("_{word}"));
    if kind != MetricType::Unknown && has_word(kind.name()) {
        problems.push(format!(
            "metric name should not include type '{}'",
            kind.name()
        ));
    }
    for unit in ABBREVIATIONS {
        if has_word(unit) {
            problems.push("metric names should not contain abbreviated units".to_owned());
        }
    }
    problems
}

fn type_problems(name: &str, family: &Family) -> Vec<String> {
    let kind = family.kind;
    if kind == MetricType::Unknown {
        return Vec::new();
    }
    let is_total = name.ends_with("_total");
    let is_histogram = kind == MetricType::Histogram;
    let is_summary = kind == MetricType::Summary;
    let is_single = !is_histogram && !is_summary;
    let checks = [
        (
            kind == MetricType::Counter && !is_total,
            "counter metrics should have \"_total\" suffix",
        ),
        (
            kind != MetricType::Counter && is_total,
            "non-counter metrics should not have \"_total\" suffix",
        ),
        (
            !is_histogram && name.ends_with("_bucket"),
            "non-histogram metrics should not have \"_bucket\" suffix",
        ),
        (
            is_single && name.ends_with("_count"),
            "non-histogram and non-summary metrics should not have \"_count\" suffix",
        ),
        (
            is_single && name.ends_with("_sum"),
            "non-histogram and non-summary metrics should not have \"_sum\" suffix",
        ),
    ];
    let mut problems = Vec::new();
    for (has_problem, text) in checks {
        if has_problem {
            problems.push(text.to_owned());
        }
    }
    for label in &family.label_names {
        match label.as_str() {
            "le" if !is_histogram => {
                problems.push("non-histogram metrics should not have \"le\" label".to_owned());
            }
            "quantile" if !is_summary => {
                problems.push("non-summary metrics should not have \"quantile\" label".to_owned());
            }
            _ => {}
        }
    }
    problems
}

fn is_camel_case(name: &str) -> bool {
    name.as_bytes()
        .windows(2)
        .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

/// Returns the first unit in a name, and its base unit.
fn unit_of(name: &str) -> Option<(&str, &'static str)> {
    for word in name.split('_') {
        if let Some(base) = base_unit(word) {
            return Some((word, base));
        }
        for prefix in PREFIXES {
            if let Some(base) = word.strip_prefix(prefix).and_then(base_unit) {
                return Some((word, base));
            }
        }
    }
    None
}

/// Returns the base unit of a unit without a prefix.
fn base_unit(word: &str) -> Option<&'static str> {
    let found = UNITS
        .iter()
        .find(|(_, units)| units.split(' ').any(|unit| unit == word));
    found.map(|(base, _)| *base)
}

/// Base units, and the units of Prometheus' linter that are converted to them.
const UNITS: [(&str, &str); 10] = [
    ("amperes", "amperes"),
    ("bytes", "bytes bits"),
    ("celsius", "celsius fahrenheit rankine"),
    ("grams", "grams pounds ounces"),
    ("joules", "joules calories"),
    ("kelvin", "kelvin kelvins"),
    ("meters", "meters inches yards miles"),
    ("metres", "metres"),
    ("seconds", "seconds minutes hours days weeks"),
    ("volts", "volts"),
];

/// Prefixes of units.
const PREFIXES: [&str; 18] = [
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega",
    "mibi", "giga", "gibi", "tera", "tebi", "peta", "pebi",
];

/// Abbreviated units.
const ABBREVIATIONS: [&str; 14] = [
    "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d",
];

/// Returns a table of the series per family, largest first.
fn cardinalities(families: &BTreeMap<String, Family>) -> String {
    let mut counts = Vec::new();
    for (name, family) in families {
        let n_series = match family.kind {
            MetricType::Histogram | MetricType::Summary => family.n_metrics * (2 + family.n_parts),
            _ => family.n_metrics,
        };
        counts.push((name, n_series));
    }
    counts.sort_by_key(|(_, n_series)| std::cmp::Reverse(*n_series));

    let total: usize = counts.iter().map(|(_, n_series)| n_series).sum();
    let mut rows = Vec::new();
    for (name, n_series) in counts {
        let percent = format!("{:.2}%", n_series as f64 * 100.0 / total as f64);
        rows.push([name.clone(), n_series.to_string(), percent]);
    }
    rows.push(["Total".to_owned(), total.to_string(), "100%".to_owned()]);
    table(&["Metric", "Cardinality", "Percentage"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expect: &[&str]) {
        let families = families::read(body.as_bytes()).unwrap();
        let found: Vec<_> = problems(&families)
            .into_iter()
            .map(|(name, text)| format!("{name} {text}"))
            .collect();
        assert_eq!(found, expect, "{body}");
    }

    #[test]
    fn lint_errors_have_the_messages_of_prometheus() {
        let help = |name: &str, kind: &str| {
            format!("# HELP {name} text\n# TYPE {name} {kind}\n{name} 1\n")
        };
        check(&help("a_total", "counter"), &[]);
        check(&help("process_cpu_seconds_total", "counter"), &[]);
        check(
            &help("a", "counter"),
            &["a counter metrics should have \"_total\" suffix"],
        );
        check("a 1\n", &["a no help text"]);
        check(
            &help("a_milliseconds", "gauge"),
            &["a_milliseconds use base unit \"seconds\" instead of \"milliseconds\""],
        );
        check(
            &help("a_ms", "gauge"),
            &["a_ms metric names should not contain abbreviated units"],
        );
        check(
            &help("a:b", "gauge"),
            &["a:b metric names should not contain ':'"],
        );
        check(
            &help("a_gauge", "gauge"),
            &["a_gauge metric name should not include type 'gauge'"],
        );
        check(
            &help("aB_total", "gauge"),
            &[
                "aB_total metric names should be written in 'snake_case' not 'camelCase'",
                "aB_total non-counter metrics should not have \"_total\" suffix",
            ],
        );
        check(
            "# HELP a text\n# TYPE a gauge\na{le=\"1\",bC=\"1\"} 1\na{le=\"1\",bC=\"1\"} 2\n",
            &[
                "a label names should be written in 'snake_case' not 'camelCase'",
                "a label names should be written in 'snake_case' not 'camelCase'",
                "a metric not unique",
                "a non-histogram metrics should not have \"le\" label",
                "a non-histogram metrics should not have \"le\" label",
            ],
        );
    }

    #[test]
    fn families_are_listed_largest_first() {
        let body = "a 1\nb{c=\"1\"} 1\nb{c=\"2\"} 1\nb{c=\"3\"} 1\n";
        let table = cardinalities(&families::read(body.as_bytes()).unwrap());
        let lines: Vec<_> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "Metric Cardinality Percentage",
                "b 3 75.00%",
                "a 1 25.00%",
                "Total 4 100%"
            ]
        );
    }
}
