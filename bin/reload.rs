//! Reading the configuration file again while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::http::App;
use crate::store::Store;

/// Reads the file and puts into force what can be without a restart. Blocks on the disk.
///
/// # Errors
/// What is wrong with the file; the old configuration stays in force then.
pub(crate) fn reload(store: &Store, config_file: Option<&Path>) -> Result<()> {
    let config = config_file.map(Config::load).transpose()?.unwrap_or_default();
    store.reload(&config)?;
    tracing::info!("Completed loading of configuration file");
    Ok(())
}

/// Reloads at every SIGHUP; never returns.
pub(crate) async fn on_signal(app: Arc<App>, config_file: Option<PathBuf>) {
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => return tracing::error!(%error, "SIGHUP cannot be caught: the configuration is not reloaded"),
    };
    while hangups.recv().await.is_some() {
        let Some(store) = app.store() else { continue };
        let config_file = config_file.clone();
        let reloaded = tokio::task::spawn_blocking(move || reload(&store, config_file.as_deref())).await;
        match reloaded {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(error = format!("{error:#}"), "Error reloading config"),
            Err(_panic_is_logged) => app.metrics.panics.inc(),
        }
    }
}
