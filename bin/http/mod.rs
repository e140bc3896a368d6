//! The HTTP API: Prometheus' paths, parameters, answers and errors.
//!
//! ```text
//! server (connections) -> routes (here) -> params -> admission (gate) -> run (blocking thread)
//!                                                                         |  store, engine
//!                                   client <- body (held back, then flows) <- json
//! ```
//!
//! Invariants
//! 1. A tokio task never computes and never waits for the disk: that is done on blocking threads behind a gate.
//! 2. Each request for data has one `QueryContext` from before the gate until its last byte is written.
//! 3. Every request for data, and every write, is on the list of those running from before the gate until its answer is written.
//! 4. Until the store is open, and once it closes, everything but health, metrics and the state of the replay answers 503.

mod api;
mod connection;
mod error;
mod json;
mod openapi;
pub(crate) mod params;
mod serving;
pub(crate) mod web_config;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use prometheus::proto::MetricFamily;
use varve_query::promql::Features;
use varve_tsdb::{Interrupt, MemoryBudget, QueryContext, Regexp};

use crate::config::Config;
use crate::http::web_config::WebConfig;
use crate::server::active_requests::log::Ring;
use crate::server::active_requests::{Class, Running};
use crate::server::live_config::LiveConfig;
use crate::server::metrics::{MemoryFigures, Metrics};
use crate::server::pressure::Pressure;
use crate::server::query_log::QueryLog;
use crate::server::rejects::RejectLog;
use crate::server::request_context::Call;
use crate::server::store::Store;
use api::status::notifications::CONFIG_FAILED;
use error::{ApiError, LimitHit, MEMORY_OF_ALL};
use serving::gate::{Gate, GateFigures, Place, Queue};
use serving::singleflight::Flights;

pub(crate) use api::status::notifications::{Notifications, SHUTTING_DOWN, STARTING_UP};

pub(crate) use connection::{requests_max, serve};
pub(crate) use serving::body::AnswerBounds;
pub(crate) use serving::housekeeping::beat;

/// What the server runs with; docs/config.md describes the flags that these come from.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) read_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) answer: AnswerBounds,
    pub(crate) query_timeout: Duration,
    pub(crate) query_partial_during_replay: bool,
    pub(crate) query_max_concurrency: usize,
    pub(crate) metadata_concurrency: usize,
    pub(crate) queued_max: usize,
    pub(crate) queue_timeout: Duration,
    /// Series that a metadata call may be given; `None`: any number.
    pub(crate) metadata_series_max: Option<u64>,
    pub(crate) write_concurrency: usize,
    pub(crate) query_max_memory: usize,
    pub(crate) query_max_memory_total: usize,
    pub(crate) write_body_size_max: usize,
    pub(crate) write_bytes_in_flight_max: usize,
    /// Status of the answer to a write that has waited in vain.
    pub(crate) admission_status: StatusCode,
    pub(crate) features: Features,
    pub(crate) auto_reload: bool,
    pub(crate) admin_api: bool,
    pub(crate) lifecycle: bool,
    /// The experimental search endpoints.
    pub(crate) search: bool,
    /// Most results of a search; 0: no bound.
    pub(crate) search_limit_max: usize,
    /// Origins whose pages may read answers.
    pub(crate) cors_origin: Regexp,
    pub(crate) notifications_subscribers_max: usize,
    pub(crate) lookback_delta_ms: i64,
    /// Steps between the first and the last one of a range query.
    pub(crate) points_max: usize,
    /// Remote reads at work at the same time.
    pub(crate) remote_read_concurrency: usize,
    /// Samples of a query in an answer of remote read; 0: no bound.
    pub(crate) remote_read_samples_max: usize,
    pub(crate) remote_read_frame_size_max: usize,
    /// How long samples are kept, in words, for /api/v1/status/runtimeinfo.
    pub(crate) retention: String,
    /// Every flag with its value, for /api/v1/status/flags.
    pub(crate) flags: BTreeMap<String, String>,
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) config: LiveConfig,
    pub(crate) notifications: Notifications,
    /// Asked to end by a request.
    pub(crate) quit: api::admin::lifecycle::Quit,
    started: Timestamp,
    phase: AtomicU8,
    store: RwLock<Option<Arc<Store>>>,
    queries: Gate,
    metadata_calls: Gate,
    remote_reads: Gate,
    writes: Gate,
    running: Arc<Running>,
    flights: Arc<Flights>,
    pressure: Pressure,
    web: WebConfig,
    pub(crate) query_log: QueryLog,
    pub(crate) rejects: RejectLog,
    /// Starts with the store, in its directory.
    ring: OnceLock<Ring>,
    /// What all queries and metadata calls may hold.
    memory: MemoryBudget,
    /// What the bodies of write requests may hold while they are read.
    write_memory: MemoryBudget,
}

