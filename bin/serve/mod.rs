//! `varve serve`: starts a server from its flags, and stops it.
//!
//! Start: settings, signals, listener, then the store. The listener comes first, so that probes are
//! served while the series of the WAL are loaded. Requests for data get 503 until the store is
//! open. Samples are replayed while the server runs. If that fails, the server stops.
//!
//! Stop: no new connections, 503 for new queries. Running queries get [`QUERY_GRACE`] before they
//! are interrupted. Writes run to their end. Then the WAL is synced.

mod app;
mod housekeeping;
mod replay;
mod service_status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use varve_config::file::Config;
use varve_config::flags::ServeArgs;
use varve_config::settings::{self, Resolved, ServerSettings, StoreOptions};
use varve_context::Interrupt;
use varve_http::web_config::LiveWebConfig;
use varve_http::{self as http, App, HttpState, Listeners};
use varve_objstore::uploads::{self, Source, UploadOptions, external_labels};
use varve_objstore::{ObjstoreMetrics, Stop};
use varve_server::live_config::{LiveConfig, PreparedConfig};
use varve_server::notifications::{SHUTTING_DOWN, STARTING_UP, Topic};
use varve_server::notifier::PreparedAlerting;
use varve_server::pressure::Pressure;
use varve_server::self_scrape::SelfScrape;
use varve_server::sender_stats::observer::Observer;
use varve_server::shutdown::{Received, Signals};
use varve_server::store::Store;
use varve_server::{auto_reload, rules};
use varve_system::log;
use varve_system::machine::raise_open_files_limit;
use varve_system::service_manager::{self, ServiceState, notify};
use varve_system::version;

use replay::ReplayWatch;

/// Maximum time that running queries may continue after the signal.
const QUERY_GRACE: Duration = Duration::from_secs(2);
/// Maximum time after that for connections to send their responses.
const CONNECTION_GRACE: Duration = Duration::from_secs(5);
/// Interval at which the wait for queries checks whether they have ended.
const GRACE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which changes of senders, leaders of HA pairs and rejected series are logged.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which the usage record is saved, and the state of HA pairs and rules if an earlier
/// write failed.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Blocking threads that are not for requests: opening and closing the store, the self-scrape.
const THREADS_SPARE: usize = 8;

