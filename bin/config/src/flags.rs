//! The flags of `varve serve`, as typed. [`settings::resolve`](crate::settings::resolve) turns them
//! into the values that the parts of a server see: a 0 that stands for a share of the memory or for
//! the number of cores is only visible here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use varve_regexp::Regexp;
use varve_system::log;
use varve_system::machine::Memory;
use varve_system::quantity::{parse_duration, parse_size, print_size};

use crate::external_url::ExternalUrl;

/// The memory that a replay needs.
pub(crate) const REPLAY_MEMORY_MIN_BYTES: usize = 16 << 20;
/// Minimum of `--memory.limit`: the memory that a replay needs. A process without series uses half of
/// it, so the rest holds some ten thousand series.
const MEMORY_LIMIT_MIN_BYTES: usize = REPLAY_MEMORY_MIN_BYTES;

/// Flags of `varve serve`.
#[derive(Debug, Clone, Args)]
#[command(next_line_help = true)]
pub struct ServeArgs {
    /// Configuration file; optional
    #[arg(long = "config.file", value_name = "FILE")]
    pub config_file: Option<PathBuf>,

    /// Reload the configuration when its file, a relabel file or a rule file changes
    #[arg(long = "config.auto-reload")]
    pub(crate) config_auto_reload: bool,

    /// How often --config.auto-reload checks the files for changes
    #[arg(long = "config.auto-reload-interval", value_name = "DURATION", default_value = "30s", value_parser = parse_timeout)]
    pub(crate) config_auto_reload_interval: Duration,

    /// Address to listen on; may be repeated; port 0 picks a free port
    #[arg(long = "web.listen-address", value_name = "HOST:PORT", default_value = "127.0.0.1:9898", value_parser = parse_address)]
    pub(crate) listen_addresses: Vec<String>,

    /// Address of another listener, only for the gRPC services of Thanos, which
    /// --web.listen-address serves too; usually with port 10901
    #[arg(long = "grpc-address", value_name = "HOST:PORT", value_parser = parse_address)]
    pub(crate) grpc_address: Option<String>,

