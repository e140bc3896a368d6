//! /api/v1/status/queries: the requests for data that are there, and ending one. Varve's own.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::runtime::success;
use crate::http::App;
use crate::http::error::{ApiError, ErrorKind};
use crate::server::active_requests::{Class, Request};
use crate::server::request_context::cut;

/// Bytes of a query that are listed.
const LISTED_SIZE_MAX: usize = 16 << 10;

/// GET /api/v1/status/queries: the oldest first.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let all = app.running.list();
    let requests = all.iter().filter(|request| request.class != Class::Write).map(|request| describe(request));
    success(&requests.collect::<Vec<Value>>())
}

/// DELETE /api/v1/status/queries/{id}: 204 once the request has been told to end.
pub(crate) async fn kill(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    if !app.settings.admin_api {
        return ApiError::unavailable("admin APIs disabled").into_response();
    }
    match id.parse() {
        Ok(id) if app.running.kill(id) => {
            tracing::warn!(id, "Request ended by an operator");
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(id) => ApiError::new(ErrorKind::NotFound, format!("no request {id} is running")).into_response(),
        Err(_) => ApiError::invalid_parameter("id", "must be a number").into_response(),
    }
}

fn describe(request: &Request) -> Value {
    let Request { call, class, ctx, .. } = request;
    let asked = call.asked();
    json!({
        "id": call.id,
        "class": class.name(),
        "stage": request.stage().name(),
        "method": call.method.as_str(),
        "path": call.route,
        "query": cut(&asked.text, LISTED_SIZE_MAX),
        "start": cut(&asked.start, LISTED_SIZE_MAX),
        "end": cut(&asked.end, LISTED_SIZE_MAX),
        "step": cut(&asked.step, LISTED_SIZE_MAX),
        "startedAt": format!("{:.3}", call.started),
        "ageSeconds": request.age().as_secs_f64(),
        "waitedSeconds": request.waited().as_secs_f64(),
        "client": call.client.map(|client| client.to_string()).unwrap_or_default(),
        "userAgent": call.user_agent,
        "user": &*call.user,
        "memoryBytes": ctx.memory().used(),
        "memoryPeakBytes": ctx.memory().peak(),
        "series": ctx.n_series(),
        "samples": ctx.n_samples(),
    })
}
