//! Churn: finds the labels that create new series.
//!
//! A series is new if it has samples in a time range and none in the range of the same length
//! before. A label creates a series if no earlier series has its value. A new pod has a new value
//! of `pod`, a new machine a new value of `instance`. A series with two new values is created by
//! both labels. A new series without a new value is a new combination.
//!
//! Of the labels that created the series of a metric, its cause is the label without which most of
//! them would collapse into others: 20,000 new values of `request_id` on a new metric of six new
//! jobs collapse without `request_id`, and stay without `job`. If none collapses, as with `pod` and
//! `instance` of new pods, the cause is the label with most new values.
//!
//! Reads the index twice for the earlier range, series by series. Hashes of label values are held
//! in memory and charged to the request.

mod distinct;
mod tallies;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use varve_context::{Charge, QueryContext};
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, TimeRange};
use varve_tsdb::{Db, ReadContext, Result};

use crate::findings::percent;
use distinct::Distinct;
use tallies::{Cause, Tallies, largest};

/// The length of the examined range, in milliseconds.
pub const RANGE_MS: i64 = 3_600_000;
/// Maximum number of listed labels, and maximum number of listed metrics.
const SHOWN_MAX: usize = 100;
/// Maximum number of listed metrics per label.
const METRICS_OF_LABEL_MAX: usize = 5;
/// A label created about as many series as another if it created at least this share of them.
const ABOUT_AS_MANY: f64 = 0.9;
/// A label is the cause of new series if at least this share of them collapses without it. Far above
/// the error of the estimate.
const COLLAPSED_SHARE_MIN: f64 = 0.25;
/// Approximate bytes of a hash in a set.
const HASH_SIZE: usize = 20;
/// Approximate bytes of a count and its key in a map.
const COUNT_SIZE: usize = 160;

/// The new series of a range, and their causes.
#[derive(Debug, Clone, PartialEq)]
pub struct Churn {
    /// The examined range in milliseconds since the epoch, start excluded. The earlier range has
    /// the same length.
    pub start_ms: i64,
    /// The end of the range, included.
    pub end_ms: i64,
    /// Series with samples in the earlier range. If there are none, every series counts as new, and
    /// no label is listed.
    pub n_earlier: u64,
    /// Series with samples in the range.
    pub n_series: u64,
    /// New series.
    pub n_new: u64,
    /// New series without a new label value.
    pub n_combinations: u64,
    /// Labels with new values. The causes of most series are first, then the labels that created
    /// most series. Of labels that created about as many (within a tenth), those with most new
    /// values are first, then those of fewest metrics.
    pub labels: Vec<LabelChurn>,
    /// Metrics with new series, sorted by their number, the largest first.
    pub metrics: Vec<MetricChurn>,
    /// Teams with new series, those with most first. Empty without a team label.
    pub teams: Vec<TeamChurn>,
}

/// A label whose new values created series.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelChurn {
    /// Its name.
    pub label: String,
    /// New series with a new value of this label.
    pub n_new: u64,
    /// `n_new` as a percentage of all new series.
    pub percent: f64,
    /// New series that no other label created.
    pub n_alone: u64,
    /// New values of this label.
    pub n_values: u64,
    /// The metrics with most of these series.
    pub metrics: Vec<String>,
}

/// A metric with new series.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricChurn {
    /// Its name.
    pub metric: String,
    /// Its new series.
    pub n_new: u64,
    /// The label that is their cause. Empty if all are new combinations.
    pub label: String,
    /// The percentage of the metric's new series that this label created.
    pub percent: f64,
    /// Number of new series that would be left without the label, estimated.
    pub n_without_label: u64,
}

/// A team with new series.
#[derive(Debug, Clone, PartialEq)]
pub struct TeamChurn {
    /// The value of the team label; empty for series without it.
    pub team: String,
    /// Its new series.
    pub n_new: u64,
    /// The label that is the cause of most of them. Empty if all are new combinations.
    pub label: String,
    /// The percentage of the team's new series that this label created.
    pub percent: f64,
    /// The metric with most new series.
    pub metric: String,
}