/// Runs a server until a signal stops it.
///
/// # Errors
/// The reason why it could not start or stop cleanly, in one sentence.
pub(crate) fn serve(args: ServeArgs, flags: BTreeMap<String, String>) -> Result<()> {
    let config = args
        .config_file
        .as_deref()
        .map(Config::load)
        .transpose()?
        .unwrap_or_default();
    log::start(args.log_level, args.log_format);
    log::set_level(config.runtime.log_level);
    let open_files = raise_open_files_limit();
    let memory = args.memory();
    let web = LiveWebConfig::load(args.web_config_file.as_deref())?;
    let is_tls = web.current().tls.is_some();
    let Resolved {
        settings,
        store,
        uploads,
    } = settings::resolve(&args, &config, &memory, open_files, flags, is_tls)?;
    let prepared = PreparedConfig::new(&config)?;
    let config = LiveConfig::new(args.config_file.clone(), config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(io_threads())
        .max_blocking_threads(http::requests_max(settings.web.connections_max) + THREADS_SPARE)
        .build()
        .context("start the threads of the server")?;
    let pressure = Pressure::new(memory, settings.memory_refuse_at);
    let app = app::build(settings, config, pressure).context("register metrics")?;
    let app = Arc::new(app);
    let registrar = app.registry.registrar();
    let objstore_metrics = ObjstoreMetrics::new(&registrar).context("register metrics")?;
    let self_scrape = SelfScrape::new(Arc::clone(&app.registry), Arc::clone(&app.lifecycle))
        .context("register metrics")?;
    app.requests.query_log.write_to(prepared.query_log);
    let loaded_file_state = auto_reload::FileState::now(&app.config.current());
    app.rules.apply(app.rules.prepare(&app.config.current())?);
    let result = runtime.block_on(run(
        HttpState::new(app, web),
        Start {
            config_file: args.config_file,
            store_options: store,
            objstore_metrics,
            uploads,
            self_scrape,
            alerting: prepared.alerting,
            loaded_file_state,
        },
    ));
    // A thread that still replays or computes must not delay the end: acknowledged samples are safe
    // already.
    runtime.shutdown_background();
    result
}

/// Returns the number of threads that read and write sockets: half of the cores. Requests run on
/// blocking threads.
///
/// An idle worker is woken whenever another finds work, which costs CPU time: with one worker
/// instead of two on two cores, a small query takes a sixth less, and a write the same.
fn io_threads() -> usize {
    thread::available_parallelism().map_or(1, |n_cores| n_cores.get().div_ceil(2))
}

/// What a server is started with, read and checked.
struct Start {
    config_file: Option<PathBuf>,
    store_options: StoreOptions,
    objstore_metrics: ObjstoreMetrics,
    uploads: Option<UploadOptions>,
    self_scrape: SelfScrape,
    alerting: PreparedAlerting,
    loaded_file_state: auto_reload::FileState,
}

async fn run(state: HttpState, start: Start) -> Result<()> {
    let Start {
        config_file,
        store_options,
        objstore_metrics,
        uploads,
        self_scrape,
        alerting,
        loaded_file_state,
    } = start;
    let app = Arc::clone(&state.app);
    let mut signals = Signals::catch().context("catch signals")?;
    tracing::info!(
        version = version::NUMBER,
        revision = version::REVISION,
        "Starting Varve"
    );
    let listeners = listen_to_all(&app.settings).await?;
    let first_listener = listeners.web.first();
    let address = address_of(first_listener.expect("there is at least one address"))?;
    start_before_store(&state, alerting)?;
    let (stop, stopped) = watch::channel(false);
    let server = tokio::spawn(http::serve(state.clone(), listeners, stopped));

    let data_dir = app.settings.data_dir.clone();
    let started = Instant::now();
    let store = tokio::select! {
        opened = replay::open(data_dir.clone(), store_options) => Arc::new(opened?),
        reason = stop_requested(&mut signals, &app) => {
            tracing::warn!(reason, "Stopping before the store is open");
            return Ok(());
        }
    };
    serve_store(&app, &store).await?;

    start_auto_reload(&app, config_file, loaded_file_state);
    let uploads = start_uploads(&app, objstore_metrics, uploads).await?;
    let saving = tokio::spawn(save_periodically(Arc::clone(&app), Arc::clone(&store)));
    let mut replay = watch_replay(&app, store, data_dir, started);
    let interval = app.settings.self_scrape_interval;
    let scraping = if interval.is_zero() {
        None
    } else {
        Some(tokio::spawn(self_scrape.run(address, interval)))
    };

    let ended = tokio::select! {
        reason = stop_requested(&mut signals, &app) => {
            tracing::warn!(reason, "Exiting gracefully...");
            Ok(())
        }
        failed = replay.failed() => Err(failed),
    };
    drop(replay);
    saving.abort();
    // A request in flight need not end: the next start repeats it.
    if let Some(uploads) = uploads {
        uploads.stop();
    }
    tokio::select! {
        closed = shut_down(&state, server, &stop, scraping) => ended.and(closed),
        signal = signals.next_end() => bail!("killed by a second {signal} during shutdown"),
    }
}

/// Starts what runs before the store is open.
fn start_before_store(state: &HttpState, alerting: PreparedAlerting) -> Result<()> {
    let app = &state.app;
    app.notifier.apply(alerting);
    app.tracer.apply(app.config.current().tracing.as_ref());
    app.notifications.set(Topic::Start, Some(STARTING_UP));
    housekeeping::start(Arc::downgrade(app), Arc::clone(&state.web)).context("start a thread")?;
    if service_manager::is_present() {
        tokio::spawn(service_status::report(Arc::clone(app)));
    }
    Ok(())
}

/// Serves requests for data from the open store.
async fn serve_store(app: &Arc<App>, store: &Arc<Store>) -> Result<()> {
    app.requests
        .active
        .open_log(&app.settings.data_dir, app.started.as_millisecond());
    let reloader = Arc::clone(&app.reloader);
    let store = Arc::clone(store);
    // Blocks: waits for a reload, and compiles relabel rules.
    tokio::task::spawn_blocking(move || reloader.open_store(store)).await??;
    notify(ServiceState::Ready);
    tracing::info!("Server is ready to receive web requests.");
    Ok(())
}

/// Starts to watch the configuration file, if its changes are to be reloaded.
fn start_auto_reload(
    app: &App,
    config_file: Option<PathBuf>,
    loaded_file_state: auto_reload::FileState,
) {
    let Some(path) = config_file else {
        return;
    };
    if app.settings.auto_reload {
        let reloader = Arc::clone(&app.reloader);
        let interval = app.settings.auto_reload_interval;
        tokio::spawn(auto_reload::run(
            reloader,
            path,
            interval,
            loaded_file_state,
        ));
    }
}

/// Starts uploads, if there is a bucket.
async fn start_uploads(
    app: &Arc<App>,
    metrics: ObjstoreMetrics,
    options: Option<UploadOptions>,
) -> Result<Option<Arc<Stop>>> {
    let Some(options) = options else {
        return Ok(None);
    };
    let app = Arc::downgrade(app);
    // Starting reads certificates, on a thread that may block.
    let starting = tokio::task::spawn_blocking(move || {
        uploads::start(move || find_source(&app), metrics, options)
    });
    starting.await.context("start uploads")?.map(Some)
}

/// Returns the samples to upload; `None` while no store is open.
fn find_source(app: &Weak<App>) -> Result<Option<Source>> {
    let Some(app) = app.upgrade() else {
        return Ok(None);
    };
    let Some(store) = app.store() else {
        return Ok(None);
    };
    Ok(Some(Source {
        db: Arc::clone(&store.db),
        labels: external_labels(&app.config.current().global.external_labels)?,
        memory: app.requests.own_memory(),
    }))
}

/// Watches the replay that began at `started`. Rules start when it ends.
fn watch_replay(
    app: &Arc<App>,
    store: Arc<Store>,
    data_dir: PathBuf,
    started: Instant,
) -> ReplayWatch {
    let app = Arc::clone(app);
    let rules_store = Arc::clone(&store);
    ReplayWatch::start(store, data_dir, started, move || {
        app.notifications.set(Topic::Start, None);
        let loss = replay::loss(&rules_store.db.stats().replayed);
        app.notifications.set(Topic::Wal, loss.as_deref());
        if let Err(error) = rules::start(&app.rules, &rules_store) {
            tracing::error!(%error, "Rules are not evaluated: cannot start their threads");
        }
    })
}

/// Waits until a signal or a request stops the server, and returns which. Reloads the configuration
/// on SIGHUP.
async fn stop_requested(signals: &mut Signals, app: &Arc<App>) -> &'static str {
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Received::End(name) => return name,
                Received::Reload => {
                    let reloader = Arc::clone(&app.reloader);
                    // `reload` logs an error.
                    drop(tokio::task::spawn_blocking(move || reloader.reload()));
                }
            },
            () = app.quit.requested() => return "/-/quit",
        }
    }
}

