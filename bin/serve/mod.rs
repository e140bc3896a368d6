//! `varve serve`: from flags to a running store, and down again.
//!
//! Start: settings, signals, listener, then the store. The listener comes first, so that probes are answered while the
//! series of the log are loaded; requests for data get 503 until the store is open. Its samples are replayed while it
//! serves; if that fails the server ends.
//!
//! Stop: no new connections and 503 for new queries; queries that run get [`QUERY_GRACE`], then they are interrupted;
//! writes end in their own time; then the log is synced.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use varve_query::EngineOptions;
use varve_query::promql::{Bounds, Features};
use varve_tsdb::{Interrupt, QueryContext, ReplayStats};

use crate::cli::{AdmissionStatus, OnCorruption, ServeArgs, WalSync};
use crate::config::Config;
use crate::http::web_config::WebConfig;
use crate::http::{AnswerBounds, App, Settings};
use crate::machine::Memory;
use crate::quantity::{print_duration, print_size};
use crate::server::live_config::LiveConfig;
use crate::server::pressure::Pressure;
use crate::server::query_log::QueryLog;
use crate::server::shutdown::{Received, Signals};
use crate::server::store::{Store, StoreOptions};
use crate::server::{auto_reload, self_scrape};
use crate::{http, log, machine};

/// How long running queries may go on after the signal.
const QUERY_GRACE: Duration = Duration::from_secs(2);
/// How long connections may take after that to send what they have.
const CONNECTION_GRACE: Duration = Duration::from_secs(5);
/// How often the wait for queries looks whether they have ended.
const GRACE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How often the usage record is written, if it has changed, and what of HA pairs and rules could not be written before.
const USAGE_SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Blocking threads besides one per connection: opening and closing the store, the self-scrape.
const THREADS_SPARE: usize = 8;
/// Turns the search endpoints on.
const SEARCH_FEATURE: &str = "search-api";
/// Does what --config.auto-reload does.
const AUTO_RELOAD_FEATURE: &str = "auto-reload-config";
/// Prometheus' names of features of other parts than PromQL; Varve always or never has them.
const OTHER_FEATURES: [&str; 6] = [
    "exemplar-storage",
    "native-histograms",
    "ooo-native-histograms",
    "memory-snapshot-on-shutdown",
    "metadata-wal-records",
    "created-timestamp-zero-ingestion",
];

/// Runs the store until a signal ends it.
///
/// # Errors
/// What keeps it from starting or from stopping in order, in one sentence.
pub(crate) fn serve(args: ServeArgs, flags: BTreeMap<String, String>) -> Result<()> {
    let config = args.config_file.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    log::start(args.log_level, args.log_format);
    let features = features(&args);
    let memory = if args.memory_limit == 0 { Memory::find() } else { Memory::given(args.memory_limit as u64) };
    let settings = settings(&args, &memory, features, flags);
    let options = store_options(&args, &memory, config.clone(), features);
    let query_log_file = config.global.query_log_file.clone();
    let config = LiveConfig::new(args.config_file.clone(), config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(http::requests_max(args.max_connections) + THREADS_SPARE)
        .build()
        .context("start the threads of the server")?;
    let pressure = Pressure::new(memory, args.memory_refuse_at);
    let web = WebConfig::load(args.web_config_file.as_deref())?;
    let app = Arc::new(App::new(settings, config, pressure, web).context("register metrics")?);
    app.query_log.write_to(QueryLog::open(query_log_file.as_deref())?);
    let result = runtime.block_on(run(args, app, options));
    // A thread that still replays or computes must not hold the process: what was acknowledged is safe already.
    runtime.shutdown_background();
    result
}

async fn run(args: ServeArgs, app: Arc<App>, options: StoreOptions) -> Result<()> {
    let mut signals = Signals::catch().context("catch signals")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "Starting Varve");
    let listener = listen(&args.listen_address).await?;
    let address = listener.local_addr().context("read the address that is listened on")?.to_string();
    tracing::info!(address, "Listening");

    app.notifications.set(http::STARTING_UP, true);
    http::beat(Arc::downgrade(&app)).context("start a thread")?;
    let (stop, stopped) = watch::channel(false);
    let server = tokio::spawn(http::serve(Arc::clone(&app), listener, stopped));

    let of_error = args.tsdb_path.clone();
    let started = Instant::now();
    let opening = open(args.tsdb_path, options);
    let store = tokio::select! {
        opened = opening => Arc::new(opened?),
        reason = end_asked(&mut signals, &app) => {
            tracing::warn!(reason, "Stopping before the store is open");
            return Ok(());
        }
    };
    app.start_ring(&of_error);
    app.set_store(Arc::clone(&store));
    tracing::info!("Server is ready to receive web requests.");
    if let Some(path) = args.config_file.clone().filter(|_| app.settings.auto_reload) {
        tokio::spawn(auto_reload::run(Arc::clone(&app), path, args.config_auto_reload_interval));
    }
    let saving = tokio::spawn(keep_records(Arc::clone(&store)));
    let of_replay = Arc::clone(&app);
    let mut replay =
        Replay::watch(store, of_error, started, move || of_replay.notifications.set(http::STARTING_UP, false));

    let scraping = (!args.self_scrape_interval.is_zero())
        .then(|| tokio::spawn(self_scrape::run(Arc::clone(&app), address, args.self_scrape_interval)));
    let ended = tokio::select! {
        reason = end_asked(&mut signals, &app) => {
            tracing::warn!(reason, "Exiting gracefully...");
            Ok(())
        }
        failed = replay.failed() => Err(failed),
    };
    drop(replay);
    saving.abort();
    tokio::select! {
        closed = shut_down(&app, server, &stop, scraping) => ended.and(closed),
        signal = signals.next_end() => bail!("stopped by a second {signal} before all was in order"),
    }
}