/// Finds the causes of new series after `end_ms - length_ms` and up to `end_ms`, also per value of
/// `team_label` unless that is empty. Adds the memory of the result to `kept`.
///
/// # Errors
/// The errors of [`Db::select_labels`].
pub fn find(
    db: &Db,
    ctx: &ReadContext,
    end_ms: i64,
    length_ms: i64,
    team_label: &str,
    kept: &mut Charge,
) -> Result<Churn> {
    let start_ms = end_ms.saturating_sub(length_ms);
    // As in PromQL, ranges exclude their left end.
    let before = TimeRange {
        start_ms: start_ms.saturating_sub(length_ms).saturating_add(1),
        end_ms: start_ms,
    };
    let range = TimeRange {
        start_ms: start_ms.saturating_add(1),
        end_ms,
    };
    let mut search = Search::new(ctx, team_label);
    for series in db.select_labels(ctx, &[], before)? {
        search.know(series?.labels())?;
    }
    let mut old = db.select_labels(ctx, &[], before)?;
    let mut was = old.next().transpose()?;
    for series in db.select_labels(ctx, &[], range)? {
        let series = series?;
        // Both are in label order.
        while was
            .as_ref()
            .is_some_and(|was| was.labels() < series.labels())
        {
            was = old.next().transpose()?;
        }
        let is_new = was
            .as_ref()
            .is_none_or(|was| was.labels() != series.labels());
        search.count(series.labels(), is_new)?;
    }
    search.finish(start_ms, end_ms, kept)
}

struct Search<'a> {
    charge: Charge,
    team_label: &'a str,
    hasher: RandomState,
    /// Hashes of label pairs of the earlier range.
    known: HashSet<u64>,
    /// Hashes of new label pairs.
    new: HashSet<u64>,
    n_earlier: u64,
    n_series: u64,
    n_new: u64,
    n_combinations: u64,
    labels: HashMap<String, OfLabel>,
    /// By team and metric.
    teams: HashMap<String, HashMap<String, OfMetric>>,
}

#[derive(Debug, Default)]
struct OfLabel {
    n_series: u64,
    n_alone: u64,
    n_values: u64,
    /// Metrics of teams with these series.
    n_metrics: u64,
}

#[derive(Debug, Default)]
struct OfMetric {
    n_series: u64,
    labels: HashMap<String, OfMetricLabel>,
}

/// The series of a metric that a label created.
#[derive(Debug, Default)]
struct OfMetricLabel {
    n_series: u64,
    /// Its new values.
    values: Distinct,
    /// The series without the label.
    without: Distinct,
}

impl<'a> Search<'a> {
    fn new(ctx: &QueryContext, team_label: &'a str) -> Self {
        Self {
            charge: ctx.charge(),
            team_label,
            hasher: RandomState::new(),
            known: HashSet::new(),
            new: HashSet::new(),
            n_earlier: 0,
            n_series: 0,
            n_new: 0,
            n_combinations: 0,
            labels: HashMap::new(),
            teams: HashMap::new(),
        }
    }

    fn know(&mut self, labels: &Labels) -> Result<()> {
        self.n_earlier += 1;
        for label in labels.iter() {
            let hash = self.hasher.hash_one(label);
            if !self.known.contains(&hash) {
                self.charge.grow(HASH_SIZE)?;
                self.known.insert(hash);
            }
        }
        Ok(())
    }

