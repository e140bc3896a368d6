//! /api/v1/status/advice: unused metrics, buckets and labels of this server, and the rules that
//! drop them.

use std::time::Duration;

use axum::extract::State;
use varve_advise::Advice;
use varve_advise::findings::{self, Finding, Kind, Totals};
use varve_advise::inventory::Stored;
use varve_advise::needs::Needs;
use varve_advise::relabel_rules::{self, Dialect};
use varve_advise::usage::Snapshot;
use varve_fs::{Clock, SystemClock};
use varve_model::TimeRange;
use varve_rules::RuleSet;
use varve_server::self_scrape;

use crate::error::{ApiError, Result};
use crate::openapi::schema;
use crate::params::Form;
use crate::serving::run::{RequestClass, Work, run_shared};
use crate::serving::state::HttpState;

/// The scrape interval of jobs for which it is not known.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(30);
/// Bytes per sample on disk where they are not known.
pub const BYTES_PER_SAMPLE: f64 = 1.0;
/// The formats of the rules.
pub(crate) const FORMATS: [&str; 2] = ["varve", "prometheus"];

schema! {
    /// What no rule and no recorded query uses, and what dropping it saves.
    pub struct AdviceReport {
        /// Start of the usage record in milliseconds since the epoch. Null only in reports of
        /// `varve advise drops` without a usage record.
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
    pub struct AdviceTotals {
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
    pub struct Unused {
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

/// GET /api/v1/status/advice. `since` limits the usage record, `labels=true` also finds unused
/// labels.
pub(crate) async fn status(State(state): State<HttpState>, form: Form) -> Result {
    form.check_encoding()?;
    let (timeout, limit, labels) = (
        form.timeout()?,
        form.limit()?.unwrap_or(usize::MAX),
        form.boolean("labels")?,
    );
    let used_since_ms = form.optional_time_ms("since")?.unwrap_or(i64::MIN);
    let dialect = match form.first("format") {
        "" | "varve" => Dialect::Varve,
        "prometheus" => Dialect::Prometheus,
        other => {
            return Err(ApiError::invalid_parameter(
                "format",
                format!("{other:?} is none of {FORMATS:?}"),
            ));
        }
    };
    let now_ms = SystemClock.now_ms();
    let settings = &state.app.settings;
    let range = TimeRange {
        start_ms: now_ms - settings.lookback_delta_ms + 1,
        end_ms: now_ms,
    };
    let retention = settings.retention(&state.app.config.current()).time;
    let request = Request {
        range,
        used_since_ms,
        labels,
        retention,
        dialect,
    };
    let app = state.app.clone();
    let parameters = format!("{labels} {used_since_ms} {limit} {dialect:?}");
    run_shared(
        &state,
        RequestClass::Query,
        timeout,
        parameters,
        move |work| {
            let usage = work.store.usage.snapshot();
            let advice = request.advice(work, &usage, &app.rules.set())?;
            work.respond_json(&AdviceReport::of(Some(usage.since_ms), advice, limit))
        },
    )
    .await
}

#[derive(Debug, Clone, Copy)]
struct Request {
    /// Series with a sample in this range exist.
    range: TimeRange,
    used_since_ms: i64,
    labels: bool,
    retention: Duration,
    dialect: Dialect,
}

impl Request {
    /// Compares the series of the store with its usage record and the rules of its server.
    /// Dashboards are known only as far as their queries are in the usage record.
    fn advice(self, work: &Work, usage: &Snapshot, rules: &RuleSet) -> varve_tsdb::Result<Advice> {
        let mut needs = Needs::default();
        needs.add_usage_record(&"usage record".into(), usage, self.used_since_ms);
        needs.add_rule_set(rules);
        let mut inventory = Stored::new(&work.store.db, &work.ctx, self.range, SCRAPE_INTERVAL);
        let options = findings::Options {
            own_job: self_scrape::JOB,
            by_job: false,
            ignore_nameless: false,
            labels: self.labels,
            bytes_per_sample: inventory.bytes_per_sample().unwrap_or(BYTES_PER_SAMPLE),
            retention: self.retention,
        };
        let rules = relabel_rules::Options {
            dialect: self.dialect,
            enforce: false,
            labels: self.labels,
        };
        Advice::find(&needs, &mut inventory, options, rules)
    }
}

impl AdviceReport {
    /// Returns the report with at most `limit` elements per list of findings.
    pub fn of(since_ms: Option<i64>, advice: Advice, limit: usize) -> Self {
        let Advice {
            findings,
            rules,
            n_expressions,
        } = advice;
        let list = |found: Vec<Finding>| found.into_iter().take(limit).map(Unused::of).collect();
        Self {
            since_ms,
            expressions: n_expressions as u64,
            totals: AdviceTotals::of(&findings.totals),
            unused: list(findings.unused),
            unread: list(findings.unread),
            nameless: findings.nameless,
            n_rules: rules.n_rules as u64,
            rules: rules.text,
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
        let Finding {
            kind,
            job,
            metric,
            label,
            buckets,
            series,
            samples_per_second,
            bytes,
            droppable,
        } = finding;
        let kind = match kind {
            Kind::Metric => "metric",
            Kind::Buckets => "buckets",
            Kind::Label => "label",
        };
        Self {
            kind: kind.to_owned(),
            job,
            metric,
            label,
            buckets,
            series,
            samples_per_second,
            bytes,
            droppable,
        }
    }
}
