//! /api/v1/admin/tsdb: delete, clean, snapshot, compact, import, confirm retention. Enabled by `--web.enable-admin-api`.
//!
//! These requests have no deadline and run to their end even if the client disconnects. Requests that flush wait for
//! WAL replay.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use varve_prometheus::export::{ExportOptions, export};
use varve_query::promql::parse_selector;
use varve_tsdb::fs::{Fs, RealFs};
use varve_tsdb::{Db, QueryContext};

use crate::http::error::{ApiError, ErrorKind};
use crate::http::openapi::described;
use crate::http::params::Form;
use crate::http::response::success;
use crate::server::app::App;

described! {
    /// A snapshot.
    pub(crate) struct Snapshot {
        /// Its directory below `snapshots` in the data directory.
        name: String,
    }
}

described! {
    /// The result of an import.
    pub(crate) struct Imported {
        /// Number of imported blocks.
        blocks: u64,
    }
}

/// Deletes samples of matching series.
pub(crate) async fn delete_series(State(app): State<Arc<App>>, form: Form) -> Result<Response, ApiError> {
    run(app, move |db| {
        form.check_encoding()?;
        let selectors = form.required_selectors()?;
        let range = form.time_range()?;
        // As in Prometheus, a selector may match the empty string: `{job=""}` selects the series without a job.
        let parse =
            |text: &String| parse_selector(text).map_err(|reason| ApiError::invalid_parameter("match[]", reason));
        let selectors = selectors.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        // A selector without matchers selects nothing.
        let selectors = selectors.into_iter().filter(|matchers| !matchers.is_empty());
        selectors.into_iter().try_for_each(|matchers| db.delete(matchers, range).map_err(failed))?;
        Ok(StatusCode::NO_CONTENT.into_response())
    })
    .await
}

/// Rewrites the blocks that hold deleted samples.
pub(crate) async fn clean_tombstones(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    run(app, |db| {
        db.clean_tombstones().map_err(failed)?;
        Ok(StatusCode::NO_CONTENT.into_response())
    })
    .await
}

/// Creates a snapshot and responds with its name.
pub(crate) async fn snapshot(State(app): State<Arc<App>>, form: Form) -> Result<Response, ApiError> {
    let ctx = app.context_without_deadline();
    run(app, move |db| {
        let skip_head = form.boolean("skip_head")?;
        let is_prometheus = match form.first("format") {
            "" | "varve" => false,
            "prometheus" if skip_head => {
                let reason = "skip_head is not supported with format=prometheus, whose blocks include the head";
                return Err(ApiError::invalid_parameter("skip_head", reason));
            }
            "prometheus" => true,
            other => return Err(ApiError::invalid_parameter("format", format!("not supported value {other:?}"))),
        };
        let random = getrandom::u64().map_err(ApiError::internal)?;
        let name = format!("{}-{:016x}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"), random >> 1);
        let created = match is_prometheus {
            true => export_blocks(db, &name, &ctx),
            false => db.snapshot(&name, skip_head).map(drop),
        };
        created.map_err(|error| {
            let error = failed(error);
            ApiError { message: format!("create snapshot: {}", error.message), ..error }
        })?;
        Ok(success(&Snapshot { name }))
    })
    .await
}

/// Writes all samples to a directory of blocks that Prometheus can open as its data directory.
fn export_blocks(db: &Db, name: &str, ctx: &QueryContext) -> varve_tsdb::Result<()> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let all = ExportOptions::default();
    export(db, &fs, ctx, &db.snapshot_path(name), &all).map(drop)
}

/// Removes all blocks that are too old, however many there are.
pub(crate) async fn confirm_retention(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    run(app, |db| {
        db.confirm_retention().map_err(failed)?;
        Ok(StatusCode::NO_CONTENT.into_response())
    })
    .await
}

/// Flushes the head and merges all blocks.
pub(crate) async fn compact(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    run(app, |db| {
        db.compact_fully().map_err(failed)?;
        Ok(StatusCode::NO_CONTENT.into_response())
    })
    .await
}

/// Imports the blocks in the directory `import` of the data directory.
pub(crate) async fn import(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    run(app, |db| {
        let n_blocks = db.import().map_err(failed)?;
        Ok(success(&Imported { blocks: n_blocks as u64 }))
    })
    .await
}

/// Returns the error of a failed operation. A limit is not the server's failure.
fn failed(error: varve_tsdb::Error) -> ApiError {
    let kind = match error {
        varve_tsdb::Error::Limit { .. } => ErrorKind::Execution,
        varve_tsdb::Error::ReplayFailed { .. } => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    };
    ApiError::new(kind, error.to_string())
}

/// Runs `job` on a blocking thread, to its end in any case.
async fn run(
    app: Arc<App>,
    job: impl FnOnce(&Db) -> Result<Response, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    if !app.settings.args.enable_admin_api {
        return Err(ApiError::new(ErrorKind::Disabled, "admin APIs disabled"));
    }
    let store = app.store().ok_or_else(ApiError::stopping)?;
    tokio::task::spawn_blocking(move || job(&store.db)).await.map_err(ApiError::internal)?
}
