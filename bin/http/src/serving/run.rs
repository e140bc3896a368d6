//! Runs a handler's job: admission, a thread, the response.
//!
//! ```text
//! run ----------------------------------.
//! run_shared -> singleflight (leader) --+-> start: active requests -> gate -> blocking thread -> output
//!            '-> singleflight (follower) --- waits for the leader's result, or runs its own job if that is a stream
//! ```
//!
//! A request for which a permit is free needs no task of its own: its connection starts the job,
//! and the blocking thread wakes the connection. A small job runs on the thread of its connection
//! instead (`inline`), because waking two threads takes longer. It is not in the active-request
//! log, which is a file.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde::Serialize;
use varve_context::{Charge, Limit};
use varve_server::requests::active::Registration;
use varve_server::requests::life::RequestFailure;
use varve_server::requests::record::RequestRecord;
use varve_server::store::Store;
use varve_tsdb::ReadContext;

use super::app::App;
use super::output::Output;
use super::response_body::{IsCharged, ResponseBody};
use super::response_writer::ResponseWriter;
use super::singleflight::{AnyParameters, Computation, ComputationKey, KeyParameters, Role};
use super::state::HttpState;
use crate::error::{ApiError, ErrorKind, Result};
use crate::json;

pub(crate) use varve_server::requests::record::RequestClass;

/// A request that is admitted, as its job sees it.
#[derive(Debug)]
pub struct Work {
    pub(crate) store: Arc<Store>,
    pub(crate) ctx: ReadContext,
    pub(crate) out: ResponseWriter,
    pub(crate) record: Arc<RequestRecord>,
    registration: Registration,
    /// What the job keeps until its response is written.
    kept: Mutex<Charge>,
}

impl Work {
    /// Charges `size` bytes that the job keeps until its response is written. Call it before
    /// allocating them.
    ///
    /// # Errors
    /// If memory is short, or the request must end.
    pub(crate) fn keep(&self, size: usize) -> Result<()> {
        self.ctx.check()?;
        Ok(self.kept.lock().grow(size)?)
    }

    /// Writes a successful response whose data `write` writes.
    pub(crate) fn respond(&mut self, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.open();
        write(self)?;
        self.close(&[], &[])
    }

    /// Writes a successful response with this data, in steps.
    pub(crate) fn respond_json(&mut self, data: &impl Serialize) -> Result<()> {
        self.respond(|work| JsonWriter::new(work).write_data(data))
    }

    /// Writes a successful response with this data, in steps, and safe in HTML, as Go writes it.
    pub(crate) fn respond_html_safe_json(&mut self, data: &impl Serialize) -> Result<()> {
        self.respond(|work| {
            let writer = JsonWriter {
                is_html_safe: true,
                ..JsonWriter::new(work)
            };
            writer.write_data(data)
        })
    }

    /// Writes a successful response whose data is this JSON.
    pub fn respond_encoded(&mut self, json: &str) -> Result<()> {
        self.respond(|work| work.write(json.as_bytes()))
    }

    /// Appends bytes, in steps.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(STEP_SIZE) {
            self.out.buffer().extend_from_slice(part);
            self.out.step()?;
        }
        Ok(())
    }

    /// Writes the start of a successful response, up to its data.
    pub(crate) fn open(&mut self) {
        self.out
            .buffer()
            .extend_from_slice(b"{\"status\":\"success\",\"data\":");
    }

    /// Writes the end of a successful response, after its data. Adds a warning if replay has not
    /// restored all data yet.
    pub(crate) fn close(&mut self, warnings: &[String], infos: &[String]) -> Result<()> {
        let partial = self.ctx.partial().map(str::to_owned);
        let warnings: Vec<&String> = warnings.iter().chain(&partial).collect();
        for (name, texts) in [("warnings", warnings), ("infos", infos.iter().collect())] {
            if !texts.is_empty() {
                self.out
                    .buffer()
                    .extend_from_slice(format!(",\"{name}\":").as_bytes());
                self.array(texts, |out, text| {
                    json::write_html_string(out, text.as_bytes())
                })?;
            }
        }
        self.out.buffer().push(b'}');
        self.out.step()
    }

    /// Writes an array, element by element.
    pub(crate) fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Vec<u8>, T),
    ) -> Result<()> {
        self.out.buffer().push(b'[');
        for (i, item) in items.into_iter().enumerate() {
            self.comma(i);
            write(self.out.buffer(), item);
            self.out.step()?;
        }
        self.out.buffer().push(b']');
        Ok(())
    }

    /// Writes the comma before every element but the first.
    pub(crate) fn comma(&mut self, idx: usize) {
        if idx > 0 {
            self.out.buffer().push(b',');
        }
    }

    /// Runs `job`, ends its response, even after a panic, and ends the request.
    fn run(mut self, app: &App, job: Box<dyn Job>) {
        self.registration.begin();
        if let Some(trace) = self.record.trace() {
            trace.add_part("queue", self.record.queued());
        }

        let result = catch_unwind(AssertUnwindSafe(|| job.run(&mut self))).unwrap_or_else(
            |_logged_by_the_hook| {
                app.metrics.panics.inc();
                Err(ApiError::panicked())
            },
        );
        let failed = result.as_ref().err().cloned();
        let sent = match result {
            Ok(()) => self.out.finish(),
            Err(error) => self.out.fail(error),
        };
        if let Err(error) = &sent {
            app.metrics.responses_truncated.inc();
            app.metrics.count_limit(error.limit.map(Limit::name));
            tracing::warn!(
                kind = error.kind.name(),
                reason = error.message,
                "Response truncated"
            );
        }

        let error = failed.or(sent.err());
        let failure = error.as_ref().map(|error| RequestFailure {
            reason: &error.message,
            is_memory_limit: error.is_memory_limit(),
            is_malformed: error.kind == ErrorKind::BadData,
        });
        app.requests.end(self.registration, failure);
    }
}

