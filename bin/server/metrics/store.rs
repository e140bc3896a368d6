//! Metrics of the open store: contents, replay, writes, rules, teams, HA pairs, usage.

use prometheus::proto::{LabelPair, MetricFamily, MetricType};

use super::{family, family_of, label};
use crate::server::store::Store;
use crate::server::usage::UsageStats;
use varve_ingest::admission::TeamStatus;
use varve_ingest::ha::HaCluster;
use varve_ingest::relabel::RuleStats;

/// Collects the metrics.
pub(super) fn gather(store: &Store) -> Vec<MetricFamily> {
    let (db, receiver) = (&store.db, &store.receiver);
    let families = [tsdb(&db.stats()), replay(&db.replay_status()), ingest(&receiver.stats())];
    [families.concat(), rules(store), teams(store), usage(&store.usage.stats()), ha(store)].concat()
}

fn tsdb(stats: &varve_tsdb::stats::Stats) -> Vec<MetricFamily> {
    let replayed = &stats.replayed;
    let mut families = vec![
        gauge("prometheus_tsdb_head_series", "Total number of series in the head block.", stats.n_series),
        family_of(
            "prometheus_tsdb_head_samples_appended_total",
            "Total number of appended samples.",
            MetricType::COUNTER,
            [
                (vec![label("type", "float")], stats.n_appended.saturating_sub(stats.n_histograms_appended) as f64),
                (vec![label("type", "histogram")], stats.n_histograms_appended as f64),
            ],
        ),
        gauge(
            "varve_tsdb_head_size_bytes",
            "Approximate memory of series and samples in the heads, limited by --storage.head.max-memory.",
            stats.head_size_bytes,
        ),
        gauge(
            "varve_tsdb_wal_pending_bytes",
            "Bytes of log records not yet written to the log.",
            stats.wal_pending_bytes,
        ),
        gauge("varve_tsdb_replayed_series", "Series replayed from the log at the last start.", replayed.n_series),
        gauge("varve_tsdb_replayed_samples", "Samples replayed from the log at the last start.", replayed.n_samples),
        gauge(
            "varve_tsdb_replayed_unknown_samples",
            "Samples skipped by the last replay because the log does not define their series.",
            replayed.n_orphaned,
        ),
        gauge(
            "varve_tsdb_replayed_torn_bytes",
            "Bytes truncated from torn ends of the log at the last start.",
            replayed.torn_bytes,
        ),
        gauge(
            "varve_tsdb_replayed_damaged_bytes",
            "Damaged bytes of the log that the last start quarantined.",
            replayed.damaged_bytes,
        ),
        family_of(
            "varve_tsdb_replayed_buffered_samples",
            "Samples received during the last replay, by outcome.",
            MetricType::GAUGE,
            buffered(replayed),
        ),
    ];
    families.extend(blocks(stats));
    families.extend(exemplars(&stats.exemplars));
    families.extend(metadata(&stats.metadata));
    families.extend(regexps(&varve_tsdb::labels::regexp::cache_stats()));
    families.extend(stats.newest_ms.map(|newest_ms| {
        let help = "Maximum timestamp of the head block in milliseconds.";
        family("prometheus_tsdb_head_max_time", help, MetricType::GAUGE, newest_ms as f64)
    }));
    families
}

/// Returns the samples buffered during replay, by outcome.
fn buffered(replayed: &varve_tsdb::stats::ReplayStats) -> [(Vec<LabelPair>, f64); 4] {
    let (repeated, conflicting) = (replayed.n_buffered_repeated, replayed.n_buffered_conflicting);
    let out_of_order = replayed.n_buffered_out_of_bounds;
    let stored = replayed.n_buffered.saturating_sub(repeated + conflicting + out_of_order);
    let outcomes = [
        ("stored", stored),
        ("duplicate", repeated),
        ("conflicting", conflicting),
        ("stored_out_of_order", out_of_order),
    ];
    outcomes.map(|(outcome, n)| (vec![label("outcome", outcome)], n as f64))
}

