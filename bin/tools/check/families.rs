//! The metric families of a scrape body, grouped as Prometheus' text parser groups them.
//!
//! For each series it stores the data that the linter needs: a hash of the labels, to find duplicates, and the label
//! names.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io::BufRead;

use anyhow::Result;
use varve_ingest::text::{Line, LineReader, MetadataLine, Pairs, TextFormat};
use varve_tsdb::labels::METRIC_NAME;

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    #[default]
    Untyped,
}

/// A metric family.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) kind: Kind,
    pub(super) has_help: bool,
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

impl Kind {
    /// Returns its name in Prometheus.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Untyped => "untyped",
        }
    }

    /// Converts the type number of the text parser.
    fn of(number: i32) -> Self {
        match number {
            1 => Self::Counter,
            2 => Self::Gauge,
            3 => Self::Histogram,
            5 => Self::Summary,
            _ => Self::Untyped,
        }
    }
}

/// Parses the families of a body, whose size the caller bounds.
///
/// # Errors
/// The first invalid line.
pub(super) fn read(body: impl BufRead) -> Result<BTreeMap<String, Family>> {
    let mut lines = LineReader::new(body, TextFormat::Prometheus);
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let hasher = RandomState::new();
    while let Some(line) = lines.read()? {
        match line {
            Line::Metadata(MetadataLine::Help(name, _)) => {
                families.entry(name.into_owned()).or_default().has_help = true;
            }
            Line::Metadata(MetadataLine::Type(name, kind)) => {
                families.entry(name.into_owned()).or_default().kind = Kind::of(kind);
            }
            Line::Sample(sample) => add(&mut families, &sample.labels, &hasher),
            Line::Metadata(MetadataLine::Unit(..)) | Line::Series(_) | Line::Nothing => {}
        }
    }
    // Families without samples are not linted.
    families.retain(|_, family| family.n_metrics > 0);
    Ok(families)
}

fn add(families: &mut BTreeMap<String, Family>, labels: &Pairs<'_>, hasher: &RandomState) {
    let name = labels.iter().find(|(name, _)| name == METRIC_NAME).map_or("", |(_, value)| value);
    let family_name = family_of(families, name).to_owned();
    let part = name.strip_prefix(family_name.as_str()).unwrap_or("").to_owned();
    let family = families.entry(family_name).or_default();
    let inner = match family.kind {
        Kind::Histogram => Some("le"),
        Kind::Summary => Some("quantile"),
        _ => None,
    };
    let is_outer = |name: &str| name != METRIC_NAME && Some(name) != inner;
    let mut outer: Vec<_> = labels.iter().filter(|(name, _)| is_outer(name)).collect();
    outer.sort();
    let hash = hasher.hash_one(&outer);
    let is_part =
        inner.is_some_and(|inner| labels.iter().any(|(name, _)| name == inner)) && part != "_sum" && part != "_count";
    if family.first.get_or_insert(hash) == &hash && is_part {
        family.n_parts += 1;
    }
    if !family.seen.insert(hash) {
        family.n_repeated += usize::from(inner.is_none());
        if inner.is_some() {
            return;
        }
    }
    family.n_metrics += 1;
    family.label_names.extend(outer.iter().map(|(name, _)| name.to_string()));
}

/// Returns the family of a series, given the families so far.
fn family_of<'a>(families: &BTreeMap<String, Family>, name: &'a str) -> &'a str {
    if families.contains_key(name) {
        return name;
    }
    let kind_of = |name: &str| families.get(name).map(|family| family.kind);
    let of = |suffixes: &[&str], kind: Kind| {
        let bases = suffixes.iter().filter_map(|suffix| name.strip_suffix(suffix));
        bases.into_iter().find(|base| kind_of(base) == Some(kind))
    };
    of(&["_count", "_sum"], Kind::Summary)
        .or_else(|| of(&["_count", "_sum", "_bucket"], Kind::Histogram))
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
        assert_eq!((h.kind, h.has_help, h.n_metrics, h.n_parts, h.n_repeated), (Kind::Histogram, true, 2, 2, 0));
        assert_eq!(h.label_names, ["a"]);
        let c = &families["c"];
        assert_eq!((c.kind, c.has_help, c.n_metrics, c.n_repeated), (Kind::Untyped, false, 2, 1));
        assert_eq!(read("a b\n".as_bytes()).unwrap_err().to_string(), "line 1: invalid value \"b\" of a sample");
    }
}
