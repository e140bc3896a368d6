//! Writes: requests, samples and rejections, and the relabel rules that they pass.

use prometheus::proto::MetricFamily;
use varve_ingest::relabel::{DisabledByUse, RelabelRuleStats};
use varve_ingest::{IngestStats, Receiver};
use varve_system::metrics::{counts, family};

/// Collects the metrics of writes.
pub(super) fn writes(stats: &IngestStats) -> Vec<MetricFamily> {
    let mut all = counts([
        ("varve_ingest_received_bytes_total", stats.received_bytes),
        ("varve_ingest_samples_stored_total", stats.samples_stored),
        ("varve_ingest_samples_dropped_total", stats.samples_dropped),
        (
            "varve_ingest_samples_deduplicated_total",
            stats.samples_deduplicated,
        ),
        (
            "varve_ingest_exemplars_stored_total",
            stats.exemplars.stored,
        ),
        (
            "varve_ingest_series_creations_active",
            stats.admission.series_creations_active,
        ),
        (
            "varve_ingest_queued_requests",
            stats.admission.queued_requests,
        ),
        ("varve_ingest_queued_bytes", stats.admission.queued_bytes),
        (
            "varve_ingest_in_flight_bytes",
            stats.admission.in_flight_bytes,
        ),
        ("varve_ingest_delta_streams", stats.delta_streams),
        ("varve_ingest_late_deltas_total", stats.late_deltas),
        ("varve_ingest_pooled_bytes", stats.pooled_bytes),
        ("varve_ingest_route_hits_total", stats.route.hits),
        ("varve_ingest_route_misses_total", stats.route.misses),
        ("varve_ingest_route_evicted_total", stats.route.evicted),
        ("varve_ingest_route_entries", stats.route.entries),
        ("varve_ingest_route_size_bytes", stats.route.size_bytes),
    ]);
    all.push(requests(stats));
    all.push(otlp_warnings(stats));
    all.extend(rejections(stats));
    all
}

fn requests(stats: &IngestStats) -> MetricFamily {
    let by_outcome = [
        ("stored", stats.requests_stored),
        ("partial", stats.requests_partial),
        ("malformed", stats.requests_malformed),
        ("too_large", stats.requests_too_large),
        ("busy", stats.requests_busy),
        ("failed", stats.requests_failed),
        ("throttled", stats.requests_throttled.values().sum()),
    ];
    family(
        "varve_ingest_requests_total",
        by_outcome.map(|(outcome, n)| ([outcome], n as f64)),
    )
}

fn otlp_warnings(stats: &IngestStats) -> MetricFamily {
    let warnings = stats.otlp_warnings;
    let by_category = [
        ("label_name_collision", warnings.label_name_collisions),
        (
            "histogram_zero_count_non_zero_sum",
            warnings.zero_counts_with_sum,
        ),
        ("target_info_labels_dropped", warnings.cut_target_infos),
    ];
    family(
        "prometheus_api_otlp_translation_warnings_total",
        by_category.map(|(category, n)| ([category], n as f64)),
    )
}

/// Returns what was rejected by reason. A family appears with its first rejection, because it needs
/// at least one metric.
fn rejections(stats: &IngestStats) -> Vec<MetricFamily> {
    let exemplars = stats.exemplars.rejected.iter();
    let throttled = stats.requests_throttled.iter();
    let rejected = stats.rejected.iter();
    vec![
        family(
            "varve_ingest_exemplars_dropped_total",
            exemplars.map(|(reason, n)| ([reason.name()], *n as f64)),
        ),
        family(
            "varve_ingest_throttled_total",
            throttled.map(|(resource, n)| ([resource.name()], *n as f64)),
        ),
        family(
            "varve_ingest_rejected_total",
            rejected.map(|(reason, n)| ([reason.name()], *n as f64)),
        ),
    ]
}

/// Returns the metrics of relabel rules, if there are any.
pub(super) fn relabel_rules(receiver: &Receiver) -> Vec<MetricFamily> {
    let rules = receiver.relabel_rule_stats();
    if rules.is_empty() {
        return Vec::new();
    }
    let by_rule = |name, n: fn(&RelabelRuleStats) -> f64| {
        family(
            name,
            rules
                .iter()
                .map(|rule| ([&*rule.name, rule.state.name()], n(rule))),
        )
    };
    let mut all = vec![
        by_rule("varve_ingest_rule_series_total", |rule| rule.series as f64),
        by_rule("varve_ingest_rule_samples_total", |rule| {
            rule.samples as f64
        }),
        by_rule("varve_ingest_rule_samples_per_second", |rule| {
            rule.samples_per_second
        }),
    ];
    let may_be_disabled: Vec<_> = rules.iter().filter(|rule| rule.disable_on_use).collect();
    if !may_be_disabled.is_empty() {
        let by_use = |name, query: fn(&RelabelRuleStats) -> &Option<DisabledByUse>| {
            let values = may_be_disabled.iter().map(|rule| {
                let is_used = query(rule).is_some();
                ([&*rule.name], f64::from(u8::from(is_used)))
            });
            family(name, values)
        };
        all.push(by_use("varve_ingest_rules_disabled", |rule| {
            &rule.disabled_by_use
        }));
        all.push(by_use("varve_ingest_rules_would_be_disabled", |rule| {
            &rule.would_be_disabled_by
        }));
        all.extend(counts([(
            "varve_ingest_rule_state_write_failures_total",
            receiver.disabled_relabel_rules().n_write_failures(),
        )]));
    }
    all.extend(counts([
        (
            "varve_ingest_rule_footprints",
            receiver.n_footprints() as u64,
        ),
        (
            "varve_ingest_rule_footprints_refused_total",
            receiver.n_refused_footprints(),
        ),
    ]));
    all
}
