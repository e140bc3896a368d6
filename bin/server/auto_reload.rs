//! `--config.auto-reload`: reloads the configuration when its file changes.
//!
//! Parsed configurations are compared, so that a changed timestamp or comment reloads nothing. Files that the
//! configuration includes count. An invalid file is logged once.
//!
//! Threads: one task, which reads the file on a blocking thread. Ends with its runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::app::App;
use crate::config::Config;

/// Checks the file every `interval`, forever.
pub(crate) async fn run(app: Arc<App>, path: PathBuf, interval: Duration) {
    let mut seen = None;
    loop {
        tokio::time::sleep(interval).await;
        let (app, path) = (Arc::clone(&app), path.clone());
        let checked = tokio::task::spawn_blocking(move || {
            let read = Config::load(&path).map_err(|error| format!("{error:#}"));
            let is_new = seen.as_ref() != Some(&read) && read.as_ref().ok() != Some(&*app.config.current());
            if is_new {
                // `reload` logs an error.
                drop(app.reload());
            }
            read
        });
        match checked.await {
            Ok(read) => seen = Some(read),
            Err(_panic_is_logged) => return,
        }
    }
}
