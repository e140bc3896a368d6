//! Tokens of Google Cloud: for a service account, a user, a workload identity, or of the metadata
//! server.
//!
//! Source: "How Application Default Credentials works" in the documentation of Google Cloud.

mod external_account;
mod oauth;
mod service_account;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use varve_client::Secret;
use varve_system::machine::files::read_text;

use super::issuer::{SIZE_MAX, parse_token, request, request_token};
use super::renewal::Expiring;
use external_account::{ExternalAccount, ExternalAccountFile};
use oauth::{TOKEN_URL, check_universe};
use service_account::{ServiceAccount, ServiceAccountFile};

/// Where tokens come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    ServiceAccount(Arc<ServiceAccount>),
    User {
        client_id: String,
        client_secret: Secret,
        refresh_token: Secret,
        token_url: String,
    },
    ExternalAccount(Box<ExternalAccount>),
    Metadata {
        /// The URL of the metadata server.
        url: String,
        /// Where else credentials were looked for, for errors.
        looked_for: String,
    },
}

/// A file with credentials. Fields that are not used here are allowed, as in Google's libraries.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum File {
    ServiceAccount(ServiceAccountFile),
    AuthorizedUser(UserFile),
    ExternalAccount(Box<ExternalAccountFile>),
}

#[derive(Deserialize)]
struct UserFile {
    client_id: String,
    client_secret: Secret,
    refresh_token: Secret,
    #[serde(default)]
    universe_domain: String,
}

impl Source {
    /// Returns the source of the first place that has one: the configuration, the file that
    /// `GOOGLE_APPLICATION_CREDENTIALS` names, the file of `gcloud`, and else the metadata server.
    ///
    /// # Errors
    /// If the first one is invalid or has an unsupported type.
    pub(crate) fn find(configured: &Secret, env: &impl Fn(&str) -> String) -> Result<Self> {
        if !configured.0.is_empty() {
            return Self::parse(&configured.0).context("service_account");
        }
        let named = PathBuf::from(env("GOOGLE_APPLICATION_CREDENTIALS"));
        if !named.as_os_str().is_empty() {
            return Self::load(&named).context("GOOGLE_APPLICATION_CREDENTIALS");
        }

        let of_gcloud = gcloud_file(env);
        if of_gcloud.is_file() {
            return Self::load(&of_gcloud);
        }
        let host = match env("GCE_METADATA_HOST") {
            host if host.is_empty() => "169.254.169.254".to_owned(),
            host => host,
        };
        Ok(Self::Metadata {
            url: format!("http://{host}"),
            looked_for: format!(
                "service_account is empty, GOOGLE_APPLICATION_CREDENTIALS is not set, {of_gcloud:?} does not exist"
            ),
        })
    }

    fn load(path: &Path) -> Result<Self> {
        let text = read_text(path, SIZE_MAX as u64)?;
        Self::parse(&text).with_context(|| format!("credentials {path:?}"))
    }

    /// Reads credentials in JSON.
    fn parse(text: &str) -> Result<Self> {
        // The text has secrets, which the errors of serde do not print.
        let file: File = serde_json::from_str(text).map_err(|error| {
            anyhow!("these are no credentials in JSON that Varve knows: {error}")
        })?;
        match file {
            File::ServiceAccount(file) => Ok(Self::ServiceAccount(Arc::new(file.check()?))),
            File::AuthorizedUser(file) => {
                check_universe(&file.universe_domain)?;
                Ok(Self::User {
                    client_id: file.client_id,
                    client_secret: file.client_secret,
                    refresh_token: file.refresh_token,
                    token_url: TOKEN_URL.to_owned(),
                })
            }
            File::ExternalAccount(file) => Ok(Self::ExternalAccount(Box::new(file.check()?))),
        }
    }

    pub(super) fn fetch(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        match self {
            Self::ServiceAccount(account) => account.fetch(now),
            Self::User {
                client_id,
                client_secret,
                refresh_token,
                token_url,
            } => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id),
                    ("client_secret", &client_secret.0),
                    ("refresh_token", &refresh_token.0),
                ];
                request_token(token_url, &form, now).context("token of the user of gcloud")
            }
            Self::ExternalAccount(account) => account.fetch(now),
            Self::Metadata { url, looked_for } => fetch_from_metadata(url, now)
                .with_context(|| format!("{looked_for}, and the metadata server has no token")),
        }
    }
}

/// Requests a token of the service account of the instance, or of the pod.
fn fetch_from_metadata(url: &str, now: Timestamp) -> Result<Expiring<Secret>> {
    let url = format!("{url}/computeMetadata/v1/instance/service-accounts/default/token");
    let headers = [("metadata-flavor", "Google")];
    parse_token(&request("GET", &url, &headers, Bytes::new())?, now)
}

/// Returns the file of `gcloud auth application-default login`.
fn gcloud_file(env: &impl Fn(&str) -> String) -> PathBuf {
    let dir = match env("CLOUDSDK_CONFIG") {
        dir if dir.is_empty() => PathBuf::from(env("HOME")).join(".config/gcloud"),
        dir => PathBuf::from(dir),
    };
    dir.join("application_default_credentials.json")
}

#[cfg(test)]
mod tests;