/// Waits until a signal or a request asks for the end, and returns which; reads the configuration again on SIGHUP.
async fn end_asked(signals: &mut Signals, app: &Arc<App>) -> &'static str {
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Received::End(name) => return name,
                Received::Reload => {
                    let app = Arc::clone(app);
                    // What went wrong is in the log.
                    drop(tokio::task::spawn_blocking(move || app.reload()));
                }
            },
            () = app.quit.asked() => return "/-/quit",
        }
    }
}

async fn listen(address: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow!("listen on {address}: the address is in use by another process"),
        _ => anyhow!("listen on {address}: {error}"),
    })
}

/// Opens the store on a thread of its own.
async fn open(path: PathBuf, options: StoreOptions) -> Result<Store> {
    let of_error = path.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(&path, options)).await;
    opened.context("open the store")?.map_err(|e| of_store(&of_error, &e))
}

/// Says which store an error is about; the store's errors name their cause themselves.
fn of_store(path: &Path, error: &dyn Display) -> anyhow::Error {
    anyhow!("open data directory {path:?}: {error}")
}

/// The wait for the end of the replay, on a thread of its own; ends when dropped.
struct Replay {
    ctx: QueryContext,
    ended: JoinHandle<Result<()>>,
    is_done: bool,
}

impl Replay {
    /// Reports when the log is through, whose replay began at `started`, and calls `done`.
    fn watch(store: Arc<Store>, path: PathBuf, started: Instant, done: impl FnOnce() + Send + 'static) -> Self {
        let ctx = QueryContext::unbounded();
        let waiting = ctx.clone();
        let ended = tokio::task::spawn_blocking(move || match store.db.wait_replayed(&waiting) {
            Ok(()) => {
                report(&store.db.stats().replayed, started.elapsed());
                done();
                Ok(())
            }
            Err(varve_tsdb::Error::Interrupted(_)) => Ok(()),
            Err(varve_tsdb::Error::ReplayFailed { reason }) => Err(of_store(&path, &reason)),
            Err(error) => Err(of_store(&path, &error)),
        });
        Self { ctx, ended, is_done: false }
    }

    /// Returns why the replay failed; never, if it does not.
    async fn failed(&mut self) -> anyhow::Error {
        if !self.is_done {
            let ended = (&mut self.ended).await.context("wait for the replay");
            self.is_done = true;
            if let Err(error) = ended.and_then(|result| result) {
                return error;
            }
        }
        std::future::pending().await
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.ctx.interrupt(Interrupt::Shutdown);
    }
}

