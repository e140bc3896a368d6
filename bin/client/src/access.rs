//! Credentials, headers and TLS settings of a client.
//!
//! A configuration file has the format of Prometheus' tools (`promtool --http.config.file`).
//! Unsupported settings are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use varve_system::machine::files::read_text;
use varve_system::yaml::null_is_default;

use crate::secret::Secret;

/// Maximum size of a file with a password, a token or settings.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// Headers that users cannot set in a section `headers`, in lower case: the list of Prometheus.
const RESERVED_HEADERS: [&str; 16] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "user-agent",
    "www-authenticate",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
    "x-prometheus-remote-read-version",
    "x-prometheus-remote-write-version",
];
/// Headers that users cannot set in a section `http_headers` either, in lower case: the list of
/// Prometheus.
const RESERVED_HTTP_HEADERS: [&str; 2] = ["authorization", "x-prometheus-scrape-timeout-seconds"];
/// Headers that the client sets itself, and that Prometheus does not reserve.
const FRAMING_HEADERS: [&str; 2] = ["te", "transfer-encoding"];

/// Headers of every request and TLS settings. The default has no headers and uses the root
/// certificates of the operating system.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Values are marked as sensitive.
    pub(super) headers: HeaderMap,
    pub(super) tls: TlsSettings,
}

/// Section `tls_config`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    #[serde(deserialize_with = "null_is_default")]
    pub(super) ca: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) ca_file: PathBuf,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) cert: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) cert_file: PathBuf,
    pub(super) key: Secret,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) key_file: PathBuf,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) server_name: String,
    pub(super) insecure_skip_verify: bool,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) min_version: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) max_version: String,
}

/// The settings as written in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpClientConfig {
    /// Name and password.
    pub basic_auth: Option<BasicAuth>,
    /// The header `Authorization`.
    pub authorization: Option<Authorization>,
    /// The token of the header `Authorization`, as in older versions of Prometheus.
    pub bearer_token: Secret,
    /// The file with this token.
    #[serde(deserialize_with = "null_is_default")]
    pub bearer_token_file: PathBuf,
    /// TLS settings for https.
    #[serde(deserialize_with = "null_is_default")]
    pub tls_config: TlsSettings,
    /// Further headers, by name.
    #[serde(deserialize_with = "null_is_default")]
    pub http_headers: BTreeMap<String, Header>,
    /// Ignored: redirects are never followed.
    #[serde(rename = "follow_redirects")]
    pub _follow_redirects: bool,
    /// Ignored: the client uses HTTP/1.1.
    #[serde(rename = "enable_http2")]
    pub _enable_http2: bool,
}

/// Section `basic_auth`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BasicAuth {
    #[serde(deserialize_with = "null_is_default")]
    username: String,
    #[serde(deserialize_with = "null_is_default")]
    username_file: PathBuf,
    password: Secret,
    #[serde(deserialize_with = "null_is_default")]
    password_file: PathBuf,
}

/// Section `authorization`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Authorization {
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    scheme: String,
    credentials: Secret,
    #[serde(deserialize_with = "null_is_default")]
    credentials_file: PathBuf,
}

/// A header of section `http_headers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Header {
    #[serde(deserialize_with = "null_is_default")]
    values: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    secrets: Vec<Secret>,
    #[serde(deserialize_with = "null_is_default")]
    files: Vec<PathBuf>,
}

