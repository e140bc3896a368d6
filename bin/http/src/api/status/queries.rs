//! The active requests for data, and the queries that the breaker rejects.
//!
//! /api/v1/status/queries lists active requests and kills one. /api/v1/status/rejected_queries
//! lists the queries that exceeded a memory limit.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use varve_server::queries::query_breaker::FailedQuery;
use varve_server::requests::record::{Active, RequestClass, RequestRecord};
use varve_system::excerpt::truncate;

use crate::api::admin::request::{audit, check_enabled};
use crate::error::{ApiError, ErrorKind, Result};
use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

/// Bytes of a query that are listed.
const LISTED_SIZE_MAX: usize = 16 << 10;

/// GET /api/v1/status/queries: the oldest first.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let mut listed: Vec<Value> = Vec::new();
    for request in app.requests.active.list() {
        if let Some(active) = request.active()
            && active.class != RequestClass::Write.into()
        {
            listed.push(describe(&request, active));
        }
    }
    success(&listed)
}

/// DELETE /api/v1/status/queries/{id}: 204 once the request is interrupted.
pub(crate) async fn kill(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    Path(id): Path<String>,
) -> Result<StatusCode> {
    check_enabled(&app)?;
    let id = id
        .parse()
        .map_err(|_| ApiError::invalid_parameter("id", "must be a number"))?;
    if !app.requests.active.kill(id) {
        return Err(ApiError::new(
            ErrorKind::NotFound,
            format!("no active request has the id {id}"),
        ));
    }
    audit(&record, None);
    Ok(StatusCode::NO_CONTENT)
}

schema! {
    /// A query that exceeded a memory limit the last time it was evaluated.
    pub(crate) struct RejectedQuery {
        query: String,
        user: String,
        /// The error of the last failure.
        error: String,
        /// Failures in a row.
        failures: u64,
        /// Requests rejected without evaluation.
        rejected: u64,
        /// Seconds for which the query is rejected; 0 while it is evaluated.
        rejected_for_seconds: f64,
    }
}

/// GET /api/v1/status/rejected_queries: the last failure first.
pub(crate) async fn list_rejected(State(app): State<Arc<App>>) -> Response {
    let all = app.requests.query_breaker.list(Instant::now()).into_iter();
    let all = all.map(
        |(
            FailedQuery {
                query,
                user,
                error,
                n_failures,
                n_rejected,
                ..
            },
            left,
        )| RejectedQuery {
            query,
            user: user.to_string(),
            error,
            failures: n_failures.into(),
            rejected: n_rejected,
            rejected_for_seconds: left.unwrap_or_default().as_secs_f64(),
        },
    );
    success(&all.collect::<Vec<_>>())
}

/// POST /api/v1/admin/rejected_queries/reset: evaluates all of them again. Responds with 204.
pub(crate) async fn reset_rejected(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
) -> Result<StatusCode> {
    check_enabled(&app)?;
    app.requests.query_breaker.reset();
    audit(&record, None);
    Ok(StatusCode::NO_CONTENT)
}

fn describe(request: &RequestRecord, active: &Active) -> Value {
    let parameters = request.parameters();
    let ctx = &active.ctx;
    let mut described = json!({
        "id": request.id,
        "class": active.class.name(),
        "stage": active.state().name(),
        "method": request.method,
        "path": request.route,
        "query": truncate(&parameters.text, LISTED_SIZE_MAX),
        "start": truncate(&parameters.start, LISTED_SIZE_MAX),
        "end": truncate(&parameters.end, LISTED_SIZE_MAX),
        "step": truncate(&parameters.step, LISTED_SIZE_MAX),
        "startedAt": format!("{:.3}", request.started),
        "ageSeconds": active.age().as_secs_f64(),
        "queuedSeconds": active.queued().as_secs_f64(),
        "client": request.client.map(|client| client.to_string()).unwrap_or_default(),
        "memoryBytes": ctx.memory().used(),
        "memoryPeakBytes": ctx.memory().peak(),
        "series": ctx.n_series(),
        "samples": ctx.n_samples(),
    });
    for (name, text) in request.requester().fields() {
        described[name] = text.into();
    }
    if let Some(rule) = &request.rule {
        described["ruleGroup"] = rule.group.as_str().into();
    }
    described
}
