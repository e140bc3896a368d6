//! /-/reload and /-/quit, enabled by `--web.enable-lifecycle`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_server::requests::record::RequestRecord;

use super::request::audit;
use crate::error::{ApiError, Result};
use crate::serving::app::App;

/// POST and PUT /-/reload.
pub(crate) async fn reload(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    method: Method,
) -> Result {
    if let Some(rejected) = reject(&app, &method) {
        return Ok(rejected);
    }
    let failure = match tokio::task::spawn_blocking(move || app.reloader.reload()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panicked) => Some(panicked.to_string()),
    };
    let failure = failure.map(|reason| format!("failed to reload config: {reason}"));
    let failure = failure.map(|reason| ApiError::internal(reason).plain());
    audit(&record, failure.as_ref().map(|error| &*error.message));
    match failure {
        None => Ok(StatusCode::OK.into_response()),
        Some(error) => Err(error),
    }
}

/// POST and PUT /-/quit.
pub(crate) async fn quit(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    method: Method,
) -> Response {
    reject(&app, &method).unwrap_or_else(|| {
        let is_first = app.quit.request();
        audit(&record, None);
        let message = if is_first {
            "Requesting termination... Goodbye!"
        } else {
            "Termination already in progress."
        };
        text(StatusCode::OK, message)
    })
}

fn reject(app: &App, method: &Method) -> Option<Response> {
    if *method == Method::GET {
        return Some(text(
            StatusCode::METHOD_NOT_ALLOWED,
            "Only POST or PUT requests allowed",
        ));
    }
    if !app.settings.web.is_lifecycle_enabled {
        return Some(text(StatusCode::FORBIDDEN, "Lifecycle API is not enabled."));
    }
    None
}

fn text(status: StatusCode, text: &'static str) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        text,
    )
        .into_response()
}