    /// Label in which the tenant of samples from a Thanos Receive router is stored [empty: none]
    #[arg(
        long = "receive.tenant-label-name",
        value_name = "NAME",
        default_value = "tenant_id"
    )]
    pub(crate) receive_tenant_label_name: String,

    /// URL under which clients reach this server, for links; its path is the default of
    /// --web.route-prefix [empty: host name and port of the first listener]
    #[arg(long = "web.external-url", value_name = "URL", default_value = "", value_parser = ExternalUrl::parse)]
    pub(crate) external_url: ExternalUrl,

    /// Path under which all endpoints are served [empty: path of --web.external-url]
    #[arg(long = "web.route-prefix", value_name = "PATH", default_value = "")]
    pub(crate) route_prefix: String,

    /// File with TLS, passwords and tokens, in the format of Prometheus' exporter-toolkit; reloaded
    /// when it changes
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,

    /// Maximum time to read a request, and to keep an idle connection open
    #[arg(long = "web.read-timeout", value_name = "DURATION", default_value = "5m", value_parser = parse_timeout)]
    pub(crate) read_timeout: Duration,

    /// Minimum bytes per second at which the body of a request must arrive, after 10s; a slower one
    /// gets 408, or 503 for a write [0: no limit]
    #[arg(long = "web.min-body-rate", value_name = "SIZE", default_value = "1KiB", value_parser = parse_size)]
    pub(crate) min_body_rate: usize,

    /// Maximum number of open connections, at most half of the limit of open files; above it the
    /// longest idle one is closed, or the one whose request body arrives most slowly
    #[arg(long = "web.max-connections", value_name = "N", default_value = "512", value_parser = parse_count)]
    pub(crate) max_connections: usize,

    /// Size of the response buffer; an error that occurs while the response fits into it still gets
    /// its own status code
    #[arg(long = "web.response-buffer", value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) response_buffer: usize,

    /// Maximum time that a client may read nothing before its response is truncated
    #[arg(long = "web.write-stall-timeout", value_name = "DURATION", default_value = "10s", value_parser = parse_timeout)]
    pub(crate) write_stall_timeout: Duration,

    /// Maximum size of a response; a larger response gets 422, or is truncated if it has started
    /// [0: no limit]
    #[arg(long = "web.max-response-size", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) max_response_size: usize,

    /// Enable /api/v1/admin (delete series, snapshot, compact, import), /debug/pprof/profile and
    /// DELETE /api/v1/status/queries/ID
    #[arg(long = "web.enable-admin-api")]
    pub(crate) enable_admin_api: bool,

    /// Enable /-/reload and /-/quit
    #[arg(long = "web.enable-lifecycle")]
    pub(crate) enable_lifecycle: bool,

    /// Host names under which clients reach this server; a request with another `Host` gets 403,
    /// except IP addresses and localhost [empty: any]
    #[arg(
        long = "web.allowed-hosts",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    pub(crate) allowed_hosts: Vec<String>,

    /// Regex for origins whose pages may read responses (CORS); it is fully anchored
    #[arg(long = "web.cors.origin", value_name = "REGEX", default_value = ".*", value_parser = parse_regexp)]
    pub(crate) cors_origin: Regexp,

    /// Maximum number of subscribers to /api/v1/notifications/live; further ones get 204
    #[arg(
        long = "web.max-notifications-subscribers",
        value_name = "N",
        default_value = "16"
    )]
    pub max_notifications_subscribers: usize,

    /// Maximum number of results of a search, see --enable-feature=search-api [0: no limit]
    #[arg(
        long = "web.search.max-limit",
        value_name = "N",
        default_value = "10000"
    )]
    pub(crate) search_max_limit: usize,

    /// Maximum number of alerts queued for an Alertmanager; above it the oldest are dropped
    #[arg(long = "alertmanager.notification-queue-capacity", value_name = "N", default_value = "10000", value_parser = parse_count)]
    pub(crate) notification_queue_capacity: usize,

    /// Maximum number of alerts in a request to an Alertmanager
    #[arg(long = "alertmanager.notification-batch-size", value_name = "N", default_value = "256", value_parser = parse_count)]
    pub(crate) notification_batch_size: usize,

    /// Send alerts that are queued at shutdown, for up to 10s; `false` drops them
    #[arg(long = "alertmanager.drain-notification-queue-on-shutdown", value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set)]
    pub(crate) drain_notification_queue: bool,

    /// Data directory; created if it does not exist
    #[arg(
        long = "storage.tsdb.path",
        value_name = "DIR",
        default_value = "data/"
    )]
    pub(crate) tsdb_path: PathBuf,

    /// Number of shards, a power of two up to 256; may change between starts [0: number of cores,
    /// rounded up]
    #[arg(long = "storage.tsdb.shards", value_name = "N", default_value = "0")]
    pub(crate) shards: usize,

    /// How long to retain samples, counted back from the newest sample or the clock, whichever is
    /// earlier [default: 15d if nothing else limits retention, otherwise forever] [0: forever]
    #[arg(long = "storage.tsdb.retention.time", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) retention_time: Option<Duration>,

    /// Maximum size of blocks and WAL; above it the oldest blocks are deleted [0: no limit]
    #[arg(long = "storage.tsdb.retention.size", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) retention_size: usize,

    /// How often samples in memory are flushed to blocks; startup replays the WAL since the last
    /// flush
    #[arg(long = "storage.head.flush-interval", value_name = "DURATION", default_value = "30m", value_parser = parse_timeout)]
    pub(crate) flush_interval: Duration,

    /// Memory of samples in the heads that triggers an early flush [0: an eighth of --memory.limit]
    #[arg(long = "storage.head.flush-size", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) flush_size: usize,

    /// Memory for the cache of recently read block pages [0: a sixteenth of --memory.limit]
    #[arg(long = "storage.block.cache-size", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) page_cache_size: usize,

    /// Maximum bytes per second that compaction writes [0: no limit]
    #[arg(long = "storage.compaction.write-rate", value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub(crate) compaction_rate: usize,

    /// Maximum memory of series and samples in the heads; new series get 503 above 15/16 of it, all
    /// writes at the limit [0: half of --memory.limit]
    #[arg(long = "storage.head.max-memory", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) head_max_memory: usize,

    /// When the WAL is synced to disk: `interval` (every second), `always` (before each response)
    /// or `never` (by the operating system)
    #[arg(
        long = "storage.wal.sync",
        value_name = "WHEN",
        default_value = "interval"
    )]
    pub(crate) wal_sync: WalSync,

    /// Number of threads that replay the WAL at startup [0: number of cores]
    #[arg(
        long = "storage.wal.replay-concurrency",
        value_name = "N",
        default_value = "0"
    )]
    pub(crate) wal_replay_concurrency: usize,

    /// Maximum memory of WAL replay, including samples written during replay; at least 16MiB [0:
    /// an eighth of --memory.limit, from 16 MiB to 256 MiB]
    #[arg(long = "storage.wal.replay-memory", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) wal_replay_memory: usize,

    /// Treatment of damaged WAL records at replay: `quarantine` (copy them to quarantine/ and
    /// continue) or `refuse` (do not start)
    #[arg(
        long = "storage.wal.on-corruption",
        value_name = "WHAT",
        default_value = "quarantine"
    )]
    pub(crate) wal_on_corruption: OnCorruption,

    /// Maximum number of concurrent remote reads; further ones are queued [0: no limit]
    #[arg(
        long = "storage.remote.read-concurrent-limit",
        value_name = "N",
        default_value = "10"
    )]
    pub(crate) remote_read_concurrent_limit: usize,

    /// Maximum number of samples per query that a remote read returns in one message [0: no limit]
    #[arg(
        long = "storage.remote.read-sample-limit",
        value_name = "N",
        default_value = "50000000"
    )]
    pub(crate) remote_read_sample_limit: usize,

    /// Approximate maximum size of a frame of a streamed remote read
    #[arg(long = "storage.remote.read-max-bytes-in-frame", value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) remote_read_frame_size: usize,

    /// Maximum time of a query or metadata request; a request may ask for less
    #[arg(long = "query.timeout", value_name = "DURATION", default_value = "2m", value_parser = parse_timeout)]
    pub(crate) query_timeout: Duration,

    /// Maximum number of concurrent queries; further queries wait in a queue
    #[arg(long = "query.max-concurrency", value_name = "N", default_value = "20", value_parser = parse_count)]
    pub(crate) query_max_concurrency: usize,

    /// Maximum number of concurrent requests for series, labels, label values and metadata; further
    /// requests wait in a queue [0: twice the number of cores, at least 4]
    #[arg(
        long = "query.metadata-concurrency",
        value_name = "N",
        default_value = "0"
    )]
    pub(crate) query_metadata_concurrency: usize,

    /// Maximum number of queued queries, and of queued metadata requests; further requests get 503
    #[arg(long = "query.max-queued", value_name = "N", default_value = "256", value_parser = parse_count)]
    pub(crate) query_max_queued: usize,

    /// Maximum time that a query or metadata request waits in its queue; then it gets 503
    #[arg(long = "query.queue-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_timeout)]
    pub(crate) query_queue_timeout: Duration,

    /// Time for which a query is rejected that exceeded a memory limit three times in a row, before
    /// it is evaluated again
    #[arg(long = "query.breaker-timeout", value_name = "DURATION", default_value = "1m", value_parser = parse_timeout)]
    pub(crate) query_breaker_timeout: Duration,

    /// Maximum number of series that a request for series, labels or label values may read [0: no
    /// limit, responses are streamed]
    #[arg(
        long = "query.max-metadata-series",
        value_name = "N",
        default_value = "0"
    )]
    pub(crate) query_max_metadata_series: u64,

    /// Number of threads that all queries share for reading and evaluating series [0: number of
    /// cores]
    #[arg(long = "query.parallelism", value_name = "N", default_value = "0")]
    pub(crate) query_parallelism: usize,

    /// Maximum number of samples that a query may load into memory
    #[arg(long = "query.max-samples", value_name = "N", default_value = "50000000", value_parser = parse_count)]
    pub(crate) query_max_samples: usize,

    /// Maximum number of points per series of a range query, up to 1000000
    #[arg(long = "query.max-points", value_name = "N", default_value = "11000", value_parser = parse_points)]
    pub(crate) query_max_points: usize,

    /// Return partial results with a warning while the WAL is being replayed, instead of waiting
    /// for the time range of the query
    #[arg(long = "query.partial-during-replay")]
    pub(crate) query_partial_during_replay: bool,

    /// How far back a query looks for the latest sample of a series
    #[arg(long = "query.lookback-delta", value_name = "DURATION", default_value = "5m", value_parser = parse_timeout)]
    pub(crate) query_lookback_delta: Duration,

    /// Maximum memory of a query [0: a quarter of --query.max-memory-total]
    #[arg(long = "query.max-memory", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) query_max_memory: usize,

    /// Maximum memory of all queries [0: 40 % of --memory.limit]
    #[arg(long = "query.max-memory-total", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) query_max_memory_total: usize,

    /// Memory for results of earlier queries, which are used while no sample that they depend on
    /// changes; 0 disables the result cache
    #[arg(long = "query.cache-size", value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub(crate) query_cache_size: usize,

    /// Memory available to the server, from which other memory limits are derived; a lower limit of
    /// the cgroup takes precedence; at least 16MiB [0: memory of the machine]
    #[arg(long = "memory.limit", value_name = "SIZE", default_value = "0", value_parser = parse_memory_limit)]
    pub(crate) memory_limit: usize,

    /// Memory use in percent of --memory.limit above which queries get 503; new series get 503
    /// earlier, known series later [100: never]
    #[arg(long = "memory.refuse-at", value_name = "PERCENT", default_value = "90", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) memory_refuse_at: u64,

    /// Comma-separated feature names to enable, as in Prometheus: promql-experimental-functions,
    /// ...
    #[arg(
        long = "enable-feature",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    pub(crate) enable_feature: Vec<String>,

    /// Flags of object storage.
    #[command(flatten)]
    pub(crate) objstore: ObjstoreArgs,

    /// Flags of writes.
    #[command(flatten)]
    pub(crate) ingest: IngestArgs,

    /// Flags of rules.
    #[command(flatten)]
    pub(crate) rules: RulesArgs,

    /// How often Varve stores its own metrics [0: never]
    #[arg(long = "self-scrape-interval", value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub(crate) self_scrape_interval: Duration,

    /// Minimum severity of log messages
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info")]
    pub log_level: log::Level,

    /// Format of log messages
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt")]
    pub log_format: log::Format,
}

