//! The format of the file: exporter-toolkit's keys, `bearer_tokens` and `tenants`.
//!
//! A file may be truncated: an editor is writing it, or the disk was full. What is left may be valid
//! YAML. No user and no token in it may have more permissions than in the whole file. So `tenants`
//! comes before the users and tokens, which must include those that it names, and a value at the end
//! of the file is known to be whole.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail, ensure};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_yaml_ng::Value;
use varve_client::Secret;

use super::scope::Scope;
use varve_system::yaml::yaml_error;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) tls_server_config: Option<TlsServerConfig>,
    pub(super) http_server_config: HttpServerConfig,
    /// bcrypt hashes of passwords, by user.
    pub(super) basic_auth_users: BTreeMap<String, Secret>,
    pub(super) bearer_tokens: Vec<BearerToken>,
    pub(super) tenants: Vec<TenantEntry>,
}

/// Section `tls_server_config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsServerConfig {
    pub(super) cert: String,
    pub(super) cert_file: PathBuf,
    pub(super) key: Secret,
    pub(super) key_file: PathBuf,
    pub(super) client_auth_type: String,
    pub(super) client_ca: String,
    pub(super) client_ca_file: PathBuf,
    pub(super) client_allowed_sans: Vec<String>,
    pub(super) min_version: String,
    pub(super) max_version: String,
    pub(super) cipher_suites: Vec<String>,
    pub(super) prefer_server_cipher_suites: Option<bool>,
    pub(super) curve_preferences: Vec<String>,
}

/// Section `http_server_config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpServerConfig {
    http2: Option<bool>,
    headers: BTreeMap<String, String>,
}

/// An entry of `bearer_tokens`: a token in one of three forms, and its scopes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BearerToken {
    /// The name of the token in lists and logs.
    pub(super) name: String,
    pub(super) token: Secret,
    pub(super) token_file: PathBuf,
    /// SHA-256 of the token, in hex.
    pub(super) token_sha256: String,
    pub(super) scopes: Vec<Scope>,
}

/// An entry of `tenants`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantEntry {
    /// Names of users and tokens.
    pub(super) users: Vec<String>,
    /// The series that they may read, as a selector.
    pub(super) matchers: String,
    /// The labels of what they write.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) limits: TenantLimitsEntry,
}

/// Limits of the reads of a tenant's users.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantLimitsEntry {
    /// Number of active reads.
    pub(super) concurrency: Option<usize>,
    /// Memory of all active reads together, for instance `1GiB`.
    pub(super) memory: String,
    /// Number of samples that one request reads.
    pub(super) samples: Option<u64>,
    /// Length of the time that one selector reads, for instance `30d`.
    pub(super) range: String,
}

/// The headers that may be configured, as in exporter-toolkit.
const HEADERS: [&str; 5] = [
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
];
/// The headers that may have certain values only, as there.
const HEADER_VALUES: [(&str, &[&str]); 2] = [
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
];

/// Parses a file.
///
/// # Errors
/// If it is not YAML, has an unknown, repeated or unsupported key, or may be the beginning of a file
/// that permits less. The message contains no values.
pub(super) fn parse(text: &str) -> Result<File> {
    // Rejects a repeated key, which the maps of a file accept.
    let value: Value = serde_yaml_ng::from_str(text)?;
    if value.get("rate_limit").is_some() {
        bail!(
            "rate_limit is not supported; --web.max-connections and --query.max-concurrency limit the load"
        );
    }
    let file: Option<File> = serde_yaml_ng::from_str(text).map_err(yaml_error)?;
    let file = file.unwrap_or_default();
    check_order(&value)?;
    file.check_end(text)?;
    Ok(file)
}

