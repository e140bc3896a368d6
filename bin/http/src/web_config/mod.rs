//! The web configuration in force, and its reload.
//!
//! The file, and the files that it names, are checked once a second. A change applies to new
//! connections and requests. An invalid file is logged and changes nothing.
//!
//! The first half of a file may be valid: an editor or `cp` is writing it, or the disk is full. So a
//! changed file is read when it has stayed the same for a whole check, and a file is treated as
//! invalid if it would disable authentication or TLS, take the tenant from a user or token that
//! still exists, or lift a limit of a tenant.
//!
//! Invariants
//! 1. With a user or a token in the file, every request must authenticate.
//! 2. Passwords and tokens are compared in constant time and never logged or shown.
//! 3. A user or token that has had a tenant since the start has one whenever it exists.

mod auth;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::http::{HeaderName, HeaderValue};
use parking_lot::{Mutex, RwLock};
use prometheus::IntCounter;
use tokio_rustls::rustls::ServerConfig;
use varve_config::web::{Credentials, Fingerprint, TenantLimits, WebConfig};
use varve_system::printing::error_chain;

pub(crate) use auth::{Auth, Denied};

/// The web configuration, reloaded when its files change.
#[derive(Debug)]
pub struct LiveWebConfig {
    path: Option<PathBuf>,
    in_force: RwLock<Arc<WebInForce>>,
    files: Mutex<Files>,
}

/// What the checks of the files know.
#[derive(Debug)]
struct Files {
    /// The files when they were last read. If that failed, the files in force at that time.
    seen: Vec<Fingerprint>,
    /// The files at the last check, if they had changed since.
    changed: Option<Vec<Fingerprint>>,
    /// The users and tokens that have had a tenant since the start, and its limits in force.
    restricted: BTreeMap<String, TenantLimits>,
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
        let mut files = Files {
            seen: config.files.clone(),
            changed: None,
            restricted: BTreeMap::new(),
        };
        files.note_restrictions(config.credentials.as_ref());
        Ok(Self {
            path: path.map(Path::to_owned),
            files: Mutex::new(files),
            in_force: RwLock::new(Arc::new(WebInForce::new(config))),
        })
    }

    /// Returns the configuration in force.
    pub fn current(&self) -> Arc<WebInForce> {
        Arc::clone(&self.in_force.read())
    }

    /// Returns the names of the labels that the matchers of tenants have, ascending.
    #[must_use]
    pub fn tenant_label_names(&self) -> Vec<String> {
        match &self.current().auth {
            Some(auth) => auth.tenant_label_names(),
            None => Vec::new(),
        }
    }

    /// Reloads the file if it has changed, or a file that it names, and was the same in the call
    /// before. Counts failures.
    pub fn reload_if_changed(&self, failures: &IntCounter) {
        let Some(path) = &self.path else { return };
        let mut files = self.files.lock();
        let now: Vec<_> = files.seen.iter().map(Fingerprint::refreshed).collect();
        if now == files.seen {
            files.changed = None;
            return;
        }
        // Somebody may be writing it.
        if files.changed.as_ref() != Some(&now) {
            files.changed = Some(now);
            return;
        }
        files.changed = None;
        match self.read_successor(path, &files.restricted) {
            Ok(config) => {
                files.seen.clone_from(&config.files);
                files.note_restrictions(config.credentials.as_ref());
                *self.in_force.write() = Arc::new(WebInForce::new(config));
                tracing::info!(?path, "Web configuration reloaded");
            }
            Err(error) => {
                files.seen = now;
                failures.inc();
                tracing::error!(
                    error = error_chain(&error),
                    "Cannot reload the web configuration; the old one stays in force"
                );
            }
        }
    }

    /// Reads the file again. It must disable neither authentication nor TLS, nor free users and
    /// tokens from their tenants: that takes a restart.
    fn read_successor(
        &self,
        path: &Path,
        restricted: &BTreeMap<String, TenantLimits>,
    ) -> Result<WebConfig> {
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
        if let Some(credentials) = &config.credentials {
            check_restrictions(credentials, restricted)?;
        }
        Ok(config)
    }
}

impl Files {
    /// Notes the tenants of users and tokens. Those of users that no longer exist stay: a file
    /// that is half written may lack a user, and the next half its tenant.
    fn note_restrictions(&mut self, credentials: Option<&Credentials>) {
        let Some(credentials) = credentials else {
            return;
        };
        for tenant in &credentials.tenants {
            for user in &tenant.users {
                self.restricted.insert(user.clone(), tenant.limits.clone());
            }
        }
    }
}

