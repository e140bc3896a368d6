//! The configuration in force, and how it is read again while the server runs.
//!
//! A file that is refused changes nothing: what was in force stays.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Result, ensure};
use jiff::Timestamp;

use crate::config::Config;

/// What is in force; shared by all requests.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    /// `None` if the server runs without a file.
    path: Option<PathBuf>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<Config>,
    status: ReloadStatus,
}

/// How reading the file went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReloadStatus {
    /// Of the last attempt.
    pub(crate) is_success: bool,
    /// When it last went well.
    pub(crate) last_success: Timestamp,
}

impl LiveConfig {
    /// Puts into force what was read from `path` at the start.
    pub(crate) fn new(path: Option<PathBuf>, config: Config) -> Self {
        let status = ReloadStatus { is_success: true, last_success: Timestamp::now() };
        Self { path, state: RwLock::new(State { config: Arc::new(config), status }) }
    }

    /// Returns what is in force.
    pub(crate) fn current(&self) -> Arc<Config> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).config)
    }

    /// Returns how reading the file went.
    pub(crate) fn status(&self) -> ReloadStatus {
        self.state.read().unwrap_or_else(PoisonError::into_inner).status
    }

    /// Reads the file again and puts it into force, which is what `apply` does outside of here.
    ///
    /// # Errors
    /// As [`Config::load`]; if a setting differs that is read at the start only; what `apply` says.
    pub(crate) fn reload(&self, apply: impl FnOnce(&Config) -> Result<()>) -> Result<()> {
        let read = self.path.as_deref().map(Config::load).transpose().map(Option::unwrap_or_default);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let checked = read.and_then(|config| {
            ensure!(config.storage == state.config.storage, "storage: a change takes effect with a restart only");
            apply(&config)?;
            Ok(config)
        });
        state.status.is_success = checked.is_ok();
        state.config = Arc::new(checked?);
        state.status.last_success = Timestamp::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_refused_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("varve.yml");
        std::fs::write(&path, "global: {external_labels: {a: b}}").unwrap();
        let live = LiveConfig::new(Some(path.clone()), Config::load(&path).unwrap());
        let label = || live.current().global.external_labels.get("a").cloned();
        let apply = |config: &Config| {
            let refused = config.global.external_labels.values().any(|value| value == "refused");
            if refused { Err(anyhow::anyhow!("cannot be applied")) } else { Ok(()) }
        };
        for (text, expect) in [
            ("nonsense: 1", Err("unknown field `nonsense`")),
            ("storage: {tsdb: {ahead_max: 1m}}", Err("storage: a change takes effect")),
            ("global: {external_labels: {a: refused}}", Err("cannot be applied")),
            ("global: {external_labels: {a: c}}", Ok("c")),
        ] {
            std::fs::write(&path, text).unwrap();
            match (live.reload(apply), expect) {
                (Ok(()), Ok(value)) => assert_eq!((label().as_deref(), live.status().is_success), (Some(value), true)),
                (Err(refused), Err(part)) => {
                    assert!(format!("{refused:#}").contains(part), "{refused:#}");
                    assert_eq!((label().as_deref(), live.status().is_success), (Some("b"), false));
                }
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}
