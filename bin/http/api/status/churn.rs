//! /api/v1/status/churn: which labels made the new series of the last hour.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use varve_tsdb::{Clock, SystemClock};

use crate::http::App;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::params::Form;
use crate::http::serving::run::{Class, run};
use crate::server::churn;

/// GET /api/v1/status/churn: of the hour before `time`, which is now unless it is given.
pub(crate) async fn status(State(app): State<Arc<App>>, form: Form) -> Response {
    let read = form.optional_time_ms("time").and_then(|time_ms| Ok((time_ms, form.timeout()?)));
    let (time_ms, timeout) = match read {
        Ok(read) => read,
        Err(refused) => return refused.into_response(),
    };
    let time_ms = time_ms.unwrap_or_else(|| SystemClock.now_ms());
    run(&app, Class::Query, timeout, move |work| {
        let found = churn::find(&work.store.db, &work.ctx, time_ms, churn::RANGE_MS)?;
        work.open();
        serde_json::to_writer(work.out.buffer(), &found)
            .map_err(|refused| ApiError::new(ErrorKind::Internal, refused.to_string()))?;
        work.close(&[], &[])
    })
    .await
}
