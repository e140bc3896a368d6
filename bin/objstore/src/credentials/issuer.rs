//! Requests to the issuers of credentials.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use hyper::Request;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use varve_client::{Access, Client, ClientOptions, Remedies, Response, Secret, Url, escape};
use varve_system::version::USER_AGENT;

use super::renewal::Expiring;

/// Maximum time of a request for credentials.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response with credentials, and of a file with a token or a key.
pub(super) const SIZE_MAX: usize = 64 << 10;
/// Maximum lifetime of a token in seconds, a year: a longer one is a mistake of the issuer.
const LIFETIME_SECONDS_MAX: i64 = 366 * 24 * 3600;

/// The response of an issuer of tokens (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct IssuedToken {
    access_token: String,
    /// Lifetime in seconds: a number, or text in the responses of Azure's metadata service.
    #[serde(default)]
    expires_in: Value,
    /// Seconds since the epoch. Only managed identities of Azure have it: their tokens may have been
    /// issued some time ago.
    #[serde(default)]
    expires_on: Value,
}

/// Sends a request to a URL. Statuses other than 2xx are errors.
pub(super) fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<Response> {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (url, String::new()),
    };
    let base = parse_url(address)?;
    // The URL of a server ends without a slash, but the names of some resources have one.
    let slash = if address.ends_with('/') || base.path().is_empty() {
        "/"
    } else {
        ""
    };
    let target = format!("{}{slash}{query}", base.path());
    let options = ClientOptions {
        timeout: TIMEOUT,
        response_size_max: SIZE_MAX,
        user_agent: USER_AGENT,
        remedies: Remedies::default(),
    };
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut client = Client::new(&base, Access::default(), options)?;
    let response = client
        .send(request, body)
        .with_context(|| format!("{method} {url}"))?;
    ensure!(
        response.is_success(),
        "{url} returned {}: {}",
        response.status,
        response.text()
    );
    Ok(response)
}

/// Sends a form to a URL, and returns the token of the response.
pub(super) fn request_token(
    url: &str,
    form: &[(&str, &str)],
    now: Timestamp,
) -> Result<Expiring<Secret>> {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let fields: Vec<_> = form
        .iter()
        .map(|(name, value)| format!("{name}={}", escape(value)))
        .collect();
    let response = request("POST", url, &headers, fields.join("&").into())?;
    parse_token(&response, now)
}

/// Returns the token of a response.
pub(super) fn parse_token(response: &Response, now: Timestamp) -> Result<Expiring<Secret>> {
    let issued: IssuedToken = serde_json::from_slice(&response.body)
        // The body may have secrets.
        .map_err(|error| anyhow!("the response is not a token in JSON: {error}"))?;
    let lifetime = match seconds(&issued.expires_on) {
        Some(expires) => Some(expires.saturating_sub(now.as_second())),
        None => seconds(&issued.expires_in),
    };
    let lifetime = lifetime.context("the response has no lifetime of the token (expires_in)")?;
    let lifetime = Duration::from_secs(lifetime.clamp(0, LIFETIME_SECONDS_MAX).unsigned_abs());
    let expires = now
        .checked_add(lifetime)
        .context("the end of the token's lifetime")?;
    Ok(Expiring {
        value: Secret(issued.access_token),
        expires: Some(expires),
    })
}

/// Returns a number of seconds, which may be text.
fn seconds(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}

/// Checks that secrets for a URL are not sent in plain text over a network. `hosts` are further
/// hosts that need no TLS.
pub(crate) fn check_confidential(text: &str, hosts: &[&str]) -> Result<()> {
    ensure!(
        text.contains("://"),
        "{text:?} does not begin with https:// or http://"
    );
    let url = parse_url(text)?;
    let address: Option<IpAddr> = url.host().parse().ok();
    let is_loopback =
        url.host() == "localhost" || address.is_some_and(|address| address.is_loopback());
    ensure!(
        url.is_https() || is_loopback || hosts.contains(&url.host()),
        "{text:?} is neither https nor a loopback or link-local address of the provider"
    );
    Ok(())
}

fn parse_url(text: &str) -> Result<Url> {
    Url::parse(text).map_err(|error| anyhow!("{text:?}: {error}"))
}
