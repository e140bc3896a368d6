//! Runs a handler's job: admission, a thread, the response.
//!
//! ```text
//! run -------------------------------.
//! run_shared -> singleflight (leader) -+-> start: active requests -> gate -> blocking thread -> output
//!            '-> singleflight (follower) --- waits for the leader's result, or computes its own if that is a stream
//! ```
//!
//! A request for which a permit is free needs no task of its own: its connection starts the job,
//! and the blocking thread wakes the connection. A small job runs on the thread of its connection
//! instead (`inline`), because waking two threads takes longer. It is not in the active-request
//! log, which is a file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::oneshot;
use varve_context::{Limit, QueryContext};
use varve_fs::{Clock, SystemClock};
use varve_server::active_requests::{ActiveRequest, Registration};
use varve_server::app::App;
use varve_server::queries::query_log::{LoggedQuery, Origin};
use varve_server::queries::query_stats;
use varve_server::queries::top_queries::Cost;
use varve_server::request_context::RequestContext;
use varve_server::settings::ResponseLimits;
use varve_server::store::Store;
use varve_server::traces::Trace;
use varve_tsdb::ReadContext;

use super::gate::Permit;
use super::response_body::{ComputationGuard, ResponseBody};
use super::response_writer::{CancelOnDrop, Outcome, Output, OutputSender, ResponseWriter};
use super::singleflight::{Completion, Computation, Role};
use super::state::HttpState;
use crate::error::{ApiError, ErrorKind, Result};
use crate::json;

pub(crate) use varve_server::active_requests::RequestClass;

/// The context of a handler's job.
#[derive(Debug)]
pub struct Work {
    pub(crate) store: Arc<Store>,
    pub(crate) ctx: ReadContext,
    pub(crate) out: ResponseWriter,
    /// Time that the request was queued.
    pub(crate) queued: Duration,
    pub(crate) context: Arc<RequestContext>,
}

impl Work {
    /// Writes a successful response whose data `write` writes.
    pub(crate) fn respond(&mut self, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.open();
        write(self)?;
        self.close(&[], &[])
    }

    /// Writes a successful response with small data.
    pub(crate) fn respond_json(&mut self, data: &impl Serialize) -> Result<()> {
        self.respond(|work| {
            serde_json::to_writer(work.out.buffer(), data).map_err(ApiError::internal)
        })
    }

