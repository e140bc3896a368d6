//! The web configuration in force, and its reload.
//!
//! The file, and the files that it names, are checked once a second. A change applies to new
//! connections and requests. An invalid file is logged and changes nothing.
//!
//! A partly written file may be valid YAML, for example while an editor writes it or after the disk
//! is full. The format makes sure that the beginning of a file permits no user and no token more
//! than the whole file (`varve_config::web`). A changed file is read only if two checks in a row
//! find it unchanged, and a file is treated as invalid if it would disable authentication or TLS,
//! take the tenant from a user or token that still exists, or a limit or label from its tenant.
//!
//! Invariants
//! 1. With a user or a token in the file, every request must authenticate.
//! 2. Passwords and tokens are compared in constant time and never logged or shown.
//! 3. A user or token that has had a tenant since the start has one whenever it exists.
//! 4. If a beginning of a file is read, each of its users and tokens has the scopes and the tenant
//!    of the whole file, or fewer scopes.

mod auth;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::http::{HeaderName, HeaderValue};
use parking_lot::{Mutex, RwLock};
use prometheus::IntCounter;
use tokio_rustls::rustls::ServerConfig;
use varve_config::web::{Credentials, Fingerprint, TenantConfig, WebConfig};
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
    /// The users and tokens that have had a tenant since the start, and the tenant in force.
    restricted: BTreeMap<String, TenantConfig>,
}

/// The web configuration in force.
#[derive(Debug)]
pub struct WebInForce {
    /// `None`: plain text.
    pub tls: Option<Arc<ServerConfig>>,
    requires_client_certs: bool,
    restricts_client_names: bool,
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
        restricted: &BTreeMap<String, TenantConfig>,
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
            config.restricts_client_names || !current.restricts_client_names,
            "tls_server_config.client_allowed_sans is missing; accepting certificates with any name requires a restart"
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
                self.restricted.insert(user.clone(), tenant.clone());
            }
        }
    }
}

