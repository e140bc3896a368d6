//! The steps that all write endpoints share: reading the body, admission, the blocking thread, the
//! response.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use varve_fs::{Clock, SystemClock};
use varve_ingest::admission::Origin;
use varve_ingest::{Receiver, WriteError, Written};
use varve_server::active_requests::RequestClass;
use varve_server::request_context::{RequestContext, User};

use super::team::named_team;
use crate::error::{ApiError, ErrorKind, Result};
use crate::serving::log_limiter::LogLimiter;
use crate::serving::request_body::{BodyError, BodyLimits, read};
use crate::serving::state::HttpState;

/// Maximum time that a write request waits for a permit. Its sender times out at about this age.
const QUEUE_TIME_MAX: Duration = Duration::from_secs(30);

/// Log rate limiter of failed writes: many writes fail at once, for example while the disk is full.
static FAILED: LogLimiter = LogLimiter::new();

/// Reads the body of a write request, waits for a permit and runs `work` on a blocking thread.
///
/// # Errors
/// Plain text: 5xx, or the status that is configured for throttled writes, if the sender should
/// retry.
pub(crate) async fn ingest(
    state: &HttpState,
    request: Request,
    work: impl FnOnce(&Receiver, &Origin<'_>, &[u8]) -> Result<Written, WriteError> + Send + 'static,
) -> Result<Written> {
    let settings = &state.app.settings;
    let ctx = state
        .app
        .write_context(settings.args.read_timeout + QUEUE_TIME_MAX);
    let mut charge = ctx.charge();
    let limits = BodyLimits::new(
        settings.args.ingest.body_size_max,
        "--ingest.body-size-max",
        settings,
    );
    let team = named_team(request.headers());
    let user = request.extensions().get::<User>().cloned();
    let context = RequestContext::current();
    let body = read(request.into_body(), limits, &mut charge)
        .await
        .map_err(|error| {
            state
                .app
                .rejections
                .add_request(context.sender(), reason(&error), error.to_string());
            unread(error)
        })?;
    let registration =
        state
            .app
            .active_requests
            .register(context.clone(), RequestClass::Write, &ctx);
    let permit = state
        .admit(
            RequestClass::Write,
            &state.app.write_context(QUEUE_TIME_MAX),
        )
        .await;
    let permit = permit.map_err(|rejected| {
        rejected
            .rejected_write(settings.queue_timeout_status)
            .plain()
    })?;
    let store = state
        .app
        .store()
        .ok_or_else(|| ApiError::stopping().plain())?;
    let app = state.app.clone();
    // Runs to its end even if the sender disconnects: the sender would retry a half-stored request.
    let written = tokio::task::spawn_blocking(move || {
        let request = &registration.request;
        request.begin();
        context
            .trace()
            .inspect(|trace| trace.add_part("queue", request.queued()));
        let permit = RefCell::new(permit);
        // A request that waits releases its permit to requests that can run.
        let release = || permit.borrow_mut().release();
        let origin = Origin {
            team: team.as_deref(),
            added_label: None,
            user: user.as_ref().map(|user| &*user.name),
            labels: user
                .as_ref()
                .and_then(|user| user.tenant.as_ref())
                .map_or(&[], |tenant| &tenant.labels),
            on_queued: Some(&release),
        };
        let part = context.part("store");
        let written = work(&store.receiver, &origin, &body);
        drop(part);
        app.rejections.add(|| context.sender(), &written);
        written
            .iter()
            .for_each(|written| app.rules.note_progress(&context, written));
        app.senders
            .add(SystemClock.now_ms(), context.sender(), &written);
        registration.record_end(written.as_ref().err().map(ToString::to_string).as_deref());
        drop((charge, permit));
        written
    });
    match written.await {
        Ok(written) => written.map_err(|error| failed(&error, settings.queue_timeout_status)),
        Err(_panic_is_logged) => {
            state.app.metrics.panics.inc();
            Err(ApiError::panicked().plain())
        }
    }
}

/// Responds to a write that was stored, at least in part.
///
/// # Errors
/// 400 with the rejected samples and the reasons.
pub(super) fn respond(written: &Written, success: StatusCode) -> Result {
    match written.rejections.is_empty() {
        true => Ok(success.into_response()),
        false => Err(ApiError::bad_data(written.rejections.to_string()).plain()),
    }
}

/// Returns the reason under which an unreadable body is listed.
fn reason(error: &BodyError) -> &'static str {
    match error {
        BodyError::TooLarge { .. } => "too_large",
        BodyError::Broken(_) => "body_broken",
        BodyError::Slow { .. } => "body_slow",
        BodyError::Memory(_) => "busy",
    }
}

fn unread(error: BodyError) -> ApiError {
    let error = ApiError::from(error).plain();
    // Not 408: senders drop a request after a 4xx, and the next attempt may be in time.
    let kind = if error.kind == ErrorKind::SlowRequest {
        ErrorKind::Unavailable
    } else {
        error.kind
    };
    ApiError { kind, ..error }
}

fn failed(error: &WriteError, queue_timeout_status: StatusCode) -> ApiError {
    let failed = ApiError::of_write(error, queue_timeout_status).plain();
    if failed.kind.is_retryable()
        && let Some(n_suppressed) = FAILED.admit(log_kind(error.cause()), Instant::now())
    {
        tracing::warn!(%error, n_suppressed, "Write request not stored");
    }
    failed
}

/// Returns the kind of an error, which is also the kind of its log message for the rate limiter.
fn log_kind(error: &WriteError) -> &'static str {
    use varve_tsdb::Error;
    match error {
        WriteError::Busy { .. } => "busy",
        WriteError::Throttled { resource, .. } => resource.name(),
        WriteError::Moved => "moved",
        WriteError::Store(Error::Limit { what, .. }) => what.name(),
        WriteError::Store(Error::Poisoned { .. }) => "poisoned",
        WriteError::Store(Error::Io { .. }) => "io",
        WriteError::Store(Error::ReplayFailed { .. }) => "replay",
        _ => "other",
    }
}
