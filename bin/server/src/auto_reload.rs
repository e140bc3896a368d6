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

/// Time between two checks of files that have changed.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Checks the files every `interval`, forever. A change is loaded once a second check, at most
/// [`SETTLE_TIME`] later, finds the same: the first may have read a file that was half written.
pub async fn run(reloader: Arc<Reloader>, path: PathBuf, interval: Duration, loaded: FileState) {
    let mut files = Files {
        found: loaded.clone(),
        loaded,
    };
    loop {
        let reloader = Arc::clone(&reloader);
        let path = path.clone();
        let checked = tokio::task::spawn_blocking(move || files.check(&reloader, &path));
        match checked.await {
            Ok(checked) => files = checked,
            Err(_panic_is_logged) => return,
        }
        let pause = if files.found == files.loaded {
            interval
        } else {
            interval.min(SETTLE_TIME)
        };
        tokio::time::sleep(pause).await;
    }
}

/// The files as last loaded, and as last read.
#[derive(Debug)]
struct Files {
    loaded: FileState,
    found: FileState,
}

/// The parsed configuration, and a hash of the rule files.
#[derive(Debug, Clone, PartialEq)]
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

    /// Reads the file of the configuration, and the rule files of the one in force.
    fn read(path: &Path, in_force: &Config) -> Self {
        Self {
            config: Config::load(path).map_err(|error| format!("{error:#}")),
            rules: rules::hash_files(&in_force.rule_files),
        }
    }
}

impl Files {
    /// Reads the files, and loads a change that the check before has found, too.
    fn check(mut self, reloader: &Reloader, path: &Path) -> Self {
        let found = FileState::read(path, &reloader.config.current());
        if self.must_load(found) {
            self.loaded = load(reloader, &self.loaded, self.found);
            self.found = self.loaded.clone();
        }
        self
    }

    /// Notes what a check has found. Returns `true` if it is a change, and the check before has
    /// found it, too.
    fn must_load(&mut self, found: FileState) -> bool {
        let before = std::mem::replace(&mut self.found, found);
        self.found == before && self.found != self.loaded
    }
}

/// Reloads the configuration if its meaning or a rule file has changed. Returns what is loaded.
fn load(reloader: &Reloader, loaded: &FileState, found: FileState) -> FileState {
    // After a failed reload, a valid file is reloaded even if it is in force: this clears the
    // failure.
    let is_in_force = found.config.as_ref().ok() == Some(&*reloader.config.current());
    let is_unchanged = is_in_force && reloader.config.status().is_success;
    let is_other_config = !is_unchanged && loaded.config != found.config;
    if !is_other_config && loaded.rules == found.rules {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_loaded_once_two_checks_have_found_it() {
        let state = |rules| FileState {
            config: Ok(Config::default()),
            rules,
        };
        let mut files = Files {
            loaded: state(1),
            found: state(1),
        };
        // 2 is the half of 3 that is written first.
        for (rules, expect) in [
            (1, false),
            (2, false),
            (3, false),
            (3, true),
            (1, false),
            (1, false),
        ] {
            assert_eq!(files.must_load(state(rules)), expect, "{rules}");
        }
    }
}
