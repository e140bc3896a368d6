//! The configuration in force, and its reload.
//!
//! Invariant: an invalid file changes nothing. The previous configuration stays in force.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard, RwLock};
use varve_config::file::{self as config, Config, QueryLogFile};

use crate::notifier::{Notifier, PreparedAlerting};

/// The configuration in force, shared by all requests.
#[derive(Debug)]
pub struct LiveConfig {
    /// `None` if the server runs without a file.
    path: Option<PathBuf>,
    state: RwLock<State>,
    /// Held during a reload, so that all parts of the server are of the same one.
    reloading: Mutex<()>,
}

#[derive(Debug)]
struct State {
    config: Arc<Config>,
    status: ReloadStatus,
}

/// The files that a configuration names, other than those of rules: opened, read and checked, but
/// not in use yet.
#[derive(Debug)]
pub struct PreparedConfig {
    /// The query log.
    pub query_log: Option<QueryLogFile>,
    /// Alertmanagers.
    pub alerting: PreparedAlerting,
}

impl PreparedConfig {
    /// Checks what [`Config::load`] does not, for the start and for a reload. Warns of environment
    /// variables in external labels that are not set or empty. Blocks.
    ///
    /// # Errors
    /// The query log cannot be opened, or credentials or certificates for Alertmanagers or traces
    /// are invalid.
    pub fn new(config: &Config) -> Result<Self> {
        for variable in &config.global.empty_variables {
            tracing::warn!(
                variable,
                "Environment variable in global.external_labels is not set or empty"
            );
        }
        let alerting = Notifier::prepare(config)?;
        if let Some(tracing) = &config.tracing {
            tracing.check_access().context("tracing")?;
        }
        Ok(Self {
            query_log: config.open_query_log()?,
            alerting,
        })
    }
}

/// The result of reloads.
#[derive(Debug, Clone, Copy)]
pub struct ReloadStatus {
    /// Whether the last reload succeeded.
    pub is_success: bool,
    /// Time of the last successful one.
    pub last_success: Timestamp,
}

impl LiveConfig {
    /// Creates the configuration that was read from `path` at start.
    pub fn new(path: Option<PathBuf>, config: Config) -> Self {
        let status = ReloadStatus {
            is_success: true,
            last_success: Timestamp::now(),
        };
        Self {
            path,
            state: RwLock::new(State {
                config: Arc::new(config),
                status,
            }),
            reloading: Mutex::default(),
        }
    }

    /// Waits for a running reload, and prevents another one until the guard is dropped.
    pub(crate) fn lock_reloads(&self) -> MutexGuard<'_, ()> {
        self.reloading.lock()
    }

    /// Returns the configuration in force.
    pub fn current(&self) -> Arc<Config> {
        Arc::clone(&self.state.read().config)
    }

    /// Returns `true` if the server was started with a configuration file.
    pub(crate) fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Returns the result of reloads.
    pub fn status(&self) -> ReloadStatus {
        self.state.read().status
    }

    /// Reads the file again and puts it into force. `apply` does the same for the rest of the
    /// server; meanwhile the old configuration can be read. Returns the changed keys. The caller
    /// holds [`LiveConfig::lock_reloads`].
    ///
    /// # Errors
    /// The errors of [`Config::load`] and `apply`, and if a setting that needs a restart has
    /// changed.
    pub(crate) fn reload(&self, apply: impl FnOnce(&Config) -> Result<()>) -> Result<Vec<String>> {
        let read = self
            .path
            .as_deref()
            .map(Config::load)
            .transpose()
            .map(Option::unwrap_or_default);
        let checked = read.and_then(|config| {
            let changed = config.keys_that_differ(&self.current());
            if let Some(key) = changed.iter().find(|key| config::needs_restart(key)) {
                let path = config.first_difference(&self.current(), key);
                bail!("{path}: a change takes effect with a restart only");
            }
            apply(&config)?;
            Ok((config, changed))
        });
        let mut state = self.state.write();
        state.status.is_success = checked.is_ok();
        let (config, changed) = checked?;
        state.config = Arc::new(config);
        state.status.last_success = Timestamp::now();
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_settings_of_traces_are_checked() {
        let check = |keys: &str, expect: &str| {
            let config = Config::parse(&format!("tracing: {{endpoint: 'a:1', {keys}}}")).unwrap();
            let invalid = PreparedConfig::new(&config)
                .map(drop)
                .map_err(|error| format!("{error:#}"))
                .err();
            assert_eq!(invalid.is_none(), expect.is_empty(), "{invalid:?}");
            assert!(invalid.unwrap_or_default().contains(expect));
        };
        check(
            "tls_config: {ca_file: nowhere}",
            "tracing: tls_config.ca: read \"nowhere\"",
        );
        check(
            "tls_config: {insecure_skip_verify: true, max_version: TLS11}",
            "tracing: tls_config.max_version",
        );
        check("tls_config: {insecure_skip_verify: true}", "");
        check("insecure: true, tls_config: {ca_file: nowhere}", "");
    }

    #[test]
    fn an_invalid_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("varve.yml");
        std::fs::write(&path, "global: {external_labels: {a: b}}").unwrap();
        let live = LiveConfig::new(Some(path.clone()), Config::load(&path).unwrap());
        let label = || live.current().global.external_labels.get("a").cloned();
        let apply = |config: &Config| {
            let is_invalid = config
                .global
                .external_labels
                .values()
                .any(|value| value == "invalid");
            if is_invalid {
                Err(anyhow::anyhow!("cannot be applied"))
            } else {
                Ok(())
            }
        };
        for (text, expect) in [
            ("nonsense: 1", Err("unknown field `nonsense`")),
            (
                "storage: {tsdb: {ahead_max: 1m}}",
                Err("storage.tsdb.ahead_max: a change takes effect"),
            ),
            (
                "global: {external_labels: {a: invalid}}",
                Err("cannot be applied"),
            ),
            ("global: {external_labels: {a: c}}", Ok("c")),
        ] {
            std::fs::write(&path, text).unwrap();
            match (live.reload(apply), expect) {
                (Ok(changed), Ok(value)) => {
                    assert_eq!(
                        (label().as_deref(), live.status().is_success),
                        (Some(value), true)
                    );
                    assert_eq!(changed, ["global.external_labels"]);
                }
                (Err(error), Err(part)) => {
                    assert!(format!("{error:#}").contains(part), "{error:#}");
                    assert_eq!(
                        (label().as_deref(), live.status().is_success),
                        (Some("b"), false)
                    );
                }
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}
