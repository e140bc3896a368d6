//! Tokens of a managed identity: an endpoint of the platform issues them.
//!
//! Source: "How to use managed identities for Azure resources on an Azure VM to acquire an access
//! token", and "REST endpoint reference" of managed identities in App Service, in the documentation
//! of Azure.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use jiff::Timestamp;
use varve_client::{Secret, escape};

use super::super::issuer::{parse_token, request};
use super::super::renewal::Expiring;

/// The service that tokens are for.
const RESOURCE: &str = "https://storage.azure.com";
/// The metadata service of an instance (IMDS).
const METADATA_SERVICE: &str = "http://169.254.169.254";

/// The endpoint of a managed identity.
#[derive(Debug, Clone)]
pub(crate) struct ManagedIdentity {
    url: String,
    /// The header that proves that the request comes from the instance.
    header: (&'static str, Secret),
    /// Where else credentials were looked for, for errors.
    looked_for: Option<&'static str>,
}

impl ManagedIdentity {
    /// Returns the endpoint of App Service and of container apps if the environment names one, and
    /// else that of virtual machines. `client_id` selects one of several identities, unless empty.
    ///
    /// # Errors
    /// If the environment is one of a service whose managed identities are not supported.
    pub(super) fn find(client_id: &str, env: &impl Fn(&str) -> String) -> Result<Self> {
        let endpoint = env("IDENTITY_ENDPOINT");
        let secret = env("IDENTITY_HEADER");
        let is_app_service = !endpoint.is_empty() && !secret.is_empty();
        for (variable, service, is_of_service) in [
            (
                "IDENTITY_SERVER_THUMBPRINT",
                "Service Fabric",
                is_app_service,
            ),
            (
                "MSI_ENDPOINT",
                "Cloud Shell and Azure Machine Learning",
                !is_app_service,
            ),
            (
                "IMDS_ENDPOINT",
                "Azure Arc",
                !endpoint.is_empty() && !is_app_service,
            ),
        ] {
            ensure!(
                !is_of_service || env(variable).is_empty(),
                "{variable} is set, but the managed identities of {service} are not supported"
            );
        }

        let mut query = format!("resource={}", escape(RESOURCE));
        if !client_id.is_empty() {
            query.push_str(&format!("&client_id={}", escape(client_id)));
        }
        if is_app_service {
            return Ok(Self {
                url: format!("{endpoint}?api-version=2019-08-01&{query}"),
                header: ("x-identity-header", Secret(secret)),
                looked_for: None,
            });
        }
        let host = match env("AZURE_POD_IDENTITY_AUTHORITY_HOST") {
            host if host.is_empty() => METADATA_SERVICE.to_owned(),
            host => host.trim_end_matches('/').to_owned(),
        };
        Ok(Self {
            url: format!("{host}/metadata/identity/oauth2/token?api-version=2018-02-01&{query}"),
            header: ("metadata", Secret("true".to_owned())),
            looked_for: None,
        })
    }

    /// Adds to errors where else credentials were looked for.
    pub(super) fn after(self, looked_for: &'static str) -> Self {
        Self {
            looked_for: Some(looked_for),
            ..self
        }
    }

    pub(super) fn fetch(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        let token = self.request(now);
        match self.looked_for {
            Some(looked_for) => token.with_context(|| {
                format!("{looked_for}, and the endpoint of managed identities has no token")
            }),
            None => token.context("token of the managed identity"),
        }
    }

    fn request(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        let (name, value) = &self.header;
        let headers = [(*name, &*value.0)];
        parse_token(&request("GET", &self.url, &headers, Bytes::new())?, now)
    }
}
