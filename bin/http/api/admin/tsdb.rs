//! /api/v1/admin/tsdb: delete, clean, snapshot, compact, import. Off unless `--web.enable-admin-api` is given.
//!
//! These calls have no deadline: what they began they end, also when the client has gone. Those that flush wait for the
//! replay of the log.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use varve_prometheus::export::{ExportOptions, export};
use varve_query::promql::parse_selector;
use varve_tsdb::{Db, Fs, QueryContext, RealFs};

use crate::http::App;
use crate::http::api::status::runtime as status;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::openapi::described;
use crate::http::params::Form;

described! {
    /// A snapshot.
    pub(crate) struct Snapshot {
        /// Its folder below `snapshots` in the data directory.
        name: String,
    }
}

described! {
    /// What was taken in.
    pub(crate) struct Imported {
        /// Number of blocks.
        blocks: u64,
    }
}

/// Deletes samples of matching series.
pub(crate) async fn delete_series(State(app): State<Arc<App>>, form: Form) -> Response {
    run(app, move |db| {
        if let Some(damage) = &form.damage {
            return Err(ApiError::bad_data(format!("error parsing form values: {damage}")));
        }
        let selectors: Vec<String> = form.all("match[]").map(str::to_owned).collect();
        if selectors.is_empty() {
            return Err(ApiError::bad_data("no match[] parameter provided"));
        }
        let range = form.time_range()?;
        // As in Prometheus, a selector may match the empty string here: `{job=""}` are the series without a job.
        let parse =
            |text: &String| parse_selector(text).map_err(|reason| ApiError::invalid_parameter("match[]", reason));
        let selectors = selectors.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        // And as there, one without matchers selects nothing.
        let selectors = selectors.into_iter().filter(|matchers| !matchers.is_empty());
        selectors.into_iter().try_for_each(|matchers| db.delete(matchers, range).map_err(refused))?;
        Ok(None)
    })
    .await
}

/// Rewrites the blocks that hold deleted samples.
pub(crate) async fn clean_tombstones(State(app): State<Arc<App>>) -> Response {
    run(app, |db| db.clean_tombstones().map(|()| None).map_err(refused)).await
}

/// Makes a snapshot and answers with its name.
pub(crate) async fn snapshot(State(app): State<Arc<App>>, form: Form) -> Response {
    let ctx = app.context_without_deadline();
    run(app, move |db| {
        let skip_head = form.boolean("skip_head")?;
        let is_prometheus = match form.first("format") {
            "" | "varve" => false,
            "prometheus" if skip_head => {
                let reason = "skip_head is not supported with format=prometheus: its blocks hold all that is there";
                return Err(ApiError::invalid_parameter("skip_head", reason));
            }
            "prometheus" => true,
            other => return Err(ApiError::invalid_parameter("format", format!("not supported value {other:?}"))),
        };
        let random = getrandom::u64().map_err(|e| ApiError::new(ErrorKind::Internal, e.to_string()))?;
        let name = format!("{}-{:016x}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"), random >> 1);
        let made = match is_prometheus {
            true => export_blocks(db, &name, &ctx),
            false => db.snapshot(&name, skip_head).map(drop),
        };
        made.map_err(|error| {
            let refused = refused(error);
            ApiError { message: format!("create snapshot: {}", refused.message), ..refused }
        })?;
        Ok(Some(json_of(&Snapshot { name })))
    })
    .await
}

/// Writes the samples of the store to a folder of blocks that Prometheus opens as its data directory.
fn export_blocks(db: &Db, name: &str, ctx: &QueryContext) -> varve_tsdb::Result<()> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let all = ExportOptions::default();
    export(db, &fs, ctx, &db.snapshot_path(name), &all).map(drop)
}

/// Flushes and merges everything.
pub(crate) async fn compact(State(app): State<Arc<App>>) -> Response {
    run(app, |db| db.compact_fully().map(|()| None).map_err(refused)).await
}

/// Takes in the blocks that lie in the folder `import` of the data directory.
pub(crate) async fn import(State(app): State<Arc<App>>) -> Response {
    run(app, |db| db.import().map(|n| Some(json_of(&Imported { blocks: n as u64 }))).map_err(refused)).await
}

fn json_of<T: serde::Serialize>(data: &T) -> serde_json::Value {
    serde_json::to_value(data).expect("texts and numbers are JSON")
}

/// Says what the store could not do; a bound that was hit is no failure of the server.
fn refused(error: varve_tsdb::Error) -> ApiError {
    let kind = match error {
        varve_tsdb::Error::Limit { .. } => ErrorKind::Execution,
        varve_tsdb::Error::ReplayFailed { .. } => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    };
    ApiError::new(kind, error.to_string())
}

/// Runs `job` on a blocking thread, to its end in any case. Without data the answer is 204, as Prometheus'.
async fn run(
    app: Arc<App>,
    job: impl FnOnce(&Db) -> Result<Option<serde_json::Value>, ApiError> + Send + 'static,
) -> Response {
    if !app.settings.admin_api {
        return ApiError::new(ErrorKind::Disabled, "admin APIs disabled").into_response();
    }
    let Some(store) = app.store() else { return ApiError::unavailable("the server is stopping").into_response() };
    match tokio::task::spawn_blocking(move || job(&store.db)).await {
        Ok(Ok(None)) => StatusCode::NO_CONTENT.into_response(),
        Ok(Ok(Some(data))) => status::success(&data),
        Ok(Err(refused)) => refused.into_response(),
        Err(panicked) => ApiError::new(ErrorKind::Internal, panicked.to_string()).into_response(),
    }
}