/// Logs what a replay found.
fn report(replayed: &ReplayStats, duration: Duration) {
    tracing::info!(
        series = replayed.n_series,
        samples = replayed.n_samples,
        bytes = replayed.read_bytes,
        samples_meanwhile = replayed.n_held,
        ?duration,
        "Log replayed"
    );
    if replayed.torn_bytes > 0 {
        tracing::info!(bytes = replayed.torn_bytes, "Cut what was being written when the process ended");
    }
    if replayed.damaged_bytes > 0 || replayed.n_orphaned > 0 {
        let (bytes, orphaned_samples) = (replayed.damaged_bytes, replayed.n_orphaned);
        tracing::error!(bytes, orphaned_samples, "The log is damaged; the damaged bytes are in quarantine");
    }
    if replayed.n_held_conflicting > 0 {
        let samples = replayed.n_held_conflicting;
        tracing::warn!(
            samples,
            "Left out samples that came during the replay: the log has other values at their times"
        );
    }
}

async fn shut_down(
    app: &App,
    server: JoinHandle<()>,
    stop: &watch::Sender<bool>,
    scraping: Option<JoinHandle<()>>,
) -> Result<()> {
    app.stop_admission();
    app.notifications.set(http::SHUTTING_DOWN, true);
    app.notifications.close();
    stop.send_replace(true);
    if let Some(scraping) = scraping {
        scraping.abort();
    }
    wait_for_queries(app).await;
    app.interrupt_queries();
    if tokio::time::timeout(CONNECTION_GRACE, server).await.is_err() {
        tracing::warn!("Connections are still open; closing them");
    }
    let Some(store) = app.take_store() else { return Ok(()) };
    let closed = tokio::task::spawn_blocking(move || close(store)).await;
    closed.context("close the store")??;
    app.close_ring();
    tracing::info!("See you next time!");
    Ok(())
}

/// Writes every now and then what is kept besides samples.
async fn keep_records(store: Arc<Store>) {
    loop {
        tokio::time::sleep(USAGE_SAVE_INTERVAL).await;
        let store = Arc::clone(&store);
        if tokio::task::spawn_blocking(move || save(&store)).await.is_err() {
            return;
        }
    }
}

fn save(store: &Store) {
    if let Err(error) = store.usage.save() {
        tracing::error!(%error, "Cannot write the usage record; trying again later");
    }
    if let Err(error) = store.elections.save() {
        tracing::error!(%error, "Cannot write who leads HA pairs; trying again later");
    }
    if let Err(error) = store.receiver.fallen().save() {
        tracing::error!(%error, "Cannot write which rules fell back to shadow; trying again later");
    }
}

async fn wait_for_queries(app: &App) {
    let started = Instant::now();
    while app.n_running() > 0 && started.elapsed() < QUERY_GRACE {
        tokio::time::sleep(GRACE_CHECK_INTERVAL).await;
    }
}

fn close(store: Arc<Store>) -> Result<()> {
    save(&store);
    store.db.sync().map_err(|e| anyhow!("sync the log: {e}"))
}

fn features(args: &ServeArgs) -> Features {
    let bounds = Bounds { size_max: args.query_max_length, depth_max: args.query_max_nesting };
    let mut features = Features { bounds, ..Features::default() };
    for name in args.enable_feature.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        if features.enable(name) || name == SEARCH_FEATURE {
            tracing::info!(option = name, "Feature enabled");
        } else if name == AUTO_RELOAD_FEATURE {
            tracing::warn!(option = name, "This option for --enable-feature is deprecated, use --config.auto-reload");
        } else if OTHER_FEATURES.contains(&name) {
            tracing::warn!(option = name, "This option for --enable-feature has no effect on Varve");
        } else {
            tracing::warn!(option = name, "Unknown option for --enable-feature");
        }
    }
    features
}

fn has_feature(args: &ServeArgs, feature: &str) -> bool {
    args.enable_feature.iter().any(|name| name.trim() == feature)
}

