//! The steps that all write endpoints share: reading the body, admission, the blocking thread, the
//! response.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use varve_config::flags::QueueTimeoutStatus;
use varve_context::Charge;
use varve_env::{Clock, SystemClock};
use varve_ingest::admission::Origin;
use varve_ingest::{Receiver, WriteError, Written};
use varve_server::requests::active::Registration;
use varve_server::requests::life::RequestFailure;
use varve_server::requests::record::{RequestClass, RequestRecord};
use varve_server::requests::tenant::User;

use super::team::named_team;
use crate::error::{ApiError, ErrorKind, Result};
use crate::requester::record_of;
use crate::serving::app::App;
use crate::serving::log_limiter::LogLimiter;
use crate::serving::request_body::{BodyError, BodyLimits, read};
use crate::serving::state::HttpState;

/// Maximum time that a write request waits for a permit. Its sender times out at about this age.
const QUEUE_TIME_MAX: Duration = Duration::from_secs(30);

/// Log rate limiter of failed writes: many writes fail at once, for example while the disk is full.
static FAILURE_LOG: LogLimiter = LogLimiter::new();

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
    let record = record_of(request.extensions())?;
    let queue_timeout_status = state.app.settings.write.queue_timeout_status;
    let team = named_team(request.headers());
    let user = request.extensions().get::<User>().cloned();

    let app = Arc::clone(&state.app);
    let mut charge = app.requests.memory_of_write(&record).charge();
    let body = read_body(&app, &record, request.into_body(), &mut charge).await?;

    let ctx = app.requests.write_context(&record, QUEUE_TIME_MAX);
    let registration = app.requests.start(&record, RequestClass::Write, &ctx);
    let permit = state
        .admit(&record, RequestClass::Write, &ctx)
        .await
        .map_err(|rejected| rejected.rejected_write(queue_timeout_status).plain())?;
    let store = app.store().ok_or_else(|| ApiError::stopping().plain())?;

    // Runs to its end even if the sender disconnects: the sender would retry a half-stored request.
    let written = tokio::task::spawn_blocking(move || {
        let permit = RefCell::new(permit);
        // A request that waits releases its permit to requests that can run.
        let release = || permit.borrow_mut().release();
        let origin = Origin {
            team: team.as_deref(),
            added_label: None,
            user: user.as_ref().map(|user| &*user.name),
            labels: record.tenant.as_ref().map_or(&[], |tenant| &tenant.labels),
            on_queued: Some(&release),
        };
        let written = store_body(&app, registration, || work(&store.receiver, &origin, &body));
        // The body stays charged until the request has ended.
        drop(charge);
        written
    });
    match written.await {
        Ok(written) => written.map_err(|error| write_error(&error, queue_timeout_status)),
        Err(_panic_is_logged) => {
            state.app.metrics.panics.inc();
            Err(ApiError::panicked().plain())
        }
    }
}

/// Reads the body of a write request. A body that cannot be read is listed as rejected.
async fn read_body(
    app: &App,
    record: &RequestRecord,
    body: Body,
    charge: &mut Charge,
) -> Result<Vec<u8>> {
    let limits = BodyLimits::new(
        app.settings.write.body_size_max,
        "--ingest.body-size-max",
        &app.settings,
    );
    read(body, limits, charge).await.map_err(|error| {
        app.rejections
            .add_request(record.sender(), rejection_label(&error), error.to_string());
        body_error(error)
    })
}

/// Runs `work`, which stores the body of an admitted request. Passes the outcome to the rejection
/// log, the rules and the sender statistics, and ends the request.
fn store_body(
    app: &App,
    registration: Registration,
    work: impl FnOnce() -> Result<Written, WriteError>,
) -> Result<Written, WriteError> {
    let record = Arc::clone(registration.request());
    registration.begin();
    if let Some(trace) = record.trace() {
        trace.add_part("queue", record.queued());
    }

    let part = record.part("store");
    let written = work();
    drop(part);

    app.rejections.add(|| record.sender(), &written);
    if let Ok(written) = &written {
        app.rules.note_progress(&record, written);
    }
    app.senders
        .add(SystemClock.now_ms(), record.sender(), &written);

    let reason = written.as_ref().err().map(ToString::to_string);
    let failure = reason.as_deref().map(|reason| RequestFailure {
        reason,
        is_memory_limit: false,
        is_malformed: false,
    });
    app.requests.end(registration, failure);
    written
}

/// Responds to a write that was stored, at least in part.
///
/// # Errors
/// 400 with the rejected samples and the reasons.
pub(super) fn respond(written: &Written, success: StatusCode) -> Result {
    if written.rejections.is_empty() {
        Ok(success.into_response())
    } else {
        Err(ApiError::bad_data(written.rejections.to_string()).plain())
    }
}

/// Returns the reason under which an unreadable body is listed.
fn rejection_label(error: &BodyError) -> &'static str {
    match error {
        BodyError::TooLarge { .. } => "too_large",
        BodyError::Broken(_) => "body_broken",
        BodyError::Slow { .. } => "body_slow",
        BodyError::Memory(_) => "busy",
    }
}

fn body_error(error: BodyError) -> ApiError {
    let error = ApiError::from(error).plain();
    // Not 408: senders drop a request after a 4xx, and the next attempt may be in time.
    let kind = if error.kind == ErrorKind::SlowRequest {
        ErrorKind::Unavailable
    } else {
        error.kind
    };
    ApiError { kind, ..error }
}

fn write_error(error: &WriteError, queue_timeout_status: QueueTimeoutStatus) -> ApiError {
    let failed = ApiError::of_write(error, queue_timeout_status).plain();
    if failed.kind.is_retryable()
        && let Some(n_suppressed) = FAILURE_LOG.admit(log_kind(error.cause()), Instant::now())
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
        WriteError::NoLeaderYet { .. } => "no_leader_yet",
        WriteError::Store(Error::Limit { what, .. }) => what.name(),
        WriteError::Store(Error::Poisoned { .. }) => "poisoned",
        WriteError::Store(Error::Io { .. }) => "io",
        WriteError::Store(Error::ReplayFailed { .. }) => "replay",
        _ => "other",
    }
}