impl Access {
    /// Returns access with the bearer token of a file, if any.
    ///
    /// # Errors
    /// If the file cannot be read or is not a valid header value.
    pub fn with_token_file(path: Option<&Path>) -> Result<Self> {
        let mut access = Self::default();
        if let Some(path) = path {
            let token = read(path).with_context(|| format!("read token file {path:?}"))?;
            access.authorize("Bearer", token.trim())?;
        }
        Ok(access)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// If a setting is invalid or unsupported. Messages name the key and contain no secret.
    pub fn read(path: &Path) -> Result<Self> {
        let about = || format!("HTTP client configuration file {path:?}");
        let text = read(path).with_context(|| format!("read {}", about()))?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(""))).with_context(about)
    }

    fn parse(text: &str, folder: &Path) -> Result<Self> {
        let mut config =
            serde_yaml_ng::from_str::<Option<HttpClientConfig>>(text)?.unwrap_or_default();
        config.resolve_paths(folder);
        Self::new(&config)
    }

    /// Reads the credentials that the settings name.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn new(config: &HttpClientConfig) -> Result<Self> {
        let has_bearer =
            !config.bearer_token.0.is_empty() || config.bearer_token_file != Path::new("");
        let n_credentials = u32::from(has_bearer)
            + u32::from(config.basic_auth.is_some())
            + u32::from(config.authorization.is_some());
        ensure!(
            n_credentials <= 1,
            "at most one of basic_auth, authorization and bearer_token may be given"
        );
        let mut access = Self {
            tls: config.tls_config.clone(),
            ..Self::default()
        };
        if let Some(basic) = &config.basic_auth {
            let user = trimmed_text_or_file(&basic.username, &basic.username_file)
                .context("basic_auth.username")?;
            let password = trimmed_text_or_file(&basic.password.0, &basic.password_file)
                .context("basic_auth.password")?;
            access.authorize("Basic", &STANDARD.encode(format!("{user}:{password}")))?;
        }
        if let Some(authorization) = &config.authorization {
            let scheme = if authorization.scheme.is_empty() {
                "Bearer"
            } else {
                authorization.scheme.trim()
            };
            ensure!(
                !scheme.eq_ignore_ascii_case("basic"),
                "authorization.type: use basic_auth for basic authentication"
            );
            let token = trimmed_text_or_file(
                &authorization.credentials.0,
                &authorization.credentials_file,
            )
            .context("authorization.credentials")?;
            access.authorize(scheme, &token)?;
        }
        if has_bearer {
            let token = trimmed_text_or_file(&config.bearer_token.0, &config.bearer_token_file)
                .context("bearer_token")?;
            access.authorize("Bearer", &token)?;
        }
        for (name, header) in &config.http_headers {
            let is_reserved =
                is_reserved(name) || RESERVED_HTTP_HEADERS.contains(&&*name.to_lowercase());
            ensure!(!is_reserved, "http_headers: {name} is a reserved header");
            access
                .add_values(name, header)
                .with_context(|| format!("http_headers.{name}"))?;
        }
        Ok(access)
    }

    /// Returns `true` if a TLS setting is given.
    pub fn has_tls_settings(&self) -> bool {
        self.tls != TlsSettings::default()
    }

    /// Checks the TLS settings. Reads the certificates and the key.
    ///
    /// # Errors
    /// If one is invalid.
    pub fn check_tls(&self) -> Result<()> {
        crate::tls::client_config(&self.tls).map(drop)
    }

    /// Trusts the certificate authorities of a file, or any server if `any_server` is `true`.
    pub fn trusting(mut self, ca_file: Option<PathBuf>, any_server: bool) -> Self {
        self.tls.ca_file = ca_file.unwrap_or(self.tls.ca_file);
        self.tls.insecure_skip_verify |= any_server;
        self
    }

    /// Adds a header to every request.
    ///
    /// # Errors
    /// If the name or value is invalid.
    pub fn add_header(&mut self, name: &str, value: &str) -> Result<()> {
        let name = name
            .parse::<HeaderName>()
            .map_err(|_| anyhow!("{name:?} is not a valid header name"))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| anyhow!("the value of {name} is not a valid header value"))?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(())
    }

    /// Sets the credentials unless they are set already.
    pub(super) fn authorize(&mut self, scheme: &str, credentials: &str) -> Result<()> {
        if !self.headers.contains_key(AUTHORIZATION) {
            self.add_header(AUTHORIZATION.as_str(), &format!("{scheme} {credentials}"))?;
        }
        Ok(())
    }

    fn add_values(&mut self, name: &str, header: &Header) -> Result<()> {
        let texts = header
            .values
            .iter()
            .chain(header.secrets.iter().map(|secret| &secret.0));
        for value in texts {
            self.add_header(name, value)?;
        }
        for path in &header.files {
            self.add_header(name, read(path)?.trim())?;
        }
        Ok(())
    }
}

impl HttpClientConfig {
    fn resolve_paths(&mut self, folder: &Path) {
        if let Some(basic_auth) = &mut self.basic_auth {
            basic_auth.resolve_paths(folder);
        }
        if let Some(authorization) = &mut self.authorization {
            authorization.resolve_paths(folder);
        }
        resolve_path(&mut self.bearer_token_file, folder);
        self.tls_config.resolve_paths(folder);
        for header in self.http_headers.values_mut() {
            header.resolve_paths(folder);
        }
    }
}

impl BasicAuth {
    /// Resolves relative paths against `folder`.
    pub fn resolve_paths(&mut self, folder: &Path) {
        resolve_path(&mut self.username_file, folder);
        resolve_path(&mut self.password_file, folder);
    }
}

impl Authorization {
    /// Resolves relative paths against `folder`.
    pub fn resolve_paths(&mut self, folder: &Path) {
        resolve_path(&mut self.credentials_file, folder);
    }
}

