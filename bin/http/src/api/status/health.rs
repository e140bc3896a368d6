//! /-/healthy, /-/ready and /metrics: plain text for probes and scrapers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use varve_server::metrics;
use varve_tsdb::stats::ReplayState;

use crate::error::{ApiError, Result};
use crate::params::Form;
use crate::response::plain;
use crate::serving::app::App;

/// GET and HEAD /-/healthy: the process is alive.
pub(crate) async fn healthy(method: Method) -> Response {
    if method == Method::HEAD {
        return StatusCode::OK.into_response();
    }
    plain(StatusCode::OK, "Varve is Healthy.\n")
}

/// GET and HEAD /-/ready: the store is open. Until then the route's layer responds with 503. A
/// store that accepts no writes still serves queries. In this case the body says so, and
/// `?for=write` gets 503. The body also has the progress of WAL replay.
pub(crate) async fn ready(
    State(app): State<Arc<App>>,
    method: Method,
    form: Form,
) -> Result<Response> {
    let is_for_write = form.first("for") == "write";
    let response = if is_for_write {
        // Writes a file.
        let probed = tokio::task::spawn_blocking(move || readiness(&app, is_for_write)).await;
        probed.map_err(|panicked| ApiError::internal(panicked).plain())?
    } else {
        readiness(&app, is_for_write)
    };
    if method == Method::HEAD {
        Ok(response.status().into_response())
    } else {
        Ok(response)
    }
}

fn readiness(app: &App, is_for_write: bool) -> Response {
    let Some(store) = app.store() else {
        return plain(StatusCode::OK, "Varve is Ready.\n");
    };
    let refusals = if is_for_write {
        store.db.write_refusals_now()
    } else {
        store.db.write_refusals()
    };
    let replay = store.db.replay_status();
    let replaying = match replay.state {
        ReplayState::Running => format!("The log is being replayed: {}.\n", replay.text),
        ReplayState::Done | ReplayState::Failed(_) => String::new(),
    };
    if refusals.is_empty() {
        return plain(StatusCode::OK, format!("Varve is Ready.\n{replaying}"));
    }
    let status = if is_for_write {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    plain(
        status,
        format!(
            "Varve is Ready for queries, not for writes.\n{replaying}{}\n",
            refusals.join("\n")
        ),
    )
}

/// Maximum number of responses of /metrics that are printed at the same time: each takes some
/// kilobytes per team and rule.
const PRINTED_MAX: usize = 2;
static PRINTING: Semaphore = Semaphore::const_new(PRINTED_MAX);

/// GET /metrics.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Result {
    let _permit = PRINTING.acquire().await;
    let printed = tokio::task::spawn_blocking(move || metrics::print(&app.registry.gather())).await;
    let text = printed.map_err(|panicked| ApiError::internal(panicked).plain())?;
    let text = text.map_err(|error| ApiError::internal(error).plain())?;
    Ok(([(header::CONTENT_TYPE, metrics::TEXT_FORMAT)], text).into_response())
}