impl ServeArgs {
    /// Returns the memory that the process may use.
    pub fn memory(&self) -> Memory {
        if self.memory_limit == 0 {
            Memory::find()
        } else {
            Memory::given(self.memory_limit as u64)
        }
    }
}

/// Flags of `varve serve` for object storage.
#[derive(Debug, Clone, Args)]
pub(crate) struct ObjstoreArgs {
    /// Upload finished blocks to the bucket of this file, in the format of Thanos' objstore
    /// configuration
    #[arg(long = "objstore.config-file", value_name = "FILE")]
    pub(crate) bucket: Option<PathBuf>,

    /// Maximum bytes per second that uploads send and read back [0: no limit]
    #[arg(long = "objstore.max-bandwidth", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) max_bandwidth: usize,

    /// How often uploads look for finished blocks
    #[arg(long = "objstore.upload-interval", value_name = "DURATION", default_value = "1m", value_parser = parse_timeout)]
    pub(crate) upload_interval: Duration,

    /// Remove local blocks of this age once the bucket has their samples, instead of
    /// --storage.tsdb.retention.time
    #[arg(long = "storage.tsdb.retention.local-after-upload", value_name = "DURATION", value_parser = parse_timeout, requires = "bucket", conflicts_with = "retention_size")]
    pub(crate) local_retention: Option<Duration>,
}