impl Header {
    /// Resolves relative paths against `folder`.
    pub fn resolve_paths(&mut self, folder: &Path) {
        for path in &mut self.files {
            resolve_path(path, folder);
        }
    }
}

impl TlsSettings {
    /// Resolves relative paths against `folder`.
    pub fn resolve_paths(&mut self, folder: &Path) {
        for path in [&mut self.ca_file, &mut self.cert_file, &mut self.key_file] {
            resolve_path(path, folder);
        }
    }
}

/// Resolves a relative path against `folder`. An empty path stays empty.
pub fn resolve_path(path: &mut PathBuf, folder: &Path) {
    if !path.as_os_str().is_empty() {
        *path = folder.join(&*path);
    }
}

/// Returns `true` if the settings of a client cannot contain this header.
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_lowercase();
    RESERVED_HEADERS.contains(&&*name) || FRAMING_HEADERS.contains(&&*name)
}

/// Returns a string or the contents of a file, both without spaces around them, or an empty string
/// if neither is set.
fn trimmed_text_or_file(text: &str, file: &Path) -> Result<String> {
    Ok(text_or_file(text, file)?
        .map(|text| text.trim().to_owned())
        .unwrap_or_default())
}

/// Returns a string, or the contents of a file; nothing if neither is set.
pub(super) fn text_or_file(text: &str, file: &Path) -> Result<Option<String>> {
    match (text.is_empty(), file.as_os_str().is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(text.to_owned())),
        (true, false) => read(file).map(Some),
        (false, false) => bail!("set the value or its file, not both"),
    }
}

/// Reads a small text file.
pub(super) fn read(path: &Path) -> Result<String> {
    read_text(path, FILE_SIZE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(text: &str) -> Result<String> {
        let access = Access::parse(text, Path::new(""))?;
        Ok(access
            .headers
            .get(AUTHORIZATION)
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default())
    }

    #[test]
    fn all_kinds_of_credentials_are_supported() {
        assert_eq!(authorization("").unwrap(), "");
        assert_eq!(
            authorization("basic_auth: {username: ann, password: b}").unwrap(),
            "Basic YW5uOmI="
        );
        assert_eq!(
            authorization("authorization: {credentials: abc}").unwrap(),
            "Bearer abc"
        );
        assert_eq!(
            authorization("authorization: {type: Token, credentials: abc}").unwrap(),
            "Token abc"
        );
        assert_eq!(authorization("bearer_token: abc").unwrap(), "Bearer abc");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "abc\n").unwrap();
        let access = Access::parse("authorization: {credentials_file: token}", dir.path()).unwrap();
        assert_eq!(access.headers[AUTHORIZATION], "Bearer abc");
        let access =
            Access::parse("http_headers: {X-Scope-OrgID: {values: [a]}}", dir.path()).unwrap();
        assert_eq!(access.headers["x-scope-orgid"], "a");
        assert!(!format!("{access:?}").contains("\"a\""), "{access:?}");
    }

    #[test]
    fn unsupported_settings_are_rejected_by_key() {
        let check = |text: &str, expect: &str| {
            let error = format!("{:#}", authorization(text).unwrap_err());
            assert!(error.contains(expect), "{error}");
        };
        check("oauth2: {client_id: x}", "unknown field `oauth2`");
        check("proxy_url: http://p", "unknown field `proxy_url`");
        check(
            "{bearer_token: a, basic_auth: {username: b}}",
            "at most one of",
        );
        check(
            "basic_auth: {password: a, password_file: b}",
            "basic_auth.password: set the value or its file",
        );
        check(
            "authorization: {credentials_file: nowhere}",
            "authorization.credentials: read \"nowhere\"",
        );
        check(
            "authorization: {credentials: \"s3\\ncret\"}",
            "the value of authorization is not a valid header value",
        );
        check(
            "http_headers: {Content-Length: {values: [\"1\"]}}",
            "http_headers: Content-Length is a reserved header",
        );
        check(
            "http_headers: {transfer-encoding: {values: [a]}}",
            "transfer-encoding is a reserved header",
        );
        check(
            "http_headers: {\"a b\": {values: [c]}}",
            "\"a b\" is not a valid header name",
        );
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let access = Access::parse(
            "tls_config: {ca_file: ca.pem, server_name: store}",
            Path::new("/etc/varve"),
        )
        .unwrap();
        assert_eq!(access.tls.ca_file, Path::new("/etc/varve/ca.pem"));
        assert_eq!(access.tls.cert_file, Path::new(""));
    }
}
