//! `--web.config.file`: TLS, client certificates, passwords, tokens.
//!
//! The format is Prometheus' exporter-toolkit format, plus `bearer_tokens` and `tenants`. The file,
//! and the files that it names, are checked once a second. A change applies to new connections and
//! requests. An invalid file is logged and changes nothing. A file that would disable
//! authentication or TLS is treated as invalid: an empty file, for example while it is being
//! written, does not open the server.
//!
//! Invariants
//! 1. With a user or a token in the file, every request must authenticate.
//! 2. Passwords and tokens are compared in constant time and never logged or shown.

mod auth;
mod client_certs;
mod file;
mod scope;
mod tenants;
mod tls;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use axum::http::{HeaderName, HeaderValue};
use parking_lot::{Mutex, RwLock};
use prometheus::IntCounter;
use tokio_rustls::rustls::ServerConfig;
use varve_system::printing::error_chain;

pub(crate) use auth::{Auth, Denied};
pub(crate) use scope::Scope;
pub(crate) use tls::ALPN_HTTP2;

/// The web configuration, reloaded when its files change.
#[derive(Debug, Default)]
pub struct WebConfig {
    path: Option<PathBuf>,
    loaded: RwLock<Arc<Loaded>>,
    /// The files when they were last read. If that failed, the files in force at that time.
    seen: Mutex<Vec<Fingerprint>>,
}

/// The configuration in force.
#[derive(Debug)]
pub struct Loaded {
    /// `None`: plain text.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether HTTP/2 is enabled.
    pub(crate) http2: bool,
    /// `None`: no authentication.
    pub(crate) auth: Option<Arc<Auth>>,
    /// Added to every response.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether client certificates are requested.
    requires_client_certs: bool,
    /// All files that were read, as they were just before.
    files: Vec<Fingerprint>,
}

/// Detects a change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fingerprint {
    path: PathBuf,
    modified: Option<(SystemTime, u64)>,
}

impl WebConfig {
    /// Reads the file. Without one, plain text and no authentication.
    ///
    /// # Errors
    /// If it is invalid, in one sentence that names the key.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let loaded = Loaded::read(path)?;
        let seen = Mutex::new(loaded.files.clone());
        Ok(Self {
            path: Some(path.to_owned()),
            loaded: RwLock::new(Arc::new(loaded)),
            seen,
        })
    }

    /// Returns the configuration in force.
    pub fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read())
    }

    /// Reloads the file if it has changed, or a file that it names. Counts failures.
    pub(crate) fn reload_if_changed(&self, failures: &IntCounter) {
        let Some(path) = &self.path else { return };
        let mut seen = self.seen.lock();
        let now: Vec<_> = seen
            .iter()
            .map(|file| Fingerprint::of(&file.path))
            .collect();
        if now == *seen {
            return;
        }
        let loaded =
            Loaded::read(path).and_then(|loaded| loaded.check_successor_of(&self.current()));
        match loaded {
            Ok(loaded) => {
                *seen = loaded.files.clone();
                *self.loaded.write() = Arc::new(loaded);
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
}

impl Loaded {
    fn read(path: &Path) -> Result<Self> {
        let about = || format!("web configuration file {path:?}");
        let mut files = vec![Fingerprint::of(path)];
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", about()))?;
        let file = file::parse(&text).with_context(about)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let http2 = file.http_server_config.http2();
        let tls = file
            .tls_server_config
            .as_ref()
            .map(|settings| tls::server_config(settings, http2, folder, &mut files))
            .transpose();
        let tls = tls.with_context(about)?.flatten();
        let requires_client_certs = tls
            .as_ref()
            .is_some_and(|(_, requires_client_certs)| *requires_client_certs);
        let tls = tls.map(|(tls, _)| tls);
        let auth = Auth::new(&file, folder, &mut files)
            .with_context(about)?
            .map(Arc::new);
        let headers = file.http_server_config.headers().with_context(about)?;
        Ok(Self {
            tls,
            http2,
            auth,
            headers,
            requires_client_certs,
            files,
        })
    }

    /// Checks that a reload disables neither authentication nor TLS. Disabling them takes a
    /// restart.
    fn check_successor_of(self, old: &Self) -> Result<Self> {
        ensure!(
            self.auth.is_some() || old.auth.is_none(),
            "no user or token is required any more; disabling authentication requires a restart"
        );
        ensure!(
            self.requires_client_certs || !old.requires_client_certs,
            "no client certificate is required any more; disabling client certificates requires a restart"
        );
        ensure!(
            self.tls.is_some() || old.tls.is_none(),
            "tls_server_config is missing; disabling TLS requires a restart"
        );
        Ok(self)
    }
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            tls: None,
            http2: true,
            auth: None,
            headers: Vec::new(),
            requires_client_certs: false,
            files: Vec::new(),
        }
    }
}

impl Fingerprint {
    /// Returns the fingerprint of a file. Call this before the file is read: a change during the
    /// read is then seen by the next check.
    fn of(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok();
        let modified =
            metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
        Self {
            path: path.to_owned(),
            modified,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::process::Command;
    use std::thread;
    use tempfile::TempDir;

    #[test]
    fn a_valid_change_takes_effect_and_an_invalid_one_does_not() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("web.yml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("");
        let config = WebConfig::load(Some(&path)).unwrap();
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
        assert!(WebConfig::load(None).unwrap().current().auth.is_none());
    }

    /// The fingerprint was taken after the file was read, so a change in between was never seen.
    #[test]
    fn a_change_while_the_file_is_read_takes_effect() {
        for changed in ["web.yml", "token"] {
            let dir = TempDir::new().unwrap();
            let path_of = |name: &str| dir.path().join(name);
            let texts = [
                (
                    "web.yml",
                    "bearer_tokens: [{name: x, token_file: token, scopes: [read]}]",
                ),
                ("token", "abc"),
            ];
            texts
                .iter()
                .for_each(|(name, text)| std::fs::write(path_of(name), text).unwrap());
            let path = path_of(changed);
            let text = std::fs::read(path_of(changed)).unwrap();
            // The reader of a pipe waits for its text, so the change comes while the file is read.
            std::fs::remove_file(&path).unwrap();
            assert!(
                Command::new("mkfifo")
                    .arg(&path)
                    .status()
                    .unwrap()
                    .success()
            );
            let loaded = thread::scope(|scope| {
                let reader = scope.spawn(|| Loaded::read(&path_of("web.yml")).unwrap());
                let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();
                std::fs::write(path_of("new"), "changed").unwrap();
                std::fs::rename(path_of("new"), &path).unwrap();
                pipe.write_all(&text).unwrap();
                drop(pipe);
                reader.join().unwrap()
            });
            let is_changed = |file: &Fingerprint| Fingerprint::of(&file.path) != *file;
            let found: Vec<_> = loaded
                .files
                .iter()
                .map(|file| (file.path.clone(), is_changed(file)))
                .collect();
            assert_eq!(
                found,
                texts.map(|(name, _)| (path_of(name), name == changed))
            );
        }
    }
}