fn settings(args: &ServeArgs, memory: &Memory, features: Features, flags: BTreeMap<String, String>) -> Settings {
    // By default all queries together hold at most 40 % of the memory, and one of them a quarter of that.
    let total = or_default(args.query_max_memory_total, || share_of_memory(memory, 2, 5));
    Settings {
        read_timeout: args.read_timeout,
        max_connections: args.max_connections,
        answer: AnswerBounds {
            hold_back: args.response_buffer,
            size_max: or_default(args.max_response_size, || usize::MAX),
            stall_timeout: args.write_stall_timeout,
        },
        query_timeout: args.query_timeout,
        query_partial_during_replay: args.query_partial_during_replay,
        query_max_concurrency: args.query_max_concurrency,
        // They are bound by the processor: more at once only hold more memory.
        metadata_concurrency: or_default(args.query_metadata_concurrency, || (2 * machine::cores()).max(4)),
        queued_max: args.query_max_queued,
        queue_timeout: args.query_queue_timeout,
        metadata_series_max: Some(args.query_max_metadata_series).filter(|&series_max| series_max > 0),
        write_concurrency: args.ingest.concurrency_max,
        query_max_memory: or_default(args.query_max_memory, || total / 4).min(total),
        query_max_memory_total: total,
        write_body_size_max: args.ingest.body_size_max,
        write_bytes_in_flight_max: args.ingest.bytes_in_flight_max,
        admission_status: match args.ingest.admission_status {
            AdmissionStatus::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            AdmissionStatus::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        },
        features,
        auto_reload: args.config_auto_reload || has_feature(args, AUTO_RELOAD_FEATURE),
        admin_api: args.enable_admin_api,
        lifecycle: args.enable_lifecycle,
        search: has_feature(args, SEARCH_FEATURE),
        search_limit_max: args.search_max_limit,
        cors_origin: args.cors_origin.clone(),
        notifications_subscribers_max: args.max_notifications_subscribers,
        lookback_delta_ms: millis(args.query_lookback_delta),
        points_max: args.query_max_points,
        remote_read_concurrency: match args.remote_read_concurrent_limit {
            0 => usize::MAX,
            limit => limit,
        },
        remote_read_samples_max: args.remote_read_sample_limit,
        remote_read_frame_size_max: args.remote_read_frame_size,
        retention: retention(args.retention_time, args.retention_size),
        flags,
    }
}

/// Says how long samples are kept, as Prometheus does: `15d or 512GiB`.
fn retention(time: Duration, size: usize) -> String {
    let time = (!time.is_zero()).then(|| print_duration(time));
    let size = (size > 0).then(|| print_size(size));
    time.into_iter().chain(size).collect::<Vec<_>>().join(" or ")
}

fn store_options(args: &ServeArgs, memory: &Memory, config: Config, features: Features) -> StoreOptions {
    let tsdb = varve_tsdb::Options {
        shards: or_default(args.shards, || machine::cores().next_power_of_two().min(SHARDS_MAX)),
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
        retention_ms: Some(millis(args.retention_time)).filter(|&ms| ms > 0),
        retention_size_bytes: Some(args.retention_size as u64).filter(|&size| size > 0),
        out_of_order_window_ms: millis(config.storage.tsdb.out_of_order_time_window),
        in_order_max_age_ms: millis(config.storage.tsdb.in_order_max_age),
        ahead_max_ms: millis(config.storage.tsdb.ahead_max),
        exemplars_max: config.storage.exemplars.max_exemplars,
        head_size_max_bytes: or_default(args.head_max_memory, || share_of_memory(memory, 1, 2)),
        ..varve_tsdb::Options::default()
    };
    let engine = EngineOptions {
        lookback_delta_ms: millis(args.query_lookback_delta),
        samples_max: args.query_max_samples,
        parallelism: or_default(args.query_parallelism, machine::cores).min(PARALLELISM_MAX),
        features,
        ..EngineOptions::default()
    };
    StoreOptions { tsdb, ingest: args.ingest.limits(), config, engine }
}

/// The most threads that queries can share.
const PARALLELISM_MAX: usize = 256;
/// The most shards that a store can have.
const SHARDS_MAX: usize = 256;
/// The most logs that their number of cores gives to the shards: a request of 2,000 samples leaves 250 in each.
const WAL_LOGS_MAX: usize = 8;

fn or_default(given: usize, default: impl FnOnce() -> usize) -> usize {
    if given == 0 { default() } else { given }
}

/// Returns `part / of` of the memory that the process may use.
fn share_of_memory(memory: &Memory, part: u64, of: u64) -> usize {
    usize::try_from(memory.limit_bytes() / of * part).unwrap_or(usize::MAX)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
