//! Contents of the storage engine, and the replay of its log.

use prometheus::proto::MetricFamily;
use varve_system::metrics::{counts, families, family};
use varve_tsdb::stats::{ReplayState, ReplayStats, ReplayStatus, Stats};

/// Collects the metrics of what is stored.
pub(super) fn contents(stats: &Stats) -> Vec<MetricFamily> {
    let mut all = head(stats);
    all.extend(blocks(stats));
    all.extend(disk(stats));
    all.extend(kept_selections(stats));
    all.extend(exemplars(stats));
    all.extend(regexps());
    all
}

fn head(stats: &Stats) -> Vec<MetricFamily> {
    let replayed = &stats.replayed;
    let mut all = counts([
        ("prometheus_tsdb_head_series", stats.n_series),
        ("varve_tsdb_label_names", stats.n_label_names),
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
        ("varve_tsdb_replayed_missing_files", replayed.n_file_gaps),
        (
            "varve_tsdb_background_panics_total",
            stats.n_background_panics,
        ),
    ]);
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
    if let Some(newest_ms) = stats.newest_ms {
        all.push(family(
            "prometheus_tsdb_head_max_time",
            [([], newest_ms as f64)],
        ));
    }
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

fn blocks(stats: &Stats) -> Vec<MetricFamily> {
    let compaction = &stats.compaction;
    counts([
        ("prometheus_tsdb_blocks_loaded", stats.n_blocks),
        (
            "prometheus_tsdb_storage_blocks_bytes",
            stats.blocks_size_bytes,
        ),
        ("varve_tsdb_blocks_index_bytes", stats.blocks_index_bytes),
        ("varve_tsdb_blocks_samples", stats.blocks_samples),
        ("varve_tsdb_blocks_damaged", stats.n_damaged_blocks),
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
    ])
}

/// Returns the sizes of log and volume, as far as they are known.
fn disk(stats: &Stats) -> Vec<MetricFamily> {
    let volume = stats.volume;
    let known = [
        (
            "prometheus_tsdb_wal_storage_size_bytes",
            stats.wal_size_bytes,
        ),
        ("varve_volume_size_bytes", volume.map(|volume| volume.size)),
        ("varve_volume_free_bytes", volume.map(|volume| volume.free)),
    ];
    let known = known
        .into_iter()
        .filter_map(|(name, size)| Some((name, size?)));
    known.flat_map(|one| counts([one])).collect()
}

fn kept_selections(stats: &Stats) -> Vec<MetricFamily> {
    let kept = &stats.kept_selections;
    let mut all = counts([
        ("varve_tsdb_kept_selections", kept.n_kept),
        ("varve_tsdb_kept_selections_bytes", kept.size_bytes),
    ]);
    let by_outcome = [
        (["kept"], kept.n_found as f64),
        (["updated"], kept.n_updated as f64),
        (["resolved"], kept.n_resolved as f64),
    ];
    all.push(family("varve_tsdb_head_selections_total", by_outcome));
    all
}

fn exemplars(stats: &Stats) -> Vec<MetricFamily> {
    let exemplars = &stats.exemplars;
    let metadata = &stats.metadata;
    let mut all = counts([
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
    ]);
    let oldest_s = exemplars.oldest_ms.unwrap_or(0) as f64 / 1000.0;
    all.extend(families([(
        "prometheus_tsdb_exemplar_last_exemplars_timestamp_seconds",
        oldest_s,
    )]));
    all
}

fn regexps() -> Vec<MetricFamily> {
    let regexps = varve_regexp::cache_stats();
    counts([
        ("varve_regexp_compiled_total", regexps.n_compiled),
        ("varve_regexp_cache_hits_total", regexps.n_found),
        ("varve_regexp_cache_bytes", regexps.size),
    ])
}

/// Collects the metrics of the replay.
pub(super) fn replay(status: &ReplayStatus) -> Vec<MetricFamily> {
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
