//! Tokens for the key of a service account: a signed JWT is exchanged for them.
//!
//! Source: "Using OAuth 2.0 for Server to Server Applications" in the documentation of Google
//! Identity.

use anyhow::{Context, Result, anyhow};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::json;
use varve_client::Secret;

use super::super::issuer::{check_confidential, request_token};
use super::super::renewal::Expiring;
use super::oauth::{LIFETIME_SECONDS, SCOPE, TOKEN_URL, check_universe};

/// The key of a service account.
#[derive(Debug)]
pub(crate) struct ServiceAccount {
    email: String,
    key_id: String,
    key: RsaKeyPair,
    token_url: String,
}

/// The file of a service account's key.
#[derive(Deserialize)]
pub(super) struct ServiceAccountFile {
    client_email: String,
    #[serde(default)]
    private_key_id: String,
    private_key: Secret,
    #[serde(default)]
    token_uri: String,
    #[serde(default)]
    universe_domain: String,
}

impl ServiceAccountFile {
    pub(super) fn check(self) -> Result<ServiceAccount> {
        check_universe(&self.universe_domain)?;
        let token_url = if self.token_uri.is_empty() {
            TOKEN_URL.to_owned()
        } else {
            self.token_uri
        };
        check_confidential(&token_url, &[]).context("token_uri")?;
        Ok(ServiceAccount {
            email: self.client_email,
            key_id: self.private_key_id,
            key: parse_key(&self.private_key).context("private_key")?,
            token_url,
        })
    }
}

impl ServiceAccount {
    pub(super) fn fetch(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        let assertion = self.assertion(now)?;
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", &assertion),
        ];
        request_token(&self.token_url, &form, now)
            .with_context(|| format!("token of service account {}", self.email))
    }

    /// Returns a JWT (RFC 7519), signed by the key.
    pub(super) fn assertion(&self, now: Timestamp) -> Result<String> {
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let issued = now.as_second();
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_url,
            "iat": issued,
            "exp": issued + LIFETIME_SECONDS,
        });
        let signed = format!(
            "{}.{}",
            BASE64URL_NOPAD.encode(header.to_string().as_bytes()),
            BASE64URL_NOPAD.encode(claims.to_string().as_bytes())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .map_err(|_| anyhow!("cannot sign with private_key"))?;
        Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
    }
}

/// Reads an RSA key in PEM: PKCS #8, or PKCS #1 as in old files.
fn parse_key(pem: &Secret) -> Result<RsaKeyPair> {
    let base64: String = pem
        .0
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let der = BASE64
        .decode(base64.as_bytes())
        .map_err(|_| anyhow!("it is not PEM"))?;
    let key = if pem.0.contains("BEGIN RSA PRIVATE KEY") {
        RsaKeyPair::from_der(&der)
    } else {
        RsaKeyPair::from_pkcs8(&der)
    };
    key.map_err(|error| anyhow!("it is not a key of RSA: {error}"))
}
