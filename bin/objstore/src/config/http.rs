//! The section `http_config`, and the keys of a section that have no effect or no support.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_yaml_ng::Value;
use varve_client::{Access, HttpClientConfig, TlsSettings};

/// Keys with no effect.
const WITHOUT_EFFECT: [&str; 8] = [
    "idle_conn_timeout",
    "response_header_timeout",
    "tls_handshake_timeout",
    "expect_continue_timeout",
    "max_idle_conns",
    "max_idle_conns_per_host",
    "max_conns_per_host",
    "disable_compression",
];
/// Timeouts and connection limits have no effect: the client has one connection and its own
/// timeout.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HttpSection {
    insecure_skip_verify: bool,
    tls_config: TlsSettings,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

impl HttpSection {
    /// Checks that all keys are known.
    pub(super) fn check_keys(&self) -> Result<()> {
        check_keys(&self.rest, &WITHOUT_EFFECT, &[]).context("http_config")
    }

    /// Returns the TLS settings. Paths are relative to `folder`.
    pub(super) fn access(self, folder: &Path) -> Result<Access> {
        let mut tls_config = self.tls_config;
        tls_config.resolve_paths(folder);
        let access = Access::new(&HttpClientConfig {
            tls_config,
            ..HttpClientConfig::default()
        })
        .context("http_config")?;
        Ok(access.trusting(None, self.insecure_skip_verify))
    }
}

/// Checks the keys of a section that have no field.
///
/// # Errors
/// If a key is unknown, or not supported and not empty.
pub(super) fn check_keys(
    rest: &BTreeMap<String, Value>,
    without_effect: &[&str],
    unsupported: &[&str],
) -> Result<()> {
    for (key, value) in rest {
        if unsupported.contains(&key.as_str()) {
            ensure!(is_empty(value), "{key} is not supported");
        } else {
            ensure!(without_effect.contains(&key.as_str()), "unknown key {key}");
        }
    }
    Ok(())
}

/// Returns `true` if Thanos treats a value as not set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Mapping(fields) => fields.is_empty(),
        _ => false,
    }
}
