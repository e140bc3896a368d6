//! /api/v1/status/churn: which labels created the new series of an hour.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_advise::churn;
use varve_env::{Clock, SystemClock};
use varve_server::requests::record::RequestRecord;

use crate::error::Result;
use crate::params::Form;
use crate::serving::run::{RequestClass, job_fn, run};
use crate::serving::state::HttpState;
use varve_wire::api::churn::ChurnReport;

/// GET /api/v1/status/churn: the hour before `time`, which is now by default.
pub(crate) async fn status(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let time_ms = form.optional_time_ms("time")?;
    let timeout = form.timeout()?;
    let limit = form.limit()?.unwrap_or(usize::MAX);
    let time_ms = time_ms.unwrap_or_else(|| SystemClock.now_ms());
    let team_label = state.app.config.current().ingest.team_label().to_owned();
    let job = job_fn(move |work| {
        let mut kept = work.ctx.charge();
        let db = &work.store.db;
        let mut found = churn::find(
            db,
            &work.ctx,
            time_ms,
            churn::RANGE_MS,
            &team_label,
            &mut kept,
        )?;
        found.labels.truncate(limit);
        found.metrics.truncate(limit);
        found.teams.truncate(limit);
        work.respond_json(&ChurnReport::of(found))
    });
    run(&state, &record, RequestClass::Query, timeout, job).await
}
