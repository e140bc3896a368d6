//! `--config.auto-reload`: reloads the configuration when its file or a rule file changes.
//!
//! Parsed configurations are compared, so that a changed timestamp or comment reloads nothing.
//! Files that the configuration includes count. Of rule files, the contents are compared. An
//! invalid file is logged once.
//!
//! Threads: one task, which reads the file on a blocking thread. Ends with its runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use varve_config::file::Config;

use super::app::App;
use super::rules;

/// Checks the files every `interval`, forever.
pub async fn run(app: Arc<App>, path: PathBuf, interval: Duration, mut seen: FileState) {
    loop {
        let app = Arc::clone(&app);
        let path = path.clone();
        let checked = tokio::task::spawn_blocking(move || check(&app, &path, &seen));
        match checked.await {
            Ok(found) => seen = found,
            Err(_panic_is_logged) => return,
        }
        tokio::time::sleep(interval).await;
    }
}

/// The files as last read.
#[derive(Debug)]
pub struct FileState {
    config: Result<Config, String>,
    /// Hash of the rule files.
    rules: u64,
}

impl FileState {
    /// Returns the files of a configuration. A change after this call is found.
    pub fn now(config: &Config) -> Self {
        Self {
            config: Ok(config.clone()),
            rules: rules::hash_files(&config.rule_files),
        }
    }
}

/// Reloads the configuration if its meaning or a rule file has changed since `seen`.
fn check(app: &App, path: &Path, seen: &FileState) -> FileState {
    let rules = || rules::hash_files(&app.config.current().rule_files);
    let config = Config::load(path).map_err(|error| format!("{error:#}"));
    let found = FileState {
        config,
        rules: rules(),
    };
    let is_in_force = found.config.as_ref().ok() == Some(&*app.config.current());
    let is_other_config = !is_in_force && seen.config != found.config;
    if !is_other_config && seen.rules == found.rules {
        return found;
    }
    // `reload` logs an error.
    drop(app.reload());
    // Another configuration may name other rule files.
    if is_other_config {
        FileState {
            rules: rules(),
            ..found
        }
    } else {
        found
    }
}
