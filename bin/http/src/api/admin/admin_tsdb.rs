//! /api/v1/admin/tsdb: delete, clean, snapshot, compact, import, confirm retention. Requests that
//! flush wait for WAL replay.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use jiff::Timestamp;
use varve_env::{Fs, RealFs};
use varve_prometheus::export::{ExportOptions, export};
use varve_server::requests::record::RequestRecord;
use varve_system::excerpt::quotable;
use varve_system::quantity::print_duration;
use varve_tsdb::{Db, ReadContext};

use super::request::{no_content, run};
use crate::error::{ApiError, ErrorKind, Result};
use crate::params::{Form, invalid_match, parse_selector};
use crate::response::{success, success_with_warning};
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// A snapshot.
    pub(crate) struct Snapshot {
        /// Its directory below `snapshots` in the data directory.
        name: String,
    }
}

schema! {
    /// The result of an import.
    pub(crate) struct Imported {
        /// Number of imported blocks.
        blocks: u64,
    }
}

/// Deletes samples of matching series.
pub(crate) async fn delete_series(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let ctx = app.requests.admin_context(&record);
    let tenant = record.tenant.clone();
    run(&app, record, move |store| {
        let db = &store.db;
        form.check_encoding()?;
        let selectors = form.required_selectors()?;
        let range = form.time_range()?;
        // As in Prometheus, a selector may match the empty string: `{job=""}` selects the series
        // without a job.
        let mut parsed = Vec::with_capacity(selectors.len());
        for text in &selectors {
            let matchers = parse_selector(&ctx, text, invalid_match)?;
            // The file of tombstones holds text.
            if matchers
                .iter()
                .any(|matcher| matcher.value().as_bytes() != matcher.value_bytes())
            {
                let reason = format!("a value in {} is not UTF-8", quotable(text));
                return Err(invalid_match(reason));
            }
            parsed.push(matchers);
        }
        for mut matchers in parsed {
            // A selector without matchers selects nothing.
            if matchers.is_empty() {
                continue;
            }
            if let Some(tenant) = &tenant {
                matchers.extend(tenant.matchers.iter().cloned());
            }
            db.delete(matchers, range).map_err(failed)?;
        }
        no_content()
    })
    .await
}

/// Rewrites the blocks that hold deleted samples.
pub(crate) async fn clean_tombstones(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
) -> Result {
    change(&app, record, Db::clean_tombstones).await
}

/// Creates a snapshot and responds with its name.
pub(crate) async fn snapshot(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let ctx = app.requests.admin_context(&record);
    let config = app.config.current();
    run(&app, record, move |store| {
        let db = &store.db;
        let skip_head = form.boolean("skip_head")?;
        let is_prometheus = match form.first("format") {
            "" | "varve" => false,
            "prometheus" if skip_head => {
                let reason = "skip_head is not supported with format=prometheus, whose blocks include the head";
                return Err(ApiError::invalid_parameter("skip_head", reason));
            }
            "prometheus" => true,
            other => {
                return Err(ApiError::invalid_parameter(
                    "format",
                    format!("not supported value {:?}", quotable(other)),
                ));
            }
        };
        let random = getrandom::u64().map_err(ApiError::internal)?;
        let name = format!("{}-{:016x}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"), random >> 1);
        let created = if is_prometheus { export_blocks(db, &name, &ctx) } else { store.snapshot(&name, skip_head, &config) };
        created.map_err(|error| {
            let error = failed(error);
            ApiError { message: format!("create snapshot: {}", error.message), ..error }
        })?;
        Ok(success_with_warning(&Snapshot { name }, db.missing()))
    })
    .await
}

/// Writes all samples to a directory of blocks that Prometheus can open as its data directory.
fn export_blocks(db: &Db, name: &str, ctx: &ReadContext) -> varve_tsdb::Result<()> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let all = ExportOptions::default();
    export(db, &fs, ctx, &db.snapshot_path(name), &all).map(drop)
}

/// Removes all blocks that are too old, however many there are.
pub(crate) async fn confirm_retention(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
) -> Result {
    change(&app, record, Db::confirm_retention).await
}

/// Flushes the head and merges all blocks.
pub(crate) async fn compact(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
) -> Result {
    change(&app, record, Db::compact_fully).await
}

/// Imports the blocks in the directory `import` of the data directory. Blocks that retention would
/// remove at once need a parameter that says so.
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let retention = app.settings.retention(&app.config.current()).time;
    run(&app, record, move |store| {
        if !form.boolean("expired")? {
            let n_expired = store.db.expired_imports().map_err(failed)?;
            if n_expired > 0 {
                let reason = format!(
                    "the retention of {} (--storage.tsdb.retention.time) would remove {n_expired} of the blocks to import, \
                     which are older; raise it, or import them with expired=true",
                    print_duration(retention)
                );
                return Err(ApiError::new(ErrorKind::Execution, reason));
            }
        }
        let n_blocks = store.db.import().map_err(failed)?;
        Ok(success(&Imported {
            blocks: n_blocks as u64,
        }))
    })
    .await
}

/// Runs an operation of the store and responds with 204.
async fn change(
    app: &App,
    record: Arc<RequestRecord>,
    operation: fn(&Db) -> varve_tsdb::Result<()>,
) -> Result {
    run(app, record, move |store| {
        operation(&store.db).map_err(failed)?;
        no_content()
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