fn replay(status: &varve_tsdb::stats::ReplayStatus) -> Vec<MetricFamily> {
    let is_running = u64::from(status.state == varve_tsdb::stats::ReplayState::Running);
    vec![
        gauge("varve_tsdb_replay_running", "Whether the log is being replayed: 1 or 0.", is_running),
        gauge("varve_tsdb_replay_read_bytes", "Bytes of the log that replay has read.", status.n_bytes),
        gauge("varve_tsdb_replay_log_bytes", "Total bytes of the log to replay.", status.n_bytes_total),
        gauge(
            "varve_tsdb_replay_buffered_bytes",
            "Memory of samples buffered until replay ends.",
            status.buffered_bytes,
        ),
        gauge(
            "varve_tsdb_replay_buffered_max_bytes",
            "Maximum memory of samples buffered until replay ends.",
            status.buffered_bytes_max,
        ),
    ]
}

fn exemplars(stats: &varve_tsdb::stats::ExemplarStats) -> Vec<MetricFamily> {
    vec![
        counter(
            "prometheus_tsdb_exemplar_exemplars_appended_total",
            "Total number of appended exemplars.",
            stats.n_appended,
        ),
        counter(
            "prometheus_tsdb_exemplar_out_of_order_exemplars_total",
            "Total number of out of order exemplar ingestion failed attempts.",
            stats.n_out_of_order,
        ),
        gauge(
            "prometheus_tsdb_exemplar_exemplars_in_storage",
            "Number of exemplars currently in circular storage.",
            stats.n_stored,
        ),
        gauge(
            "prometheus_tsdb_exemplar_series_with_exemplars_in_storage",
            "Number of series with exemplars currently in circular storage.",
            stats.n_series,
        ),
        gauge(
            "varve_tsdb_exemplar_labels_bytes",
            "Size of the labels of exemplars and of their series; at most 1/32 of the memory.",
            stats.labels_size_bytes,
        ),
        gauge(
            "prometheus_tsdb_exemplar_max_exemplars",
            "Total number of exemplars the exemplar storage can store.",
            stats.n_max,
        ),
        family(
            "prometheus_tsdb_exemplar_last_exemplars_timestamp_seconds",
            "The timestamp of the oldest exemplar stored in circular storage.",
            MetricType::GAUGE,
            stats.oldest_ms.unwrap_or(0) as f64 / 1000.0,
        ),
    ]
}

fn metadata(stats: &varve_tsdb::stats::MetadataStats) -> Vec<MetricFamily> {
    let evicted = "Metric families whose metadata was evicted, first added first.";
    vec![
        gauge("varve_tsdb_metadata_families", "Metric families with metadata.", stats.n_families),
        gauge("varve_tsdb_metadata_size_bytes", "Memory of metadata; at most 1/64 of the memory.", stats.size_bytes),
        counter("varve_tsdb_metadata_evicted_total", evicted, stats.n_evicted),
    ]
}

fn regexps(stats: &varve_tsdb::labels::regexp::RegexpCacheStats) -> Vec<MetricFamily> {
    let found = "Regular expressions that were already compiled.";
    vec![
        counter("varve_regexp_compiled_total", "Regular expressions that were compiled.", stats.n_compiled),
        counter("varve_regexp_cache_hits_total", found, stats.n_found),
        gauge("varve_regexp_cache_bytes", "Memory of the cache of compiled regular expressions.", stats.size),
    ]
}

