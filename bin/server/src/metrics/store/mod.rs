//! Metrics of the open store: contents, replay, writes, rules, teams, HA pairs, usage.

mod ingest;
mod teams;
mod tsdb;

use prometheus::proto::MetricFamily;
use varve_ingest::ha::HaCluster;
use varve_system::metrics::{counts, families, family};

use crate::lifecycle::Lifecycle;
use crate::store::Store;

/// Collects the metrics of the store, if it is open.
pub fn collect(lifecycle: &Lifecycle) -> Vec<MetricFamily> {
    let store = lifecycle.store();
    let mut all = families([("prometheus_ready", f64::from(u8::from(store.is_some())))]);
    let Some(store) = store else {
        return all;
    };
    all.extend(tsdb::contents(&store.db.stats()));
    all.extend(tsdb::replay(&store.db.replay_status()));
    all.extend(ingest::writes(&store.receiver.stats()));
    all.extend(ingest::relabel_rules(&store.receiver));
    all.extend(teams::teams(&store.receiver));
    all.extend(result_cache(&store));
    all.extend(usage(&store));
    all.extend(ha(&store));
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

fn usage(store: &Store) -> Vec<MetricFamily> {
    let stats = store.usage.stats();
    counts([
        ("varve_usage_entries", stats.n_entries),
        ("varve_usage_size_bytes", stats.size_bytes),
        ("varve_usage_evicted_total", stats.n_evicted),
    ])
}

/// Returns the metrics of HA pairs. Metrics of clusters are included only if there are any.
fn ha(store: &Store) -> Vec<MetricFamily> {
    let clusters = store.elections.clusters();
    let mut all = counts([
        (
            "varve_ha_oversized_series_total",
            store.elections.n_oversized(),
        ),
        (
            "varve_ha_state_write_failures_total",
            store.elections.n_write_failures(),
        ),
    ]);
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
