//! The report of /api/v1/status/churn and of `varve tsdb churn`.

use varve_advise::churn::{Churn, LabelChurn, MetricChurn, TeamChurn};
use varve_advise::counted;

use crate::schema;

schema! {
    /// The new series of an hour, and their causes.
    pub struct ChurnReport {
        /// The hour in milliseconds since the epoch, start excluded.
        start_ms: i64,
        end_ms: i64,
        /// Series with samples in the hour before. If there are none, every series counts as new.
        earlier_series: u64,
        /// Series with samples in the hour.
        series: u64,
        new_series: u64,
        /// New series without a new label value.
        new_combinations: u64,
        /// The first of `labels` in words, or empty.
        summary: String,
        /// Labels with new values, the causes of most series first.
        labels: Vec<NewSeriesOfLabel>,
        /// Metrics with new series, those with most first.
        metrics: Vec<NewSeriesOfMetric>,
        /// Teams with new series, those with most first. Empty without a team label.
        teams: Vec<NewSeriesOfTeam>,
    }
}

schema! {
    /// A label whose new values created series.
    pub struct NewSeriesOfLabel {
        label: String,
        new_series: u64,
        /// Percentage of all new series.
        percent: f64,
        /// New series that no other label created.
        new_series_alone: u64,
        new_values: u64,
        /// The metrics with most of these series.
        metrics: Vec<String>,
    }
}

schema! {
    /// A metric with new series.
    pub struct NewSeriesOfMetric {
        metric: String,
        new_series: u64,
        /// The label without which most of them would collapse into others, or empty.
        label: String,
        /// The percentage that this label created.
        percent: f64,
        /// New series that would be left without the label, estimated.
        new_series_without_label: u64,
    }
}

schema! {
    /// A team with new series.
    pub struct NewSeriesOfTeam {
        /// The value of the team label; empty for series without it.
        team: String,
        new_series: u64,
        /// The label that is the cause of most of them, or empty.
        label: String,
        /// The percentage that this label created.
        percent: f64,
        /// The metric with most of them.
        metric: String,
    }
}

impl ChurnReport {
    /// Returns the report of new series.
    pub fn of(found: Churn) -> Self {
        Self {
            start_ms: found.start_ms,
            end_ms: found.end_ms,
            earlier_series: found.n_earlier,
            series: found.n_series,
            new_series: found.n_new,
            new_combinations: found.n_combinations,
            summary: found.labels.first().map(summary).unwrap_or_default(),
            labels: found.labels.into_iter().map(NewSeriesOfLabel::of).collect(),
            metrics: found
                .metrics
                .into_iter()
                .map(NewSeriesOfMetric::of)
                .collect(),
            teams: found.teams.into_iter().map(NewSeriesOfTeam::of).collect(),
        }
    }
}

impl NewSeriesOfLabel {
    fn of(found: LabelChurn) -> Self {
        Self {
            label: found.label,
            new_series: found.n_new,
            percent: found.percent,
            new_series_alone: found.n_alone,
            new_values: found.n_values,
            metrics: found.metrics,
        }
    }
}

impl NewSeriesOfMetric {
    fn of(found: MetricChurn) -> Self {
        Self {
            metric: found.metric,
            new_series: found.n_new,
            label: found.label,
            percent: found.percent,
            new_series_without_label: found.n_without_label,
        }
    }
}

impl NewSeriesOfTeam {
    fn of(found: TeamChurn) -> Self {
        Self {
            team: found.team,
            new_series: found.n_new,
            label: found.label,
            percent: found.percent,
            metric: found.metric,
        }
    }
}

/// Returns the cause of most new series in words.
fn summary(cause: &LabelChurn) -> String {
    let values = if cause.label == "__name__" {
        counted(cause.n_values, "new metric")
    } else {
        let values = counted(cause.n_values, "new value");
        format!("{values} of the label {}", cause.label)
    };
    let metric = cause.metrics.first().map_or("", String::as_str);
    format!(
        "{values} came with {} new series ({:.1} %). The metric with the most of them is {metric}.",
        cause.n_new, cause.percent
    )
}