    fn count(&mut self, labels: &Labels, is_new: bool) -> Result<()> {
        self.n_series += 1;
        if !is_new {
            return Ok(());
        }
        self.n_new += 1;
        let hashes: Vec<_> = labels
            .iter()
            .map(|(name, value)| (name, self.hasher.hash_one((name, value))))
            .collect();
        // The sum of the hashes identifies a label set; without a label, its hash is subtracted.
        let set_hash = hashes
            .iter()
            .fold(0u64, |sum, (_, hash)| sum.wrapping_add(*hash));
        let mut causes = hashes;
        causes.retain(|(_, hash)| !self.known.contains(hash));
        self.n_combinations += u64::from(causes.is_empty());
        let metric = labels.get(METRIC_NAME).unwrap_or_default();
        let team = labels.get(self.team_label).unwrap_or_default();
        if !self.teams.contains_key(team) {
            self.charge.grow(COUNT_SIZE + team.len())?;
        }
        let metrics = entry(&mut self.teams, team);
        if !metrics.contains_key(metric) {
            self.charge.grow(COUNT_SIZE + metric.len())?;
        }
        let metric_causes = entry(metrics, metric);
        metric_causes.n_series += 1;
        for (name, hash) in &causes {
            let is_first = !metric_causes.labels.contains_key(*name);
            if is_first {
                // Its count by metric, and possibly that of all metrics.
                self.charge.grow(COUNT_SIZE + 2 * name.len())?;
            }
            let of_metric = entry(&mut metric_causes.labels, name);
            of_metric.n_series += 1;
            let n_grown = of_metric.values.insert(*hash)
                + of_metric.without.insert(set_hash.wrapping_sub(*hash));
            self.charge.grow(n_grown)?;
            let of_label = entry(&mut self.labels, name);
            of_label.n_metrics += u64::from(is_first);
            of_label.n_series += 1;
            of_label.n_alone += u64::from(causes.len() == 1);
            if !self.new.contains(hash) {
                self.charge.grow(HASH_SIZE)?;
                self.new.insert(*hash);
                of_label.n_values += 1;
            }
        }
        Ok(())
    }

    fn finish(self, start_ms: i64, end_ms: i64, kept: &mut Charge) -> Result<Churn> {
        let tallies = self.tallies();
        let mut labels = Vec::new();
        for (label, counts) in self.ordered_labels(&tallies).into_iter().take(SHOWN_MAX) {
            let mut metrics = tallies.metrics_of_label(label);
            metrics.truncate(METRICS_OF_LABEL_MAX);
            for (metric, _) in &metrics {
                kept.grow(COUNT_SIZE + metric.len())?;
            }
            labels.push(self.label_churn(label, counts, &metrics));
        }
        let mut metrics = Vec::new();
        for (metric, tally) in largest(&tallies.metrics).into_iter().take(SHOWN_MAX) {
            kept.grow(COUNT_SIZE + metric.len())?;
            let cause = tally.cause();
            metrics.push(MetricChurn {
                metric: metric.to_owned(),
                n_new: tally.n_series,
                label: cause.label.to_owned(),
                percent: percent(cause.n_series, tally.n_series),
                n_without_label: tally.n_series.saturating_sub(cause.n_collapsed),
            });
        }
        let mut teams = Vec::new();
        if !self.team_label.is_empty() {
            for (team, tally) in largest(&tallies.teams).into_iter().take(SHOWN_MAX) {
                kept.grow(2 * COUNT_SIZE + team.len() + tally.metric.len())?;
                let cause = tally.cause();
                teams.push(TeamChurn {
                    team: team.to_owned(),
                    n_new: tally.n_series,
                    label: cause.label.to_owned(),
                    percent: percent(cause.n_series, tally.n_series),
                    metric: tally.metric.to_owned(),
                });
            }
        }

        Ok(Churn {
            start_ms,
            end_ms,
            n_earlier: self.n_earlier,
            n_series: self.n_series,
            n_new: self.n_new,
            n_combinations: self.n_combinations,
            labels,
            metrics,
            teams,
        })
    }

