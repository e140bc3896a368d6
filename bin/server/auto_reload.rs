//! `--config.auto-reload`: the configuration file is read again when it says something else.
//!
//! What is compared is what the file says, so that touching it, or changing a comment, reloads nothing. A file that is refused is
//! told of once.
//!
//! Threads: one task, which has the file read on a blocking thread. Ends with its runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::http::App;

/// Looks at the file every `interval`, for ever.
pub(crate) async fn run(app: Arc<App>, path: PathBuf, interval: Duration) {
    let mut seen = None;
    loop {
        tokio::time::sleep(interval).await;
        let (app, path) = (Arc::clone(&app), path.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let text = std::fs::read(&path).ok();
            if text != seen && Config::load(&path).ok().as_ref() != Some(&*app.config.current()) {
                // What went wrong is in the log.
                drop(app.reload());
            }
            text
        });
        match looked.await {
            Ok(text) => seen = text,
            Err(_panic_is_logged) => return,
        }
    }
}
