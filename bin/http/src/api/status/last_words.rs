//! /api/v1/status/last_words: the requests that were active when the previous process ended.

use std::sync::Arc;

use axum::extract::State as Extracted;
use varve_wire::active_requests::{self, Record};
use varve_wire::schema;

use crate::error::{ApiError, Result};
use crate::response::success;
use crate::serving::app::App;

schema! {
    /// The end of the previous process.
    pub(crate) struct LastWords {
        /// The previous process. Null after the first start.
        process: Option<PreviousProcess>,
    }
}

schema! {
    /// The previous process on the data directory.
    pub(crate) struct PreviousProcess {
        pid: u64,
        /// When it started, in milliseconds since the epoch.
        started_ms: i64,
        /// Whether it shut down. Otherwise it was killed, or it crashed.
        is_clean_shutdown: bool,
        /// Records that cannot be read.
        damaged_records: u64,
        /// Requests that had not ended, the one with the most memory first.
        requests: Vec<UnfinishedRequest>,
    }
}

schema! {
    /// A request that had not ended.
    pub(crate) struct UnfinishedRequest {
        /// `waiting` or `working`.
        stage: String,
        started_ms: i64,
        /// When it was recorded for the last time, in milliseconds since the epoch.
        recorded_ms: i64,
        memory_bytes: u64,
        memory_peak_bytes: u64,
        series: u64,
        samples: u64,
        path: String,
        /// The query or selectors, truncated.
        query: String,
        client: String,
        user: String,
        user_agent: String,
        /// The dashboard, panel, alert rule and user that Grafana named.
        dashboard: String,
        panel: String,
        grafana_rule: String,
        grafana_user: String,
    }
}

/// GET /api/v1/status/last_words.
pub(crate) async fn status(Extracted(app): Extracted<Arc<App>>) -> Result {
    let read = tokio::task::spawn_blocking(move || read(&app))
        .await
        .map_err(ApiError::internal)?;
    Ok(success(&LastWords { process: read? }))
}

fn read(app: &App) -> Result<Option<PreviousProcess>> {
    let path = app.settings.data_dir.join(active_requests::PREVIOUS_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let found =
        active_requests::read(&path).map_err(|error| ApiError::internal(format!("{error:#}")))?;
    Ok(Some(PreviousProcess {
        pid: found.pid.into(),
        started_ms: found.started_ms,
        is_clean_shutdown: found.is_clean_shutdown,
        damaged_records: found.n_damaged as u64,
        requests: found
            .active()
            .into_iter()
            .map(UnfinishedRequest::of)
            .collect(),
    }))
}

impl UnfinishedRequest {
    fn of(record: &Record) -> Self {
        Self {
            stage: record.state.name().to_owned(),
            started_ms: record.started_ms,
            recorded_ms: record.recorded_ms,
            memory_bytes: record.held_bytes,
            memory_peak_bytes: record.peak_bytes,
            series: record.n_series,
            samples: record.n_samples,
            path: record.route.clone(),
            query: record.text.clone(),
            client: record.client.clone(),
            user: record.user.clone(),
            user_agent: record.user_agent.clone(),
            dashboard: record.grafana.dashboard.clone(),
            panel: record.grafana.panel.clone(),
            grafana_rule: record.grafana.rule.clone(),
            grafana_user: record.grafana.user.clone(),
        }
    }
}