    /// Adds the new series to their cause, by metric and by team.
    fn tallies(&self) -> Tallies<'_> {
        let mut tallies = Tallies::default();
        for (team, metrics) in &self.teams {
            for (metric, counts) in metrics {
                let cause = counts.cause(&self.labels);
                *tallies.causes.entry(cause.label).or_default() += cause.n_series;
                tallies
                    .metrics
                    .entry(metric)
                    .or_default()
                    .add(metric, counts.n_series, cause);
                tallies
                    .teams
                    .entry(team)
                    .or_default()
                    .add(metric, counts.n_series, cause);
                for (label, of_metric) in &counts.labels {
                    let of_label = tallies.labels.entry(label).or_default();
                    *of_label.entry(metric).or_default() += of_metric.n_series;
                }
            }
        }
        tallies
    }

    fn ordered_labels(&self, tallies: &Tallies<'_>) -> Vec<(&String, &OfLabel)> {
        // Without earlier series, all are new.
        if self.n_earlier == 0 {
            return Vec::new();
        }
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort_unstable_by_key(|(_, counts)| Reverse(counts.n_series));
        let mut rest = &mut *labels;
        while let Some(&(_, most)) = rest.first() {
            let n_similar =
                rest.partition_point(|(_, counts)| is_about(counts.n_series, most.n_series));
            let (similar, others) = rest.split_at_mut(n_similar);
            similar.sort_by_key(|(label, counts)| {
                (
                    Reverse(counts.n_values),
                    counts.n_metrics,
                    Reverse(counts.n_series),
                    *label,
                )
            });
            rest = others;
        }
        // The sort is stable: labels that are no cause keep their order.
        labels.sort_by_key(|(label, _)| {
            Reverse(tallies.causes.get(label.as_str()).copied().unwrap_or(0))
        });
        labels
    }

    fn label_churn(&self, label: &str, counts: &OfLabel, metrics: &[(&str, u64)]) -> LabelChurn {
        LabelChurn {
            label: label.to_owned(),
            n_new: counts.n_series,
            percent: percent(counts.n_series, self.n_new),
            n_alone: counts.n_alone,
            n_values: counts.n_values,
            metrics: metrics
                .iter()
                .map(|(metric, _)| (*metric).to_owned())
                .collect(),
        }
    }
}

impl OfMetric {
    /// Returns the label that is the cause of the new series.
    fn cause(&self, all: &HashMap<String, OfLabel>) -> Cause<'_> {
        let causes: Vec<_> = self
            .labels
            .iter()
            .map(|(label, counts)| Cause {
                label,
                n_series: counts.n_series,
                n_values: counts.values.count(),
                n_collapsed: counts.n_series.saturating_sub(counts.without.count()),
            })
            .collect();
        let most_collapsed = causes.iter().map(|cause| cause.n_collapsed).max();
        let most_collapsed = most_collapsed.unwrap_or_default();
        let collapses = most_collapsed as f64 >= COLLAPSED_SHARE_MIN * self.n_series as f64;
        let most_series = causes.iter().map(|cause| cause.n_series).max();
        let similar = causes.into_iter().filter(|cause| {
            if collapses {
                is_about(cause.n_collapsed, most_collapsed)
            } else {
                is_about(cause.n_series, most_series.unwrap_or_default())
            }
        });
        let first = similar.min_by_key(|cause| {
            let of_label = &all[cause.label];
            (
                Reverse(cause.n_values),
                Reverse(of_label.n_values),
                of_label.n_metrics,
                Reverse(of_label.n_series),
                cause.label,
            )
        });
        first.unwrap_or_default()
    }
}

/// Returns the entry of a key.
fn entry<'a, T: Default>(map: &'a mut HashMap<String, T>, key: &str) -> &'a mut T {
    map.entry(key.to_owned()).or_default()
}

