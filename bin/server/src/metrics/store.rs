//! Metrics of the open store: contents, replay, writes, rules, teams, HA pairs, usage.

use prometheus::proto::MetricFamily;

use crate::store::Store;
use varve_ingest::admission::{Amounts, TeamStatus};
use varve_ingest::ha::HaCluster;
use varve_ingest::relabel::{DisabledByUse, RelabelRuleStats};
use varve_system::metrics::{counts, families, family};
use varve_tsdb::stats::{ReplayState, ReplayStats, ReplayStatus, Stats};

/// Collects the metrics.
pub(super) fn gather(store: &Store) -> Vec<MetricFamily> {
    let db = &store.db;
    let receiver = &store.receiver;
    let contents = [
        tsdb(&db.stats()),
        replay(&db.replay_status()),
        ingest(&receiver.stats()),
    ];
    [
        contents.concat(),
        result_cache(store),
        rules(store),
        teams(store),
        usage(store),
        ha(store),
    ]
    .concat()
}

fn tsdb(stats: &Stats) -> Vec<MetricFamily> {
    let Stats {
        replayed,
        compaction,
        exemplars,
        metadata,
        ..
    } = stats;
    let regexps = varve_regexp::cache_stats();
    let mut all = counts([
        ("prometheus_tsdb_head_series", stats.n_series),
        ("varve_tsdb_head_size_bytes", stats.head_size_bytes),
        ("varve_tsdb_wal_pending_bytes", stats.wal_pending_bytes),
        ("varve_tsdb_replayed_series", replayed.n_series),
        ("varve_tsdb_replayed_samples", replayed.n_samples),
        (
            "varve_tsdb_replayed_unknown_samples",
            replayed.n_unknown_samples,
        ),
        ("varve_tsdb_replayed_torn_bytes", replayed.torn_bytes),
        ("varve_tsdb_replayed_damaged_bytes", replayed.damaged_bytes),
        ("prometheus_tsdb_blocks_loaded", stats.n_blocks),
        (
            "prometheus_tsdb_storage_blocks_bytes",
            stats.blocks_size_bytes,
        ),
        ("varve_tsdb_blocks_index_bytes", stats.blocks_index_bytes),
        ("varve_tsdb_blocks_samples", stats.blocks_samples),
        ("varve_tsdb_blocks_damaged", stats.n_damaged_blocks),
        (
            "varve_tsdb_background_panics_total",
            stats.n_background_panics,
        ),
        ("varve_tsdb_page_cache_bytes", stats.page_cache_bytes),
        ("prometheus_tsdb_compactions_total", compaction.n_merges),
        (
            "prometheus_tsdb_compactions_failed_total",
            compaction.n_failed,
        ),
        ("varve_tsdb_blocks_expired_total", compaction.n_expired),
        ("varve_tsdb_blocks_held", compaction.n_held_blocks()),
        (
            "varve_tsdb_retention_rules_removed_samples_total",
            compaction.n_removed_by_rules,
        ),
        ("varve_tsdb_merge_conflicts_total", compaction.n_conflicts),
        (
            "prometheus_tsdb_exemplar_exemplars_appended_total",
            exemplars.n_appended,
        ),
        (
            "prometheus_tsdb_exemplar_out_of_order_exemplars_total",
            exemplars.n_out_of_order,
        ),
        (
            "prometheus_tsdb_exemplar_exemplars_in_storage",
            exemplars.n_stored,
        ),
        (
            "prometheus_tsdb_exemplar_series_with_exemplars_in_storage",
            exemplars.n_series,
        ),
        (
            "varve_tsdb_exemplar_labels_bytes",
            exemplars.labels_size_bytes,
        ),
        ("prometheus_tsdb_exemplar_max_exemplars", exemplars.n_max),
        ("varve_tsdb_metadata_families", metadata.n_families),
        ("varve_tsdb_metadata_size_bytes", metadata.size_bytes),
        ("varve_tsdb_metadata_evicted_total", metadata.n_evicted),
        ("varve_regexp_compiled_total", regexps.n_compiled),
        ("varve_regexp_cache_hits_total", regexps.n_found),
        ("varve_regexp_cache_bytes", regexps.size),
    ]);
    let oldest_s = exemplars.oldest_ms.unwrap_or(0) as f64 / 1000.0;
    all.extend(families([(
        "prometheus_tsdb_exemplar_last_exemplars_timestamp_seconds",
        oldest_s,
    )]));
    let n_floats = stats.n_appended.saturating_sub(stats.n_histograms_appended);
    let by_type = [
        (["float"], n_floats as f64),
        (["histogram"], stats.n_histograms_appended as f64),
    ];
    all.push(family(
        "prometheus_tsdb_head_samples_appended_total",
        by_type,
    ));
    all.push(family(
        "varve_tsdb_replayed_buffered_samples",
        buffered(replayed),
    ));
    all.extend(
        stats
            .newest_ms
            .map(|newest_ms| family("prometheus_tsdb_head_max_time", [([], newest_ms as f64)])),
    );
    all
}

