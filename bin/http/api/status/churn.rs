//! /api/v1/status/churn: which labels created the new series of an hour.

use axum::extract::State;
use axum::response::Response;
use varve_tsdb::fs::{Clock, SystemClock};

use crate::http::error::ApiError;
use crate::http::params::Form;
use crate::http::serving::run::{RequestClass, run};
use crate::http::serving::state::HttpState;
use crate::server::churn;

/// GET /api/v1/status/churn: the hour before `time`, which is now by default.
pub(crate) async fn status(State(state): State<HttpState>, form: Form) -> Result<Response, ApiError> {
    let (time_ms, timeout) = (form.optional_time_ms("time")?, form.timeout()?);
    let limit = form.limit()?.unwrap_or(usize::MAX);
    let time_ms = time_ms.unwrap_or_else(|| SystemClock.now_ms());
    run(&state, RequestClass::Query, timeout, move |work| {
        let mut found = churn::find(&work.store.db, &work.ctx, time_ms, churn::RANGE_MS)?;
        found.labels.truncate(limit);
        found.metrics.truncate(limit);
        work.respond_json(&found)
    })
    .await
}
