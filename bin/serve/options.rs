//! Conversion of flags to checked settings.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::Duration;

use anyhow::Result;
use varve_config::file::Config;
use varve_objstore::BucketConfig;
use varve_objstore::uploads::{UploadOptions, external_labels};
use varve_promql::Features;
use varve_query::EngineOptions;
use varve_rules::RestoreOptions;
use varve_server::notifier::NotifierOptions;
use varve_server::rules::RulesOptions;
use varve_server::settings::external_url::{ExternalUrl, RoutePrefix};
use varve_server::settings::flags::{OnCorruption, ServeArgs, WalSync};
use varve_server::settings::{ResponseLimits, Settings};
use varve_server::store::StoreOptions;
use varve_system::machine::{self, Memory};

/// Maximum memory of the metadata of metric families in bytes.
const METADATA_SIZE_MAX_BYTES: usize = 64 << 20;
/// Enables the search endpoints.
const SEARCH_FEATURE: &str = "search-api";
/// Adds up OTLP deltas.
const DELTA_FEATURE: &str = "otlp-deltatocumulative";
/// The deprecated form of --config.auto-reload.
const AUTO_RELOAD_FEATURE: &str = "auto-reload-config";
/// Prometheus' names of other features, which Varve always or never has.
const OTHER_FEATURES: [&str; 6] = [
    "exemplar-storage",
    "native-histograms",
    "ooo-native-histograms",
    "memory-snapshot-on-shutdown",
    "metadata-wal-records",
    "created-timestamp-zero-ingestion",
];

pub(super) fn features(args: &ServeArgs) -> Features {
    let mut features = Features::default();
    for name in args
        .enable_feature
        .iter()
        .map(|name| name.trim())
        .filter(|name| !name.is_empty())
    {
        if features.enable(name) || [SEARCH_FEATURE, DELTA_FEATURE].contains(&name) {
            tracing::info!(option = name, "Feature enabled");
        } else if name == AUTO_RELOAD_FEATURE {
            tracing::warn!(
                option = name,
                "This option for --enable-feature is deprecated, use --config.auto-reload"
            );
        } else if OTHER_FEATURES.contains(&name) {
            tracing::warn!(
                option = name,
                "This option for --enable-feature has no effect on Varve"
            );
        } else {
            tracing::warn!(option = name, "Unknown option for --enable-feature");
        }
    }
    features
}

/// Lowers the maximum number of connections to half of the files that the process may open, with a
/// warning. The store needs the other half, for blocks and WAL segments: a write fails if it cannot
/// open a file, but a connection above the maximum only closes an idle one. `flags` are the values
/// that the API shows.
pub(super) fn limit_connections(
    args: &mut ServeArgs,
    flags: &mut BTreeMap<String, String>,
    open_files: Option<u64>,
) {
    let Some(open_files) = open_files else { return };
    let limit = usize::try_from(open_files / 2).unwrap_or(usize::MAX).max(1);
    if args.max_connections > limit {
        tracing::warn!(
            "--web.max-connections={} is lowered to {limit}, half of the limit of {open_files} open files; raise that \
             limit (LimitNOFILE of the systemd unit, or `ulimit -Hn`)",
            args.max_connections
        );
        args.max_connections = limit;
        flags.insert("web.max-connections".to_owned(), limit.to_string());
    }
}

fn has_feature(args: &ServeArgs, feature: &str) -> bool {
    args.enable_feature
        .iter()
        .any(|name| name.trim() == feature)
}

