//! /api/v1/status/advice: unused metrics, buckets and labels of this server, and the rules that drop them.

use axum::extract::State;
use axum::response::Response;
use varve_tsdb::TimeRange;
use varve_tsdb::fs::{Clock, SystemClock};

use crate::http::error::ApiError;
use crate::http::openapi::schema;
use crate::http::params::Form;
use crate::http::serving::run::{RequestClass, run_shared};
use crate::http::serving::state::HttpState;
use crate::tools::advise::own::{Advice, Options, advise};
use crate::tools::advise::{Dialect, Finding, Kind, Totals};

/// The formats of the rules.
pub(crate) const FORMATS: [&str; 2] = ["varve", "prometheus"];

schema! {
    /// What no rule and no recorded query uses, and what dropping it saves.
    pub(crate) struct AdviceReport {
        /// Start of the usage record in milliseconds since the epoch. Null only in reports of `varve advise drops`
        /// without a usage record.
        since_ms: Option<i64>,
        /// Number of rules and recorded queries that were compared.
        expressions: u64,
        totals: AdviceTotals,
        /// Unused metrics, buckets and labels, those of most series first.
        unused: Vec<Unused>,
        /// Metrics that only recording rules use whose results nothing reads.
        unread: Vec<Unused>,
        /// Uses without a metric name. Each keeps all series that it may match.
        nameless: Vec<String>,
        /// Number of relabel rules in `rules`.
        n_rules = "rulesCount": u64,
        /// Relabel rules in dry run that drop everything unused, as YAML.
        rules: String,
    }
}

schema! {
    /// Total and unused sizes.
    pub(crate) struct AdviceTotals {
        metrics: u64,
        series: u64,
        samples_per_second: f64,
        unused_metrics: u64,
        unused_metric_series: u64,
        /// Series of unused metrics and buckets.
        unused_series: u64,
        unused_samples_per_second: f64,
        /// Bytes on disk over the retention.
        unused_bytes: f64,
    }
}

schema! {
    /// An unused metric, set of buckets, or label, in one job.
    pub(crate) struct Unused {
        /// `metric`, `buckets` or `label`.
        kind: String,
        job: String,
        metric: String,
        /// The label, or empty.
        label: String,
        /// The values of `le`, or empty.
        buckets: Vec<String>,
        /// Series that would disappear.
        series: u64,
        samples_per_second: f64,
        /// Bytes on disk over the retention.
        bytes: f64,
        /// Whether a relabel rule can drop it without changing a query result.
        droppable: bool,
    }
}

/// GET /api/v1/status/advice. `since` limits the usage record, `labels=true` also finds unused labels.
pub(crate) async fn status(State(state): State<HttpState>, form: Form) -> Result<Response, ApiError> {
    form.check_encoding()?;
    let (timeout, limit, labels) = (form.timeout()?, form.limit()?.unwrap_or(usize::MAX), form.boolean("labels")?);
    let used_since_ms = form.optional_time_ms("since")?.unwrap_or(i64::MIN);
    let dialect = match form.first("format") {
        "" | "varve" => Dialect::Varve,
        "prometheus" => Dialect::Prometheus,
        other => return Err(ApiError::invalid_parameter("format", format!("{other:?} is none of {FORMATS:?}"))),
    };
    let now_ms = SystemClock.now_ms();
    let settings = &state.app.settings;
    let range = TimeRange { start_ms: now_ms - settings.lookback_delta_ms + 1, end_ms: now_ms };
    let (retention, _) = settings.retention(&state.app.config.current());
    let options = Options { range, used_since_ms, labels, retention, dialect };
    let app = state.app.clone();
    let parameters = format!("{labels} {used_since_ms} {limit} {dialect:?}");
    run_shared(&state, RequestClass::Query, timeout, parameters, move |work| {
        let usage = work.store.usage.snapshot();
        let advice = advise(&work.store.db, &work.ctx, &usage, &app.rules.set(), options).map_err(failed)?;
        work.respond_json(&AdviceReport::of(Some(usage.since_ms), advice, limit))
    })
    .await
}

fn failed(error: anyhow::Error) -> ApiError {
    error.downcast::<varve_tsdb::Error>().map_or_else(ApiError::internal, ApiError::from)
}

impl AdviceReport {
    /// Returns the report with at most `limit` elements per list of findings.
    pub(crate) fn of(since_ms: Option<i64>, advice: Advice, limit: usize) -> Self {
        let Advice { findings, rules, n_rules, n_expressions } = advice;
        let list = |found: Vec<Finding>| found.into_iter().take(limit).map(Unused::of).collect();
        let totals = AdviceTotals::of(&findings.totals);
        Self {
            since_ms,
            expressions: n_expressions as u64,
            totals,
            unused: list(findings.unused),
            unread: list(findings.unread),
            nameless: findings.nameless,
            n_rules: n_rules as u64,
            rules,
        }
    }
}

impl AdviceTotals {
    fn of(totals: &Totals) -> Self {
        Self {
            metrics: totals.metrics,
            series: totals.series,
            samples_per_second: totals.samples_per_second,
            unused_metrics: totals.unused_metrics,
            unused_metric_series: totals.unused_metric_series,
            unused_series: totals.unused_series,
            unused_samples_per_second: totals.unused_samples_per_second,
            unused_bytes: totals.unused_bytes,
        }
    }
}

impl Unused {
    fn of(finding: Finding) -> Self {
        let Finding { kind, job, metric, label, buckets, series, samples_per_second, bytes, droppable } = finding;
        let kind = match kind {
            Kind::Metric => "metric",
            Kind::Buckets => "buckets",
            Kind::Label => "label",
        };
        Self { kind: kind.to_owned(), job, metric, label, buckets, series, samples_per_second, bytes, droppable }
    }
}