fn blocks(stats: &varve_tsdb::stats::Stats) -> Vec<MetricFamily> {
    let compaction = &stats.compaction;
    vec![
        gauge("prometheus_tsdb_blocks_loaded", "Number of currently loaded data blocks", stats.n_blocks),
        gauge(
            "prometheus_tsdb_storage_blocks_bytes",
            "The number of bytes that are currently used for local storage by all blocks.",
            stats.blocks_size_bytes,
        ),
        gauge("varve_tsdb_blocks_index_bytes", "Bytes of the indexes of all blocks.", stats.blocks_index_bytes),
        gauge("varve_tsdb_blocks_samples", "Samples in blocks.", stats.blocks_samples),
        gauge("varve_tsdb_blocks_damaged", "Blocks that could not be opened.", stats.n_damaged_blocks),
        counter(
            "varve_tsdb_background_panics_total",
            "Panics of background tasks (flush, compaction); the task restarts after each.",
            stats.n_background_panics,
        ),
        gauge("varve_tsdb_page_cache_bytes", "Memory of the block page cache.", stats.page_cache_bytes),
        counter(
            "prometheus_tsdb_compactions_total",
            "Total number of compactions that were executed for the partition.",
            compaction.n_merges,
        ),
        counter(
            "prometheus_tsdb_compactions_failed_total",
            "Total number of compactions that failed for the partition.",
            compaction.n_failed,
        ),
        counter("varve_tsdb_blocks_expired_total", "Blocks deleted by retention.", compaction.n_expired),
        gauge(
            "varve_tsdb_blocks_held",
            "Blocks older than --storage.tsdb.retention.time that retention keeps until it is confirmed.",
            compaction.n_held,
        ),
        counter(
            "varve_tsdb_merge_conflicts_total",
            "Samples dropped by compaction because another sample of the series has the same timestamp and a different value.",
            compaction.n_conflicts,
        ),
    ]
}

fn ingest(stats: &varve_ingest::Stats) -> Vec<MetricFamily> {
    let requests = [
        ("stored", stats.requests_stored),
        ("partial", stats.requests_partial),
        ("malformed", stats.requests_malformed),
        ("too_large", stats.requests_too_large),
        ("busy", stats.requests_busy),
        ("failed", stats.requests_failed),
    ];
    let n_throttled = stats.requests_throttled.values().sum();
    let requests = requests.into_iter().chain([("throttled", n_throttled)]);
    let by_outcome = requests.map(|(outcome, n)| (vec![label("outcome", outcome)], n as f64));
    let by_reason = stats.rejected.iter().map(|(reason, n)| (vec![label("reason", reason.name())], *n as f64));
    let mut families = vec![
        family_of(
            "varve_ingest_requests_total",
            "Write requests, by outcome: stored, partial (some of it rejected), malformed, too_large, busy, throttled, failed.",
            MetricType::COUNTER,
            by_outcome,
        ),
        counter(
            "varve_ingest_received_bytes_total",
            "Bytes of write request bodies, before decompression.",
            stats.received_bytes,
        ),
        counter(
            "varve_ingest_samples_stored_total",
            "Samples stored, including histograms and exact duplicates.",
            stats.samples_stored,
        ),
        counter("varve_ingest_samples_dropped_total", "Samples dropped by relabel rules.", stats.samples_dropped),
        counter(
            "varve_ingest_samples_deduplicated_total",
            "Samples deduplicated because their replica does not lead its HA pair.",
            stats.samples_deduplicated,
        ),
        counter(
            "varve_ingest_exemplars_stored_total",
            "Exemplars stored, including duplicates.",
            stats.exemplars.stored,
        ),
        gauge(
            "varve_ingest_series_creations_active",
            "Write requests that are creating series.",
            stats.admission.series_creations_active,
        ),
        gauge(
            "varve_ingest_queued_requests",
            "Write requests waiting for a permit to create series or for another exhausted resource.",
            stats.admission.queued_requests,
        ),
        gauge("varve_ingest_queued_bytes", "Memory of queued write requests.", stats.admission.queued_bytes),
        gauge(
            "varve_ingest_in_flight_bytes",
            "Memory of write requests being processed.",
            stats.admission.in_flight_bytes,
        ),
        gauge("varve_ingest_pooled_bytes", "Memory of buffers kept for later write requests.", stats.pooled_bytes),
        counter(
            "varve_ingest_route_hits_total",
            "Series of write requests found in the route cache.",
            stats.route.hits,
        ),
        counter(
            "varve_ingest_route_misses_total",
            "Series of write requests not found in the route cache.",
            stats.route.misses,
        ),
        counter(
            "varve_ingest_route_evicted_total",
            "Series evicted from the route cache, for lack of space or because they were unused.",
            stats.route.evicted,
        ),
        gauge("varve_ingest_route_entries", "Series in the route cache.", stats.route.entries),
        gauge("varve_ingest_route_size_bytes", "Memory of the route cache.", stats.route.size_bytes),
    ];
    // A family needs at least one metric: it appears with the first reject.
    if !stats.exemplars.rejected.is_empty() {
        let refused = stats.exemplars.rejected.iter();
        let by_reason = refused.map(|(refusal, n)| (vec![label("reason", refusal.name())], *n as f64));
        let help = "Exemplars dropped, by reason.";
        families.push(family_of("varve_ingest_exemplars_dropped_total", help, MetricType::COUNTER, by_reason));
    }
    if n_throttled > 0 {
        let throttled = stats.requests_throttled.iter();
        let by_resource = throttled.map(|(resource, n)| (vec![label("resource", resource.name())], *n as f64));
        let help = "Write requests that the sender must retry, at least in part, by exhausted resource: series_creation, queue, memory, new_series, samples, team_new_series, team_samples.";
        families.push(family_of("varve_ingest_throttled_total", help, MetricType::COUNTER, by_resource));
    }
    if !stats.rejected.is_empty() {
        let help = "Samples, series, exemplars or metadata entries of write requests that were rejected, by reason, which determines the unit.";
        families.push(family_of("varve_ingest_rejected_total", help, MetricType::COUNTER, by_reason));
    }
    families
}

