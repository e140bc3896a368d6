//! The section of a bucket of Google Cloud Storage.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_yaml_ng::Value;
use varve_client::{Access, Secret};

use super::http::{HttpSection, check_keys};
use super::parts::{PART_SIZE_DEFAULT, PART_SIZES, check_retries};
use crate::credentials::{TokenSource, google};

/// The host of the XML API.
const HOST: &str = "storage.googleapis.com";
/// Keys with no effect: requests use HTTP.
const WITHOUT_EFFECT: [&str; 2] = ["use_grpc", "grpc_conn_pool_size"];

/// A bucket of Google Cloud Storage, its credentials and the settings of uploads.
#[derive(Debug, Clone)]
pub(crate) struct GcsConfig {
    pub(crate) bucket: String,
    /// Host and optional port.
    pub(crate) host: String,
    pub(crate) is_insecure: bool,
    /// `None` for an emulator.
    pub(crate) credentials: Option<TokenSource>,
    pub(crate) access: Access,
    pub(crate) part_size: u64,
    pub(crate) retries_max: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GcsSection {
    bucket: String,
    /// Credentials in JSON.
    service_account: Secret,
    chunk_size_bytes: u64,
    /// Maximum number of attempts: 1 for no retries, as in Thanos.
    max_retries: u32,
    http_config: HttpSection,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

impl GcsSection {
    pub(super) fn check(self, folder: &Path, env: impl Fn(&str) -> String) -> Result<GcsConfig> {
        check_keys(&self.rest, &WITHOUT_EFFECT, &[])?;
        self.http_config.check_keys()?;
        ensure!(!self.bucket.is_empty(), "bucket is missing");
        // As in Google's libraries, an emulator gets no credentials.
        let emulator = env("STORAGE_EMULATOR_HOST");
        let credentials = if emulator.is_empty() {
            let source = google::Source::find(&self.service_account, &env)?;
            Some(TokenSource::Google(source))
        } else {
            None
        };
        let host = match emulator.split_once("://") {
            Some((_, host)) => host.trim_end_matches('/'),
            None if emulator.is_empty() => HOST,
            None => &*emulator,
        };
        let retries_max = match check_retries(self.max_retries)? {
            default if self.max_retries == 0 => default,
            attempts => attempts - 1,
        };
        Ok(GcsConfig {
            bucket: self.bucket,
            host: host.to_owned(),
            is_insecure: !emulator.is_empty() && !emulator.starts_with("https://"),
            credentials,
            access: self.http_config.access(folder)?,
            part_size: part_size(self.chunk_size_bytes),
            retries_max,
        })
    }
}

/// Returns the size of a part. In Thanos, a chunk may be smaller than the parts of the XML API, and
/// larger than the memory of a part here.
fn part_size(chunk_size: u64) -> u64 {
    if chunk_size == 0 {
        return PART_SIZE_DEFAULT;
    }
    chunk_size.clamp(*PART_SIZES.start(), *PART_SIZES.end())
}
