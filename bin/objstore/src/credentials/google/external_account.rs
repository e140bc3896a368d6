//! Tokens for a workload identity: the token of another provider is exchanged for them.
//!
//! Sources: AIP-4117 (external accounts), and RFC 8693 (token exchange).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use varve_client::{Secret, Url};
use varve_system::machine::files::read_text;

use super::super::issuer::{SIZE_MAX, check_confidential, request, request_token};
use super::super::renewal::Expiring;
use super::oauth::{LIFETIME_SECONDS, SCOPE, check_universe};

/// What the token of a workload identity allows that only serves to get one of a service account.
const IMPERSONATION_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// An identity of another provider, whose tokens Google exchanges.
#[derive(Debug, Clone)]
pub(crate) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    subject: SubjectToken,
    /// URL that returns a token of a service account, or empty.
    impersonation_url: String,
}

/// Where the token of the other provider is.
#[derive(Debug, Clone)]
struct SubjectToken {
    location: Location,
    /// The field of JSON that has the token. `None`: the text is the token.
    field: Option<String>,
}

#[derive(Debug, Clone)]
enum Location {
    File(PathBuf),
    Url {
        url: String,
        headers: Vec<(String, Secret)>,
    },
}

/// The file of a workload identity.
#[derive(Deserialize)]
pub(super) struct ExternalAccountFile {
    audience: String,
    subject_token_type: String,
    token_url: String,
    credential_source: CredentialSource,
    #[serde(default)]
    service_account_impersonation_url: String,
    /// Of workforce pools, which are for people.
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    workforce_pool_user_project: String,
    #[serde(default)]
    universe_domain: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CredentialSource {
    file: PathBuf,
    url: String,
    headers: BTreeMap<String, Secret>,
    format: Format,
    environment_id: String,
    executable: Value,
    certificate: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    subject_token_field_name: String,
}

/// The response of a service account's impersonation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: String,
    expire_time: String,
}

impl ExternalAccountFile {
    pub(super) fn check(self) -> Result<ExternalAccount> {
        check_universe(&self.universe_domain)?;
        check_confidential(&self.token_url, &[]).context("token_url")?;
        if !self.service_account_impersonation_url.is_empty() {
            check_confidential(&self.service_account_impersonation_url, &[])
                .context("service_account_impersonation_url")?;
        }
        let source = self.credential_source;
        for (name, is_set) in [
            ("client_id", !self.client_id.is_empty()),
            (
                "workforce_pool_user_project",
                !self.workforce_pool_user_project.is_empty(),
            ),
            (
                "credential_source.environment_id",
                !source.environment_id.is_empty(),
            ),
            ("credential_source.executable", !source.executable.is_null()),
            (
                "credential_source.certificate",
                !source.certificate.is_null(),
            ),
        ] {
            ensure!(!is_set, "{name} of an external account is not supported");
        }

        let field = match source.format.kind.as_str() {
            "" | "text" => None,
            "json" => Some(source.format.subject_token_field_name),
            other => bail!("credential_source.format.type {other:?} is not text or json"),
        };
        let has_file = !source.file.as_os_str().is_empty();
        let location = match (has_file, source.url.is_empty()) {
            (true, true) => Location::File(source.file),
            (false, false) => {
                Url::parse(source.url.split('?').next().unwrap_or_default())
                    .map_err(|error| anyhow!("credential_source.url: {error}"))?;
                Location::Url {
                    url: source.url,
                    headers: source.headers.into_iter().collect(),
                }
            }
            _ => bail!("credential_source must have either file or url"),
        };
        Ok(ExternalAccount {
            audience: self.audience,
            subject_token_type: self.subject_token_type,
            token_url: self.token_url,
            subject: SubjectToken { location, field },
            impersonation_url: self.service_account_impersonation_url,
        })
    }
}

impl ExternalAccount {
    /// Exchanges the token of the other provider, and that for one of a service account if the
    /// configuration names one.
    pub(super) fn fetch(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        self.exchange(now)
            .with_context(|| format!("token of workload identity {}", self.audience))
    }

    fn exchange(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        let is_impersonated = !self.impersonation_url.is_empty();
        let scope = if is_impersonated {
            IMPERSONATION_SCOPE
        } else {
            SCOPE
        };
        let subject = self.subject.read().context("credential_source")?;
        let form = [
            ("grant_type", GRANT_TYPE),
            ("audience", &self.audience),
            ("scope", scope),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token", &subject.0),
            ("subject_token_type", &self.subject_token_type),
        ];
        let federated = request_token(&self.token_url, &form, now)?;
        if !is_impersonated {
            return Ok(federated);
        }
        let authorization = format!("Bearer {}", federated.value.0);
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*authorization),
        ];
        let lifetime = format!("{LIFETIME_SECONDS}s");
        let body = json!({"scope": [SCOPE], "lifetime": lifetime}).to_string();
        let response = request("POST", &self.impersonation_url, &headers, body.into())?;
        let token: Impersonated = serde_json::from_slice(&response.body)
            // The body may have secrets.
            .map_err(|error| anyhow!("the response is not a token in JSON: {error}"))?;
        Ok(Expiring {
            value: Secret(token.access_token),
            expires: Some(token.expire_time.parse().context("expireTime")?),
        })
    }
}

impl SubjectToken {
    /// Reads the token each time: it expires.
    fn read(&self) -> Result<Secret> {
        let text = match &self.location {
            Location::File(path) => read_text(path, SIZE_MAX as u64)?,
            Location::Url { url, headers } => {
                let headers: Vec<_> = headers
                    .iter()
                    .map(|(name, value)| (&**name, &*value.0))
                    .collect();
                let response = request("GET", url, &headers, Bytes::new())?;
                String::from_utf8_lossy(&response.body).into_owned()
            }
        };
        let Some(field) = &self.field else {
            return Ok(Secret(text.trim().to_owned()));
        };
        let json: Value = serde_json::from_str(&text)
            // The text may have secrets.
            .map_err(|error| anyhow!("the subject token is not JSON: {error}"))?;
        let token = json
            .get(field)
            .and_then(Value::as_str)
            .with_context(|| format!("the subject token has no field {field:?}"))?;
        Ok(Secret(token.to_owned()))
    }
}
