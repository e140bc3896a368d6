//! Section `tracing`: where traces are sent. Keys, defaults and errors are Prometheus'.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::duration::{duration, print};
use varve_client::Secret;
use varve_client::{Access, HttpClientConfig, TlsSettings, Url, is_reserved};
use varve_system::yaml::null_is_default;

/// The section as written.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracingConfig {
    /// Protocol of the receiver. Default gRPC.
    pub client_type: ClientType,
    /// `host:port` of the receiver.
    endpoint: String,
    /// Share of requests without a parent that are traced. Default 0; 1 and more is all, 0 and less
    /// none.
    pub sampling_fraction: f64,
    /// Whether to send without TLS.
    insecure: bool,
    #[serde(deserialize_with = "null_is_default")]
    tls_config: TlsSettings,
    #[serde(deserialize_with = "null_is_default")]
    headers: BTreeMap<String, Secret>,
    /// Compression of requests. Default none.
    pub compression: SpanCompression,
    /// Timeout of a request. Default 10s, also for 0.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    timeout: Duration,
}

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientType {
    /// OTLP over gRPC.
    #[default]
    Grpc,
    /// OTLP over HTTP, with protobuf.
    Http,
}

/// The compression of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub enum SpanCompression {
    /// None.
    #[default]
    #[serde(rename = "")]
    None,
    /// Gzip.
    #[serde(rename = "gzip")]
    Gzip,
}

const TIMEOUT: Duration = Duration::from_secs(10);

impl Default for TracingConfig {
    fn default() -> Self {
        Self {
            client_type: ClientType::default(),
            endpoint: String::new(),
            sampling_fraction: 0.0,
            insecure: false,
            tls_config: TlsSettings::default(),
            headers: BTreeMap::new(),
            compression: SpanCompression::default(),
            timeout: TIMEOUT,
        }
    }
}

impl TracingConfig {
    /// Makes paths relative to `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        self.tls_config.resolve_paths(folder);
    }

    /// Checks everything but the contents of other files.
    ///
    /// # Errors
    /// The first invalid key.
    pub(super) fn check(&self) -> Result<()> {
        for name in self.headers.keys() {
            let is_authorization = name.eq_ignore_ascii_case("authorization");
            ensure!(
                !is_authorization,
                "tracing.headers: custom authorization headers are not supported"
            );
            ensure!(
                !is_reserved(name),
                "tracing.headers: {name} is a reserved header"
            );
        }
        ensure!(!self.endpoint.is_empty(), "tracing.endpoint: must be set");
        self.url().map(drop)
    }

    /// Returns the timeout of a request.
    pub fn timeout(&self) -> Duration {
        if self.timeout.is_zero() {
            TIMEOUT
        } else {
            self.timeout
        }
    }

    /// Returns the URL of the receiver.
    ///
    /// # Errors
    /// If the endpoint is not `host:port`.
    pub fn url(&self) -> Result<Url> {
        let is_address = !self.endpoint.contains(['/', '@']);
        let scheme = if self.insecure { "http" } else { "https" };
        match Url::parse(&format!("{scheme}://{}", self.endpoint)) {
            Ok(url) if is_address => Ok(url),
            _ => anyhow::bail!("tracing.endpoint: {:?} is not host:port", self.endpoint),
        }
    }

    /// Checks the headers, and the TLS settings unless traces are sent without TLS. Blocks.
    ///
    /// # Errors
    /// The errors of [`TracingConfig::access`], and if a certificate or another TLS setting is
    /// invalid.
    pub fn check_access(&self) -> Result<()> {
        self.access().and_then(|access| {
            if self.insecure {
                Ok(())
            } else {
                access.check_tls()
            }
        })
    }

    /// Reads the certificates. Blocks.
    ///
    /// # Errors
    /// If a file cannot be read or a value is invalid. The message contains no secret.
    pub fn access(&self) -> Result<Access> {
        let settings = HttpClientConfig {
            tls_config: self.tls_config.clone(),
            ..HttpClientConfig::default()
        };
        let mut access = Access::new(&settings)?;
        for (name, value) in &self.headers {
            access.add_header(name, &value.0)?;
        }
        Ok(access)
    }
}

#[cfg(test)]
mod tests {
    use crate::file::Config;

    #[test]
    fn invalid_settings_are_rejected_by_key() {
        let check = |text: &str, expect: &str| {
            let error = format!(
                "{:#}",
                Config::parse(&format!("tracing: {text}")).unwrap_err()
            );
            assert!(error.contains(expect), "{error}");
        };
        check("{}", "tracing.endpoint: must be set");
        check(
            "{endpoint: 'http://a:1'}",
            "tracing.endpoint: \"http://a:1\" is not host:port",
        );
        check(
            "{endpoint: 'a:1', client_type: udp}",
            "tracing.client_type: unknown variant `udp`",
        );
        check(
            "{endpoint: 'a:1', compression: snappy}",
            "tracing.compression: unknown variant `snappy`",
        );
        check(
            "{endpoint: 'a:1', headers: {Authorization: x}}",
            "custom authorization headers are not supported",
        );
        check(
            "{endpoint: 'a:1', headers: {Host: x}}",
            "Host is a reserved header",
        );
        check("{endpoint: 'a:1', url: x}", "tracing: unknown field `url`");
    }

    #[test]
    fn the_section_is_optional_and_prints_no_header() {
        assert!(Config::parse("").unwrap().tracing.is_none());
        let null = "tracing: {endpoint: 'a:4317', headers: ~, tls_config: }";
        assert_eq!(
            Config::parse(null).unwrap(),
            Config::parse("tracing: {endpoint: 'a:4317'}").unwrap()
        );
        let of_secret = |value| {
            Config::parse(&format!(
                "tracing: {{endpoint: 'a:4317', headers: {{x: {value}}}}}"
            ))
            .unwrap()
        };
        assert_eq!(of_secret("~"), of_secret("''"));
        let text =
            "tracing: {endpoint: 'a:4317', headers: {x-token: s3cret}, sampling_fraction: 0.5}";
        let printed = Config::parse(text).unwrap().to_yaml();
        assert!(
            printed.contains("  endpoint: a:4317\n")
                && printed.contains("  sampling_fraction: 0.5\n"),
            "{printed}"
        );
        assert!(
            printed.contains("  client_type: grpc\n") && !printed.contains("s3cret"),
            "{printed}"
        );
    }
}