const STARTING: u8 = 0;
const READY: u8 = 1;
const STOPPING: u8 = 2;

impl App {
    /// Makes the server's state, without a store yet.
    ///
    /// # Errors
    /// If two metrics have the same name.
    pub(crate) fn new(
        settings: Settings,
        config: LiveConfig,
        pressure: Pressure,
        web: WebConfig,
    ) -> prometheus::Result<Self> {
        let metrics = Metrics::new()?;
        let gate = |flag, class, n_permits, queue| {
            let (active, waiting) = (metrics.active(class), metrics.waiting(class));
            Gate::new(
                flag,
                n_permits,
                queue,
                GateFigures { active, waiting, waited_seconds: metrics.queue_seconds(class) },
            )
        };
        // Each class has a queue of its own. Writes wait as connections and their own time allow.
        let queue = || Queue::new(settings.queued_max, settings.queue_timeout);
        let of_writes = Queue::new(settings.max_connections, settings.query_timeout);
        let running = Arc::<Running>::default();
        let relief = Arc::<Running>::clone(&running);
        Ok(Self {
            started: Timestamp::now(),
            config,
            notifications: Notifications::new(settings.notifications_subscribers_max),
            quit: api::admin::lifecycle::Quit::default(),
            phase: AtomicU8::new(STARTING),
            store: RwLock::new(None),
            queries: gate("--query.max-concurrency", "query", settings.query_max_concurrency, queue()),
            metadata_calls: gate("--query.metadata-concurrency", "metadata", settings.metadata_concurrency, queue()),
            remote_reads: gate(
                "--storage.remote.read-concurrent-limit",
                "remote_read",
                settings.remote_read_concurrency,
                queue(),
            ),
            writes: gate("--ingest.concurrency-max", "write", settings.write_concurrency, of_writes),
            running,
            flights: Arc::default(),
            pressure,
            web,
            query_log: metrics.query_log(),
            rejects: RejectLog::default(),
            ring: OnceLock::new(),
            memory: MemoryBudget::with_relief(MEMORY_OF_ALL, settings.query_max_memory_total, relief),
            write_memory: MemoryBudget::new("--ingest.bytes-in-flight-max", settings.write_bytes_in_flight_max),
            metrics,
            settings,
        })
    }

    /// Opens the doors.
    pub(crate) fn set_store(&self, store: Arc<Store>) {
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = Some(store);
        self.phase.store(READY, Ordering::Release);
    }

    /// Returns the store; `None` before it is open and after [`App::take_store`].
    pub(crate) fn store(&self) -> Option<Arc<Store>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the store out for closing.
    pub(crate) fn take_store(&self) -> Option<Arc<Store>> {
        self.store.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Answers 503 from now on, and sends away who waits at a gate.
    pub(crate) fn stop_admission(&self) {
        self.phase.store(STOPPING, Ordering::Release);
        self.queries.close();
        self.metadata_calls.close();
        self.remote_reads.close();
    }

    /// Reads the configuration again.
    ///
    /// # Errors
    /// As [`LiveConfig::reload`], and what was in force stays; if the query log cannot be opened.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let reloaded = self.config.reload(|config| self.apply(config));
        self.notifications.set(CONFIG_FAILED, reloaded.is_err());
        match &reloaded {
            Ok(()) => tracing::info!("Completed loading of configuration file"),
            Err(reason) => tracing::error!(reason = format!("{reason:#}"), "Error reloading config"),
        }
        reloaded
    }