/// Flags `--rules.*` of `varve serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RulesArgs {
    /// Longest outage after which pending and firing alerts are restored
    #[arg(long = "rules.alert.for-outage-tolerance", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) outage_tolerance: Duration,

    /// Minimum time between a restart and the firing of a restored pending alert; shorter `for`
    /// durations start again
    #[arg(long = "rules.alert.for-grace-period", value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub(crate) grace_period: Duration,

    /// Minimum time before an alert is sent to Alertmanager again
    #[arg(long = "rules.alert.resend-delay", value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub(crate) resend_delay: Duration,

    /// Longest outage after which missed evaluations are caught up at startup, without
    /// notifications [0: none]
    #[arg(long = "rules.catch-up", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) catch_up: Duration,

    /// Maximum number of alerts of all rules; a rule that would exceed it fails
    #[arg(long = "rules.alerts-max", value_name = "N", default_value = "100000", value_parser = parse_count)]
    pub(crate) alerts_max: usize,

    /// Maximum number of threads that evaluate rules, of groups and of independent rules [0: half
    /// of the cores]
    #[arg(long = "rules.concurrency", value_name = "N", default_value = "0")]
    pub(crate) concurrency: usize,

    /// Maximum memory of queries and templates of rules, and of the alerts and errors that rules
    /// keep; templates, alerts and errors use at most half of it [0: a quarter of
    /// --query.max-memory-total]
    #[arg(long = "rules.max-memory-total", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) max_memory_total: usize,
}

