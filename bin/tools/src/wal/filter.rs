//! The filters of a dump: `--type`, `--series`, `--match`, `--start`, `--end`.

use std::collections::HashSet;

use anyhow::{Result, bail};
use varve_model::labels::METRIC_NAME;
use varve_model::{Matcher, TimeRange};

use super::args::WalDumpArgs;
use crate::selector::{matches, parse_optional};

/// Suffixes of the series of a metric family.
const FAMILY_SUFFIXES: [&str; 5] = ["_bucket", "_sum", "_count", "_total", "_created"];

/// The filters of a dump.
#[derive(Debug)]
pub(super) struct Filter {
    record: Option<String>,
    series: Option<u64>,
    matchers: Vec<Matcher>,
    range: TimeRange,
    /// Refs of the series whose labels match.
    matching: HashSet<u64>,
    /// Names of their metrics and metric families.
    families: HashSet<String>,
}

impl Filter {
    /// Parses the filters. `records` are the known record types.
    ///
    /// # Errors
    /// If the record type is unknown, or the selector is invalid.
    pub(super) fn new(args: &WalDumpArgs, records: &[&str]) -> Result<Self> {
        if let Some(name) = args
            .record_type
            .as_ref()
            .filter(|name| !records.contains(&name.as_str()))
        {
            bail!(
                "unknown record type {name:?}; known types: {}",
                records.join(", ")
            );
        }
        let matchers = parse_optional(args.selector.as_deref())?;
        Ok(Self {
            record: args.record_type.clone(),
            series: args.series,
            matchers,
            range: TimeRange {
                start_ms: args.start.unwrap_or(i64::MIN),
                end_ms: args.end.unwrap_or(i64::MAX),
            },
            matching: HashSet::new(),
            families: HashSet::new(),
        })
    }

    /// Returns `true` if [`Filter::learn`] must see the labels of all series first.
    pub(super) fn needs_labels(&self) -> bool {
        !self.matchers.is_empty()
    }

    /// Adds a series to the matching ones if its labels match.
    pub(super) fn learn<'a>(
        &mut self,
        series: u64,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) {
        let labels: Vec<_> = labels.collect();
        if !self.includes_labels(&labels) {
            return;
        }
        self.matching.insert(series);
        if let Some((_, name)) = labels.iter().find(|(name, _)| *name == METRIC_NAME) {
            let families = FAMILY_SUFFIXES
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix));
            self.families
                .extend(families.chain([*name]).map(str::to_owned));
        }
    }

    /// Returns `true` if records of a type are included.
    pub(super) fn includes_record(&self, name: &str) -> bool {
        self.record.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// Returns `true` if a series is included.
    pub(super) fn includes_series(&self, series: u64) -> bool {
        self.series.is_none_or(|wanted| wanted == series)
            && (!self.needs_labels() || self.matching.contains(&series))
    }

    /// Returns `true` if a series with these labels and an unknown ref is included.
    pub(super) fn includes_labels(&self, labels: &[(&str, &str)]) -> bool {
        matches(&self.matchers, labels)
    }

    /// Returns `true` if metadata of a metric family is included.
    pub(super) fn includes_family(&self, family: &str) -> bool {
        self.series.is_none() && (!self.needs_labels() || self.families.contains(family))
    }

    /// Returns `true` if a timestamp is included.
    pub(super) fn includes_time(&self, timestamp_ms: i64) -> bool {
        (self.range.start_ms..=self.range.end_ms).contains(&timestamp_ms)
    }

    /// Returns `true` if a sample of a series is included.
    pub(super) fn includes_sample(&self, series: u64, timestamp_ms: i64) -> bool {
        self.includes_series(series) && self.includes_time(timestamp_ms)
    }

    /// Returns `true` if a time range, ends included, overlaps the included one.
    pub(super) fn includes_times(&self, min_ms: i64, max_ms: i64) -> bool {
        min_ms <= self.range.end_ms && self.range.start_ms <= max_ms
    }

    /// Returns `true` if records without items are printed: there is no filter except for the type.
    pub(super) fn shows_empty(&self) -> bool {
        let is_all = (self.range.start_ms, self.range.end_ms) == (i64::MIN, i64::MAX);
        self.series.is_none() && !self.needs_labels() && is_all
    }
}
