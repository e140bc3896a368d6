//! Build information, flags, configuration, runtime information and replay progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use varve_config::settings::Retention;
use varve_system::machine;
use varve_system::quantity::{print_duration, print_size};
use varve_system::version as this;
use varve_tsdb::stats::ReplayState;

use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

/// The state of replay: `starting`, `running`, `done`, `failed`. Prometheus' response has no field
/// for it.
const REPLAY_STATE: HeaderName = HeaderName::from_static("x-varve-replay-state");

schema! {
    /// Version of the API and of the server.
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

/// GET /version: build information without an envelope, as text, as in Prometheus.
pub(crate) async fn version() -> Response {
    let text = serde_json::to_string(&BuildInfo::of_this()).expect("strings are JSON");
    (
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        format!("{text}\n"),
    )
        .into_response()
}

impl BuildInfo {
    fn of_this() -> Self {
        Self {
            version: this::PROMETHEUS.to_owned(),
            revision: this::PROMETHEUS_REVISION.to_owned(),
            branch: this::BRANCH.to_owned(),
            build_user: String::new(),
            build_date: this::build_date()
                .map(|date| date.to_string())
                .unwrap_or_default(),
            go_version: String::new(),
        }
    }
}

/// GET /api/v1/status/flags.
pub(crate) async fn flags(State(app): State<Arc<App>>) -> Response {
    success::<BTreeMap<_, _>>(&app.settings.flags_in_force(&app.config.current()))
}

schema! {
    /// The configuration.
    pub(crate) struct ConfigText {
        /// The configuration in force, including defaults.
        yaml: String,
    }
}

/// GET /api/v1/status/config.
pub(crate) async fn config(State(app): State<Arc<App>>) -> Response {
    let config = app.settings.config_in_force(&app.config.current());
    success(&ConfigText {
        yaml: config.to_yaml(),
    })
}

schema! {
    /// Runtime information. Fields that only Go has are zero or empty.
    pub(crate) struct RuntimeInfo {
        start_time: String,
        working_dir = "CWD": String,
        hostname: String,
        server_time: String,
        /// Whether the last reload of the configuration succeeded.
        reload_config_success: bool,
        /// Time of the last successful reload.
        last_config_time: String,
        corruption_count: u64,
        goroutine_count: u64,
        /// Cores that the process may use.
        cores = "GOMAXPROCS": u64,
        memory_limit = "GOMEMLIMIT": u64,
        gc_percent = "GOGC": String,
        debug = "GODEBUG": String,
        /// Retention time and size.
        storage_retention: String,
    }
}

/// GET /api/v1/status/runtimeinfo.
pub(crate) async fn runtimeinfo(State(app): State<Arc<App>>) -> Response {
    let config = app.config.status();
    success(&RuntimeInfo {
        start_time: app.started.to_string(),
        working_dir: std::env::current_dir()
            .map(|dir| dir.display().to_string())
            .unwrap_or_default(),
        hostname: machine::hostname(),
        server_time: Timestamp::now().to_string(),
        reload_config_success: config.is_success,
        last_config_time: format!("{:.0}", config.last_success),
        corruption_count: 0,
        goroutine_count: 0,
        cores: machine::cores() as u64,
        memory_limit: 0,
        gc_percent: String::new(),
        debug: String::new(),
        storage_retention: retention(&app),
    })
}

/// Returns the retention in force as Prometheus prints it: `15d or 512GiB or 80%`.
fn retention(app: &App) -> String {
    if let Some(age) = app.settings.local_retention {
        return format!("{} after upload", print_duration(age));
    }
    let Retention {
        time,
        size,
        percentage,
    } = app.settings.retention(&app.config.current());
    let mut bounds = Vec::new();
    if !time.is_zero() {
        bounds.push(print_duration(time));
    }
    if size > 0 {
        bounds.push(print_size(size));
    }
    if percentage > 0.0 {
        bounds.push(format!("{percentage}%"));
    }
    bounds.join(" or ")
}

schema! {
    /// Progress of WAL replay, in files.
    pub(crate) struct WalReplay {
        min: u64,
        max: u64,
        current: u64,
    }
}

/// GET /api/v1/status/walreplay: files of the WAL, as Prometheus counts segments. Served before the
/// store is open, too.
pub(crate) async fn walreplay(State(app): State<Arc<App>>) -> Response {
    let replay = app.store().map(|store| store.db.replay_status());
    let state = match replay.as_ref().map(|replay| &replay.state) {
        None => "starting",
        Some(ReplayState::Running) => "running",
        Some(ReplayState::Done) => "done",
        Some(ReplayState::Failed(_)) => "failed",
    };
    let (current, max) = replay.map_or((0, 0), |replay| (replay.n_files, replay.n_files_total));
    (
        [(REPLAY_STATE, state)],
        success(&WalReplay {
            min: 0,
            max,
            current,
        }),
    )
        .into_response()
}