/// Flags `--ingest.*` of `varve serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct IngestArgs {
    /// Maximum number of concurrent write requests; further ones wait up to 30s, then get
    /// --ingest.queue-timeout-status
    #[arg(long = "ingest.concurrency-max", value_name = "N", default_value = "64", value_parser = parse_count)]
    pub(crate) concurrency_max: usize,

    /// Maximum size of the body of a write request, as received
    #[arg(long = "ingest.body-size-max", value_name = "SIZE", default_value = "32MiB", value_parser = parse_size)]
    pub(crate) body_size_max: usize,

    /// Maximum size of the decompressed body of a write request
    #[arg(long = "ingest.decompressed-size-max", value_name = "SIZE", default_value = "32MiB", value_parser = parse_size)]
    pub(crate) decompressed_size_max: usize,

    /// Maximum number of series in a write request
    #[arg(long = "ingest.series-per-request-max", value_name = "N", default_value = "500000", value_parser = parse_count)]
    pub(crate) series_per_request_max: usize,

    /// Maximum number of samples in a write request
    #[arg(long = "ingest.samples-per-request-max", value_name = "N", default_value = "2000000", value_parser = parse_count)]
    pub(crate) samples_per_request_max: usize,

    /// Maximum number of labels of a series, including the metric name
    #[arg(long = "ingest.labels-per-series-max", value_name = "N", default_value = "128", value_parser = parse_count)]
    pub(crate) labels_per_series_max: usize,

    /// Maximum size of a label value
    #[arg(long = "ingest.label-value-size-max", value_name = "SIZE", default_value = "64KiB", value_parser = parse_size)]
    pub(crate) label_value_size_max: usize,

    /// Maximum number of label names of the series in memory; a new series with a further name gets
    /// 400
    #[arg(long = "ingest.label-names-max", value_name = "N", default_value = "100000", value_parser = parse_count)]
    pub(crate) label_names_max: usize,

    /// Maximum number of series in memory of a metric; further ones get 400 [0: no limit]
    #[arg(
        long = "ingest.series-per-metric-max",
        value_name = "N",
        default_value = "0"
    )]
    pub(crate) series_per_metric_max: u64,

    /// Maximum memory of write request bodies, and separately of write requests being processed [0:
    /// 512 MiB, at most an eighth of --memory.limit, at least twice --ingest.body-size-max, or once
    /// if that exceeds a quarter of the memory]
    #[arg(long = "ingest.bytes-in-flight-max", value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) bytes_in_flight_max: usize,

    /// Maximum time that a write request waits for memory, a rate or a permit to create series
    #[arg(long = "ingest.queue-timeout", value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(crate) queue_timeout: Duration,

    /// Maximum time by which an OpenTelemetry delta may end before the newest one of its stream
    /// [0: late deltas are rejected]
    #[arg(long = "ingest.late-delta-window", value_name = "DURATION", default_value = "3h", value_parser = parse_duration)]
    pub(crate) late_delta_window: Duration,

    /// Status after --ingest.queue-timeout: 503, or 429 (Prometheus drops the samples unless
    /// retry_on_http_429 is set)
    #[arg(
        long = "ingest.queue-timeout-status",
        value_name = "STATUS",
        default_value = "503",
        value_enum
    )]
    pub(crate) queue_timeout_status: QueueTimeoutStatus,

    /// Maximum number of write requests that create series at the same time; further ones are
    /// queued [0: half of the cores]
    #[arg(
        long = "ingest.creation-concurrency-max",
        value_name = "N",
        default_value = "0"
    )]
    pub(crate) creation_concurrency_max: usize,
}

