//! Tokens of Microsoft Entra ID for Azure Storage: of a service principal with a secret, of a
//! workload identity, or of a managed identity.
//!
//! Sources: "Authorize with Microsoft Entra ID" in the reference of Azure Storage, "OAuth 2.0 client
//! credentials flow" in the documentation of Entra ID, and `DefaultAzureCredential` of the SDK for
//! Go, which Thanos uses.

mod managed_identity;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use varve_client::Secret;
use varve_system::machine::files::read_text;

use super::issuer::{SIZE_MAX, check_confidential, request_token};
use super::renewal::Expiring;
use managed_identity::ManagedIdentity;

/// What a token allows: all that its identity may do with storage, in all clouds.
const SCOPE: &str = "https://storage.azure.com/.default";
/// Issuer of tokens of the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com";
/// The type of an assertion that is a JWT (RFC 7523).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Where tokens come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// An application, and how it proves who it is.
    Application {
        client_id: String,
        proof: Proof,
        token_url: String,
    },
    ManagedIdentity(ManagedIdentity),
}

#[derive(Debug, Clone)]
pub(crate) enum Proof {
    Secret(Secret),
    /// A file with a token of Kubernetes or of another provider.
    TokenFile(PathBuf),
}

impl Source {
    /// Returns the source for a secret of an application.
    ///
    /// # Errors
    /// If the name of the tenant or `AZURE_AUTHORITY_HOST` is invalid.
    pub(crate) fn of_secret(
        tenant_id: &str,
        client_id: &str,
        secret: Secret,
        env: &impl Fn(&str) -> String,
    ) -> Result<Self> {
        Self::of_application(tenant_id, client_id, Proof::Secret(secret), env)
    }

    /// Returns the source for a managed identity that the user has created, by its client ID.
    ///
    /// # Errors
    /// If the environment has managed identities of an unsupported kind.
    pub(crate) fn of_user_assigned(client_id: &str, env: &impl Fn(&str) -> String) -> Result<Self> {
        ManagedIdentity::find(client_id, env).map(Self::ManagedIdentity)
    }

    /// Returns the source of the first place that has one: a secret in the environment, a workload
    /// identity, and else a managed identity.
    ///
    /// # Errors
    /// If the first one is invalid or of an unsupported kind.
    pub(crate) fn find(env: &impl Fn(&str) -> String) -> Result<Self> {
        let tenant_id = env("AZURE_TENANT_ID");
        let client_id = env("AZURE_CLIENT_ID");
        let secret = env("AZURE_CLIENT_SECRET");
        let token_file = env("AZURE_FEDERATED_TOKEN_FILE");
        let has_application = !tenant_id.is_empty() && !client_id.is_empty();
        if has_application && !secret.is_empty() {
            return Self::of_secret(&tenant_id, &client_id, Secret(secret), env);
        }
        if has_application && !token_file.is_empty() {
            let proof = Proof::TokenFile(token_file.into());
            return Self::of_application(&tenant_id, &client_id, proof, env);
        }
        let identity = ManagedIdentity::find(&client_id, env)?;
        Ok(Self::ManagedIdentity(identity.after(
            "config has no storage_account_key, storage_connection_string, client_id or \
             user_assigned_id, AZURE_TENANT_ID and AZURE_CLIENT_ID are not set together with \
             AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE",
        )))
    }

    fn of_application(
        tenant_id: &str,
        client_id: &str,
        proof: Proof,
        env: &impl Fn(&str) -> String,
    ) -> Result<Self> {
        let is_tenant = tenant_id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        ensure!(
            is_tenant && !tenant_id.is_empty(),
            "{tenant_id:?} is neither the ID nor the domain of a tenant"
        );
        let authority = match env("AZURE_AUTHORITY_HOST") {
            host if host.is_empty() => AUTHORITY.to_owned(),
            host => host.trim_end_matches('/').to_owned(),
        };
        check_confidential(&authority, &[]).context("AZURE_AUTHORITY_HOST")?;
        Ok(Self::Application {
            client_id: client_id.to_owned(),
            proof,
            token_url: format!("{authority}/{tenant_id}/oauth2/v2.0/token"),
        })
    }

    pub(super) fn fetch(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        match self {
            Self::Application {
                client_id,
                proof,
                token_url,
            } => {
                let mut form = vec![
                    ("grant_type", "client_credentials"),
                    ("client_id", client_id),
                    ("scope", SCOPE),
                ];
                let assertion;
                match proof {
                    Proof::Secret(secret) => form.push(("client_secret", &secret.0)),
                    Proof::TokenFile(path) => {
                        // The file is read each time: its token expires.
                        assertion = read_text(path, SIZE_MAX as u64)
                            .context("AZURE_FEDERATED_TOKEN_FILE")?;
                        form.push(("client_assertion_type", JWT_BEARER));
                        form.push(("client_assertion", assertion.trim()));
                    }
                }
                request_token(token_url, &form, now)
                    .with_context(|| format!("token of application {client_id}"))
            }
            Self::ManagedIdentity(identity) => identity.fetch(now),
        }
    }
}

#[cfg(test)]
mod tests;
