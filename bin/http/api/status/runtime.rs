//! /api/v1/status/*: what is running, and how.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use varve_tsdb::ReplayState;

use crate::http::App;
use crate::http::json::MIME_TYPE;
use crate::http::openapi::described;
use crate::machine;

/// The Prometheus whose API this is: clients such as Grafana tell by it what they may call.
const PROMETHEUS_VERSION: &str = "3.14.0";

/// Says how the replay goes: `starting`, `running`, `done`, `failed`. Prometheus' answer has no place for it.
const REPLAY_STATE: HeaderName = HeaderName::from_static("x-varve-replay-state");

described! {
    /// Which API this is, and whose.
    pub(crate) struct BuildInfo {
        /// The version of Prometheus whose API this is.
        version: String,
        /// `varve-` and Varve's version.
        revision: String,
        branch: String,
        build_user: String,
        build_date: String,
        go_version: String,
    }
}

/// GET /api/v1/status/buildinfo.
pub(crate) async fn buildinfo() -> Response {
    success(&BuildInfo::of_this())
}

/// GET /version: likewise, without an envelope; a text, as Prometheus has it.
pub(crate) async fn version() -> Response {
    let text = serde_json::to_string(&BuildInfo::of_this()).expect("texts are JSON");
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{text}\n")).into_response()
}

impl BuildInfo {
    fn of_this() -> Self {
        Self {
            version: PROMETHEUS_VERSION.to_owned(),
            revision: concat!("varve-", env!("CARGO_PKG_VERSION")).to_owned(),
            branch: "varve".to_owned(),
            build_user: String::new(),
            build_date: String::new(),
            go_version: String::new(),
        }
    }
}

/// GET /api/v1/status/flags.
pub(crate) async fn flags(State(app): State<Arc<App>>) -> Response {
    success::<BTreeMap<_, _>>(&app.settings.flags)
}

described! {
    /// The configuration.
    pub(crate) struct ConfigText {
        /// What is in force, defaults included.
        yaml: String,
    }
}

/// GET /api/v1/status/config.
pub(crate) async fn config(State(app): State<Arc<App>>) -> Response {
    success(&ConfigText { yaml: app.config.current().to_yaml() })
}

described! {
    /// How the server runs; what only Go has is zero or empty.
    pub(crate) struct RuntimeInfo {
        start_time: String,
        working_dir = "CWD": String,
        hostname: String,
        server_time: String,
        /// Whether the configuration was read without an error the last time.
        reload_config_success: bool,
        /// When it was read without an error for the last time.
        last_config_time: String,
        corruption_count: u64,
        goroutine_count: u64,
        /// Cores that the process may use.
        cores = "GOMAXPROCS": u64,
        memory_limit = "GOMEMLIMIT": u64,
        gc_percent = "GOGC": String,
        debug = "GODEBUG": String,
        /// How long samples are kept, and how many bytes of them.
        storage_retention: String,
    }
}

/// GET /api/v1/status/runtimeinfo.
pub(crate) async fn runtimeinfo(State(app): State<Arc<App>>) -> Response {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let config = app.config.status();
    success(&RuntimeInfo {
        start_time: app.started.to_string(),
        working_dir: std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default(),
        hostname: hostname.trim_end().to_owned(),
        server_time: Timestamp::now().to_string(),
        reload_config_success: config.is_success,
        last_config_time: format!("{:.0}", config.last_success),
        corruption_count: 0,
        goroutine_count: 0,
        cores: machine::cores() as u64,
        memory_limit: 0,
        gc_percent: String::new(),
        debug: String::new(),
        storage_retention: app.settings.retention.clone(),
    })
}

described! {
    /// How far the replay of the log is, in files.
    pub(crate) struct WalReplay {
        min: u64,
        max: u64,
        current: u64,
    }
}

/// GET /api/v1/status/walreplay. Files of the log, as Prometheus counts segments: it answers while the log is replayed, and
/// from before the store is open.
pub(crate) async fn walreplay(State(app): State<Arc<App>>) -> Response {
    let replay = app.store().map(|store| store.db.replay_status());
    let state = match replay.as_ref().map(|replay| &replay.state) {
        None => "starting",
        Some(ReplayState::Running) => "running",
        Some(ReplayState::Done) => "done",
        Some(ReplayState::Failed(_)) => "failed",
    };
    let (current, max) = replay.map_or((0, 0), |replay| (replay.n_files, replay.n_files_total));
    ([(REPLAY_STATE, state)], success(&WalReplay { min: 0, max, current })).into_response()
}

/// Answers with data that is small.
pub(crate) fn success<T: Serialize + ?Sized>(data: &T) -> Response {
    let data = serde_json::to_string(data).expect("answers are texts, numbers, lists and objects of them");
    // As Go: safe in HTML. In JSON these characters stand in strings only.
    answer(&data.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

/// Answers with data that is JSON already.
pub(crate) fn answer(json: &str) -> Response {
    ([(header::CONTENT_TYPE, MIME_TYPE)], format!("{{\"status\":\"success\",\"data\":{json}}}")).into_response()
}