/// Writes JSON in steps.
struct JsonWriter<'a> {
    work: &'a mut Work,
    /// Whether the characters with a meaning in HTML are escaped.
    is_html_safe: bool,
    /// Number of bytes since the last step.
    n_bytes: usize,
    /// Why the request must end.
    failed: Option<ApiError>,
}

impl<'a> JsonWriter<'a> {
    fn new(work: &'a mut Work) -> Self {
        Self {
            work,
            is_html_safe: false,
            n_bytes: 0,
            failed: None,
        }
    }

    fn write_data(mut self, data: &impl Serialize) -> Result<()> {
        let written = serde_json::to_writer(&mut self, data);
        match (self.failed, written) {
            (Some(error), _) => Err(error),
            (None, written) => written.map_err(ApiError::internal),
        }
    }
}

impl io::Write for JsonWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(STEP_SIZE - self.n_bytes)];
        if self.is_html_safe {
            json::extend_html_safe(self.work.out.buffer(), part);
        } else {
            self.work.out.buffer().extend_from_slice(part);
        }
        self.n_bytes += part.len();
        if self.n_bytes == STEP_SIZE {
            self.n_bytes = 0;
            if let Err(error) = self.work.out.step() {
                self.failed = Some(error);
                return Err(io::ErrorKind::Other.into());
            }
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Memory that must be free, besides half of the budget, for a job to run on the thread of its
/// connection: there it should not wait for memory.
const FREE_MEMORY_MIN: usize = 4 << 20;

/// Bytes that are handed to the response writer at a time.
const STEP_SIZE: usize = 4 << 10;

/// The header of a response that was computed for an identical concurrent request.
const SHARED: HeaderName = HeaderName::from_static("x-varve-shared");

/// The warning that `limit` truncated a result.
pub(crate) const TRUNCATED: &str = "results truncated due to limit";

/// What a handler does once its request is admitted. Handlers pass it on in a `Box`, so that the
/// functions that take it are compiled once instead of once per handler.
pub trait Job: Send {
    /// Returns `true` if the job takes about as long as waking another thread, and does not wait.
    /// Then it runs on the thread of the connection.
    fn is_small(&mut self, _ctx: &ReadContext, _store: &Store) -> bool {
        false
    }

    /// Does the work, and writes the response.
    fn run(self: Box<Self>, work: &mut Work) -> Result<()>;
}

/// Returns a job that is never small.
pub fn job_fn(run: impl FnOnce(&mut Work) -> Result<()> + Send + 'static) -> Box<dyn Job> {
    Box::new(run)
}

impl<F: FnOnce(&mut Work) -> Result<()> + Send> Job for F {
    fn run(self: Box<Self>, work: &mut Work) -> Result<()> {
        self(work)
    }
}

/// Waits for a permit, runs `job` on a blocking thread, or here if it is small, and responds with
/// the bytes that it writes, or with 204 if there are none.
///
/// When the returned future or the body of the response is dropped, the request is interrupted.
pub async fn run(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    class: RequestClass,
    timeout: Option<Duration>,
    job: Box<dyn Job>,
) -> Result {
    let computation = Computation::alone(state.app.requests.context(record, class, timeout));
    let out = state.response_writer(&computation);
    start(state, record, class, out, job).await;
    respond(computation).await
}

/// Runs `job` as [`run`] does, or waits for an identical request. Requests are identical if they
/// have the same path, user, timeout and `parameters`, which must contain everything else that the
/// response depends on, including the values of defaults.
pub(crate) async fn run_shared(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    class: RequestClass,
    timeout: Option<Duration>,
    parameters: Arc<dyn KeyParameters>,
    job: Box<dyn Job>,
) -> Result {
    let started = Instant::now();
    record.note_read();
    let key = ComputationKey {
        route: record.route.clone(),
        user: Arc::clone(&record.user),
        tenant: record.tenant.as_ref().map(|tenant| tenant.id()),
        timeout,
        parameters: AnyParameters(parameters),
    };
    let role = state
        .singleflight
        .join(key, || state.app.requests.context(record, class, timeout));
    let computation = match role {
        Role::Leader(computation) => {
            lead(state, record, class, &computation, job);
            return respond(computation).await;
        }
        Role::Follower(computation) => computation,
    };
    if computation.result().await.is_for_followers() {
        state
            .app
            .metrics
            .requests_coalesced
            .with_label_values(&[class.name()])
            .inc();
        let mut response = respond(computation).await?;
        response
            .headers_mut()
            .insert(SHARED, HeaderValue::from_static("true"));
        return Ok(response);
    }
    drop(computation);
    let left = state
        .app
        .requests
        .timeout(timeout)
        .saturating_sub(started.elapsed());
    run(state, record, class, Some(left), job).await
}

/// Starts the computation, which outlives the leader's connection. If it has to wait for a permit,
/// a task waits.
fn lead(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    class: RequestClass,
    computation: &Arc<Computation>,
    job: Box<dyn Job>,
) {
    let state = state.clone();
    let out = state.response_writer(computation);
    let record = Arc::clone(record);
    let mut start_future = Box::pin(async move { start(&state, &record, class, out, job).await });
    // Fast path: a permit is free.
    let first_poll = start_future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    if first_poll.is_pending() {
        computation.set_task(tokio::spawn(start_future).abort_handle());
    }
}

/// Waits for a permit, and runs or starts `job`, which writes its response to `out`.
async fn start(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    class: RequestClass,
    mut out: ResponseWriter,
    job: Box<dyn Job>,
) {
    record.note_read();
    let ctx = out.ctx().clone();
    let registration = state.app.requests.start(record, class, &ctx);

    let permit = match state.admit(record, class, &ctx).await {
        Ok(permit) => permit,
        Err(rejected) => return out.reject(rejected),
    };
    let Some(store) = state.app.store() else {
        return out.reject(ApiError::stopping());
    };
    // From here on the job may have read the store, so after the next remote write no new request
    // may join this computation.
    out.admit(permit);

    let kept = Mutex::new(ctx.charge());
    let work = Work {
        store,
        ctx,
        out,
        record: Arc::clone(record),
        registration,
        kept,
    };
    run_or_spawn(state, class, work, job);
}

/// Runs `job` here if it is small, otherwise on a blocking thread.
fn run_or_spawn(state: &HttpState, class: RequestClass, mut work: Work, mut job: Box<dyn Job>) {
    let HttpState { app, inline, .. } = state;
    let started = Instant::now();
    let class = class.name();
    let is_small = inline.is_allowed(started)
        && work.ctx.memory().has_plenty(FREE_MEMORY_MIN)
        // After a panic, which the hook logs, the blocking thread meets it again and responds with
        // an error.
        && catch_unwind(AssertUnwindSafe(|| job.is_small(&work.ctx, &work.store)))
            .unwrap_or(false);
    if is_small {
        app.metrics
            .requests_inline
            .with_label_values(&[class])
            .inc();
        // The same thread serves the client, so the job must not wait for it.
        work.out.disable_streaming();
        work.run(app, job);
    } else {
        spawn(Arc::clone(app), work, job);
    }
    // A slow decision counts as well: the connection has waited for it.
    if inline.record(started.elapsed(), Instant::now()) {
        app.metrics
            .inline_suspensions
            .with_label_values(&[class])
            .inc();
    }
}

/// Runs `job` on a blocking thread.
fn spawn(app: Arc<App>, work: Work, job: Box<dyn Job>) {
    drop(tokio::task::spawn_blocking(move || {
        let _turn = app
            .scheduler
            .start(work.ctx.cancellation(), &work.record.user);
        work.registration.record_start();
        work.run(&app, job);
    }));
}

/// Waits for the output of a computation, and responds with it.
async fn respond(computation: Arc<Computation>) -> Result {
    match computation.result().await {
        Output::Complete(bytes) if bytes.is_empty() => Ok(StatusCode::NO_CONTENT.into_response()),
        Output::Complete(bytes) => Ok(json_body(ResponseBody::complete(bytes, computation))),
        Output::Error(error) => Err(error),
        Output::Stream(chunks) => {
            // Only one request reads a stream, and only once.
            let Some(chunks) = chunks.lock().take() else {
                return Err(ApiError::stopping());
            };
            Ok(json_body(ResponseBody::stream(chunks, computation)))
        }
    }
}

fn json_body(body: ResponseBody) -> Response {
    let headers = [(header::CONTENT_TYPE, json::MIME_TYPE)];
    (Extension(IsCharged), headers, Body::new(body)).into_response()
}