/// Returns the metrics of relabel rules, if there are any.
fn rules(store: &Store) -> Vec<MetricFamily> {
    let rules = store.receiver.rule_stats();
    if rules.is_empty() {
        return Vec::new();
    }
    let gauge_or_counter = |name: &str, help: &str, kind, n: fn(&RuleStats) -> f64| {
        let by_rule = rules.iter().map(|rule| {
            let labels = vec![label("rule", &rule.name), label("state", rule.state.name())];
            (labels, n(rule))
        });
        family_of(name, help, kind, by_rule)
    };
    let family =
        |name: &str, help: &str, n: fn(&RuleStats) -> f64| gauge_or_counter(name, help, MetricType::COUNTER, n);
    let mut families = vec![
        family(
            "varve_ingest_rule_series_total",
            "Label sets that a rule dropped or changed (or would have in a dry run), counted when first seen since the rules were loaded.",
            |rule| rule.series as f64,
        ),
        family(
            "varve_ingest_rule_samples_total",
            "Samples of the label sets that a rule dropped or changed (or would have in a dry run).",
            |rule| rule.samples as f64,
        ),
        gauge_or_counter(
            "varve_ingest_rule_samples_per_second",
            "Samples per second that a rule dropped or changed (or would have in a dry run), over at least ten seconds.",
            MetricType::GAUGE,
            |rule| rule.samples_per_second,
        ),
    ];
    let may_be_disabled: Vec<_> = rules.iter().filter(|rule| rule.disable_on_use).collect();
    if !may_be_disabled.is_empty() {
        let by_rule = may_be_disabled
            .iter()
            .map(|rule| (vec![label("rule", &rule.name)], f64::from(u8::from(rule.disabled_by_use.is_some()))));
        let help = "Times that a rule with disable_on_use was disabled because a query used series that it drops.";
        families.push(family_of("varve_ingest_rules_disabled_total", help, MetricType::COUNTER, by_rule));
        let help = "Failed writes of the file that lists the rules disabled by use.";
        families.push(counter(
            "varve_ingest_rule_state_write_failures_total",
            help,
            store.receiver.disabled_rules().n_write_failures(),
        ));
    }
    families
}

