//! /-/healthy, /-/ready and /metrics: for probes and scrapers, which need no parameters and get plain text.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_tsdb::ReplayState;

use crate::http::params::Form;
use crate::http::{App, plain};
use crate::server::metrics;

/// GET and HEAD /-/healthy: the process is alive, whatever it does.
pub(crate) async fn healthy(method: Method) -> Response {
    if method == Method::HEAD {
        return StatusCode::OK.into_response();
    }
    plain(StatusCode::OK, "Varve is Healthy.\n")
}

/// GET and HEAD /-/ready: the store is open. Until then the route's layer answers 503. A store that takes no writes still answers
/// queries: that is said in the body, and with 503 to who asks `?for=write`. So is how far the replay of the log is.
pub(crate) async fn ready(State(app): State<Arc<App>>, method: Method, form: Form) -> Response {
    let answer = tell_ready(&app, &form);
    if method == Method::HEAD { answer.status().into_response() } else { answer }
}

fn tell_ready(app: &App, form: &Form) -> Response {
    let Some(store) = app.store() else { return plain(StatusCode::OK, "Varve is Ready.\n") };
    let (refusals, replay) = (store.db.write_refusals(), store.db.replay_status());
    let replaying = match replay.state {
        ReplayState::Running => format!("The log is being replayed: {}.\n", replay.text),
        ReplayState::Done | ReplayState::Failed(_) => String::new(),
    };
    if refusals.is_empty() {
        return plain(StatusCode::OK, format!("Varve is Ready.\n{replaying}"));
    }
    let status = if form.first("for") == "write" { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    plain(status, format!("Varve is Ready for queries, not for writes.\n{replaying}{}\n", refusals.join("\n")))
}

/// GET /metrics.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let printed = tokio::task::spawn_blocking(move || metrics::print(&app.gather()));
    match printed.await.map_err(|panicked| panicked.to_string()).and_then(|text| text.map_err(|e| e.to_string())) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::TEXT_FORMAT)], text).into_response(),
        Err(reason) => plain(StatusCode::INTERNAL_SERVER_ERROR, reason),
    }
}
