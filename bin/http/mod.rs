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
//! 3. Until the store is open, and once it closes, everything but health, metrics and the state of the replay answers 503.

mod admin;
mod admission;
mod body;
mod churn;
mod error;
mod exemplars;
mod health;
mod json;
mod labels;
mod metadata;
mod otlp;
mod params;
mod query;
mod request_body;
mod run;
mod series;
mod server;
mod status;
mod usage;
mod write;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use prometheus::proto::MetricFamily;
use varve_query::promql::Features;
use varve_tsdb::{Interrupt, MemoryBudget, QueryContext};

use crate::metrics::{MemoryFigures, Metrics};
use crate::store::Store;
use admission::{Gate, Running};

pub(crate) use server::serve;

/// What the server runs with; docs/config.md describes the flags that these come from.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) read_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) response_buffer: usize,
    pub(crate) write_stall_timeout: Duration,
    pub(crate) query_timeout: Duration,
    pub(crate) query_partial_during_replay: bool,
    pub(crate) query_max_concurrency: usize,
    pub(crate) metadata_concurrency: usize,
    pub(crate) write_concurrency: usize,
    pub(crate) query_max_memory: usize,
    pub(crate) query_max_memory_total: usize,
    pub(crate) write_body_size_max: usize,
    pub(crate) write_bytes_in_flight_max: usize,
    pub(crate) features: Features,
    pub(crate) admin_api: bool,
    /// Every flag with its value, for /api/v1/status/flags.
    pub(crate) flags: BTreeMap<String, String>,
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    started: Timestamp,
    phase: AtomicU8,
    store: RwLock<Option<Arc<Store>>>,
    queries: Gate,
    metadata_calls: Gate,
    writes: Gate,
    running: Arc<Running>,
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
    pub(crate) fn new(settings: Settings) -> prometheus::Result<Self> {
        let metrics = Metrics::new()?;
        let gate =
            |flag, class, n_permits| Gate::new(flag, n_permits, metrics.active(class), metrics.queue_seconds(class));
        Ok(Self {
            started: Timestamp::now(),
            phase: AtomicU8::new(STARTING),
            store: RwLock::new(None),
            queries: gate("--query.max-concurrency", "query", settings.query_max_concurrency),
            metadata_calls: gate("--query.metadata-concurrency", "metadata", settings.metadata_concurrency),
            writes: gate("--ingest.concurrency-max", "write", settings.write_concurrency),
            running: Arc::default(),
            memory: MemoryBudget::new("--query.max-memory-total", settings.query_max_memory_total),
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
        let memory = MemoryFigures {
            queries_bytes: self.memory.used(),
            queries_max_bytes: self.settings.query_max_memory_total,
            queries_concurrent_max: self.settings.query_max_concurrency,
        };
        self.metrics.gather(self.store().as_deref(), &memory)
    }

    /// Starts a request: its deadline, its cancel switch, its memory budget.
    fn context(&self, timeout: Option<Duration>) -> QueryContext {
        let timeout = timeout.map_or(self.settings.query_timeout, |timeout| timeout.min(self.settings.query_timeout));
        let memory = self.memory.child("--query.max-memory", self.settings.query_max_memory);
        if self.settings.query_partial_during_replay {
            QueryContext::taking_partial(timeout, memory)
        } else {
            QueryContext::new(timeout, memory)
        }
    }
}

/// Returns the routes.
pub(crate) fn routes(app: &Arc<App>) -> Router {
    let api = Router::new()
        .route("/api/v1/query", get(query::instant).post(query::instant))
        .route("/api/v1/query_range", get(query::range).post(query::range))
        .route("/api/v1/query_exemplars", get(exemplars::query_exemplars).post(exemplars::query_exemplars))
        .route("/api/v1/format_query", get(query::format).post(query::format))
        .route("/api/v1/parse_query", get(query::parse).post(query::parse))
        .route("/api/v1/series", get(series::series).post(series::series))
        .route("/api/v1/labels", get(labels::names).post(labels::names))
        .route("/api/v1/label/{name}/values", get(labels::values))
        .route("/api/v1/metadata", get(metadata::metadata))
        .route("/api/v1/status/buildinfo", get(status::buildinfo))
        .route("/api/v1/status/flags", get(status::flags))
        .route("/api/v1/status/runtimeinfo", get(status::runtimeinfo))
        .route("/api/v1/status/churn", get(churn::status))
        .route("/api/v1/status/usage", get(usage::usage))
        .route("/api/v1/write", post(write::write))
        .route("/api/v1/otlp/v1/metrics", post(otlp::write))
        .route("/api/v1/admin/tsdb/delete_series", post(admin::delete_series).put(admin::delete_series))
        .route("/api/v1/admin/tsdb/clean_tombstones", post(admin::clean_tombstones).put(admin::clean_tombstones))
        .route("/api/v1/admin/tsdb/snapshot", post(admin::snapshot).put(admin::snapshot))
        .route("/api/v1/admin/tsdb/compact", post(admin::compact))
        .route("/api/v1/admin/tsdb/import", post(admin::import))
        .route("/-/ready", get(health::ready))
        .route_layer(from_fn_with_state(Arc::clone(app), if_ready));
    Router::new()
        .route("/-/healthy", get(health::healthy))
        .route("/metrics", get(health::metrics))
        .route("/api/v1/status/walreplay", get(status::walreplay))
        .merge(api)
        .route_layer(from_fn_with_state(Arc::clone(app), observe))
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "404 page not found\n") })
        .method_not_allowed_fallback(|| async { plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n") })
        .with_state(Arc::clone(app))
}

/// Lets requests through only while the store is open.
async fn if_ready(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.phase.load(Ordering::Acquire) {
        READY => next.run(request).await,
        phase => {
            let stopping = if phase == STOPPING { "true" } else { "false" };
            let headers = [("X-Prometheus-Stopping", stopping), (header::RETRY_AFTER.as_str(), error::RETRY_AFTER_S)];
            (headers, plain(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable")).into_response()
        }
    }
}

/// Counts and times requests by route.
async fn observe(State(app): State<Arc<App>>, path: MatchedPath, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let response = next.run(request).await;
    // Prometheus writes parameters of a path as `:name`.
    let handler = path.as_str().replace("{name}", ":name");
    let metrics = &app.metrics;
    metrics.http_requests.with_label_values(&[&*handler, response.status().as_str()]).inc();
    metrics.http_seconds.with_label_values(&[&*handler]).observe(started.elapsed().as_secs_f64());
    response
}

fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, text.into()).into_response()
}
