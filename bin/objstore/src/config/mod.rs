//! The configuration of a bucket: the YAML of Thanos' `--objstore.config-file`.
//!
//! ```yaml
//! type: S3
//! config: {bucket: metrics, endpoint: s3.eu-west-1.amazonaws.com, access_key: …, secret_key: …}
//! prefix: ""
//! ```
//! Keys that have no effect here are accepted with any value. Keys that are not supported are
//! accepted only with an empty value. So a complete example from Thanos' documentation works
//! unchanged. Each type has its lists of such keys.

mod azure;
mod gcs;
mod http;
mod parts;
mod s3;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_yaml_ng::Value;
use varve_system::yaml::yaml_error;

use crate::limits::MIB;
use azure::AzureSection;
use gcs::GcsSection;
use s3::S3Section;

pub(super) use azure::{AzureConfig, AzureCredentials};
pub(super) use gcs::GcsConfig;
pub(super) use s3::S3Config;

/// Maximum size of the file in bytes.
const FILE_SIZE_MAX: u64 = MIB;
/// Types that Varve has, for errors.
const TYPES: &str = "S3, GCS, AZURE or FILESYSTEM";
/// Types of Thanos that Varve does not have.
const OTHER_TYPES: [&str; 6] = ["SWIFT", "COS", "ALIYUNOSS", "BOS", "OCI", "OBS"];

/// A bucket or a directory.
#[derive(Debug, Clone)]
pub struct BucketConfig {
    pub(super) backend: BackendConfig,
    /// Prefix of all keys: empty, or with a final slash.
    pub(super) prefix: String,
}

#[derive(Debug, Clone)]
pub(super) enum BackendConfig {
    Filesystem(PathBuf),
    S3(Box<S3Config>),
    Gcs(Box<GcsConfig>),
    Azure(Box<AzureConfig>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    prefix: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesystemSection {
    directory: PathBuf,
}

impl BucketConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or has an unknown type, an unsupported key or a missing one, which the
    /// message names.
    pub fn load(path: &Path) -> Result<Self> {
        let about = || format!("object storage configuration {path:?}");
        let size = path
            .metadata()
            .with_context(|| format!("read {}", about()))?
            .len();
        ensure!(
            size <= FILE_SIZE_MAX,
            "{}: {size} bytes exceed the maximum of {FILE_SIZE_MAX}",
            about()
        );
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", about()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder, |name| {
            std::env::var(name).unwrap_or_default()
        })
        .with_context(about)
    }

    /// Returns the bucket that an argument of a tool names. The argument is a URL
    /// `s3://bucket/prefix` (credentials, endpoint and region come from the environment), a
    /// configuration file, or a directory, which need not exist.
    ///
    /// # Errors
    /// If the configuration file is invalid, the environment has no credentials, or the argument is a
    /// URL of another kind.
    pub fn from_argument(argument: &str) -> Result<Self> {
        let path = Path::new(argument);
        match argument.strip_prefix("s3://") {
            Some(url) => Self::from_url(url, |name| std::env::var(name).unwrap_or_default()),
            None if path.is_file() => Self::load(path),
            // A directory with such a name is hardly meant.
            None if argument.starts_with("s3:") || argument.contains("://") => bail!(
                "{argument:?} is no bucket: expected s3://BUCKET/PREFIX, or a file with the configuration of another kind of bucket"
            ),
            None => Ok(Self {
                backend: BackendConfig::Filesystem(path.to_owned()),
                prefix: String::new(),
            }),
        }
    }

    fn from_url(url: &str, env: impl Fn(&str) -> String) -> Result<Self> {
        let (bucket, prefix) = url.split_once('/').unwrap_or((url, ""));
        let endpoint = env("AWS_ENDPOINT_URL");
        let section = S3Section::of_url(bucket, &endpoint, env("AWS_REGION"));
        let backend = section
            .check(Path::new(""), env)
            .with_context(|| format!("s3://{url}"))?;
        Ok(Self {
            backend: BackendConfig::S3(Box::new(backend)),
            prefix: with_slash(prefix),
        })
    }

    fn parse(text: &str, folder: &Path, env: impl Fn(&str) -> String) -> Result<Self> {
        let File {
            kind,
            config,
            prefix,
        } = serde_yaml_ng::from_str(text).map_err(yaml_error)?;
        let backend = match kind.to_uppercase().as_str() {
            "FILESYSTEM" => {
                let FilesystemSection { directory } = section(config)?;
                BackendConfig::Filesystem(directory)
            }
            "S3" => {
                let section: S3Section = section(config)?;
                BackendConfig::S3(Box::new(section.check(folder, env).context("config")?))
            }
            "GCS" => {
                let section: GcsSection = section(config)?;
                BackendConfig::Gcs(Box::new(section.check(folder, env).context("config")?))
            }
            "AZURE" => {
                let section: AzureSection = section(config)?;
                BackendConfig::Azure(Box::new(section.check(folder, env).context("config")?))
            }
            other if OTHER_TYPES.contains(&other) => {
                bail!("type {other} is not supported; use {TYPES}")
            }
            _ => bail!("unknown type {kind:?}; use {TYPES}"),
        };
        Ok(Self {
            backend,
            prefix: with_slash(&prefix),
        })
    }
}

fn section<T: DeserializeOwned>(config: Value) -> Result<T> {
    serde_yaml_ng::from_value(config)
        .map_err(yaml_error)
        .context("config")
}

fn with_slash(prefix: &str) -> String {
    match prefix.trim_matches('/') {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    }
}

#[cfg(test)]
mod tests;
