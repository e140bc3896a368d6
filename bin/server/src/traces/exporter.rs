//! The queue of spans, and the task that sends them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::http::request;
use hyper::{HeaderMap, Request};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use varve_client::{AsyncClient, ClientOptions, Remedies};
use varve_config::file::tracing::{ClientType, SpanCompression, TracingConfig};
use varve_system::printing::error_chain;
use varve_system::version::{self, USER_AGENT};
use varve_wire::grpc::{self, Coding};

use super::metrics::TraceMetrics;
use varve_wire::otlp::{ExportRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span};

/// Maximum number of queued spans, that of a batch, and the interval of batches: OpenTelemetry's
/// defaults.
pub(super) const QUEUE_MAX: usize = 2048;
const BATCH_MAX: usize = 512;
const INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time that the end of the server waits for the last batches.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum size of a response.
const RESPONSE_SIZE_MAX: usize = 64 << 10;

const NAME: &str = "varve";
const HTTP_PATH: &str = "/v1/traces";
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Sends spans to the receiver of a configuration.
#[derive(Debug)]
pub(super) struct Exporter {
    pub(super) config: TracingConfig,
    queue: Mutex<Queue>,
    wake: Notify,
    metrics: TraceMetrics,
}

#[derive(Debug, Default)]
struct Queue {
    spans: VecDeque<Span>,
    is_closed: bool,
}

impl Exporter {
    /// Starts the task.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn start(
        config: TracingConfig,
        metrics: TraceMetrics,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let exporter = Arc::new(Self::new(config, metrics));
        let task = tokio::spawn(Arc::clone(&exporter).run());
        (exporter, task)
    }

    fn new(config: TracingConfig, metrics: TraceMetrics) -> Self {
        Self {
            config,
            queue: Mutex::default(),
            wake: Notify::new(),
            metrics,
        }
    }

    /// Queues spans, and drops the oldest ones above [`QUEUE_MAX`].
    pub(super) fn push(&self, spans: Vec<Span>) {
        let mut queue = self.queue.lock();
        queue.spans.extend(spans);
        let n_dropped = queue.spans.len().saturating_sub(QUEUE_MAX);
        queue.spans.drain(..n_dropped);
        let is_full = queue.spans.len() >= BATCH_MAX;
        drop(queue);
        self.metrics.dropped.inc_by(n_dropped as u64);
        if is_full {
            self.wake.notify_one();
        }
    }

    /// Ends the task once it has sent the queue.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Waits until the task has ended, for at most [`FLUSH_TIME_MAX`].
    pub(super) async fn ended(&self, task: JoinHandle<()>) {
        if tokio::time::timeout(FLUSH_TIME_MAX, task).await.is_err() {
            tracing::warn!(
                count = self.queue.lock().spans.len(),
                "Traces not sent in time, dropping spans"
            );
        }
    }

    async fn run(self: Arc<Self>) {
        let mut client = None;
        let mut is_failing = false;
        loop {
            // Also after an interval without a full batch.
            drop(tokio::time::timeout(INTERVAL, self.wake.notified()).await);
            while let Some(batch) = self.take() {
                let n_spans = batch.len() as u64;
                match self.send(&mut client, batch).await {
                    Ok(()) => {
                        self.metrics.sent.inc_by(n_spans);
                        is_failing = false;
                    }
                    Err(error) => {
                        self.metrics.dropped.inc_by(n_spans);
                        client = None;
                        // One message until a batch succeeds.
                        if !std::mem::replace(&mut is_failing, true) {
                            tracing::warn!(
                                error = error_chain(&error),
                                "Cannot send traces, dropping spans"
                            );
                        }
                    }
                }
            }
            let queue = self.queue.lock();
            if queue.is_closed && queue.spans.is_empty() {
                return;
            }
        }
    }

    /// Takes the oldest spans, or `None` if there are none.
    fn take(&self) -> Option<Vec<Span>> {
        let mut queue = self.queue.lock();
        let n_spans = queue.spans.len().min(BATCH_MAX);
        (n_spans > 0).then(|| queue.spans.drain(..n_spans).collect())
    }

    async fn send(&self, client: &mut Option<AsyncClient>, spans: Vec<Span>) -> Result<()> {
        let config = self.config.clone();
        let is_connected = client.is_some();
        // Encodes, compresses and reads certificates on a thread that may block.
        let prepared = tokio::task::spawn_blocking(move || {
            let connected = if is_connected {
                None
            } else {
                Some(connect(&config)?)
            };
            let body = encode(spans, config.client_type, config.compression)?;
            anyhow::Ok((connected, body))
        });
        let (connected, body) = prepared.await.context("encode spans")??;
        let client = match connected {
            Some(connected) => client.insert(connected),
            None => client.as_mut().context("the client is connected")?,
        };

        let response = client.send(request(&self.config), body).await?;
        ensure!(
            response.is_success(),
            "bad response status {}: {}",
            response.status,
            response.text()
        );
        if self.config.client_type == ClientType::Grpc {
            let status = header_text(&response.headers, "grpc-status");
            let message = header_text(&response.headers, "grpc-message");
            ensure!(status == "0", "gRPC status {status:?}: {message}");
        }
        Ok(())
    }
}

