//! The web configuration in force, and its reload.
//!
//! The file, and the files that it names, are checked once a second. A change applies to new
//! connections and requests. An invalid file is logged and changes nothing. A file that would disable
//! authentication or TLS is treated as invalid: an empty file, for example while it is being
//! written, does not open the server.
//!
//! Invariants
//! 1. With a user or a token in the file, every request must authenticate.
//! 2. Passwords and tokens are compared in constant time and never logged or shown.

mod auth;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use axum::http::{HeaderName, HeaderValue};
use parking_lot::{Mutex, RwLock};
use prometheus::IntCounter;
use tokio_rustls::rustls::ServerConfig;
use varve_config::web::{Fingerprint, WebConfig};
use varve_system::printing::error_chain;

pub(crate) use auth::{Auth, Denied};

/// The web configuration, reloaded when its files change.
#[derive(Debug)]
pub struct LiveWebConfig {
    path: Option<PathBuf>,
    in_force: RwLock<Arc<WebInForce>>,
    /// The files when they were last read. If that failed, the files in force at that time.
    seen: Mutex<Vec<Fingerprint>>,
}

/// The web configuration in force.
#[derive(Debug)]
pub struct WebInForce {
    /// `None`: plain text.
    pub tls: Option<Arc<ServerConfig>>,
    requires_client_certs: bool,
    /// Whether HTTP/2 is enabled.
    pub(crate) http2: bool,
    /// `None`: no authentication.
    pub(crate) auth: Option<Arc<Auth>>,
    /// Added to every response.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl LiveWebConfig {
    /// Reads the file. Without one, plain text and no authentication.
    ///
    /// # Errors
    /// If it is invalid, in one sentence that names the key.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let config = match path {
            Some(path) => WebConfig::read(path)?,
            None => WebConfig::default(),
        };
        Ok(Self {
            path: path.map(Path::to_owned),
            seen: Mutex::new(config.files.clone()),
            in_force: RwLock::new(Arc::new(WebInForce::new(config))),
        })
    }

    /// Returns the configuration in force.
    pub fn current(&self) -> Arc<WebInForce> {
        Arc::clone(&self.in_force.read())
    }

    /// Reloads the file if it has changed, or a file that it names. Counts failures.
    pub fn reload_if_changed(&self, failures: &IntCounter) {
        let Some(path) = &self.path else { return };
        let mut seen = self.seen.lock();
        let now: Vec<_> = seen.iter().map(Fingerprint::refreshed).collect();
        if now == *seen {
            return;
        }
        match self.read_successor(path) {
            Ok(config) => {
                seen.clone_from(&config.files);
                *self.in_force.write() = Arc::new(WebInForce::new(config));
                tracing::info!(?path, "Web configuration reloaded");
            }
            Err(error) => {
                *seen = now;
                failures.inc();
                tracing::error!(
                    error = error_chain(&error),
                    "Cannot reload the web configuration; the old one stays in force"
                );
            }
        }
    }

    /// Reads the file again. It must disable neither authentication nor TLS: that takes a restart.
    fn read_successor(&self, path: &Path) -> Result<WebConfig> {
        let config = WebConfig::read(path)?;
        let current = self.current();
        ensure!(
            config.credentials.is_some() || current.auth.is_none(),
            "no user or token is required any more; disabling authentication requires a restart"
        );
        ensure!(
            config.requires_client_certs || !current.requires_client_certs,
            "no client certificate is required any more; disabling client certificates requires a restart"
        );
        ensure!(
            config.tls.is_some() || current.tls.is_none(),
            "tls_server_config is missing; disabling TLS requires a restart"
        );
        Ok(config)
    }
}

impl WebInForce {
    fn new(config: WebConfig) -> Self {
        let auth = config.credentials.map(Auth::new);
        Self {
            tls: config.tls,
            requires_client_certs: config.requires_client_certs,
            http2: config.http2,
            auth: auth.map(Arc::new),
            headers: config.headers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn a_valid_change_takes_effect_and_an_invalid_one_does_not() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("web.yml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("");
        let config = LiveWebConfig::load(Some(&path)).unwrap();
        assert!(config.current().auth.is_none() && config.current().tls.is_none());
        let failures = IntCounter::new("failures", "x").unwrap();
        let reload = || config.reload_if_changed(&failures);
        write("bearer_tokens: [{name: x, token: abc, scopes: [read]}]");
        reload();
        assert!(config.current().auth.is_some());
        write("bearer_tokens: nonsense, and longer than before");
        reload();
        assert!(config.current().auth.is_some(), "the old one stays");
        write("http_server_config: {headers: {X-Frame-Options: deny}}");
        reload();
        assert!(
            config.current().auth.is_some() && config.current().headers.is_empty(),
            "it would open the server"
        );
        assert_eq!(failures.get(), 2);
        write(
            "basic_auth_users: {ann: $2b$04$8KrP1t9Y6XYqt1mVmw0l0uf.ZLKs2s.t/PXMuPbGNDzI3XCW.H3Ey}",
        );
        reload();
        assert_eq!(
            format!("{:?}", config.current().auth),
            "Some(Auth(1 users, 0 tokens))"
        );
        assert!(LiveWebConfig::load(None).unwrap().current().auth.is_none());
    }
}
