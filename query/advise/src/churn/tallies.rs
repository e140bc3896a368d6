//! New series, added up by their cause for each metric and team.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A label that created series of a metric.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cause<'a> {
    /// Empty for new combinations.
    pub(super) label: &'a str,
    pub(super) n_series: u64,
    pub(super) n_values: u64,
    /// How many of the series would become equal to others without the label.
    pub(super) n_collapsed: u64,
}

/// New series by their cause.
#[derive(Debug, Default)]
pub(super) struct Tallies<'a> {
    pub(super) causes: BTreeMap<&'a str, u64>,
    pub(super) metrics: BTreeMap<&'a str, Tally<'a>>,
    pub(super) teams: BTreeMap<&'a str, Tally<'a>>,
    pub(super) labels: BTreeMap<&'a str, BTreeMap<&'a str, u64>>,
}

/// The new series of a metric or team.
#[derive(Debug, Default)]
pub(super) struct Tally<'a> {
    pub(super) n_series: u64,
    pub(super) causes: BTreeMap<&'a str, Cause<'a>>,
    /// The metric with most series, and their number.
    pub(super) metric: &'a str,
    n_of_metric: u64,
}

impl<'a> Tally<'a> {
    pub(super) fn add(&mut self, metric: &'a str, n_series: u64, cause: Cause<'a>) {
        self.n_series += n_series;
        let same = self.causes.entry(cause.label).or_default();
        same.label = cause.label;
        same.n_series += cause.n_series;
        same.n_collapsed += cause.n_collapsed;
        if (n_series, Reverse(metric)) > (self.n_of_metric, Reverse(self.metric)) {
            self.metric = metric;
            self.n_of_metric = n_series;
        }
    }

    /// Returns the cause of most series.
    pub(super) fn cause(&self) -> Cause<'a> {
        let most = self
            .causes
            .values()
            .max_by_key(|cause| (cause.n_series, Reverse(cause.label)));
        most.copied().unwrap_or_default()
    }
}

impl<'a> Tallies<'a> {
    /// Returns the metrics with series that a label created, the most first.
    pub(super) fn metrics_of_label(&self, label: &str) -> Vec<(&'a str, u64)> {
        let mut metrics: Vec<_> = self.labels[label]
            .iter()
            .map(|(metric, n_series)| (*metric, *n_series))
            .collect();
        // The sort is stable: equal numbers stay sorted by name.
        metrics.sort_by_key(|(_, n_series)| Reverse(*n_series));
        metrics
    }
}

/// Returns tallies by name, those of most series first.
pub(super) fn largest<'t, 'a>(
    tallies: &'t BTreeMap<&'a str, Tally<'a>>,
) -> Vec<(&'a str, &'t Tally<'a>)> {
    let mut sorted: Vec<_> = tallies.iter().map(|(name, tally)| (*name, tally)).collect();
    sorted.sort_by_key(|(_, tally)| Reverse(tally.n_series));
    sorted
}