/// Returns the metrics of HA pairs; those of clusters only if there are any.
fn ha(store: &Store) -> Vec<MetricFamily> {
    let clusters = store.elections.clusters();
    let unsaved = "Failed writes of the file that lists the leaders of HA pairs.";
    let mut families =
        vec![counter("varve_ha_state_write_failures_total", unsaved, store.elections.n_write_failures())];
    if clusters.is_empty() {
        return families;
    }
    let family = |name: &str, help: &str, kind, value: fn(&HaCluster) -> f64| {
        let of = |cluster: &HaCluster| (vec![label("cluster", &cluster.cluster)], value(cluster));
        family_of(name, help, kind, clusters.iter().map(of))
    };
    let leaders = clusters.iter().map(|of| {
        let labels = vec![label("cluster", &of.cluster), label("replica", &of.leader.replica)];
        (labels, of.leader.silent.as_secs_f64())
    });
    families.extend([
        family_of(
            "varve_ha_leader_silent_seconds",
            "Time since the leading replica of an HA pair last sent samples.",
            MetricType::GAUGE,
            leaders,
        ),
        family("varve_ha_leader_changes_total", "Leader changes of an HA pair.", MetricType::COUNTER, |of| {
            of.n_changes as f64
        }),
        family(
            "varve_ha_samples_deduplicated_total",
            "Samples deduplicated because their replica does not lead its HA pair, by cluster.",
            MetricType::COUNTER,
            |of| of.samples_deduplicated as f64,
        ),
    ]);
    families
}

/// Returns the metrics of teams, if there are any.
fn teams(store: &Store) -> Vec<MetricFamily> {
    let (_, teams) = store.receiver.team_stats();
    if teams.iter().all(|team| team.name.is_empty()) {
        return Vec::new();
    }
    let family = |name: &str, help: &str, kind: MetricType, value: fn(&TeamStatus) -> u64| {
        let by_team = teams.iter().map(|team| (vec![label("team", &team.name)], value(team) as f64));
        family_of(name, help, kind, by_team)
    };
    vec![
        family("varve_ingest_team_active_series", "Active series of a team.", MetricType::GAUGE, |team| {
            team.use_now.active_series
        }),
        family(
            "varve_ingest_team_borrowed_series",
            "Active series of a team above its guaranteed budget.",
            MetricType::GAUGE,
            |team| team.borrowed.active_series,
        ),
        family("varve_ingest_team_new_series_total", "Series created by a team.", MetricType::COUNTER, |team| {
            team.new_series
        }),
        family("varve_ingest_team_samples_total", "Samples received from a team.", MetricType::COUNTER, |team| {
            team.samples
        }),
        family(
            "varve_ingest_team_series_rejected_total",
            "New series of a team rejected because a budget of active series was exhausted.",
            MetricType::COUNTER,
            |team| team.series_refused,
        ),
    ]
}

fn usage(stats: &UsageStats) -> Vec<MetricFamily> {
    vec![
        gauge(
            "varve_usage_entries",
            "Metrics and selectors without a metric name in the usage record.",
            stats.n_entries,
        ),
        gauge("varve_usage_size_bytes", "Approximate memory of the usage record.", stats.size_bytes),
        counter(
            "varve_usage_evicted_total",
            "Entries evicted from the usage record, or not added to it, because a limit was reached.",
            stats.n_evicted,
        ),
    ]
}

fn counter(name: &str, help: &str, value: u64) -> MetricFamily {
    family(name, help, MetricType::COUNTER, value as f64)
}

fn gauge(name: &str, help: &str, value: u64) -> MetricFamily {
    family(name, help, MetricType::GAUGE, value as f64)
}
