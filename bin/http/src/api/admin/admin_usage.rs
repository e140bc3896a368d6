//! /api/v1/admin/usage/forget: empties the usage record.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_env::{Clock, SystemClock};
use varve_server::requests::record::RequestRecord;
use varve_wire::schema;

use super::request::run;
use crate::error::{ApiError, Result};
use crate::response::success;
use crate::serving::app::App;

schema! {
    /// What was forgotten.
    pub(crate) struct Forgotten {
        /// Number of metrics and selectors that the record had.
        forgotten: u64,
    }
}

/// Empties the record, which begins again now.
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
) -> Result {
    run(&app, record, move |store| {
        let forgotten = store
            .usage
            .forget(SystemClock.now_ms())
            .map_err(ApiError::internal)?;
        Ok(success(&Forgotten { forgotten }))
    })
    .await
}
