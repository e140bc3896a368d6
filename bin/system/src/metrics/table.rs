//! Type, labels and help text of every metric: the table of docs/metrics.md, so that the page and
//! `/metrics` never differ.

use std::collections::HashMap;
use std::sync::LazyLock;

use prometheus::Opts;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// A row of the table.
pub(super) struct Description {
    kind: MetricType,
    pub(super) labels: Vec<&'static str>,
    pub(super) help: &'static str,
}

static TABLE: LazyLock<HashMap<&str, Description>> =
    LazyLock::new(|| PAGE.lines().filter_map(parse).collect());
/// Describes a metric that is not in the table, which a test of the page reports.
static UNLISTED: Description = Description {
    kind: MetricType::UNTYPED,
    labels: Vec::new(),
    help: "",
};

/// Parses a row: name, type, labels, help.
fn parse(line: &'static str) -> Option<(&'static str, Description)> {
    let mut cells = line
        .strip_prefix("| `")?
        .strip_suffix(" |")?
        .splitn(4, '|')
        .map(str::trim);
    let name = cells.next()?.trim_end_matches('`');
    let kind = cells.next()?;
    let labels = cells
        .next()?
        .split(", ")
        .filter(|label| !label.is_empty())
        .collect();
    let kind = match kind {
        "counter" => MetricType::COUNTER,
        "histogram" => MetricType::HISTOGRAM,
        "summary" => MetricType::SUMMARY,
        _ => MetricType::GAUGE,
    };
    Some((
        name,
        Description {
            kind,
            labels,
            help: cells.next()?,
        },
    ))
}

/// Returns the description of a metric.
pub(super) fn describe(name: &str) -> &'static Description {
    TABLE.get(name).unwrap_or(&UNLISTED)
}

/// Returns name and help text of a metric.
pub(super) fn opts(name: &str) -> Opts {
    Opts::new(name, describe(name).help)
}

/// Returns families of one counter or gauge each, without labels.
pub fn families<const N: usize>(values: [(&str, f64); N]) -> Vec<MetricFamily> {
    values
        .into_iter()
        .map(|(name, value)| family(name, [([], value)]))
        .collect()
}

/// Returns families as [`families`] does, for whole numbers.
pub fn counts<const N: usize>(values: [(&str, u64); N]) -> Vec<MetricFamily> {
    families(values.map(|(name, value)| (name, value as f64)))
}

/// Returns a family of counters or gauges, each with the values of its labels.
pub fn family<'a, const N: usize>(
    name: &str,
    values: impl IntoIterator<Item = ([&'a str; N], f64)>,
) -> MetricFamily {
    let Description { kind, labels, help } = describe(name);
    let mut metrics = Vec::new();
    for (label_values, value) in values {
        let pairs = labels.iter().zip(label_values);
        let mut metric = Metric::default();
        metric.set_label(pairs.map(|(name, value)| label(name, value)).collect());
        if *kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metrics.push(metric);
    }
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help((*help).to_owned());
    family.set_field_type(*kind);
    family.set_metric(metrics);
    family
}

pub(super) fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_page_are_parsed() {
        let (name, of) = parse("| `a_total` | counter | x, y | Help: a | b. |").unwrap();
        assert_eq!(
            (name, of.kind, of.help),
            ("a_total", MetricType::COUNTER, "Help: a | b.")
        );
        assert_eq!(of.labels, ["x", "y"]);
        assert!(parse("| metric | type | labels | help |").is_none());
        assert!(TABLE.len() > 100 && TABLE.values().all(|of| !of.help.is_empty()));
    }
}
