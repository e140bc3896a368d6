//! The state that handlers and layers share.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRef;
use varve_context::QueryContext;
use varve_server::requests::record::{RequestClass, RequestRecord};

use super::app::App;
use super::gate::{Gate, GateMetrics, Permit, QueueLimits};
use super::inline::InlinePolicy;
use super::response_writer::ResponseWriter;
use super::singleflight::{Computation, Singleflight};
use super::slow_clients::SlowClients;
use crate::error::{ApiError, ErrorKind, Result};
use crate::web_config::LiveWebConfig;

/// [`App`] and the state that only HTTP needs. Clones share it.
#[derive(Debug, Clone)]
pub struct HttpState {
    /// The state of the server.
    pub app: Arc<App>,
    /// TLS and users of `--web.config.file`.
    pub web: Arc<LiveWebConfig>,
    pub(crate) singleflight: Arc<Singleflight>,
    pub(super) inline: Arc<InlinePolicy>,
    gates: Arc<Gates>,
    slow_clients: Arc<SlowClients>,
}

#[derive(Debug)]
struct Gates {
    queries: Gate,
    metadata: Gate,
    remote_reads: Gate,
    writes: Gate,
}

impl FromRef<HttpState> for Arc<App> {
    fn from_ref(state: &HttpState) -> Self {
        Self::clone(&state.app)
    }
}

impl HttpState {
    /// Creates the state of a server that has no connections yet.
    pub fn new(app: Arc<App>, web: LiveWebConfig) -> Self {
        let settings = &app.settings;
        let gate = |flag, class: RequestClass, n_permits, queue| {
            let metrics = &app.metrics;
            let class = [class.name()];
            let metrics = GateMetrics {
                active: metrics.active.with_label_values(&class),
                queued: metrics.queued.with_label_values(&class),
                queue_seconds: metrics.queue_seconds.with_label_values(&class),
            };
            Gate::new(flag, n_permits, queue, metrics)
        };
        // One queue per class.
        let queue = QueueLimits::of_reads(settings.query.queued_max, settings.query.queue_timeout);
        let write_queue = QueueLimits::of_writes(settings.web.connections_max);
        let gates = Gates {
            queries: gate(
                "--query.max-concurrency",
                RequestClass::Query,
                settings.query.concurrency_max,
                queue,
            ),
            metadata: gate(
                "--query.metadata-concurrency",
                RequestClass::Metadata,
                settings.query.metadata_concurrency_max,
                queue,
            ),
            remote_reads: gate(
                "--storage.remote.read-concurrent-limit",
                RequestClass::RemoteRead,
                settings.remote_read.concurrency_max,
                queue,
            ),
            writes: gate(
                "--ingest.concurrency-max",
                RequestClass::Write,
                settings.write.concurrency_max,
                write_queue,
            ),
        };
        let slow_clients = SlowClients::new(
            settings.web.slow_clients_max,
            app.metrics.responses_waiting.clone(),
        );
        Self {
            app,
            slow_clients: Arc::new(slow_clients),
            web: Arc::new(web),
            singleflight: Arc::default(),
            inline: Arc::default(),
            gates: Arc::new(gates),
        }
    }

    /// Waits for a permit to run a request in `ctx`.
    ///
    /// # Errors
    /// The errors of [`Gate::admit`], 503 if the memory limit (`--memory.refuse-at`) is reached,
    /// and 422 if the query breaker is open.
    pub(crate) async fn admit(
        &self,
        record: &RequestRecord,
        class: RequestClass,
        ctx: &QueryContext,
    ) -> Result<Permit> {
        let pressure = &self.app.pressure;
        let checked = if class == RequestClass::Write {
            pressure.check_writes()
        } else {
            pressure.check_queries()
        };
        checked.map_err(|reason| ApiError::unavailable(reason).with_limit("--memory.refuse-at"))?;

        let breaker = &self.app.requests.query_breaker;
        if class == RequestClass::Query
            && let Some(reason) = breaker.check(record, Instant::now())
        {
            return Err(ApiError::new(ErrorKind::Execution, reason).with_limit("query failures"));
        }

        let gate = match class {
            RequestClass::Query => &self.gates.queries,
            RequestClass::Metadata => &self.gates.metadata,
            RequestClass::RemoteRead => &self.gates.remote_reads,
            RequestClass::Write => &self.gates.writes,
        };
        let reads = match &record.tenant {
            Some(tenant) if class != RequestClass::Write => tenant.reads.as_ref(),
            _ => None,
        };
        gate.admit(&record.user, reads, ctx).await
    }

    /// Returns the writer of the response of a computation.
    pub(super) fn response_writer(&self, computation: &Arc<Computation>) -> ResponseWriter {
        let limits = self.app.settings.web.response;
        ResponseWriter::new(computation, limits, Arc::clone(&self.slow_clients))
    }

    /// Rejects further requests, and queued reads, with 503.
    pub fn begin_shutdown(&self) {
        self.app.lifecycle.begin_shutdown();
        self.gates.queries.close();
        self.gates.metadata.close();
        self.gates.remote_reads.close();
    }
}