fn result_cache(store: &Store) -> Vec<MetricFamily> {
    let stats = store.engine.cache_stats();
    let mut all = counts([
        ("varve_query_cache_entries", stats.n_entries),
        ("varve_query_cache_evicted_total", stats.n_evicted),
        ("varve_query_cache_size_bytes", stats.size_bytes),
        ("varve_query_cache_steps_total", stats.n_steps),
    ]);
    let by_outcome = [
        ("hit", stats.n_hits),
        ("partial", stats.n_partial_hits),
        ("miss", stats.n_misses),
    ];
    all.push(family(
        "varve_query_cache_requests_total",
        by_outcome.map(|(outcome, n)| ([outcome], n as f64)),
    ));
    all
}

/// Returns the samples buffered during replay, by outcome.
fn buffered(replayed: &ReplayStats) -> [([&str; 1], f64); 4] {
    let repeated = replayed.n_buffered_repeated;
    let conflicting = replayed.n_buffered_conflicting;
    let out_of_order = replayed.n_buffered_out_of_bounds;
    let stored = replayed
        .n_buffered
        .saturating_sub(repeated + conflicting + out_of_order);
    let outcomes = [
        ("stored", stored),
        ("duplicate", repeated),
        ("conflicting", conflicting),
        ("stored_out_of_order", out_of_order),
    ];
    outcomes.map(|(outcome, n)| ([outcome], n as f64))
}

fn replay(status: &ReplayStatus) -> Vec<MetricFamily> {
    counts([
        (
            "varve_tsdb_replay_running",
            u64::from(status.state == ReplayState::Running),
        ),
        ("varve_tsdb_replay_read_bytes", status.n_bytes),
        ("varve_tsdb_replay_log_bytes", status.n_bytes_total),
        ("varve_tsdb_replay_buffered_bytes", status.buffered_bytes),
        (
            "varve_tsdb_replay_buffered_max_bytes",
            status.buffered_bytes_max,
        ),
    ])
}

fn ingest(stats: &varve_ingest::Stats) -> Vec<MetricFamily> {
    let n_throttled = stats.requests_throttled.values().sum();
    let by_outcome = [
        ("stored", stats.requests_stored),
        ("partial", stats.requests_partial),
        ("malformed", stats.requests_malformed),
        ("too_large", stats.requests_too_large),
        ("busy", stats.requests_busy),
        ("failed", stats.requests_failed),
        ("throttled", n_throttled),
    ];
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
        ("varve_ingest_pooled_bytes", stats.pooled_bytes),
        ("varve_ingest_route_hits_total", stats.route.hits),
        ("varve_ingest_route_misses_total", stats.route.misses),
        ("varve_ingest_route_evicted_total", stats.route.evicted),
        ("varve_ingest_route_entries", stats.route.entries),
        ("varve_ingest_route_size_bytes", stats.route.size_bytes),
    ]);
    all.push(family(
        "varve_ingest_requests_total",
        by_outcome.map(|(outcome, n)| ([outcome], n as f64)),
    ));
    // A family needs at least one metric: it appears with the first reject.
    if !stats.exemplars.rejected.is_empty() {
        let by_reason = stats
            .exemplars
            .rejected
            .iter()
            .map(|(reason, n)| ([reason.name()], *n as f64));
        all.push(family("varve_ingest_exemplars_dropped_total", by_reason));
    }
    if n_throttled > 0 {
        let by_resource = stats
            .requests_throttled
            .iter()
            .map(|(resource, n)| ([resource.name()], *n as f64));
        all.push(family("varve_ingest_throttled_total", by_resource));
    }
    if !stats.rejected.is_empty() {
        let by_reason = stats
            .rejected
            .iter()
            .map(|(reason, n)| ([reason.name()], *n as f64));
        all.push(family("varve_ingest_rejected_total", by_reason));
    }
    all
}