pub(super) fn settings(
    args: &ServeArgs,
    memory: &Memory,
    features: Features,
    flags: BTreeMap<String, String>,
    is_tls: bool,
) -> Settings {
    // By default, all queries together use at most 40 % of the memory, and a single one a quarter
    // of that.
    let total = or_default(args.query_max_memory_total, || {
        share_of_memory(memory, 2, 5)
    });
    let external_url = args
        .external_url
        .clone()
        .or_listener(&args.listen_address, is_tls);
    let rules = rules_options(args, total, &external_url, features);
    Settings {
        args: args.clone(),
        route_prefix: RoutePrefix::new(&args.route_prefix, &external_url),
        external_url,
        notifier: NotifierOptions {
            queue_capacity: args.notification_queue_capacity,
            batch_size: args.notification_batch_size,
            drain_on_shutdown: args.drain_notification_queue,
            ..NotifierOptions::default()
        },
        response: ResponseLimits {
            buffer_size: args.response_buffer,
            size_max: or_default(args.max_response_size, || usize::MAX),
            stall_timeout: args.write_stall_timeout,
        },
        // These requests are CPU bound: more concurrency only needs more memory.
        metadata_concurrency: or_default(args.query_metadata_concurrency, || {
            (2 * machine::cores()).max(4)
        }),
        metadata_series_max: Some(args.query_max_metadata_series)
            .filter(|&series_max| series_max > 0),
        query_max_memory: or_default(args.query_max_memory, || total / 4).min(total),
        query_max_memory_total: total,
        write_bytes_in_flight_max: args
            .ingest
            .bytes_in_flight_max(share_of_memory(memory, 1, 1)),
        queue_timeout_status: args.ingest.queue_timeout_status,
        features,
        rules,
        auto_reload: args.config_auto_reload || has_feature(args, AUTO_RELOAD_FEATURE),
        search: has_feature(args, SEARCH_FEATURE),
        lookback_delta_ms: millis(args.query_lookback_delta),
        remote_read_concurrency: match args.remote_read_concurrent_limit {
            0 => usize::MAX,
            limit => limit,
        },
        flags,
    }
}

/// Returns the settings of uploads, if they are enabled.
///
/// # Errors
/// If the configuration of the bucket is invalid, or the server has no external labels.
pub(super) fn uploads(args: &ServeArgs, config: &Config) -> Result<Option<UploadOptions>> {
    let Some(path) = &args.objstore.bucket else {
        return Ok(None);
    };
    external_labels(&config.global.external_labels)?;
    Ok(Some(UploadOptions {
        bucket: BucketConfig::load(path)?,
        data_dir: args.tsdb_path.clone(),
        interval: args.objstore.upload_interval,
        bytes_per_second: args.objstore.max_bandwidth as u64,
        local_retention_ms: args.objstore.local_retention.map(millis),
    }))
}

fn rules_options(
    args: &ServeArgs,
    query_max_memory_total: usize,
    external_url: &ExternalUrl,
    features: Features,
) -> RulesOptions {
    let rules = &args.rules;
    let cores = machine::cores();
    let concurrency = rules_concurrency(cores, rules.concurrency);
    RulesOptions {
        resend_delay: rules.resend_delay,
        restore: RestoreOptions {
            outage_tolerance: rules.outage_tolerance,
            grace_period: rules.grace_period,
        },
        catch_up: rules.catch_up,
        alerts_max: rules.alerts_max,
        concurrency,
        active_writes_max: active_writes_max(cores, concurrency.get()),
        memory_max: or_default(rules.max_memory_total, || query_max_memory_total / 4),
        external_url: external_url.as_str().to_owned(),
        features,
    }
}

/// Returns the number of threads that evaluate rules.
fn rules_concurrency(cores: usize, given: usize) -> NonZero<usize> {
    let n_threads = or_default(given, || cores.div_ceil(2)).min(RULES_CONCURRENCY_MAX);
    NonZero::new(n_threads).unwrap_or(NonZero::<usize>::MIN)
}

/// Returns the number of active write requests above which rules pause: the number of cores that
/// rules leave, less one for connections and background tasks.
fn active_writes_max(cores: usize, concurrency: usize) -> usize {
    cores.saturating_sub(concurrency + 1)
}

/// Maximum number of threads that evaluate rule groups.
const RULES_CONCURRENCY_MAX: usize = 256;

