//! The report of /api/v1/status/advice and of `varve advise drops`.

use varve_advise::Advice;
use varve_advise::findings::{self, Finding, Kind, Totals};

use crate::schema;

/// Bytes per sample on disk where they are not known.
pub const BYTES_PER_SAMPLE: f64 = 1.0;

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
        /// Unused metrics that the keep list keeps: `rules` do not drop them.
        kept: Vec<KeptMetric>,
        /// Metrics that only recording rules use whose results nothing reads.
        unread: Vec<Unused>,
        /// Used buckets of classic histograms that the job also exposes as native histograms.
        classic_beside_native: Vec<Unused>,
        /// Uses without a metric name. Each keeps all series that it may match.
        nameless: Vec<String>,
        /// Recorded queries without a metric name, which do not count as uses.
        exploration: Vec<String>,
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
    /// A metric, set of buckets, or label, in one job: unused, or replaceable.
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

schema! {
    /// An unused metric of a job that the keep list keeps.
    pub struct KeptMetric {
        job: String,
        metric: String,
        series: u64,
        samples_per_second: f64,
        /// Bytes on disk over the retention.
        bytes: f64,
        /// The preset, or the regular expression, that keeps it.
        kept_by: String,
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
            kept: findings
                .kept
                .into_iter()
                .take(limit)
                .map(KeptMetric::of)
                .collect(),
            unread: list(findings.unread),
            classic_beside_native: list(findings.classic_beside_native),
            nameless: findings.nameless,
            exploration: findings.exploration,
            n_rules: rules.n_rules as u64,
            rules: rules.text,
        }
    }
}

impl KeptMetric {
    fn of(kept: findings::Kept) -> Self {
        let findings::Kept { finding, kept_by } = kept;
        Self {
            job: finding.job,
            metric: finding.metric,
            series: finding.series,
            samples_per_second: finding.samples_per_second,
            bytes: finding.bytes,
            kept_by,
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