    /// Writes a successful response whose data is this JSON.
    pub fn respond_encoded(&mut self, json: &str) -> Result<()> {
        self.respond(|work| {
            work.out.buffer().extend_from_slice(json.as_bytes());
            Ok(())
        })
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

/// What a handler does once its request is admitted.
pub(crate) trait Job: Send {
    /// Returns `true` if the job takes about as long as waking another thread, and does not wait.
    /// Then it runs on the thread of the connection.
    fn is_small(&mut self, _ctx: &ReadContext, _store: &Store) -> bool {
        false
    }

    /// Does the work, and writes the response.
    fn run(self: Box<Self>, work: &mut Work) -> Result<()>;
}

impl<F: FnOnce(&mut Work) -> Result<()> + Send> Job for F {
    fn run(self: Box<Self>, work: &mut Work) -> Result<()> {
        self(work)
    }
}

/// Boxed, so that the functions that pass it on are compiled once instead of once per handler.
type BoxedJob = Box<dyn Job>;

/// Waits for a permit, runs `job` on a blocking thread, and responds with the bytes that it writes,
/// or with 204 if there are none.
///
/// When the returned future or the body of the response is dropped, the request is interrupted.
pub fn run(
    state: &HttpState,
    class: RequestClass,
    timeout: Option<Duration>,
    job: impl FnOnce(&mut Work) -> Result<()> + Send + 'static,
) -> impl Future<Output = Result> {
    run_alone(state, class, timeout, Box::new(job))
}

/// Runs `job` as [`run`] does, or waits for an identical request. Requests are identical if they
/// have the same path and `parameters`, which must contain everything that the response depends on,
/// including the timeout and the values of defaults.
pub(crate) fn run_shared(
    state: &HttpState,
    class: RequestClass,
    timeout: Option<Duration>,
    parameters: String,
    job: impl FnOnce(&mut Work) -> Result<()> + Send + 'static,
) -> impl Future<Output = Result> {
    join_or_run(state, class, timeout, parameters, Box::new(job))
}

/// Runs a job, which may be small, as [`run_shared`] does. That is another function because the
/// type of a closure's argument is inferred only from a bound by `FnOnce`.
pub(crate) fn run_job(
    state: &HttpState,
    class: RequestClass,
    timeout: Option<Duration>,
    parameters: String,
    job: impl Job + 'static,
) -> impl Future<Output = Result> {
    join_or_run(state, class, timeout, parameters, Box::new(job))
}

async fn run_alone(
    state: &HttpState,
    class: RequestClass,
    timeout: Option<Duration>,
    job: BoxedJob,
) -> Result {
    let ctx = state.app.context(timeout);
    let cancel = CancelOnDrop(QueryContext::clone(&ctx));
    let (sender, output) = oneshot::channel();
    start(state, class, ctx, OutputSender::Request(sender), job).await;
    let output = output
        .await
        .unwrap_or_else(|_dropped| Output::Error(ApiError::stopping()));
    respond(output, Box::new(cancel))
}

async fn join_or_run(
    state: &HttpState,
    class: RequestClass,
    timeout: Option<Duration>,
    parameters: String,
    job: BoxedJob,
) -> Result {
    let started = Instant::now();
    let context = RequestContext::current();
    context.note_read();
    // The restriction of a user changes with a reload.
    let restriction = context.tenant.as_ref().map(|tenant| &tenant.matchers);
    let key = format!(
        "{} {} {restriction:?} {timeout:?} {parameters}",
        context.route, context.user
    );
    let ctx = state.app.context(timeout);
    match state
        .singleflight
        .join(key, || CancelOnDrop(QueryContext::clone(&ctx)))
    {
        Role::Leader(computation) => {
            lead(state, class, ctx, &computation, job);
            respond(computation.result().await, Box::new(computation))
        }
        Role::Follower(computation) => {
            let result = computation.result().await;
            if result.is_for_followers() {
                state
                    .app
                    .metrics
                    .requests_coalesced
                    .with_label_values(&[class.name()])
                    .inc();
                let mut response = respond(result, Box::new(computation))?;
                response
                    .headers_mut()
                    .insert(SHARED, HeaderValue::from_static("true"));
                return Ok(response);
            }
            drop((result, computation));
            let timeout_max = state.app.settings.args.query_timeout;
            let timeout = timeout.map_or(timeout_max, |timeout| timeout.min(timeout_max));
            let left = timeout.saturating_sub(started.elapsed());
            run_alone(state, class, Some(left), job).await
        }
    }
}

/// Starts the computation, which outlives the leader's connection. If it has to wait for a permit,
/// a task waits.
fn lead(
    state: &HttpState,
    class: RequestClass,
    ctx: ReadContext,
    computation: &Arc<Computation>,
    job: BoxedJob,
) {
    let (state, output) = (
        state.clone(),
        OutputSender::Computation(Completion::of(computation)),
    );
    let started = async move { start(&state, class, ctx, output, job).await };
    let mut started = Box::pin(RequestContext::current().scope(started));
    // Fast path: a permit is free.
    if started
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
    {
        computation.set_task(tokio::spawn(started).abort_handle());
    }
}

/// Waits for a permit, and runs or starts `job`, which sends the output.
async fn start(
    state: &HttpState,
    class: RequestClass,
    ctx: ReadContext,
    output: OutputSender,
    job: BoxedJob,
) {
    let context = RequestContext::current();
    context.note_read();
    let registration = state.app.active_requests.register(context, class, &ctx);
    let admitted = state.admit(class, &ctx).await;
    match admitted
        .and_then(|permit| Ok((permit, state.app.store().ok_or_else(ApiError::stopping)?)))
    {
        Ok((permit, store)) => {
            // Just before the job can read the store.
            output.begin();
            run_or_spawn(
                state,
                Admitted {
                    registration,
                    permit,
                    ctx,
                    store,
                    output,
                },
                job,
            );
        }
        Err(rejected) => output.reject(rejected),
    }
}

/// Runs `job` here if it is small, otherwise on a blocking thread.
fn run_or_spawn(state: &HttpState, admitted: Admitted, mut job: BoxedJob) {
    let HttpState { app, inline, .. } = state;
    let started = Instant::now();
    let mut is_small = || job.is_small(&admitted.ctx, &admitted.store);
    // After a panic, which the hook logs, the blocking thread meets it again and responds with an
    // error.
    let is_small = inline.is_allowed(started)
        && admitted.ctx.memory().has_plenty(FREE_MEMORY_MIN)
        && catch_unwind(AssertUnwindSafe(&mut is_small)).unwrap_or(false);
    let class = admitted.registration.request.class.name();
    let record = || {
        if inline.record(started.elapsed(), Instant::now()) {
            app.metrics
                .inline_suspensions
                .with_label_values(&[class])
                .inc();
        }
    };
    if !is_small {
        record();
        return spawn(Arc::clone(app), admitted, job);
    }
    app.metrics
        .requests_inline
        .with_label_values(&[class])
        .inc();
    // The same thread serves the client, so the job must not wait for it.
    admitted.run(app, app.settings.response.without_streaming(), job);
    record();
}

/// Runs `job` on a blocking thread.
fn spawn(app: Arc<App>, admitted: Admitted, job: BoxedJob) {
    drop(tokio::task::spawn_blocking(move || {
        let user = &admitted.registration.request.context.user;
        let _run = app.scheduler.start(admitted.ctx.cancellation(), user);
        admitted.registration.record_start();
        admitted.run(&app, app.settings.response, job);
    }));
}

/// A request whose job may run.
struct Admitted {
    registration: Registration,
    permit: Permit,
    ctx: ReadContext,
    store: Arc<Store>,
    output: OutputSender,
}

impl Admitted {
    /// Runs the job of the request, and records its end.
    fn run(self, app: &App, limits: ResponseLimits, job: BoxedJob) {
        let Self {
            registration,
            permit,
            ctx,
            store,
            output,
        } = self;
        let request = &registration.request;
        request.begin();
        let (queued, context) = (request.queued(), Arc::clone(&request.context));
        context
            .trace()
            .inspect(|trace| trace.add_part("queue", queued));
        let out = ResponseWriter::new(QueryContext::clone(&ctx), limits, output, Some(permit));
        let reason = perform(
            app,
            request,
            Work {
                store,
                ctx,
                out,
                queued,
                context,
            },
            job,
        );
        registration.record_end(reason.as_deref());
    }
}

/// Runs `job` and ends its response, even after a panic. Returns the reason if it failed.
fn perform(app: &App, request: &ActiveRequest, mut work: Work, job: BoxedJob) -> Option<String> {
    let result = catch_unwind(AssertUnwindSafe(|| job.run(&mut work))).unwrap_or_else(
        |_logged_by_the_hook| {
            app.metrics.panics.inc();
            Err(ApiError::panicked())
        },
    );
    let failed = result.as_ref().err().cloned();
    let outcome = match result {
        Ok(()) => work.out.finish(),
        Err(error) => work.out.fail(error),
    };
    let truncated = match outcome {
        Outcome::Complete => None,
        Outcome::Truncated(error) => {
            app.metrics.responses_truncated.inc();
            app.metrics.count_limit(error.limit.map(Limit::name));
            tracing::warn!(
                kind = error.kind.name(),
                reason = error.message,
                "Response truncated"
            );
            Some(error)
        }
    };
    let error = failed.or(truncated);
    let reason = error.as_ref().map(|error| error.message.as_str());
    if request.class == RequestClass::Query.into()
        && error.as_ref().is_none_or(ApiError::is_memory_limit)
    {
        app.query_breaker
            .record(&request.context, reason, Instant::now());
    }
    note_cost(app, request, reason.is_some());
    // As in Prometheus, a query that does not parse is not logged.
    if error
        .as_ref()
        .is_none_or(|error| error.kind != ErrorKind::BadData)
    {
        log_query(app, request, reason);
    }
    reason.map(str::to_owned)
}

/// Adds a query that has ended to the most expensive ones.
fn note_cost(app: &App, request: &ActiveRequest, has_failed: bool) {
    if request.class != RequestClass::Query.into() || request.context.times().is_none() {
        return;
    }
    let evaluated = request.age().saturating_sub(request.queued());
    app.metrics.observe_query(request.queued(), evaluated);
    let seconds = evaluated.as_secs_f64();
    let cost = Cost {
        n_queries: 1,
        n_failed: u64::from(has_failed),
        seconds,
        seconds_max: seconds,
        n_samples: request.ctx.n_samples(),
        memory_peak_max: request.ctx.memory().peak(),
        user_agent: request.context.user_agent.clone(),
        ..Cost::default()
    };
    app.top_queries.add(
        SystemClock.now_ms(),
        &request.context.parameters().text,
        cost,
    );
}

/// Writes a query that has ended to the query log, with the reason if it failed.
fn log_query(app: &App, request: &ActiveRequest, reason: Option<&str>) {
    let context = &request.context;
    let Some(times) = context.times().filter(|_| app.query_log.is_enabled()) else {
        return;
    };
    let queued = request.queued();
    app.query_log.log(&LoggedQuery {
        query: &context.parameters().text,
        start_ms: times.start_ms,
        end_ms: times.end_ms,
        step_s: times.step_ms / 1000,
        error: reason,
        stats: match context.stats() {
            Some(stats) => query_stats::to_json(stats, queued),
            None => query_stats::failed_query(
                queued,
                request.age().saturating_sub(queued),
                request.ctx.n_samples(),
            ),
        },
        n_series: request.ctx.n_series(),
        memory_peak_bytes: request.ctx.memory().peak(),
        trace: context.trace().map(Trace::ids),
        origin: Origin::Http {
            client_ip: context
                .client
                .map(|client| client.ip().to_string())
                .unwrap_or_default(),
            method: context.method.as_str(),
            path: &context.route,
        },
    });
}

fn respond(output: Output, guard: ComputationGuard) -> Result {
    match output {
        Output::Complete(bytes, _) if bytes.is_empty() => {
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Output::Complete(bytes, charge) => {
            Ok(json_body(ResponseBody::complete(bytes, charge, guard)))
        }
        Output::Error(error) => Err(error),
        Output::Stream(chunks) => {
            let chunks = chunks.lock().take();
            // Only one request reads a stream, and only once.
            chunks
                .map(|chunks| json_body(ResponseBody::stream(chunks, guard)))
                .ok_or_else(ApiError::stopping)
        }
    }
}

fn json_body(body: ResponseBody) -> Response {
    ([(header::CONTENT_TYPE, json::MIME_TYPE)], Body::new(body)).into_response()
}
