//! /-/reload and /-/quit, enabled by `--web.enable-lifecycle`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_server::requests::record::RequestRecord;

use super::audit;
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
    let failed =
        |reason: String| ApiError::internal(format!("failed to reload config: {reason}")).plain();
    let reloaded = tokio::task::spawn_blocking(move || app.reloader.reload()).await;
    let reloaded = reloaded.map_err(|panicked| failed(panicked.to_string()));
    let reloaded =
        reloaded.and_then(|reloaded| reloaded.map_err(|error| failed(format!("{error:#}"))));
    audit(
        &record,
        reloaded.as_ref().err().map(|error| &*error.message),
    );
    reloaded?;
    Ok(StatusCode::OK.into_response())
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
    (!app.settings.web.is_lifecycle_enabled)
        .then(|| text(StatusCode::FORBIDDEN, "Lifecycle API is not enabled."))
}

fn text(status: StatusCode, text: &'static str) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        text,
    )
        .into_response()
}