/// Checks that the users and tokens that have had a tenant have one, with the limits of before or
/// others.
fn check_restrictions(
    credentials: &Credentials,
    restricted: &BTreeMap<String, TenantLimits>,
) -> Result<()> {
    for (user, limits) in restricted {
        if !credentials.has(user) {
            continue;
        }
        let tenant = credentials.tenant_of(user).with_context(|| {
            format!(
                "{user:?} has no tenant any more; taking it from a user or token requires a restart"
            )
        })?;
        if let Some(key) = limits.missing_in(&tenant.limits) {
            bail!(
                "the tenant of {user:?} has no limits.{key} any more; lifting a limit requires a restart"
            );
        }
    }
    Ok(())
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
        let reload = || {
            for _check in 0..2 {
                config.reload_if_changed(&failures);
            }
        };
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

    /// A file that was half written took the tenants from tokens, which then read all series.
    #[test]
    fn no_beginning_of_a_file_frees_a_token_from_its_tenant() {
        let whole = "\
bearer_tokens:
- name: admin
  token: t0
  scopes: [admin, read]
- name: a
  token: t1
  scopes: [read]
- name: b
  token: t2
  scopes:
  - read
tenants:
- users: [a]
  matchers: '{team=\"a\"}'
  limits:
    samples: 1000
- users: [b]
  matchers: '{team=\"b\"}'
";
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("web.yml");
        std::fs::write(&path, whole).unwrap();
        let config = LiveWebConfig::load(Some(&path)).unwrap();
        assert_eq!(config.tenant_label_names(), ["team"]);
        let mut n_read = 0;
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let restricted = config.files.lock().restricted.clone();
            if let Ok(read) = config.read_successor(&path, &restricted) {
                n_read += 1;
                let credentials = read.credentials.unwrap();
                for user in ["a", "b"] {
                    assert!(
                        !credentials.has(user) || credentials.tenant_of(user).is_some(),
                        "{user} is free after {:?}",
                        &whole[..end]
                    );
                }
            }
        }
        assert!(n_read > 0, "the token of the administrator alone is valid");
    }

    #[test]
    fn a_restriction_of_a_tenant_is_not_lifted_by_a_reload() {
        let text = |tenants: &str| {
            format!(
                "bearer_tokens: [{{name: x, token: t, scopes: [read]}}, {{name: y, token: u, scopes: [read]}}]\n{tenants}"
            )
        };
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("web.yml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let limited = "tenants: [{users: [x], matchers: '{a=\"b\"}', limits: {samples: 5}}]";
        write(&text(limited));
        let config = LiveWebConfig::load(Some(&path)).unwrap();
        let restricted = config.files.lock().restricted.clone();
        let check = |changed: &str, expect: &str| {
            write(changed);
            let read = config.read_successor(&path, &restricted);
            let error = read.map_or_else(|error| error.to_string(), |_| String::new());
            assert!(
                error.contains(expect) && error.is_empty() == expect.is_empty(),
                "{changed}: {error:?}"
            );
        };
        check(&text(""), "\"x\" has no tenant any more");
        check(&text("tenants:"), "\"x\" has no tenant any more");
        check(
            &text("tenants: [{users: [x], matchers: '{a=\"b\"}'}]"),
            "the tenant of \"x\" has no limits.samples any more",
        );
        check(
            &text("tenants: [{users: [x, y], matchers: '{a=\"c\"}', limits: {samples: 9}}]"),
            "",
        );
        check("bearer_tokens: [{name: y, token: u, scopes: [read]}]", "");
    }

    #[test]
    fn a_file_that_still_changes_is_not_read() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("web.yml");
        let write = |tokens: &[&str]| {
            let tokens: Vec<_> = tokens
                .iter()
                .map(|name| format!("{{name: {name}, token: t{name}, scopes: [read]}}"))
                .collect();
            std::fs::write(&path, format!("bearer_tokens: [{}]", tokens.join(", "))).unwrap();
        };
        write(&["a", "b"]);
        let config = LiveWebConfig::load(Some(&path)).unwrap();
        let failures = IntCounter::new("failures", "x").unwrap();
        let tokens_after_a_check = || {
            config.reload_if_changed(&failures);
            format!("{:?}", config.current().auth)
        };
        let two = "Some(Auth(0 users, 2 tokens))";
        write(&["a"]);
        assert_eq!(tokens_after_a_check(), two);
        write(&["a", "b", "c"]);
        assert_eq!(tokens_after_a_check(), two);
        assert_eq!(tokens_after_a_check(), "Some(Auth(0 users, 3 tokens))");
    }
}
