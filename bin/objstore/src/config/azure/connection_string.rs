//! Connection strings of Azure Storage: `name=value;name=value`.
//!
//! Source: "Configure Azure Storage connection strings" in the documentation of Azure Storage.

use std::collections::HashMap;

use anyhow::{Context, Result, anyhow, bail, ensure};
use varve_client::{Secret, Url};

use super::account::{Account, AzureCredentials};
use crate::authorization::SharedKey;
use crate::credentials::check_confidential;

/// The domain of the public cloud.
const ENDPOINT_SUFFIX: &str = "core.windows.net";

/// Returns the account of a connection string.
///
/// # Errors
/// If the account or its credentials are missing or invalid. The message has no secret.
pub(super) fn parse(text: &Secret) -> Result<Account> {
    let mut fields = HashMap::new();
    for field in text.0.split(';').map(str::trim) {
        if field.is_empty() {
            continue;
        }
        let named = field.split_once('=');
        let (name, value) = named.context("expected NAME=VALUE;NAME=VALUE")?;
        fields.insert(name, value);
    }
    ensure!(
        !fields.contains_key("UseDevelopmentStorage"),
        "UseDevelopmentStorage is not supported; set BlobEndpoint, AccountName and AccountKey"
    );

    let account = fields.get("AccountName").copied();
    let url = match (fields.get("BlobEndpoint"), account) {
        (Some(url), _) => (*url).to_owned(),
        (None, Some(account)) => {
            let scheme = fields.get("DefaultEndpointsProtocol").unwrap_or(&"https");
            let suffix = fields.get("EndpointSuffix").unwrap_or(&ENDPOINT_SUFFIX);
            format!("{scheme}://{account}.blob.{suffix}")
        }
        (None, None) => bail!("AccountName or BlobEndpoint is missing"),
    };
    // The message must not print the URL: a query may have a signature.
    ensure!(
        !url.contains(['?', '#', '@']),
        "BlobEndpoint has a query or a user; set SharedAccessSignature or AccountKey instead"
    );
    let key = fields.get("AccountKey");
    let signature = fields.get("SharedAccessSignature");
    let credentials = match (account, key, signature) {
        (Some(account), Some(key), _) => {
            let key = SharedKey::new(account, &Secret((*key).to_owned()))?;
            AzureCredentials::SharedKey(key)
        }
        (_, _, Some(signature)) => {
            check_confidential(&url, &[]).context("SharedAccessSignature")?;
            AzureCredentials::SharedAccessSignature(parse_signature(signature)?)
        }
        _ => bail!("AccountName and AccountKey, or SharedAccessSignature, are missing"),
    };
    ensure!(
        url.contains("://"),
        "BlobEndpoint {url:?} is not http://HOST:PORT/PATH or https://HOST:PORT/PATH"
    );
    let url = Url::parse(&url).map_err(|error| anyhow!("BlobEndpoint {url:?}: {error}"))?;
    Ok(Account {
        host: url.host_and_port(),
        is_insecure: !url.is_https(),
        path: url.path().to_owned(),
        credentials,
    })
}

/// Checks that a shared access signature can be appended to a query.
fn parse_signature(text: &str) -> Result<Secret> {
    let query = text.trim_start_matches('?');
    let has_signature = query.split('&').any(|field| field.starts_with("sig="));
    let is_query = format!("/?{query}").parse::<hyper::Uri>().is_ok() && !query.contains('#');
    ensure!(
        has_signature && is_query,
        "SharedAccessSignature is not an encoded query with the parameter sig"
    );
    Ok(Secret(query.to_owned()))
}
