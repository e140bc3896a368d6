//! An administrative request: whether it is enabled, where it runs, and its log message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use varve_server::requests::record::RequestRecord;
use varve_server::store::Store;
use varve_system::excerpt::truncate;

use crate::error::{ApiError, ErrorKind, Result};
use crate::serving::app::App;
use crate::serving::log_limiter::LogLimiter;

/// Log rate limiter of failed requests: a client may repeat them without an effect.
static FAILURE_LOG: LogLimiter = LogLimiter::new();

/// Bytes of the parameters of a request in a log message.
const LOGGED_SIZE_MAX: usize = 1_000;

/// Runs `job` on a blocking thread, to its end in any case.
pub(super) async fn run(
    app: &App,
    record: Arc<RequestRecord>,
    job: impl FnOnce(&Store) -> Result + Send + 'static,
) -> Result {
    check_enabled(app)?;
    let store = app.store().ok_or_else(ApiError::stopping)?;
    let ended = tokio::task::spawn_blocking(move || {
        let result = job(&store);
        audit(&record, result.as_ref().err().map(|error| &*error.message));
        result
    });
    ended.await.map_err(ApiError::internal)?
}

/// Returns an error unless `--web.enable-admin-api` is set.
pub(crate) fn check_enabled(app: &App) -> Result<()> {
    if app.settings.web.is_admin_enabled {
        Ok(())
    } else {
        Err(ApiError::new(ErrorKind::Disabled, "admin APIs disabled"))
    }
}

/// Logs an administrative request: its sender, its parameters and its outcome. Logs all successful
/// requests.
pub(crate) fn audit(record: &RequestRecord, failure: Option<&str>) {
    let admitted = failure.map(|_| FAILURE_LOG.admit("administrative request", Instant::now()));
    if admitted == Some(None) {
        return;
    }
    let n_suppressed = admitted.flatten();
    let RequestRecord {
        method,
        route,
        client,
        user,
        user_agent,
        ..
    } = record;
    let client = client.map(|client| client.to_string());
    let parameters = record.parameters();
    let what = known(truncate(&parameters.text, LOGGED_SIZE_MAX));
    let start = known(&parameters.start);
    let end = known(&parameters.end);
    let user = known(user);
    let duration = Duration::try_from(jiff::Timestamp::now() - record.started).unwrap_or_default();
    let result = failure.unwrap_or("success");
    tracing::info!(
        %method, path = route, what, start, end, client, user, user_agent, ?duration, result, n_suppressed,
        "Administrative request"
    );
}

/// Returns `None` for an empty field, which is not logged.
fn known(field: &str) -> Option<&str> {
    Some(field).filter(|field| !field.is_empty())
}

/// Returns a successful response without a body.
pub(super) fn no_content() -> Result {
    Ok(StatusCode::NO_CONTENT.into_response())
}