/// Checks that `tenants` comes before the users and tokens: a beginning of the file that has one of
/// them then has all tenants.
fn check_order(file: &Value) -> Result<()> {
    let Some(sections) = file.as_mapping() else {
        return Ok(());
    };
    let mut last_credentials = None;
    for section in sections.keys() {
        match section.as_str() {
            Some(name @ ("basic_auth_users" | "bearer_tokens")) => last_credentials = Some(name),
            Some("tenants") => {
                if let Some(name) = last_credentials {
                    bail!(
                        "tenants must come before {name}: otherwise a truncated file removes the tenants from users and tokens"
                    );
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl File {
    /// Checks that the last value is whole if its beginning could be valid, and could permit more: a
    /// token, its name, the name of a client. Passwords and digests have a fixed length.
    fn check_end(&self, text: &str) -> Result<()> {
        let allows_sans = match &self.tls_server_config {
            Some(settings) => !settings.client_allowed_sans.is_empty(),
            None => false,
        };
        // Values in JSON end with their quotes or brackets.
        let is_json = text.trim_start().starts_with('{');
        let is_whole = is_json || text.ends_with('\n');
        ensure!(
            is_whole || self.bearer_tokens.is_empty() && !allows_sans,
            "the file does not end with a newline: it may be truncated"
        );
        Ok(())
    }
}

impl HttpServerConfig {
    /// Returns `true` if HTTP/2 is enabled.
    pub(super) fn http2(&self) -> bool {
        self.http2.unwrap_or(true)
    }

    /// Returns the headers of every response.
    ///
    /// # Errors
    /// If one may not be configured.
    pub(super) fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>> {
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            if !value.is_empty() {
                headers.push(header(name, value)?);
            }
        }
        Ok(headers)
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue)> {
    if !HEADERS
        .iter()
        .any(|allowed| allowed.eq_ignore_ascii_case(name))
    {
        bail!("http_server_config.headers: {name:?} cannot be configured, only {HEADERS:?}");
    }
    for (known, values) in HEADER_VALUES {
        if known.eq_ignore_ascii_case(name) && !values.contains(&value) {
            bail!("http_server_config.headers: {name}: expected one of {values:?}");
        }
    }
    let name = name.parse::<HeaderName>()?;
    let value = value
        .parse()
        .map_err(|_| anyhow!("http_server_config.headers: the value of {name} is not valid"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let rejected = parse(text)
            .map_err(|error| error.to_string())
            .and_then(|file| {
                file.http_server_config
                    .headers()
                    .map_err(|error| error.to_string())
            });
        let rejected = rejected.unwrap_err();
        assert!(rejected.contains(expect), "{rejected}");
    }

    #[test]
    fn unknown_keys_are_rejected_by_name() {
        check("tls_config: {}", "unknown field `tls_config`");
        check(
            "tls_server_config: {cert_path: x}",
            "unknown field `cert_path`",
        );
        check("bearer_tokens: [{scopes: [all]}]", "unknown variant `all`");
        check(
            "http_server_config: {headers: {Server: x}}",
            "\"Server\" cannot be configured",
        );
        check(
            "http_server_config: {headers: {X-XSS-Protection: \"a\\nb\"}}",
            "is not valid",
        );
        check(
            "http_server_config: {headers: {X-Frame-Options: foo}}",
            "expected one of [\"deny\", \"sameorigin\"]",
        );
        check(
            "basic_auth_users: {a: x, a: y}",
            "duplicate entry with key \"a\"",
        );
        check(
            "bearer_tokens: [{name: a}]\ntenants: []\n",
            "tenants must come before bearer_tokens",
        );
        check(
            "basic_auth_users: {a: x}\ntenants: []\n",
            "tenants must come before basic_auth_users",
        );
        let cut = "does not end with a newline";
        check("bearer_tokens:\n- token: abc", cut);
        check(
            "tls_server_config:\n  client_allowed_sans:\n  - a.exam",
            cut,
        );
        check("rate_limit: {interval: 1s}", "rate_limit is not supported");
        parse("").unwrap();
        parse("{bearer_tokens: [{name: a}]}").unwrap();
        parse("basic_auth_users: {a: x}").unwrap();
    }

    #[test]
    fn secrets_are_not_shown() {
        let file = parse(
            "basic_auth_users: {ann: hash}\nbearer_tokens: [{token: abc}]\ntls_server_config: {key: k3y}\n",
        );
        let shown = format!("{:?}", file.unwrap());
        assert!(
            !["hash", "abc", "k3y"]
                .iter()
                .any(|secret| shown.contains(secret)),
            "{shown}"
        );
    }
}