    /// Puts into force what can be without a restart: all of it, or nothing.
    fn apply(&self, config: &Config) -> anyhow::Result<()> {
        let log = QueryLog::open(config.global.query_log_file.as_deref())?;
        if let Some(store) = self.store() {
            store.reload(config)?;
        }
        self.query_log.write_to(log);
        Ok(())
    }

    /// Returns `None` while the store is open, else whether it is because the server stops.
    fn stopping(&self) -> Option<bool> {
        match self.phase.load(Ordering::Acquire) {
            READY => None,
            phase => Some(phase == STOPPING),
        }
    }

    /// Ends all running queries.
    pub(crate) fn interrupt_queries(&self) {
        self.running.interrupt_all(Interrupt::Shutdown);
    }

    /// Counts queries and metadata calls at work.
    pub(crate) fn n_running(&self) -> usize {
        self.running.len()
    }

    /// Reads all metrics. Not for a thread that must not wait.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        let config = self.config.status();
        let memory = MemoryFigures {
            queries_bytes: self.memory.used(),
            queries_max_bytes: self.settings.query_max_memory_total,
            queries_concurrent_max: self.settings.query_max_concurrency,
            write_bodies_bytes: self.write_memory.used(),
            process: self.pressure.figures(),
            ring_lost: self.ring.get().map_or(0, Ring::n_lost),
        };
        self.metrics.gather(self.store().as_deref(), &memory, config)
    }

    /// Waits for a place for a request.
    async fn admit(&self, class: Class, ctx: &QueryContext) -> Result<Place, ApiError> {
        let is_short = match class {
            Class::Query | Class::Metadata | Class::RemoteRead => self.pressure.check_queries(),
            Class::Write => self.pressure.check_writes(),
        };
        is_short.map_err(|short| ApiError::unavailable(short).of_limit("--memory.refuse-at"))?;
        match class {
            Class::Query => self.queries.admit(ctx).await,
            Class::RemoteRead => self.remote_reads.admit(ctx).await,
            Class::Write => self.writes.admit(ctx).await,
            Class::Metadata => {
                if let Some(series_max) = self.settings.metadata_series_max {
                    ctx.bound_series("--query.max-metadata-series", series_max);
                }
                self.metadata_calls.admit(ctx).await
            }
        }
    }

    /// Starts work that ends when it is done, within the memory of a query.
    fn context_without_deadline(&self) -> QueryContext {
        QueryContext::new(Duration::MAX, self.memory_of_query())
    }

    fn memory_of_query(&self) -> MemoryBudget {
        self.memory.child("--query.max-memory", self.settings.query_max_memory)
    }

    /// Starts a request: its deadline, its cancel switch, its memory budget.
    fn context(&self, timeout: Option<Duration>) -> QueryContext {
        let timeout = timeout.map_or(self.settings.query_timeout, |timeout| timeout.min(self.settings.query_timeout));
        let memory = self.memory_of_query();
        if self.settings.query_partial_during_replay {
            QueryContext::taking_partial(timeout, memory)
        } else {
            QueryContext::new(timeout, memory)
        }
    }
}

/// Returns the routes.
pub(crate) fn routes(app: &Arc<App>) -> Router {
    api::routes::router(app)
        .route_layer(from_fn_with_state(Arc::clone(app), observe))
        .layer(from_fn(serving::redirect::plain_only))
        .layer(from_fn_with_state(Arc::clone(app), serving::authorize::authorize))
        .with_state(Arc::clone(app))
}

/// Makes a request a [`Call`], and counts and times it by route.
async fn observe(State(app): State<Arc<App>>, path: MatchedPath, request: Request, next: Next) -> Response {
    let started = Instant::now();
    // Prometheus writes parameters of a path as `:name`.
    let handler = path.as_str().replace('{', ":").replace('}', "");
    let call = Call::of(&request, handler.clone());
    let response = Arc::clone(&call).scope(next.run(request)).await;
    if call.may_have_written() {
        app.flights.note_written();
    }
    let metrics = &app.metrics;
    metrics.count_limit(response.extensions().get::<LimitHit>().map(|hit| hit.0));
    metrics.http_requests.with_label_values(&[&*handler, response.status().as_str()]).inc();
    metrics.http_seconds.with_label_values(&[&*handler]).observe(started.elapsed().as_secs_f64());
    response
}

fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, text.into()).into_response()
}
