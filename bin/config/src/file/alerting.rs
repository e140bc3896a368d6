//! Section `alerting`: which Alertmanagers get alerts, and how the labels of alerts are rewritten.
//! Keys, defaults and errors are Prometheus'.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use varve_ingest::relabel::Relabeling;

use super::duration::{duration, print};
use super::ingest::RuleConfig;
use varve_client::Secret;
use varve_client::{
    Access, Authorization, BasicAuth, Header, HttpClientConfig, TlsSettings, resolve_path,
};
use varve_system::yaml::{labels, null_is_default};

/// Maximum number of entries in `alerting.alertmanagers`.
const ENTRIES_MAX: usize = 100;

/// The section as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertingConfig {
    /// Relabel rules for all alerts, applied after external labels are added. Default none.
    #[serde(deserialize_with = "null_is_default")]
    alert_relabel_configs: Vec<RuleConfig>,
    /// Alertmanagers with common settings. Default none; up to [`ENTRIES_MAX`].
    #[serde(deserialize_with = "null_is_default")]
    pub alertmanagers: Vec<AlertmanagerConfig>,
}

/// Alertmanagers with common settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertmanagerConfig {
    /// Targets as written here. Default none.
    #[serde(deserialize_with = "null_is_default")]
    pub static_configs: Vec<TargetGroup>,
    /// Files with targets. Default none.
    #[serde(deserialize_with = "null_is_default")]
    pub file_sd_configs: Vec<FileDiscovery>,
    /// DNS names whose addresses are targets. Default none.
    #[serde(deserialize_with = "null_is_default")]
    pub dns_sd_configs: Vec<DnsDiscovery>,
    /// Relabel rules for targets. Default none.
    #[serde(deserialize_with = "null_is_default")]
    relabel_configs: Vec<RuleConfig>,
    /// Relabel rules for alerts that these Alertmanagers get. Default none.
    #[serde(deserialize_with = "null_is_default")]
    alert_relabel_configs: Vec<RuleConfig>,
    /// `http` or `https`. Default `http`.
    pub scheme: Scheme,
    /// Path in front of `/api/v2/alerts`. Default empty.
    #[serde(deserialize_with = "null_is_default")]
    pub path_prefix: String,
    /// Timeout of a request. Default 10s.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    pub timeout: Duration,
    api_version: ApiVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    basic_auth: Option<BasicAuth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization: Option<Authorization>,
    bearer_token: Secret,
    #[serde(deserialize_with = "null_is_default")]
    bearer_token_file: PathBuf,
    #[serde(deserialize_with = "null_is_default")]
    tls_config: TlsSettings,
    #[serde(deserialize_with = "null_is_default")]
    http_headers: BTreeMap<String, Header>,
    /// Ignored: redirects are never followed.
    follow_redirects: bool,
    /// Ignored: the client uses HTTP/1.1.
    enable_http2: bool,
}

/// Targets with common labels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TargetGroup {
    /// Addresses: `host:port`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub targets: Vec<String>,
    /// Labels of all these targets.
    #[serde(default, deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
}

/// Files with target groups.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileDiscovery {
    /// Patterns of paths.
    pub files: Vec<PathBuf>,
    /// How often files are read at the latest. Default 5m.
    #[serde(
        default = "five_minutes",
        deserialize_with = "duration",
        serialize_with = "print"
    )]
    pub refresh_interval: Duration,
}

/// DNS names whose addresses are targets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DnsDiscovery {
    /// Names to resolve.
    pub names: Vec<String>,
    /// Type of the DNS query. Prometheus' default is `SRV`, which is not supported.
    #[serde(rename = "type", default)]
    pub kind: DnsType,
    /// Port of the targets.
    #[serde(default)]
    pub port: u16,
    /// How often names are resolved. Default 30s.
    #[serde(
        default = "half_a_minute",
        deserialize_with = "duration",
        serialize_with = "print"
    )]
    pub refresh_interval: Duration,
}

/// The protocol of requests to an Alertmanager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Without TLS.
    #[default]
    Http,
    /// With TLS.
    Https,
}

/// The version of Alertmanager's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum ApiVersion {
    #[default]
    V2,
}

/// Types of DNS records in Prometheus. Only `A` and `AAAA` are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DnsType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Hosts and ports of a service.
    #[default]
    Srv,
    /// Mail servers.
    Mx,
    /// Name servers.
    Ns,
}

fn five_minutes() -> Duration {
    Duration::from_secs(300)
}

fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

