//! The section of a container of Azure Blob Storage.

mod account;
mod connection_string;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_yaml_ng::Value;
use varve_client::{Access, Secret};

use super::http::{HttpSection, check_keys};
use super::parts::{PART_SIZE_DEFAULT, check_retries};
use crate::authorization::SharedKey;
use crate::credentials::{TokenSource, azure};
use account::Account;

pub(crate) use account::AzureCredentials;

/// The domain of accounts in the public cloud.
const ENDPOINT: &str = "blob.core.windows.net";
/// Keys with no effect: tokens are always for Azure Storage.
const WITHOUT_EFFECT: [&str; 1] = ["msi_resource"];
/// Keys of `reader_config` with no effect: downloads are repeated as other requests are.
const READER_WITHOUT_EFFECT: [&str; 1] = ["max_retry_requests"];
/// Keys of `pipeline_config` with no effect: requests have their own timeout and pauses.
const PIPELINE_WITHOUT_EFFECT: [&str; 3] = ["try_timeout", "retry_delay", "max_retry_delay"];

/// The address of a container, its credentials and the settings of uploads.
#[derive(Debug, Clone)]
pub(crate) struct AzureConfig {
    /// Host and optional port.
    pub(crate) host: String,
    pub(crate) is_insecure: bool,
    /// What precedes the name of the container in a path, without a final slash. Only emulators have
    /// it.
    pub(crate) server_path: String,
    pub(crate) container: String,
    /// `true` if the first object creates a missing container.
    pub(crate) creates_container: bool,
    pub(crate) credentials: AzureCredentials,
    pub(crate) access: Access,
    pub(crate) part_size: u64,
    pub(crate) retries_max: u32,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct AzureSection {
    storage_account: String,
    storage_account_key: Secret,
    storage_connection_string: Secret,
    storage_create_container: bool,
    container: String,
    endpoint: String,
    az_tenant_id: String,
    client_id: String,
    client_secret: Secret,
    /// The client ID of a managed identity.
    user_assigned_id: String,
    max_retries: u32,
    reader_config: BTreeMap<String, Value>,
    pipeline_config: PipelineSection,
    http_config: HttpSection,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PipelineSection {
    /// Maximum number of retries, in spite of its name. Replaces `max_retries`, unless 0.
    max_tries: u32,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// As in Thanos, a missing container is created unless the file says otherwise.
impl Default for AzureSection {
    fn default() -> Self {
        Self {
            storage_account: String::new(),
            storage_account_key: Secret::default(),
            storage_connection_string: Secret::default(),
            storage_create_container: true,
            container: String::new(),
            endpoint: String::new(),
            az_tenant_id: String::new(),
            client_id: String::new(),
            client_secret: Secret::default(),
            user_assigned_id: String::new(),
            max_retries: 0,
            reader_config: BTreeMap::new(),
            pipeline_config: PipelineSection::default(),
            http_config: HttpSection::default(),
            rest: BTreeMap::new(),
        }
    }
}

impl AzureSection {
    pub(super) fn check(self, folder: &Path, env: impl Fn(&str) -> String) -> Result<AzureConfig> {
        check_keys(&self.rest, &WITHOUT_EFFECT, &[])?;
        check_keys(&self.reader_config, &READER_WITHOUT_EFFECT, &[]).context("reader_config")?;
        let pipeline = &self.pipeline_config;
        check_keys(&pipeline.rest, &PIPELINE_WITHOUT_EFFECT, &[]).context("pipeline_config")?;
        self.http_config.check_keys()?;
        self.check_credentials()?;
        ensure!(!self.container.is_empty(), "container is missing");
        let retries = if pipeline.max_tries > 0 {
            pipeline.max_tries
        } else {
            self.max_retries
        };
        let retries_max = check_retries(retries)?;

        let text = &self.storage_connection_string;
        let account = if text.0.is_empty() {
            self.account(&env)?
        } else {
            connection_string::parse(text).context("storage_connection_string")?
        };
        Ok(AzureConfig {
            host: account.host,
            is_insecure: account.is_insecure,
            server_path: account.path,
            container: self.container,
            creates_container: self.storage_create_container,
            credentials: account.credentials,
            access: self.http_config.access(folder)?,
            part_size: PART_SIZE_DEFAULT,
            retries_max,
        })
    }

    /// Checks that the file does not have credentials of two kinds, or a part of some.
    fn check_credentials(&self) -> Result<()> {
        let has_key = !self.storage_account_key.0.is_empty();
        let has_connection_string = !self.storage_connection_string.0.is_empty();
        let has_application = !self.client_id.is_empty();
        ensure!(
            has_application != self.az_tenant_id.is_empty()
                && has_application != self.client_secret.0.is_empty(),
            "az_tenant_id, client_id and client_secret must be set together"
        );
        ensure!(
            !has_key || !has_connection_string,
            "storage_account_key and storage_connection_string exclude each other"
        );
        ensure!(
            self.user_assigned_id.is_empty()
                || !has_key && !has_connection_string && !has_application,
            "user_assigned_id excludes storage_account_key, storage_connection_string and client_id"
        );
        Ok(())
    }

    /// Returns the account that the file names, for a file without a connection string.
    fn account(&self, env: &impl Fn(&str) -> String) -> Result<Account> {
        ensure!(
            !self.storage_account.is_empty(),
            "storage_account is missing"
        );
        let endpoint = if self.endpoint.is_empty() {
            ENDPOINT
        } else {
            &self.endpoint
        };
        ensure!(
            !endpoint.contains('/'),
            "endpoint {endpoint:?} is not a host with an optional port"
        );
        Ok(Account {
            host: format!("{}.{endpoint}", self.storage_account),
            is_insecure: false,
            path: String::new(),
            credentials: self.credentials(env)?,
        })
    }

    /// Returns the key of the account, or where tokens come from.
    fn credentials(&self, env: &impl Fn(&str) -> String) -> Result<AzureCredentials> {
        if !self.storage_account_key.0.is_empty() {
            let key = SharedKey::new(&self.storage_account, &self.storage_account_key)
                .context("storage_account_key")?;
            return Ok(AzureCredentials::SharedKey(key));
        }
        let source = if !self.client_id.is_empty() {
            let secret = self.client_secret.clone();
            azure::Source::of_secret(&self.az_tenant_id, &self.client_id, secret, env)?
        } else if !self.user_assigned_id.is_empty() {
            azure::Source::of_user_assigned(&self.user_assigned_id, env)?
        } else {
            azure::Source::find(env)?
        };
        Ok(AzureCredentials::Tokens(TokenSource::Azure(source)))
    }
}

#[cfg(test)]
mod tests;