pub(super) fn store_options(
    args: &ServeArgs,
    memory: &Memory,
    config: &Config,
    features: Features,
) -> StoreOptions {
    let tsdb = varve_tsdb::Options {
        shards: or_default(args.shards, machine::shards),
        wal_logs: machine::cores().next_power_of_two().min(WAL_LOGS_MAX),
        wal_sync: match args.wal_sync {
            WalSync::Interval => varve_tsdb::WalSync::Interval,
            WalSync::Always => varve_tsdb::WalSync::Always,
            WalSync::Never => varve_tsdb::WalSync::Never,
        },
        wal_replay_concurrency: or_default(args.wal_replay_concurrency, machine::cores),
        wal_replay_memory_bytes: args.wal_replay_memory,
        wal_replay_in_background: true,
        wal_on_corruption: match args.wal_on_corruption {
            OnCorruption::Quarantine => varve_tsdb::WalOnCorruption::Quarantine,
            OnCorruption::Refuse => varve_tsdb::WalOnCorruption::Refuse,
        },
        flush_interval: args.flush_interval,
        flush_size_bytes: or_default(args.flush_size, || share_of_memory(memory, 1, 8)),
        page_cache_size_bytes: or_default(args.page_cache_size, || share_of_memory(memory, 1, 16)),
        compaction_bytes_per_second: args.compaction_rate as u64,
        // `App::set_store` sets them.
        retention_ms: None,
        retention_size_bytes: None,
        out_of_order_window_ms: millis(config.storage.tsdb.out_of_order_time_window),
        in_order_max_age_ms: millis(config.storage.tsdb.in_order_max_age),
        ahead_max_ms: millis(config.storage.tsdb.ahead_max),
        exemplars_max: config.storage.exemplars.max_exemplars,
        exemplars_size_max_bytes: share_of_memory(memory, 1, 32),
        metadata_size_max_bytes: share_of_memory(memory, 1, 64).min(METADATA_SIZE_MAX_BYTES),
        head_size_max_bytes: or_default(args.head_max_memory, || share_of_memory(memory, 1, 2)),
        ..varve_tsdb::Options::default()
    };
    let engine = EngineOptions {
        lookback_delta_ms: millis(args.query_lookback_delta),
        samples_max: args.query_max_samples,
        parallelism: or_default(args.query_parallelism, machine::cores).min(PARALLELISM_MAX),
        subquery_step_ms: millis(config.global.evaluation_interval),
        cache_size: args.query_cache_size,
        features,
    };
    let ingest = args.ingest.limits(share_of_memory(memory, 1, 1));
    StoreOptions {
        tsdb,
        ingest,
        engine,
        delta_to_cumulative: has_feature(args, DELTA_FEATURE),
    }
}

/// Maximum number of threads that queries share.
const PARALLELISM_MAX: usize = 256;
/// Maximum number of WALs that the shards share: a request of 2,000 samples has 250 for each.
const WAL_LOGS_MAX: usize = 8;

fn or_default(given: usize, default: impl FnOnce() -> usize) -> usize {
    if given == 0 { default() } else { given }
}

/// Returns `part / of` of the memory that the process may use.
fn share_of_memory(memory: &Memory, part: u64, n_parts: u64) -> usize {
    usize::try_from(memory.limit_bytes() / n_parts * part).unwrap_or(usize::MAX)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_leave_cores_to_writes() {
        // Cores and the flag; threads of rules and active writes.
        let table = [
            ((1, 0), (1, 0)),
            ((2, 0), (1, 0)),
            ((3, 0), (2, 0)),
            ((4, 0), (2, 1)),
            ((5, 0), (3, 1)),
            ((16, 0), (8, 7)),
            ((1024, 0), (256, 767)),
            ((4, 1), (1, 2)),
            ((4, 3), (3, 0)),
            ((4, 64), (64, 0)),
            ((16, 2), (2, 13)),
            ((64, 1_000), (256, 0)),
        ];
        for ((cores, given), expect) in table {
            let n_threads = rules_concurrency(cores, given).get();
            assert_eq!(
                (n_threads, active_writes_max(cores, n_threads)),
                expect,
                "{cores} cores, {given}"
            );
        }
    }
}
