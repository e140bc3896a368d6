//! What of a log is asked for: `--type`, `--series`, `--match`, `--start`, `--end`.

use std::collections::HashSet;

use anyhow::{Result, bail};
use varve_query::promql::parse_selector;
use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{Matcher, TimeRange};

use super::args::DumpArgs;

/// Endings that the series of one metric family have.
const FAMILY_SUFFIXES: [&str; 5] = ["_bucket", "_sum", "_count", "_total", "_created"];

/// What is asked for.
#[derive(Debug)]
pub(super) struct Filter {
    record: Option<String>,
    series: Option<u64>,
    matchers: Vec<Matcher>,
    range: TimeRange,
    /// The series whose labels match.
    matching: HashSet<u64>,
    /// The names of their metrics and families.
    families: HashSet<String>,
}

impl Filter {
    /// Takes what was typed; `records` are the names that there are.
    ///
    /// # Errors
    /// If there is no such record, or the selector is none.
    pub(super) fn new(args: &DumpArgs, records: &[&str]) -> Result<Self> {
        if let Some(name) = args.record_type.as_ref().filter(|name| !records.contains(&name.as_str())) {
            bail!("there are no records of type {name:?} here, but: {}", records.join(", "));
        }
        let matchers = match &args.selector {
            Some(selector) => parse_selector(selector).map_err(|error| anyhow::anyhow!("{selector:?}: {error}"))?,
            None => Vec::new(),
        };
        Ok(Self {
            record: args.record_type.clone(),
            series: args.series,
            matchers,
            range: TimeRange { start_ms: args.start.unwrap_or(i64::MIN), end_ms: args.end.unwrap_or(i64::MAX) },
            matching: HashSet::new(),
            families: HashSet::new(),
        })
    }

    /// Tells whether labels have to be known before anything is shown: then [`Filter::learn`] is called with all of them.
    pub(super) fn needs_labels(&self) -> bool {
        !self.matchers.is_empty()
    }

    /// Is told of the labels of a series.
    pub(super) fn learn<'a>(&mut self, series: u64, labels: impl Iterator<Item = (&'a str, &'a str)>) {
        let labels: Vec<_> = labels.collect();
        if !self.labels(&labels) {
            return;
        }
        self.matching.insert(series);
        if let Some((_, name)) = labels.iter().find(|(name, _)| *name == METRIC_NAME) {
            let families = FAMILY_SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix));
            self.families.extend(families.chain([*name]).map(str::to_owned));
        }
    }

    /// Tells whether records of a type are asked for.
    pub(super) fn record(&self, name: &str) -> bool {
        self.record.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// Tells whether a series is asked for.
    pub(super) fn series(&self, series: u64) -> bool {
        self.series.is_none_or(|wanted| wanted == series) && (!self.needs_labels() || self.matching.contains(&series))
    }

    /// Tells whether a series of these labels, whose number is not known, is asked for.
    pub(super) fn labels(&self, labels: &[(&str, &str)]) -> bool {
        self.matchers.iter().all(|matcher| {
            let value = labels.iter().find(|(name, _)| *name == matcher.name()).map_or("", |(_, value)| value);
            matcher.matches(value)
        })
    }

    /// Tells whether metadata of a metric family are asked for.
    pub(super) fn family(&self, family: &str) -> bool {
        self.series.is_none() && (!self.needs_labels() || self.families.contains(family))
    }

    /// Tells whether a time is asked for.
    pub(super) fn time(&self, timestamp_ms: i64) -> bool {
        (self.range.start_ms..=self.range.end_ms).contains(&timestamp_ms)
    }

    /// Tells whether some of a range of time, ends included, is asked for.
    pub(super) fn times(&self, min_ms: i64, max_ms: i64) -> bool {
        min_ms <= self.range.end_ms && self.range.start_ms <= max_ms
    }

    /// Tells whether a record of which nothing is left is still shown: if nothing was asked for but its type.
    pub(super) fn shows_empty(&self) -> bool {
        let is_all = (self.range.start_ms, self.range.end_ms) == (i64::MIN, i64::MAX);
        self.series.is_none() && !self.needs_labels() && is_all
    }
}
