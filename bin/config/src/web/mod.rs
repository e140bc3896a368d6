//! `--web.config.file`: TLS, client certificates, passwords, tokens.
//!
//! The format is Prometheus' exporter-toolkit format, plus `bearer_tokens` and `tenants`. The checked
//! form of the TLS settings is the configuration of rustls, with the verification of client
//! certificates.

mod client_certs;
mod credentials;
mod file;
mod fingerprint;
mod scope;
mod tenants;
mod tls;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use http::{HeaderName, HeaderValue};
use tokio_rustls::rustls::ServerConfig;

pub use credentials::{Credentials, Digest, PasswordHash, Token, sha256};
pub use fingerprint::Fingerprint;
pub use scope::Scope;
pub use tenants::{TenantConfig, TenantLimits};
pub use tls::ALPN_HTTP2;

/// A web configuration.
#[derive(Debug)]
pub struct WebConfig {
    /// `None`: plain text.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether client certificates are required.
    pub requires_client_certs: bool,
    /// Whether client certificates must have one of some names.
    pub restricts_client_names: bool,
    /// Whether HTTP/2 is enabled.
    pub http2: bool,
    /// `None`: no authentication.
    pub credentials: Option<Credentials>,
    /// Added to every response.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// All files that were read, as they were just before.
    pub files: Vec<Fingerprint>,
}

impl WebConfig {
    /// Reads a file, and the files that it names.
    ///
    /// # Errors
    /// If one is invalid, in one sentence that names the key.
    pub fn read(path: &Path) -> Result<Self> {
        let about = || format!("web configuration file {path:?}");
        let mut files = vec![Fingerprint::new(path)];
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", about()))?;
        let file = file::parse(&text).with_context(about)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let http2 = file.http_server_config.http2();
        let mut tls = None;
        let mut requires_client_certs = false;
        let mut restricts_client_names = false;
        if let Some(settings) = &file.tls_server_config {
            let config =
                tls::server_config(settings, http2, folder, &mut files).with_context(about)?;
            if let Some((config, requires_certs)) = config {
                tls = Some(config);
                requires_client_certs = requires_certs;
                restricts_client_names = !settings.client_allowed_sans.is_empty();
            }
        }
        let credentials =
            credentials::credentials(&file, folder, &mut files).with_context(about)?;
        let headers = file.http_server_config.headers().with_context(about)?;
        Ok(Self {
            tls,
            requires_client_certs,
            restricts_client_names,
            http2,
            credentials,
            headers,
            files,
        })
    }
}

impl Default for WebConfig {
    /// Plain text, HTTP/2, and no authentication.
    fn default() -> Self {
        Self {
            tls: None,
            requires_client_certs: false,
            restricts_client_names: false,
            http2: true,
            credentials: None,
            headers: Vec::new(),
            files: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::process::Command;
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    /// The fingerprint was taken after the file was read, so a change in between was never seen.
    #[test]
    fn a_change_while_the_file_is_read_takes_effect() {
        for changed in ["web.yml", "token"] {
            let dir = TempDir::new().unwrap();
            let path_of = |name: &str| dir.path().join(name);
            let texts = [
                (
                    "web.yml",
                    "bearer_tokens: [{name: x, token_file: token, scopes: [read]}]\n",
                ),
                ("token", "abc"),
            ];
            for (name, text) in texts {
                std::fs::write(path_of(name), text).unwrap();
            }
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
                let reader = scope.spawn(|| WebConfig::read(&path_of("web.yml")).unwrap());
                let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();
                std::fs::write(path_of("new"), "changed").unwrap();
                std::fs::rename(path_of("new"), &path).unwrap();
                pipe.write_all(&text).unwrap();
                drop(pipe);
                reader.join().unwrap()
            });
            let found: Vec<_> = loaded
                .files
                .iter()
                .map(|file| (file.path().to_owned(), file.refreshed() != *file))
                .collect();
            assert_eq!(
                found,
                texts.map(|(name, _)| (path_of(name), name == changed))
            );
        }
    }
}
