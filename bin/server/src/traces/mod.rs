//! Traces of requests and rules, sent with OTLP (section `tracing` of the configuration file).
//!
//! [`Tracer::start`] returns a [`Trace`] if a request is sampled. The context of the request owns
//! it, and its spans are queued when the context is dropped, after the last work for the request.
//!
//! Invariants
//! 1. A request that is not sampled reads no clock and allocates nothing for traces.
//! 2. A request never waits for the receiver. The queue is bounded and drops the oldest spans.
//!
//! Threads: any thread adds spans; one task of tokio sends them.

mod exporter;
mod metrics;
mod parent;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use hyper::HeaderMap;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use varve_config::file::tracing::TracingConfig;
use varve_system::metrics::Registrar;
use varve_wire::otlp::{AnyValue, KeyValue, Span, Status};

use exporter::Exporter;
use metrics::TraceMetrics;
use parent::{Parent, random};

/// Starts traces while the configuration has a receiver.
#[derive(Debug)]
pub struct Tracer {
    /// Whether there is an exporter, without its lock.
    is_enabled: AtomicBool,
    exporter: Mutex<Option<(Arc<Exporter>, JoinHandle<()>)>>,
    metrics: TraceMetrics,
}

/// The spans of a request.
#[derive(Debug)]
pub struct Trace {
    exporter: Arc<Exporter>,
    trace_id: [u8; 16],
    span_id: [u8; 8],
    started: Instant,
    started_unix_nano: u64,
    /// The span of the request, and those of its parts that have ended.
    spans: Mutex<(Span, Vec<Span>)>,
}

/// A part of a request. Its span ends when it is dropped.
#[derive(Debug)]
pub struct Part<'a> {
    trace: &'a Trace,
    name: &'static str,
    start: u64,
}

/// The origin of a trace.
#[derive(Debug, Clone, Copy)]
pub enum TraceOrigin<'a> {
    /// A request, with its headers.
    Request(&'a HeaderMap),
    /// The server itself.
    Internal,
}

impl Tracer {
    /// Creates a tracer without a receiver.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            is_enabled: AtomicBool::new(false),
            exporter: Mutex::default(),
            metrics: TraceMetrics::new(registrar)?,
        })
    }

    /// Puts a configuration into force. The spans of the previous one are still sent to its
    /// receiver.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn apply(&self, config: Option<&TracingConfig>) {
        let mut exporter = self.exporter.lock();
        if exporter.as_ref().map(|(exporter, _)| &exporter.config) == config {
            return;
        }
        if let Some((exporter, _)) = &*exporter {
            exporter.close();
        }
        *exporter = config.map(|config| Exporter::start(config.clone(), self.metrics.clone()));
        self.is_enabled.store(exporter.is_some(), Ordering::Release);
    }

    /// Sends the queue and ends.
    pub async fn close(&self) {
        self.is_enabled.store(false, Ordering::Release);
        let exporter = self.exporter.lock().take();
        if let Some((exporter, task)) = exporter {
            exporter.close();
            exporter.ended(task).await;
        }
    }

    /// Returns the trace of a request, if traces are on and it is sampled: as its parent, if it has
    /// one.
    pub fn start(&self, origin: TraceOrigin<'_>, name: impl FnOnce() -> String) -> Option<Trace> {
        if !self.is_enabled.load(Ordering::Acquire) {
            return None;
        }
        let exporter = self
            .exporter
            .lock()
            .as_ref()
            .map(|(exporter, _)| Arc::clone(exporter))?;
        let (kind, header) = match origin {
            TraceOrigin::Request(headers) => (Span::SERVER, headers.get("traceparent")),
            TraceOrigin::Internal => (Span::INTERNAL, None),
        };
        let header = header.and_then(|value| value.to_str().ok());
        let parent = Parent::of(header, exporter.config.sampling_fraction)
            .ok()
            .filter(|parent| parent.is_sampled)?;
        let span_id = random().ok()?;
        let started_unix_nano = nanos(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        );
        let root = Span {
            trace_id: parent.trace_id.to_vec(),
            span_id: span_id.to_vec(),
            parent_span_id: parent.span_id.map(Vec::from).unwrap_or_default(),
            name: name(),
            kind,
            start_time_unix_nano: started_unix_nano,
            ..Span::default()
        };
        let spans = Mutex::new((root, Vec::new()));
        let trace_id = parent.trace_id;
        Some(Trace {
            exporter,
            trace_id,
            span_id,
            started: Instant::now(),
            started_unix_nano,
            spans,
        })
    }
}

impl Trace {
    /// Starts the span of a part of the request.
    pub(crate) fn part(&self, name: &'static str) -> Part<'_> {
        Part {
            trace: self,
            name,
            start: self.now(),
        }
    }

    /// Adds the span of a part that has just ended.
    pub fn add_part(&self, name: &'static str, duration: Duration) {
        let end = self.now();
        self.push(name, end.saturating_sub(nanos(duration)), end);
    }

    /// Adds an attribute to the span of the request.
    pub fn note(&self, key: &str, value: impl Into<AnyValue>) {
        self.spans
            .lock()
            .0
            .attributes
            .push(KeyValue::new(key, value));
    }

    /// Marks the request as failed.
    pub fn fail(&self, message: impl Into<String>) {
        self.spans.lock().0.status = Some(Status::error(message.into()));
    }

    /// Returns the ids of the trace and of the span of the request, in hexadecimal digits.
    pub fn ids(&self) -> (String, String) {
        (
            HEXLOWER.encode(&self.trace_id),
            HEXLOWER.encode(&self.span_id),
        )
    }

    fn push(&self, name: &str, start: u64, end: u64) {
        // Without random numbers there would be no trace.
        let Ok(span_id) = random::<8>() else { return };
        self.spans.lock().1.push(Span {
            trace_id: self.trace_id.to_vec(),
            span_id: span_id.to_vec(),
            parent_span_id: self.span_id.to_vec(),
            name: name.to_owned(),
            kind: Span::INTERNAL,
            start_time_unix_nano: start,
            end_time_unix_nano: end,
            ..Span::default()
        });
    }

    fn now(&self) -> u64 {
        self.started_unix_nano
            .saturating_add(nanos(self.started.elapsed()))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let now = self.now();
        let (root, parts) = self.spans.get_mut();
        let mut spans = vec![std::mem::take(root)];
        spans[0].end_time_unix_nano = now;
        spans.append(parts);
        self.exporter.push(spans);
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.trace.push(self.name, self.start, self.trace.now());
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
