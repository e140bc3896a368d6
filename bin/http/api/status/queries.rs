//! /api/v1/status/queries: lists the active requests for data, and kills one.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::http::api::admin::audit;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::response::success;
use crate::server::active_requests::{ActiveRequest, RequestClass};
use crate::server::app::App;
use crate::server::request_context::{RequestContext, truncate};

/// Bytes of a query that are listed.
const LISTED_SIZE_MAX: usize = 16 << 10;

/// GET /api/v1/status/queries: the oldest first.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let all = app.active_requests.list();
    let requests = all.iter().filter(|request| request.class != RequestClass::Write).map(|request| describe(request));
    success(&requests.collect::<Vec<Value>>())
}

/// DELETE /api/v1/status/queries/{id}: 204 once the request is interrupted.
pub(crate) async fn kill(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    if !app.settings.args.enable_admin_api {
        return Err(ApiError::unavailable("admin APIs disabled"));
    }
    let id = id.parse().map_err(|_| ApiError::invalid_parameter("id", "must be a number"))?;
    if !app.active_requests.kill(id) {
        return Err(ApiError::new(ErrorKind::NotFound, format!("no active request has the id {id}")));
    }
    audit(&RequestContext::current(), None);
    Ok(StatusCode::NO_CONTENT)
}

fn describe(request: &ActiveRequest) -> Value {
    let ActiveRequest { context, class, ctx, .. } = request;
    let parameters = context.parameters();
    json!({
        "id": context.id,
        "class": class.name(),
        "stage": request.stage().name(),
        "method": context.method.as_str(),
        "path": context.route,
        "query": truncate(&parameters.text, LISTED_SIZE_MAX),
        "start": truncate(&parameters.start, LISTED_SIZE_MAX),
        "end": truncate(&parameters.end, LISTED_SIZE_MAX),
        "step": truncate(&parameters.step, LISTED_SIZE_MAX),
        "startedAt": format!("{:.3}", context.started),
        "ageSeconds": request.age().as_secs_f64(),
        "queuedSeconds": request.queued().as_secs_f64(),
        "client": context.client.map(|client| client.to_string()).unwrap_or_default(),
        "userAgent": context.user_agent,
        "user": &*context.user,
        "memoryBytes": ctx.memory().used(),
        "memoryPeakBytes": ctx.memory().peak(),
        "series": ctx.n_series(),
        "samples": ctx.n_samples(),
    })
}