impl Default for AlertmanagerConfig {
    fn default() -> Self {
        Self {
            static_configs: Vec::new(),
            file_sd_configs: Vec::new(),
            dns_sd_configs: Vec::new(),
            relabel_configs: Vec::new(),
            alert_relabel_configs: Vec::new(),
            scheme: Scheme::Http,
            path_prefix: String::new(),
            timeout: Duration::from_secs(10),
            api_version: ApiVersion::V2,
            basic_auth: None,
            authorization: None,
            bearer_token: Secret::default(),
            bearer_token_file: PathBuf::new(),
            tls_config: TlsSettings::default(),
            http_headers: BTreeMap::new(),
            follow_redirects: true,
            enable_http2: true,
        }
    }
}

impl AlertingConfig {
    /// Makes paths relative to `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for alertmanager in &mut self.alertmanagers {
            alertmanager.resolve_paths(folder);
        }
    }

    /// Checks everything but the contents of other files.
    ///
    /// # Errors
    /// The first invalid key.
    pub(super) fn check(&self) -> Result<()> {
        self.alert_relabeling()?;
        let n = self.alertmanagers.len();
        ensure!(
            n <= ENTRIES_MAX,
            "alerting.alertmanagers: must be at most {ENTRIES_MAX}"
        );
        for (idx, alertmanager) in self.alertmanagers.iter().enumerate() {
            alertmanager
                .check()
                .with_context(|| format!("alerting.alertmanagers[{idx}]"))?;
        }
        Ok(())
    }

    /// Returns the relabel rules for all alerts.
    ///
    /// # Errors
    /// An invalid rule, in Prometheus' words.
    pub fn alert_relabeling(&self) -> Result<Relabeling> {
        RuleConfig::compile(&self.alert_relabel_configs).context("alerting.alert_relabel_configs")
    }
}

impl FileDiscovery {
    /// Checks everything but the contents of the files.
    fn check(&self) -> Result<()> {
        ensure!(!self.files.is_empty(), "must contain at least one path");
        ensure!(
            !self.refresh_interval.is_zero(),
            "refresh_interval: must be more than 0"
        );
        for file in &self.files {
            let extension = file.extension().unwrap_or_default();
            let is_known = ["json", "yml", "yaml"]
                .iter()
                .any(|known| extension == *known);
            ensure!(
                is_known,
                "files: {file:?} does not end in .json, .yml or .yaml"
            );
        }
        Ok(())
    }
}

impl AlertmanagerConfig {
    fn check(&self) -> Result<()> {
        self.target_relabeling()?;
        self.alert_relabeling()?;
        ensure!(!self.timeout.is_zero(), "timeout: must be more than 0");
        // Users write URLs. With relabel rules they may be intended.
        if self.relabel_configs.is_empty() {
            for target in self.static_configs.iter().flat_map(|group| &group.targets) {
                ensure!(
                    !target.contains('/'),
                    "static_configs: {target:?} is not a valid hostname"
                );
            }
        }
        self.file_sd_configs
            .iter()
            .try_for_each(FileDiscovery::check)
            .context("file_sd_configs")?;
        for DnsDiscovery {
            names,
            kind,
            port,
            refresh_interval,
        } in &self.dns_sd_configs
        {
            ensure!(
                !names.is_empty(),
                "dns_sd_configs: must contain at least one name"
            );
            ensure!(
                matches!(kind, DnsType::A | DnsType::Aaaa),
                "dns_sd_configs.type: {} is not supported; set A or AAAA, and a port",
                format!("{kind:?}").to_uppercase()
            );
            ensure!(
                *port > 0,
                "dns_sd_configs.port: a port is required for records of type A and AAAA"
            );
            ensure!(
                !refresh_interval.is_zero(),
                "dns_sd_configs.refresh_interval: must be more than 0"
            );
        }
        Ok(())
    }

    /// Returns the relabel rules for targets.
    ///
    /// # Errors
    /// As [`AlertingConfig::alert_relabeling`].
    pub fn target_relabeling(&self) -> Result<Relabeling> {
        RuleConfig::compile(&self.relabel_configs).context("relabel_configs")
    }