/// Returns the metrics of relabel rules, if there are any.
fn rules(store: &Store) -> Vec<MetricFamily> {
    let rules = store.receiver.relabel_rule_stats();
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
    let mut may_be_disabled = rules.iter().filter(|rule| rule.disable_on_use).peekable();
    if may_be_disabled.peek().is_some() {
        for (name, query) in [
            (
                "varve_ingest_rules_disabled",
                (|rule| &rule.disabled_by_use) as fn(&RelabelRuleStats) -> &Option<DisabledByUse>,
            ),
            ("varve_ingest_rules_would_be_disabled", |rule| {
                &rule.would_be_disabled_by
            }),
        ] {
            let is_used = |rule: &RelabelRuleStats| f64::from(u8::from(query(rule).is_some()));
            all.push(family(
                name,
                may_be_disabled
                    .clone()
                    .map(|rule| ([&*rule.name], is_used(rule))),
            ));
        }
        let n_failures = store.receiver.disabled_relabel_rules().n_write_failures();
        all.extend(counts([(
            "varve_ingest_rule_state_write_failures_total",
            n_failures,
        )]));
    }
    all.extend(counts([(
        "varve_ingest_rule_footprints",
        store.receiver.n_footprints() as u64,
    )]));
    all
}

/// Returns the metrics of HA pairs. Metrics of clusters are included only if there are any.
fn ha(store: &Store) -> Vec<MetricFamily> {
    let clusters = store.elections.clusters();
    let mut all = counts([(
        "varve_ha_state_write_failures_total",
        store.elections.n_write_failures(),
    )]);
    if clusters.is_empty() {
        return all;
    }
    let by_cluster = |name, n: fn(&HaCluster) -> u64| {
        family(
            name,
            clusters
                .iter()
                .map(|cluster| ([&*cluster.cluster], n(cluster) as f64)),
        )
    };
    let silent = clusters.iter().map(|cluster| {
        (
            [&*cluster.cluster, &*cluster.leader.replica],
            cluster.leader.silent.as_secs_f64(),
        )
    });
    all.extend([
        family("varve_ha_leader_silent_seconds", silent),
        by_cluster("varve_ha_leader_changes_total", |cluster| cluster.n_changes),
        by_cluster("varve_ha_samples_deduplicated_total", |cluster| {
            cluster.samples_deduplicated
        }),
    ]);
    all
}

/// Returns the metrics of budgets, and those of teams if there are any.
fn teams(store: &Store) -> Vec<MetricFamily> {
    let (all, teams) = store.receiver.team_stats();
    let of_all = amounts(all.budget.maximum).map(|(amount, n)| ([amount], n));
    let mut families = vec![family(
        "varve_ingest_new_series_total",
        [([], all.new_series as f64)],
    )];
    families.extend(limits("varve_ingest_budget_maximum", of_all));
    if teams.iter().all(|team| team.name.is_empty()) {
        return families;
    }
    let mut by_amount = |name, amounts_of: fn(&TeamStatus) -> Amounts| {
        let of_team = teams.iter().flat_map(|team| {
            amounts(amounts_of(team)).map(|(amount, n)| ([&*team.name, amount], n))
        });
        families.extend(limits(name, of_team));
    };
    by_amount("varve_ingest_team_guaranteed", |team| {
        team.budget.guaranteed
    });
    by_amount("varve_ingest_team_maximum", |team| team.budget.maximum);
    let by_team = |name, n: fn(&TeamStatus) -> u64| {
        family(
            name,
            teams.iter().map(|team| ([&*team.name], n(team) as f64)),
        )
    };
    families.extend([
        by_team("varve_ingest_team_active_series", |team| {
            team.use_now.active_series
        }),
        by_team("varve_ingest_team_borrowed_series", |team| {
            team.borrowed.active_series
        }),
        by_team("varve_ingest_team_new_series_total", |team| team.new_series),
        by_team("varve_ingest_team_samples_total", |team| team.samples),
        by_team("varve_ingest_team_series_rejected_total", |team| {
            team.series_refused
        }),
    ]);
    families
}

/// Returns the amounts of a budget by the key in the configuration. `None` is unlimited.
fn amounts(amounts: Amounts) -> [(&'static str, Option<u64>); 3] {
    let Amounts {
        active_series,
        new_series_per_second,
        samples_per_second,
    } = amounts;
    [
        ("active_series", active_series),
        ("new_series_per_second", new_series_per_second),
        ("samples_per_second", samples_per_second),
    ]
}

/// Returns a family of limits, if any is set.
fn limits<'a, const N: usize>(
    name: &str,
    limits: impl IntoIterator<Item = ([&'a str; N], Option<u64>)>,
) -> Option<MetricFamily> {
    let mut set = limits
        .into_iter()
        .filter_map(|(labels, limit)| Some((labels, limit? as f64)))
        .peekable();
    set.peek()?;
    Some(family(name, set))
}

fn usage(store: &Store) -> Vec<MetricFamily> {
    let stats = store.usage.stats();
    counts([
        ("varve_usage_entries", stats.n_entries),
        ("varve_usage_size_bytes", stats.size_bytes),
        ("varve_usage_evicted_total", stats.n_evicted),
    ])
}
