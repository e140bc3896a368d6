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

use crate::reload::Reloader;
use crate::rules;

/// Checks the files every `interval`, forever.
pub async fn run(reloader: Arc<Reloader>, path: PathBuf, interval: Duration, mut seen: FileState) {
    loop {
        let reloader = Arc::clone(&reloader);
        let path = path.clone();
        let checked = tokio::task::spawn_blocking(move || check(&reloader, &path, &seen));
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
fn check(reloader: &Reloader, path: &Path, seen: &FileState) -> FileState {
    let config = Config::load(path).map_err(|error| format!("{error:#}"));
    let in_force = reloader.config.current();
    let found = FileState {
        config,
        rules: rules::hash_files(&in_force.rule_files),
    };
    // After a failed reload, a valid file is reloaded even if it is in force: this clears the
    // failure.
    let is_unchanged =
        found.config.as_ref().ok() == Some(&*in_force) && reloader.config.status().is_success;
    let is_other_config = !is_unchanged && seen.config != found.config;
    if !is_other_config && seen.rules == found.rules {
        return found;
    }

    // `reload` logs an error.
    drop(reloader.reload());
    if !is_other_config {
        return found;
    }
    // Another configuration may name other rule files.
    FileState {
        rules: rules::hash_files(&reloader.config.current().rule_files),
        ..found
    }
}