    /// Returns the relabel rules for alerts, if any.
    ///
    /// # Errors
    /// As [`AlertingConfig::alert_relabeling`].
    pub fn alert_relabeling(&self) -> Result<Option<Relabeling>> {
        if self.alert_relabel_configs.is_empty() {
            return Ok(None);
        }
        let rules = RuleConfig::compile(&self.alert_relabel_configs);
        Ok(Some(rules.context("alert_relabel_configs")?))
    }

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
        for discovery in &mut self.file_sd_configs {
            for path in &mut discovery.files {
                resolve_path(path, folder);
            }
        }
    }

    /// Reads and checks credentials and certificates. Blocks.
    ///
    /// # Errors
    /// The errors of [`AlertmanagerConfig::access`], and if a TLS setting is invalid.
    pub fn check_access(&self) -> Result<()> {
        let access = self.access()?;
        // Labels and relabel rules of a target may set `__scheme__` to `https`.
        if self.scheme == Scheme::Https || access.has_tls_settings() {
            access.check_tls()?;
        }
        Ok(())
    }

    /// Reads credentials and certificates. Blocks.
    ///
    /// # Errors
    /// If a file cannot be read or a value is invalid. The message contains no secret.
    pub fn access(&self) -> Result<Access> {
        let settings = HttpClientConfig {
            basic_auth: self.basic_auth.clone(),
            authorization: self.authorization.clone(),
            bearer_token: self.bearer_token.clone(),
            bearer_token_file: self.bearer_token_file.clone(),
            tls_config: self.tls_config.clone(),
            http_headers: self.http_headers.clone(),
            ..HttpClientConfig::default()
        };
        Access::new(&settings)
    }
}

#[cfg(test)]
mod tests {
    use crate::file::Config;

    fn check(alertmanager: &str, expect: &str) {
        let error = format!(
            "{:#}",
            Config::parse(&format!("alerting:\n  alertmanagers:\n  - {alertmanager}")).unwrap_err()
        );
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn unknown_keys_are_errors_with_line_and_column() {
        check(
            "sigv4: {}",
            "alerting.alertmanagers[0]: unknown field `sigv4`",
        );
        check("sigv4: {}", "at line 3 column 5");
        check(
            "static_configs: [{target: [x]}]",
            "alerting.alertmanagers[0].static_configs[0]: unknown field `target`",
        );
        check("basic_auth: {user: x}", "basic_auth: unknown field `user`");
        check(
            "relabel_configs: [{label: x}]",
            "relabel_configs[0]: unknown field `label`",
        );
    }

    #[test]
    fn invalid_values_are_rejected_by_key() {
        check(
            "api_version: v1",
            "api_version: unknown variant `v1`, expected `v2`",
        );
        check("scheme: ftp", "scheme: unknown variant `ftp`");
        check(
            "timeout: 0s",
            "alerting.alertmanagers[0]: timeout: must be more than 0",
        );
        check(
            "static_configs: [{targets: ['http://a:9093']}]",
            "\"http://a:9093\" is not a valid hostname",
        );
        check(
            "file_sd_configs: [{files: []}]",
            "must contain at least one path",
        );
        check(
            "file_sd_configs: [{files: [a.txt]}]",
            "\"a.txt\" does not end in .json, .yml or .yaml",
        );
        check(
            "dns_sd_configs: [{names: [a], port: 1}]",
            "dns_sd_configs.type: SRV is not supported; set A or AAAA",
        );
        check(
            "dns_sd_configs: [{names: [a], type: MX}]",
            "dns_sd_configs.type: MX is not supported",
        );
        check(
            "dns_sd_configs: [{names: [a], type: A}]",
            "dns_sd_configs.port: a port is required",
        );
        check(
            "dns_sd_configs: [{names: [], type: A, port: 1}]",
            "must contain at least one name",
        );
        check(
            "relabel_configs: [{action: nonsense}]",
            "relabel_configs: rule 0: unknown relabel action",
        );
        check(
            "alert_relabel_configs: [{action: keep, disable_on_use: true}]",
            "disable_on_use",
        );
        let many = "alerting: {alertmanagers: [".to_owned() + &"{},".repeat(101) + "]}";
        assert!(
            Config::parse(&many)
                .unwrap_err()
                .to_string()
                .contains("must be at most 100")
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let text = "alerting: {alertmanagers: [{bearer_token: s3cret}, {basic_auth: {username: a, password: s3cret}}]}";
        let printed = Config::parse(text).unwrap().to_yaml();
        assert!(
            printed.contains("bearer_token: <secret>") && printed.contains("password: <secret>"),
            "{printed}"
        );
        assert!(!printed.contains("s3cret"), "{printed}");
        // Such a configuration, for example of a snapshot, would send the text as the secret.
        assert!(
            format!("{:#}", Config::parse(&printed).unwrap_err())
                .contains("<secret> is the placeholder")
        );
    }
}