/// Values of `--ingest.queue-timeout-status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "documentation would appear in the help text")]
pub enum QueueTimeoutStatus {
    #[value(name = "503")]
    ServiceUnavailable,
    #[value(name = "429")]
    TooManyRequests,
}

/// Values of `--storage.wal.sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WalSync {
    Interval,
    Always,
    Never,
}

/// Values of `--storage.wal.on-corruption`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnCorruption {
    Quarantine,
    Refuse,
}

fn parse_address(text: &str) -> Result<String, String> {
    let Some((host, port)) = text
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok())
    else {
        return Err("expected HOST:PORT, for example 127.0.0.1:9898".to_owned());
    };
    // As in Go, an address without a host means all addresses of the machine.
    let whole = if host.is_empty() {
        format!("[::]:{port}")
    } else {
        text.to_owned()
    };
    let ipv6_without_brackets = host.contains(':') && whole.parse::<SocketAddr>().is_err();
    if ipv6_without_brackets {
        Err("an IPv6 address must be in brackets: [::1]:9898".to_owned())
    } else {
        Ok(whole)
    }
}

fn parse_memory_limit(text: &str) -> Result<usize, String> {
    let size = parse_size(text)?;
    if (1..MEMORY_LIMIT_MIN_BYTES).contains(&size) {
        let least = print_size(MEMORY_LIMIT_MIN_BYTES);
        return Err(format!(
            "at least {least} are needed to replay a log and to store samples; 0 is the memory of the machine"
        ));
    }
    Ok(size)
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("expected a whole number".to_owned()),
    }
}

/// Parses the value of `--query.max-points`. The engine accepts slightly more steps than the
/// maximum.
fn parse_points(text: &str) -> Result<usize, String> {
    const POINTS_MAX: usize = 1_000_000;
    match parse_count(text)? {
        points @ 0..=POINTS_MAX => Ok(points),
        _ => Err(format!("must be at most {POINTS_MAX}")),
    }
}

fn parse_regexp(text: &str) -> Result<Regexp, String> {
    Regexp::parse(text).map_err(|rejected| rejected.to_string())
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{Arg, Command};
    use varve_env::testing::assert_generated;

    use super::*;

    #[test]
    fn the_page_lists_each_flag() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let command = ServeArgs::augment_args(Command::new("serve"));

        let mut table = String::from("| flag | default | what it does |\n");
        table += "| --- | --- | --- |\n";
        for argument in command.get_arguments() {
            table += &row(argument);
        }
        assert_generated(&path, "flags of varve serve", &table);
    }

    fn row(argument: &Arg) -> String {
        let flag = argument.get_long().expect("every flag has a long name");
        let help = argument.get_help().expect("every flag has a help text");
        let default = if argument.get_action().takes_values() {
            match argument.get_default_values() {
                [value] if !value.is_empty() => format!("`{}`", value.display()),
                _ => "none".to_owned(),
            }
        } else {
            "off".to_owned()
        };

        let words: Vec<_> = help.to_string().split(' ').map(as_code).collect();
        format!("| `--{flag}` | {default} | {} |\n", words.join(" "))
    }

    /// Returns a word of a help text, as code if it is a flag.
    fn as_code(word: &str) -> String {
        if !word.starts_with("--") {
            return word.to_owned();
        }
        let flag = word.trim_end_matches([',', ';', '.', ':', ']', ')']);
        format!("`{flag}`{}", &word[flag.len()..])
    }
}