/// Returns `true` if `n_series` is about as many as `most`, which is not smaller.
fn is_about(n_series: u64, most: u64) -> bool {
    n_series as f64 >= ABOUT_AS_MANY * most as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use varve_context::{Limit, MemoryBudget};
    use varve_model::Sample;
    use varve_tsdb::{Options, WriteBatch};

    const HOUR_MS: i64 = 3_600_000;

    /// The labels of a series, and the times of its samples.
    type Given<'a> = (&'a [(&'a str, &'a str)], &'a [i64]);

    fn store(series: &[Given<'_>]) -> (tempfile::TempDir, Db) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            background: false,
            ..Options::default()
        };
        let db = Db::open(folder.path(), options).unwrap();
        let mut samples: Vec<_> = series
            .iter()
            .flat_map(|(of, times)| times.iter().map(move |at| (*at, *of)))
            .collect();
        samples.sort_by_key(|(at, _)| *at);
        for (timestamp_ms, labels) in samples {
            let labels = Labels::from_pairs(labels.iter().copied()).unwrap();
            let mut batch = WriteBatch::default();
            batch.push(
                db.series(&labels).unwrap(),
                Sample {
                    timestamp_ms,
                    value: 1.0,
                },
                0,
            );
            db.append(&mut batch).unwrap();
        }
        (folder, db)
    }

    fn churn(db: &Db, memory: usize) -> Result<Churn> {
        let ctx = ReadContext::unrestricted(QueryContext::new(
            Duration::from_secs(60),
            MemoryBudget::new(Limit::Other("memory"), memory),
        ));
        find(db, &ctx, 2 * HOUR_MS, HOUR_MS, "team", &mut ctx.charge())
    }

    #[test]
    fn new_values_make_new_series() {
        let early = HOUR_MS / 2;
        let late = HOUR_MS + HOUR_MS / 2;
        let gpu = |pod, gpu| [("__name__", "DCGM_X"), ("gpu", gpu), ("pod", pod)];
        let a0 = gpu("a", "0");
        let a1 = gpu("a", "1");
        let b0 = gpu("b", "0");
        let b1 = gpu("b", "1");
        let (up, other) = (
            [("__name__", "up"), ("job", "x")],
            [("__name__", "up"), ("job", "y"), ("pod", "c")],
        );
        let combination = [("__name__", "up"), ("gpu", "1")];
        let (_folder, db) = store(&[
            (&a0, &[early, late]),
            (&a1, &[early]),
            (&b0, &[late]),
            (&b1, &[late]),
            (&up, &[early, late]),
            (&other, &[late]),
            (&combination, &[late]),
        ]);
        let churn = churn(&db, usize::MAX).unwrap();
        assert_eq!(
            (churn.n_series, churn.n_new, churn.n_combinations),
            (6, 4, 1)
        );
        let labels: Vec<_> = churn
            .labels
            .iter()
            .map(|of| {
                (
                    of.label.as_str(),
                    of.n_new,
                    of.n_alone,
                    of.n_values,
                    of.metrics.len(),
                )
            })
            .collect();
        assert_eq!(labels, [("pod", 3, 2, 2, 2), ("job", 1, 0, 1, 1)]);
        assert_eq!(churn.labels[0].percent, 75.0);
        let metrics: Vec<_> = churn
            .metrics
            .iter()
            .map(|of| (of.metric.as_str(), of.n_new, of.label.as_str(), of.percent))
            .collect();
        assert_eq!(
            metrics,
            [("DCGM_X", 2, "pod", 100.0), ("up", 2, "pod", 50.0)]
        );
    }

    #[test]
    fn the_label_with_most_new_values_precedes_those_that_changed_with_it() {
        let late = [HOUR_MS + HOUR_MS / 2];
        let old = [("__name__", "up"), ("job", "x")];
        let ids: Vec<_> = (0..20).map(|id| id.to_string()).collect();
        // Each series of the new metric has a new `id`, and the same new `app` and `container`. One
        // more has no `id`.
        let set = |id| {
            [
                ("__name__", "m"),
                ("app", "bad"),
                ("container", "bad"),
                ("id", id),
            ]
        };
        let new: Vec<_> = ids.iter().map(|id| set(id.as_str())).collect();
        let mut all: Vec<Given<'_>> = new.iter().map(|labels| (&labels[..], &late[..])).collect();
        let without_id = [("__name__", "m"), ("app", "bad")];
        all.extend([(&old[..], &[HOUR_MS / 2][..]), (&without_id, &late)]);
        let (_folder, db) = store(&all);
        let found = churn(&db, usize::MAX).unwrap();
        let labels: Vec<_> = found
            .labels
            .iter()
            .map(|of| (of.label.as_str(), of.n_new, of.n_values))
            .collect();
        assert_eq!(
            labels,
            [
                ("id", 20, 20),
                ("__name__", 21, 1),
                ("app", 21, 1),
                ("container", 20, 1)
            ]
        );
        assert_eq!(
            (found.metrics[0].label.as_str(), found.metrics[0].n_new),
            ("id", 21)
        );
    }

    /// 20,000 new values of `request_id` were announced as six new values of `job`, whose new jobs
    /// had more new series.
    #[test]
    fn the_cause_is_the_label_without_which_series_collapse() {
        let late = [HOUR_MS + HOUR_MS / 2];
        let early = [("__name__", "up"), ("job", "x")];
        let ids: Vec<_> = (0..2_000).map(|id| id.to_string()).collect();
        let jobs: Vec<_> = (0..6).map(|job| format!("new{job}")).collect();
        let requests: Vec<_> = (0..)
            .zip(&ids)
            .map(|(i, id)| {
                let job = jobs[i % jobs.len()].as_str();
                let id = ("request_id", id.as_str());
                [("__name__", "requests"), ("job", job), id, ("team", "a")]
            })
            .collect();
        let others: Vec<_> = ids[..600]
            .iter()
            .zip((0..jobs.len()).cycle())
            .map(|(path, job)| {
                let job = ("job", jobs[job].as_str());
                [
                    ("__name__", "up"),
                    job,
                    ("path", path.as_str()),
                    ("team", "b"),
                ]
            })
            .collect();
        let mut all: Vec<Given<'_>> = vec![(&early, &[HOUR_MS / 2])];
        all.extend(
            requests
                .iter()
                .chain(&others)
                .map(|set| (&set[..], &late[..])),
        );
        let (_folder, db) = store(&all);
        let found = churn(&db, usize::MAX).unwrap();

        let first: Vec<_> = found.labels.iter().map(|of| of.label.as_str()).collect();
        assert_eq!(first[..3], ["request_id", "path", "job"]);
        assert_eq!(found.labels[2].n_new, 2_600);
        let requests = &found.metrics[0];
        assert_eq!(
            (&*requests.metric, &*requests.label),
            ("requests", "request_id")
        );
        assert_eq!((requests.n_new, requests.n_without_label), (2_000, 6));
        let teams: Vec<_> = found
            .teams
            .iter()
            .map(|of| (&*of.team, of.n_new, &*of.label, &*of.metric))
            .collect();
        assert_eq!(
            teams,
            [
                ("a", 2_000, "request_id", "requests"),
                ("b", 600, "path", "up")
            ]
        );
    }

    #[test]
    fn a_store_without_an_earlier_hour_names_no_label() {
        let (_folder, db) = store(&[(&[("__name__", "up")], &[HOUR_MS + 1])]);
        let found = churn(&db, usize::MAX).unwrap();
        assert_eq!(
            (found.n_earlier, found.n_new, found.labels.len()),
            (0, 1, 0)
        );
    }

    #[test]
    fn values_are_charged_to_the_request() {
        let labels: Vec<_> = (0..1_000).map(|i| i.to_string()).collect();
        let sets: Vec<_> = labels
            .iter()
            .map(|value| [("__name__", "a"), ("x", value.as_str())])
            .collect();
        let series: Vec<Given<'_>> = sets
            .iter()
            .map(|set| (&set[..], &[HOUR_MS + 1][..]))
            .collect();
        let (_folder, db) = store(&series);
        assert!(matches!(
            churn(&db, 10_000),
            Err(varve_tsdb::Error::Limit { .. })
        ));
        assert_eq!(churn(&db, 100 << 20).unwrap().n_new, 1_000);
    }
}