/// Checks that each user or token that has had a tenant still has one, and that each limit and label
/// that was set is still set. Its value may change.
fn check_restrictions(
    credentials: &Credentials,
    restricted: &BTreeMap<String, TenantConfig>,
) -> Result<()> {
    for (user, old_tenant) in restricted {
        if !credentials.has(user) {
            continue;
        }
        let tenant = credentials.tenant_of(user).with_context(|| {
            format!(
                "{user:?} has no tenant any more; taking it from a user or token requires a restart"
            )
        })?;
        if let Some(key) = old_tenant.restriction_missing_in(tenant) {
            bail!(
                "the tenant of {user:?} has no {key} any more; removing a limit or label requires a restart"
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
            restricts_client_names: config.restricts_client_names,
            http2: config.http2,
            auth: auth.map(Arc::new),
            headers: config.headers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
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
        write("bearer_tokens: [{name: x, token: abc, scopes: [read]}]\n");
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

    /// A file that was half written took the tenants from tokens, which then read all series, or
    /// added a token before its tenant.
    #[test]
    fn no_beginning_of_a_file_permits_more_than_the_file() {
        let mut runner = TestRunner::default();
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("web.yml");
        let in_force = "bearer_tokens: [{name: root, token: r00t, scopes: [admin]}]\n";
        let (mut n_files, mut n_read) = (0, 0);
        while n_files < 40 {
            let text = web_file().new_tree(&mut runner).unwrap().current();
            std::fs::write(&path, &text).unwrap();
            let Ok(whole) = WebConfig::read(&path) else {
                continue;
            };
            let Some(whole) = whole.credentials else {
                continue;
            };
            n_files += 1;
            std::fs::write(&path, in_force).unwrap();
            let config = LiveWebConfig::load(Some(&path)).unwrap();
            for end in 0..text.len() {
                std::fs::write(&path, &text[..end]).unwrap();
                let Ok(read) = config.read_successor(&path, &BTreeMap::new()) else {
                    continue;
                };
                n_read += 1;
                check_permits_no_more(&read.credentials.unwrap(), &whole, &text[..end]);
            }
        }
        assert!(n_read > n_files, "{n_read} beginnings were valid");
    }

    fn check_permits_no_more(read: &Credentials, whole: &Credentials, text: &str) {
        let restrictions = |credentials: &Credentials, user: &str| {
            let tenant = credentials.tenant_of(user)?;
            Some(format!(
                "{:?}",
                (&tenant.matchers, &tenant.labels, &tenant.limits)
            ))
        };
        for token in &read.tokens {
            let same = whole.tokens.iter().any(|other| {
                (&other.name, &other.digest) == (&token.name, &token.digest)
                    && token
                        .scopes
                        .iter()
                        .all(|scope| other.scopes.contains(scope))
            });
            assert!(same, "another token {:?} after:\n{text}", token.name);
        }
        for (user, hash) in &read.users {
            let other = whole.users.get(user).map(|hash| &hash.text.0);
            assert_eq!(
                Some(&hash.text.0),
                other,
                "another user {user:?} after:\n{text}"
            );
        }
        let users = read.users.keys();
        for user in users.chain(read.tokens.iter().map(|token| &token.name)) {
            assert_eq!(
                restrictions(read, user),
                restrictions(whole, user),
                "the tenant of {user:?} after:\n{text}"
            );
        }
    }

    /// Returns texts of files, of which many are valid: sections and keys in any order, names that
    /// begin with each other.
    fn web_file() -> impl Strategy<Value = String> {
        let name = "a|ab|abc|b";
        let scopes = prop_oneof![
            Just("scopes: [read]"),
            Just("scopes:\n  - read\n  - write"),
            Just("scopes: [read, admin]"),
        ];
        let token = (name, "[a-z]{1,3}( [a-z])?", scopes).prop_map(|(name, token, scopes)| {
            vec![
                format!("name: {name}"),
                format!("token: {}", token.replace(' ', "\n    ")),
                scopes.to_owned(),
            ]
        });
        let label = prop_oneof![
            Just("labels: {team: a}"),
            Just("labels:\n    team: ab\n    zone: z"),
        ];
        let limit = prop_oneof![
            Just("limits: {samples: 100}"),
            Just("limits:\n    samples: 100\n    range: 30d\n    memory: 1GiB"),
        ];
        let users = prop_oneof![
            Just("users: [a]"),
            Just("users: [ab]"),
            Just("users:\n  - ab\n  - abc"),
            Just("users: [b, ann]"),
        ];
        let tenant = (users, "a|ab", label, limit).prop_map(|(users, team, label, limit)| {
            vec![
                users.to_owned(),
                format!("matchers: '{{team=\"{team}\"}}'"),
                label.to_owned(),
                limit.to_owned(),
            ]
        });
        let tokens = proptest::collection::vec(token.prop_flat_map(shuffled_entry), 1..4);
        let tenants = proptest::collection::vec(tenant.prop_flat_map(shuffled_entry), 0..3);
        let users = prop_oneof![
            Just(String::new()),
            Just(
                "basic_auth_users:\n  ann: $2b$04$8KrP1t9Y6XYqt1mVmw0l0uf.ZLKs2s.t/PXMuPbGNDzI3XCW.H3Ey\n"
                    .to_owned()
            ),
        ];
        let section = |name: &'static str, entries: Vec<String>| {
            if entries.is_empty() {
                return String::new();
            }
            format!("{name}:\n{}", entries.concat())
        };
        let sections = (tokens, tenants, users).prop_flat_map(move |(tokens, tenants, users)| {
            let sections = vec![
                section("bearer_tokens", tokens),
                section("tenants", tenants),
                users,
            ];
            Just(sections).prop_shuffle()
        });
        sections.prop_map(|sections| sections.concat())
    }

    /// Returns an entry of a list, with its keys in any order.
    fn shuffled_entry(keys: Vec<String>) -> impl Strategy<Value = String> {
        Just(keys)
            .prop_shuffle()
            .prop_map(|keys| format!("- {}\n", keys.join("\n  ")))
    }

    #[test]
    fn the_names_of_clients_stay_restricted() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let dir = TempDir::new().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("cert.pem", &made.cert.pem());
        write("key.pem", &made.signing_key.serialize_pem());
        let path = dir.path().join("web.yml");
        let tls = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_ca_file: cert.pem\n  client_auth_type: RequireAndVerifyClientCert\n";
        let whole = format!("{tls}  client_allowed_sans:\n  - a.example\n");
        write("web.yml", &whole);
        let config = LiveWebConfig::load(Some(&path)).unwrap();
        for end in tls.len() - 1..whole.len() {
            write("web.yml", &whole[..end]);
            let read = config.read_successor(&path, &BTreeMap::new());
            assert!(read.is_err(), "{:?}", &whole[..end]);
        }
    }

    #[test]
    fn a_restriction_of_a_tenant_is_not_lifted_by_a_reload() {
        let text = |tenants: &str| {
            format!(
                "{tenants}\nbearer_tokens: [{{name: x, token: t, scopes: [read]}}, {{name: y, token: u, scopes: [read]}}]\n"
            )
        };
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("web.yml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let limited =
            "tenants: [{users: [x], matchers: '{a=\"b\"}', labels: {a: b}, limits: {samples: 5}}]";
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
            &text("tenants: [{users: [x], matchers: '{a=\"b\"}', limits: {samples: 5}}]"),
            "the tenant of \"x\" has no labels.a any more",
        );
        check(
            &text(
                "tenants: [{users: [x, y], matchers: '{a=\"c\"}', labels: {a: c}, limits: {samples: 9}}]",
            ),
            "",
        );
        check("bearer_tokens: [{name: y, token: u, scopes: [read]}]\n", "");
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
            std::fs::write(&path, format!("bearer_tokens: [{}]\n", tokens.join(", "))).unwrap();
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
