//! The metric families of a scrape body, grouped as Prometheus' text parser groups them.
//!
//! For each series it stores the data that the linter needs: a hash of the labels, to find
//! duplicates, and the label names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead, Read as _};

use anyhow::{Result, ensure};
use varve_ingest::text::{BadLine, Line, LineReader, MetadataLine, Pairs, TextFormat};
use varve_model::labels::METRIC_NAME;
use varve_model::metadata::MetricType;

/// Maximum bytes of a line.
const LINE_SIZE_MAX: u64 = 2 << 20;

/// A metric family.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) kind: MetricType,
    pub(super) has_help: bool,
    has_type: bool,
    /// Number of metrics. The series of a histogram or summary are one metric.
    pub(super) n_metrics: usize,
    /// Number of duplicate metrics.
    pub(super) n_repeated: usize,
    /// The label names of all metrics.
    pub(super) label_names: Vec<String>,
    /// Number of buckets or quantiles of the first metric.
    pub(super) n_parts: usize,
    first: Option<u64>,
    seen: HashSet<u64>,
}

/// Returns a type as the text parser of Prometheus sees it, which knows no types of OpenMetrics.
fn text_type(metric_type: MetricType) -> MetricType {
    match metric_type {
        MetricType::GaugeHistogram | MetricType::Info | MetricType::StateSet => MetricType::Unknown,
        known => known,
    }
}

/// Parses the families of a body, whose size the caller bounds.
///
/// # Errors
/// The first invalid line.
pub(super) fn read(mut body: impl BufRead) -> Result<BTreeMap<String, Family>> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let hasher = RandomState::new();
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let size = body.by_ref().take(LINE_SIZE_MAX + 1).read_line(&mut text)? as u64;
        if size == 0 {
            break;
        }
        ensure!(
            size <= LINE_SIZE_MAX,
            "line {line}: longer than {LINE_SIZE_MAX} bytes"
        );
        add_line(&mut families, &text, &hasher).map_err(|reason| BadLine { line, reason })?;
    }
    // Families without samples are not linted.
    families.retain(|_, family| family.n_metrics > 0);
    Ok(families)
}

fn add_line(
    families: &mut BTreeMap<String, Family>,
    text: &str,
    hasher: &RandomState,
) -> Result<(), String> {
    if !check_syntax(text)? {
        return Ok(());
    }
    let mut lines = LineReader::new(text.as_bytes(), TextFormat::Prometheus);
    match lines
        .read()
        .map_err(|error| error.reason)?
        .unwrap_or(Line::Nothing)
    {
        // As in Prometheus, an empty help text is none.
        Line::Metadata(MetadataLine::Help(name, help)) if !help.is_empty() => {
            let family = families
                .entry(family_of(families, &name).to_owned())
                .or_default();
            expect(!std::mem::replace(&mut family.has_help, true), || {
                format!("second HELP line for {name:?}")
            })?;
        }
        Line::Metadata(MetadataLine::Type(name, kind)) => {
            let family = families
                .entry(family_of(families, &name).to_owned())
                .or_default();
            let is_late = std::mem::replace(&mut family.has_type, true) || family.n_metrics > 0;
            expect(!is_late, || {
                format!("second TYPE line for {name:?}, or TYPE after samples")
            })?;
            family.kind = text_type(kind);
        }
        Line::Sample(sample) => add(families, &sample.labels, hasher)?,
        Line::Metadata(_) | Line::Composite(_) | Line::Series(_) | Line::Nothing => {}
    }
    Ok(())
}

/// Checks what Prometheus' parser checks in a line, and the server's parser does not. Returns
/// `false` if the line has no contents.
fn check_syntax(line: &str) -> Result<bool, String> {
    let text = line
        .strip_suffix('\n')
        .ok_or("unexpected end of input stream")?;
    let comment = text.trim_start_matches([' ', '\t']).strip_prefix('#');
    let words: Vec<_> = comment
        .unwrap_or_default()
        .split_whitespace()
        .take(3)
        .collect();
    let has_contents = match words[..] {
        ["HELP", ..] | [] => true,
        ["TYPE", ..] => words.len() == 3,
        _ => false,
    };
    let is_help = words.first() == Some(&"HELP");
    if !has_contents || is_help && words.len() < 3 {
        return Ok(false);
    }
    expect(is_help || !text.contains('\r'), || {
        "unexpected carriage return".to_owned()
    })?;
    let mut rest = text.chars();
    while rest.any(|c| c == '\\') {
        let is_known = matches!(rest.next(), Some('\\' | 'n' | '"'));
        expect(is_known, || "invalid escape sequence".to_owned())?;
    }
    Ok(true)
}

fn expect(holds: bool, error: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(error()) }
}

