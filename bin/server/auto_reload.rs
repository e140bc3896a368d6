//! `--config.auto-reload`: reloads the configuration when its file changes.
//!
//! Parsed configurations are compared, so that a changed timestamp or comment reloads nothing. An invalid file is logged once.
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
            let text = std::fs::read(&path).ok();
            if text != seen && Config::load(&path).ok().as_ref() != Some(&*app.config.current()) {
                // `reload` logs an error.
                drop(app.reload());
            }
            text
        });
        match checked.await {
            Ok(text) => seen = text,
            Err(_panic_is_logged) => return,
        }
    }
}