/// Opens the listeners of the settings.
async fn listen_to_all(settings: &ServerSettings) -> Result<Listeners> {
    let mut web = Vec::new();
    for address in &settings.web.listen_addresses {
        let listener = listen(address).await?;
        tracing::info!(address = address_of(&listener)?, "Listening");
        web.push(listener);
    }
    let grpc = match &settings.web.grpc_address {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    if let Some(grpc) = &grpc {
        tracing::info!(address = address_of(grpc)?, "Listening for gRPC");
    }
    Ok(Listeners { web, grpc })
}

async fn listen(address: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                anyhow!("listen on {address}: the address is in use by another process")
            }
            _ => anyhow!("listen on {address}: {error}"),
        })
}

fn address_of(listener: &TcpListener) -> Result<String> {
    Ok(listener
        .local_addr()
        .context("read the listening address")?
        .to_string())
}

async fn shut_down(
    state: &HttpState,
    server: JoinHandle<()>,
    stop: &watch::Sender<bool>,
    scraping: Option<JoinHandle<()>>,
) -> Result<()> {
    let app = &state.app;
    notify(ServiceState::Stopping);
    state.begin_shutdown();
    app.notifications.set(Topic::Stop, Some(SHUTTING_DOWN));
    app.notifications.close();
    stop.send_replace(true);
    if let Some(scraping) = scraping {
        scraping.abort();
    }
    app.rules.stop();
    wait_for_queries(app).await;
    app.requests.active.interrupt_all(Interrupt::Shutdown);
    if tokio::time::timeout(CONNECTION_GRACE, server)
        .await
        .is_err()
    {
        tracing::warn!("Closing connections that are still open");
    }
    let rules = Arc::clone(&app.rules);
    tokio::task::spawn_blocking(move || rules.join())
        .await
        .context("stop the evaluation of rules")?;
    app.notifier.drain().await;
    app.tracer.close().await;
    let Some(store) = app.lifecycle.take_store() else {
        return Ok(());
    };
    let closed = tokio::task::spawn_blocking(move || close(store)).await;
    closed.context("close the store")??;
    app.requests.active.close_log();
    tracing::info!("See you next time!");
    Ok(())
}

/// Saves the state that is not in the WAL, and logs what has changed, periodically.
async fn save_periodically(app: Arc<App>, store: Arc<Store>) {
    let mut observer = Observer::default();
    let mut saved = Instant::now();
    loop {
        tokio::time::sleep(OBSERVE_INTERVAL).await;
        let must_save = saved.elapsed() >= SAVE_INTERVAL;
        if must_save {
            saved = Instant::now();
        }
        let app = Arc::clone(&app);
        let store = Arc::clone(&store);
        let observing = tokio::task::spawn_blocking(move || {
            if must_save {
                store.save();
            }
            observer.observe(&store, &app.senders);
            observer
        });
        match observing.await {
            Ok(returned) => observer = returned,
            Err(_panic_is_logged) => return,
        }
    }
}

async fn wait_for_queries(app: &App) {
    let started = Instant::now();
    while app.requests.active.len() > 0 && started.elapsed() < QUERY_GRACE {
        tokio::time::sleep(GRACE_CHECK_INTERVAL).await;
    }
}

fn close(store: Arc<Store>) -> Result<()> {
    store.save();
    store.db.sync().map_err(|e| anyhow!("sync the WAL: {e}"))
}