fn add(
    families: &mut BTreeMap<String, Family>,
    labels: &Pairs<'_>,
    hasher: &RandomState,
) -> Result<(), String> {
    let names: BTreeSet<_> = labels.iter().map(|(name, _)| name).collect();
    expect(names.len() == labels.len(), || {
        "duplicate label names".to_owned()
    })?;
    let name = labels
        .iter()
        .find(|(name, _)| name == METRIC_NAME)
        .map_or("", |(_, value)| value);
    let family_name = family_of(families, name).to_owned();
    let part = name
        .strip_prefix(family_name.as_str())
        .unwrap_or("")
        .to_owned();
    let family = families.entry(family_name).or_default();
    let inner = match family.kind {
        MetricType::Histogram => Some("le"),
        MetricType::Summary => Some("quantile"),
        _ => None,
    };
    let parts = labels.iter().filter(|(name, _)| Some(&**name) == inner);
    for (name, value) in parts {
        expect(value.parse::<f64>().is_ok(), || {
            format!("expected float as value for '{name}' label, got {value:?}")
        })?;
    }
    let mut outer: Vec<_> = labels
        .iter()
        .filter(|(name, _)| name != METRIC_NAME && Some(&**name) != inner)
        .collect();
    outer.sort();
    let hash = hasher.hash_one(&outer);
    let is_part = inner.is_some_and(|inner| labels.iter().any(|(name, _)| name == inner))
        && part != "_sum"
        && part != "_count";
    if family.first.get_or_insert(hash) == &hash && is_part {
        family.n_parts += 1;
    }
    if !family.seen.insert(hash) {
        family.n_repeated += usize::from(inner.is_none());
        if inner.is_some() {
            return Ok(());
        }
    }
    family.n_metrics += 1;
    family
        .label_names
        .extend(outer.iter().map(|(name, _)| name.to_string()));
    Ok(())
}

/// Returns the family of a series, given the families so far.
fn family_of<'a>(families: &BTreeMap<String, Family>, name: &'a str) -> &'a str {
    if families.contains_key(name) {
        return name;
    }
    let kind_of = |name: &str| families.get(name).map(|family| family.kind);
    let base_of = |suffixes: &[&str], kind: MetricType| {
        let bases = suffixes
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix));
        bases.into_iter().find(|base| kind_of(base) == Some(kind))
    };
    base_of(&["_count", "_sum"], MetricType::Summary)
        .or_else(|| base_of(&["_count", "_sum", "_bucket"], MetricType::Histogram))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_histogram_are_one_metric() {
        let body = "# HELP h text\n# TYPE h histogram\nh_bucket{a=\"b\",le=\"1\"} 1\nh_bucket{a=\"b\",le=\"+Inf\"} 1\nh_sum{a=\"b\"} 1\n\
                    h_count{a=\"b\"} 1\nh_bucket{le=\"1\"} 1\nc 1\nc 2\n# TYPE only gauge\n";
        let families = read(body.as_bytes()).unwrap();
        assert_eq!(families.keys().collect::<Vec<_>>(), ["c", "h"]);
        let h = &families["h"];
        assert_eq!(
            (h.kind, h.has_help, h.n_metrics, h.n_parts, h.n_repeated),
            (MetricType::Histogram, true, 2, 2, 0)
        );
        assert_eq!(h.label_names, ["a"]);
        let c = &families["c"];
        assert_eq!(
            (c.kind, c.has_help, c.n_metrics, c.n_repeated),
            (MetricType::Unknown, false, 2, 1)
        );
        assert!(!read("# HELP a \na 1\n".as_bytes()).unwrap()["a"].has_help);
        assert_eq!(
            read("a b\n".as_bytes()).unwrap_err().to_string(),
            "line 1: invalid value \"b\" of a sample"
        );
        let long = "a{b=\"".to_owned() + &"x".repeat(2 << 20);
        assert_eq!(
            read(long.as_bytes()).unwrap_err().to_string(),
            "line 1: longer than 2097152 bytes"
        );
    }

    #[test]
    fn bodies_that_prometheus_rejects_are_rejected() {
        for (body, expect) in [
            ("a{b=\"1\",b=\"2\"} 1\n", "line 1: duplicate label names"),
            ("a{__name__=\"b\"} 1\n", "duplicate label names"),
            (
                "# HELP a x\n# HELP a y\n",
                "line 2: second HELP line for \"a\"",
            ),
            (
                "# TYPE a gauge\n# TYPE a gauge\n",
                "second TYPE line for \"a\"",
            ),
            ("a 1\n# TYPE a gauge\n", "TYPE after samples"),
            (
                "# TYPE h histogram\nh_sum 1\n# TYPE h_bucket gauge\n",
                "TYPE after samples",
            ),
            (
                "# TYPE h histogram\nh_bucket{le=\"0x1\"} 1\n",
                "expected float as value for 'le' label, got \"0x1\"",
            ),
            (
                "# TYPE h summary\nh{quantile=\"x\"} 1\n",
                "expected float as value for 'quantile' label",
            ),
            ("a{b=\"\\x\"} 1\n", "invalid escape sequence"),
            ("# HELP a x\\\n", "invalid escape sequence"),
            ("a 1\r\n", "unexpected carriage return"),
            ("\r\n", "unexpected carriage return"),
            ("a 1", "line 1: unexpected end of input stream"),
            ("# x", "unexpected end of input stream"),
        ] {
            let error = read(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expect), "{body:?}: {error}");
        }
        let valid = "# HELP a x\\\\\\n\\\"\r\n# TYPE a\n# HELP\n# x\\y\r\n# TYPE a gauge\na 1\n# TYPE a gauge";
        assert!(read(valid.as_bytes()).is_err());
        read(valid.rsplit_once("# TYPE").unwrap().0.as_bytes()).unwrap();
        read("a 1\n# HELP a x\n# HELP a\nb{le=\"x\"} 1\n".as_bytes()).unwrap();
    }
}
