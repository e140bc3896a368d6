//! Opens the store, and waits for the end of WAL replay, which runs while the server serves
//! requests.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::task::JoinHandle;
use varve_config::settings::StoreOptions;
use varve_context::{Interrupt, QueryContext};
use varve_server::store::Store;
use varve_tools::data_dir::ensure_not_foreign;
use varve_tsdb::Db;
use varve_tsdb::stats::ReplayStats;

/// Opens the store on a blocking thread.
///
/// # Errors
/// If the store cannot be opened, or the directory has data of Prometheus and none of Varve.
pub(super) async fn open(path: PathBuf, options: StoreOptions) -> Result<Store> {
    let opening = tokio::task::spawn_blocking(move || {
        ensure_not_foreign(&path).with_context(|| format!("open data directory {path:?}"))?;
        Store::open(&path, options).map_err(|error| cannot_open(&path, &error))
    });
    opening.await.context("open the store")?
}

/// Adds the data directory to an error. The error itself names its cause.
fn cannot_open(data_dir: &Path, error: &dyn Display) -> anyhow::Error {
    anyhow!("open data directory {data_dir:?}: {error}")
}

/// Waits for the end of the replay on a blocking thread. Stops waiting when it is dropped.
pub(super) struct ReplayWatch {
    ctx: QueryContext,
    ended: JoinHandle<Result<()>>,
    is_done: bool,
}

impl ReplayWatch {
    /// Starts to wait. Logs the end of the replay that began at `started`, and calls `done`.
    pub(super) fn start(
        store: Arc<Store>,
        path: PathBuf,
        started: Instant,
        done: impl FnOnce() + Send + 'static,
    ) -> Self {
        let ctx = QueryContext::unbounded();
        let waiting = ctx.clone();
        let ended = tokio::task::spawn_blocking(move || match store.db.wait_replayed(&waiting) {
            Ok(()) => {
                report(&store.db.stats().replayed, started.elapsed());
                report_imports(&store.db);
                done();
                Ok(())
            }
            Err(varve_tsdb::Error::Interrupted(_)) => Ok(()),
            Err(varve_tsdb::Error::ReplayFailed { reason }) => Err(cannot_open(&path, &reason)),
            Err(error) => Err(cannot_open(&path, &error)),
        });
        Self {
            ctx,
            ended,
            is_done: false,
        }
    }

    /// Returns the reason why the replay failed. Never returns if it does not fail.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        if !self.is_done {
            let ended = (&mut self.ended).await.context("wait for the replay");
            self.is_done = true;
            if let Err(error) = ended.and_then(|result| result) {
                return error;
            }
        }
        std::future::pending().await
    }
}

impl Drop for ReplayWatch {
    fn drop(&mut self) {
        self.ctx.interrupt(Interrupt::Shutdown);
    }
}

/// Returns what a replay could not read of the WAL, and what to do, if there is anything. It is
/// [`ReplayStats::is_damaged`] in words.
pub(super) fn loss(replayed: &ReplayStats) -> Option<String> {
    let parts: Vec<_> = [
        ("damaged bytes", replayed.damaged_bytes),
        ("missing frames", replayed.n_missing_frames),
        ("gaps of missing files", replayed.n_file_gaps),
        ("damaged checkpoints", replayed.n_damaged_checkpoints),
        ("samples of unknown series", replayed.n_unknown_samples),
        ("exemplars of unknown series", replayed.n_unknown_exemplars),
    ]
    .into_iter()
    .filter(|(_, n)| *n > 0)
    .map(|(what, n)| format!("{what}: {n}"))
    .collect();
    replayed.is_damaged().then(|| {
        format!(
            "Results may be incomplete: the last start found damage in the write-ahead log ({}). A restart \
             removes this message, not the loss: see \"Damage\" in docs/operations.md.",
            parts.join(", ")
        )
    })
}

/// Logs that blocks wait for an import. A start does not import them.
fn report_imports(db: &Db) {
    match db.waiting_imports() {
        Ok(0) => {}
        Ok(blocks) => tracing::warn!(
            blocks,
            "Blocks in the directory import are not part of the store: run varve admin import, which needs --web.enable-admin-api"
        ),
        Err(error) => tracing::error!(%error, "Could not list the blocks to import"),
    }
}

/// Logs the result of a replay.
fn report(replayed: &ReplayStats, duration: Duration) {
    tracing::info!(
        series = replayed.n_series,
        samples = replayed.n_samples,
        bytes = replayed.read_bytes,
        samples_meanwhile = replayed.n_buffered,
        ?duration,
        "WAL replay completed"
    );
    if replayed.torn_bytes > 0 {
        tracing::info!(
            bytes = replayed.torn_bytes,
            "Truncated records that were being written when the process ended"
        );
    }
    if replayed.damaged_bytes > 0 {
        tracing::error!(
            bytes = replayed.damaged_bytes,
            "The WAL is damaged. Its damaged bytes are quarantined."
        );
    }
    if replayed.n_file_gaps > 0 {
        tracing::error!(
            gaps = replayed.n_file_gaps,
            "Files of the WAL are missing or empty. An unknown number of samples is lost."
        );
    }
    if replayed.n_unknown_samples > 0 {
        let unknown_samples = replayed.n_unknown_samples;
        tracing::error!(
            unknown_samples,
            "Skipped samples of unknown series. Their segments are quarantined."
        );
    }
    if replayed.n_unknown_exemplars > 0 {
        let unknown_exemplars = replayed.n_unknown_exemplars;
        tracing::error!(
            unknown_exemplars,
            "Skipped exemplars of unknown series. Their segments are quarantined."
        );
    }
    if replayed.n_buffered_conflicting > 0 {
        let samples = replayed.n_buffered_conflicting;
        tracing::warn!(
            samples,
            "Dropped samples received during replay: the WAL has other values at their timestamps"
        );
    }
}