/// Returns a request without its body.
fn request(config: &TracingConfig) -> request::Builder {
    let is_compressed = config.compression == SpanCompression::Gzip;
    match config.client_type {
        ClientType::Http => {
            let request = Request::post(HTTP_PATH).header("content-type", "application/x-protobuf");
            if is_compressed {
                request.header("content-encoding", "gzip")
            } else {
                request
            }
        }
        ClientType::Grpc => {
            let request = Request::post(GRPC_PATH)
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            if is_compressed {
                request.header("grpc-encoding", "gzip")
            } else {
                request
            }
        }
    }
}

/// Returns the value of a header, or an empty text.
fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn connect(config: &TracingConfig) -> Result<AsyncClient> {
    let options = ClientOptions {
        timeout: config.timeout(),
        response_size_max: RESPONSE_SIZE_MAX,
        user_agent: USER_AGENT,
        remedies: Remedies::default(),
    };
    let client = AsyncClient::new(&config.url()?, config.access()?, options)?;
    Ok(if config.client_type == ClientType::Grpc {
        client.with_http2()
    } else {
        client
    })
}

/// Returns the body of a request.
fn encode(
    spans: Vec<Span>,
    client_type: ClientType,
    compression: SpanCompression,
) -> Result<Bytes> {
    let attributes = vec![
        KeyValue::new("service.name", NAME),
        KeyValue::new("service.version", version::NUMBER),
    ];
    let scope = Scope {
        name: NAME.to_owned(),
        version: version::NUMBER.to_owned(),
    };
    let scope_spans = vec![ScopeSpans {
        scope: Some(scope),
        spans,
    }];
    let resource_spans = vec![ResourceSpans {
        resource: Some(Resource { attributes }),
        scope_spans,
    }];
    let message = ExportRequest { resource_spans }.encode_to_vec();
    let coding = if compression == SpanCompression::Gzip {
        Coding::Gzip
    } else {
        Coding::Identity
    };
    let mut body = Vec::new();
    let written = match client_type {
        ClientType::Http => coding.compress(&message, &mut body),
        ClientType::Grpc => grpc::write(coding, &message, &mut body),
    };
    written.context("compress")?;
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_the_oldest_spans() {
        let metrics = TraceMetrics::unregistered();
        let exporter = Exporter::new(TracingConfig::default(), metrics.clone());
        let span = |name: usize| Span {
            name: name.to_string(),
            ..Span::default()
        };
        exporter.push((0..QUEUE_MAX).map(span).collect());
        assert_eq!(metrics.dropped.get(), 0);
        exporter.push(vec![span(QUEUE_MAX), span(QUEUE_MAX + 1)]);
        assert_eq!(metrics.dropped.get(), 2);
        let batch = exporter.take().unwrap();
        assert_eq!((batch.len(), batch[0].name.as_str()), (BATCH_MAX, "2"));
    }
}
