//! /api/v1/status/*: what is running, and how.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::{Value, json};
use varve_tsdb::ReplayState;

use super::App;
use super::json::MIME_TYPE;
use crate::machine;

/// The Prometheus whose API this is: clients such as Grafana tell by it what they may call.
const PROMETHEUS_VERSION: &str = "3.14.0";

/// GET /api/v1/status/buildinfo.
pub(super) async fn buildinfo() -> Response {
    success(&json!({
        "version": PROMETHEUS_VERSION,
        "revision": concat!("varve-", env!("CARGO_PKG_VERSION")),
        "branch": "varve",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    }))
}

/// GET /api/v1/status/flags.
pub(super) async fn flags(State(app): State<Arc<App>>) -> Response {
    success(&json!(app.settings.flags))
}

/// GET /api/v1/status/runtimeinfo. What only Go has is zero or empty.
pub(super) async fn runtimeinfo(State(app): State<Arc<App>>) -> Response {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    success(&json!({
        "startTime": app.started.to_string(),
        "CWD": std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default(),
        "hostname": hostname.trim_end(),
        "serverTime": Timestamp::now().to_string(),
        "reloadConfigSuccess": true,
        "lastConfigTime": format!("{:.0}", app.started),
        "corruptionCount": 0,
        "goroutineCount": 0,
        "GOMAXPROCS": machine::cores(),
        "GOMEMLIMIT": 0,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": "",
    }))
}

/// GET /api/v1/status/walreplay. Files of the log, as Prometheus counts segments: it answers while the log is replayed, and
/// from before the store is open. `state` is ours.
pub(super) async fn walreplay(State(app): State<Arc<App>>) -> Response {
    let replay = app.store().map(|store| store.db.replay_status());
    let state = match replay.as_ref().map(|replay| &replay.state) {
        None => "starting",
        Some(ReplayState::Running) => "running",
        Some(ReplayState::Done) => "done",
        Some(ReplayState::Failed(_)) => "failed",
    };
    let (current, max) = replay.map_or((0, 0), |replay| (replay.n_files, replay.n_files_total));
    success(&json!({ "min": 0, "max": max, "current": current, "state": state }))
}

fn success(data: &Value) -> Response {
    ([(header::CONTENT_TYPE, MIME_TYPE)], format!("{{\"status\":\"success\",\"data\":{data}}}")).into_response()
}
