//! /-/healthy, /-/ready and /metrics: for probes and scrapers, which need no parameters and get plain text.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{App, plain};
use crate::metrics;

/// GET /-/healthy: the process is alive, whatever it does.
pub(super) async fn healthy() -> Response {
    plain(StatusCode::OK, "Varve is Healthy.\n")
}

/// GET /-/ready: the store is open. Until then the route's layer answers 503.
pub(super) async fn ready() -> Response {
    plain(StatusCode::OK, "Varve is Ready.\n")
}

/// GET /metrics.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let printed = tokio::task::spawn_blocking(move || metrics::print(&app.gather()));
    match printed.await.map_err(|panicked| panicked.to_string()).and_then(|text| text.map_err(|e| e.to_string())) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::TEXT_FORMAT)], text).into_response(),
        Err(reason) => plain(StatusCode::INTERNAL_SERVER_ERROR, reason),
    }
}
