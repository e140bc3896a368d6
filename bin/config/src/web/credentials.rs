//! Users and their passwords, bearer tokens and their scopes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER_PERMISSIVE;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use varve_client::Secret;

use super::file::{BearerToken, File};
use super::fingerprint::Fingerprint;
use super::scope::Scope;
use super::tenants::{TenantConfig, tenants};

/// The users and tokens of a file, at least one.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Passwords, by user.
    pub users: BTreeMap<String, PasswordHash>,
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The users and tokens that see only a part of the series.
    pub tenants: Vec<TenantConfig>,
}

impl Credentials {
    /// Returns `true` if there is a user or a token with a name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.users.contains_key(name) || self.tokens.iter().any(|token| token.name == name)
    }

    /// Returns the tenant of a user or token, if it has one.
    #[must_use]
    pub fn tenant_of(&self, name: &str) -> Option<&TenantConfig> {
        self.tenants
            .iter()
            .find(|tenant| tenant.users.iter().any(|user| user == name))
    }
}

/// A bcrypt hash.
#[derive(Debug, Clone)]
pub struct PasswordHash {
    /// The hash as text.
    pub text: Secret,
    /// Its cost: a comparison takes two to this power times as long as one of cost 0.
    pub cost: u32,
}

/// A bearer token.
#[derive(Debug, Clone)]
pub struct Token {
    /// Its name in lists and logs.
    pub name: String,
    /// The digest of its text.
    pub digest: Digest,
    /// What it permits, at least one.
    pub scopes: Vec<Scope>,
}

/// A SHA-256 digest.
pub type Digest = [u8; SHA256_OUTPUT_LEN];

/// Returns the users and tokens of a file, or `None` if there are none, which disables
/// authentication. Paths are relative to `folder`. The files that were read are added to `files`.
///
/// # Errors
/// If a hash or a token is invalid, or a file cannot be read.
pub(super) fn credentials(
    file: &File,
    folder: &Path,
    files: &mut Vec<Fingerprint>,
) -> Result<Option<Credentials>> {
    let mut users = BTreeMap::new();
    for (user, hash) in &file.basic_auth_users {
        let Ok(parts) = hash.0.parse::<bcrypt::HashParts>() else {
            bail!("basic_auth_users.{user}: the value is not a bcrypt hash")
        };
        let hash = PasswordHash {
            text: hash.clone(),
            cost: parts.get_cost(),
        };
        users.insert(user.clone(), hash);
    }
    let mut tokens = Vec::new();
    for (idx, config) in file.bearer_tokens.iter().enumerate() {
        let token =
            read_token(config, folder, files).with_context(|| format!("bearer_tokens[{idx}]"))?;
        tokens.push(token);
    }
    let tenants = tenants(file)?;
    if users.is_empty() && tokens.is_empty() {
        return Ok(None);
    }
    Ok(Some(Credentials {
        users,
        tokens,
        tenants,
    }))
}

fn read_token(config: &BearerToken, folder: &Path, files: &mut Vec<Fingerprint>) -> Result<Token> {
    let BearerToken {
        name,
        token,
        token_file,
        token_sha256,
        scopes,
    } = config;
    let digest = match (
        &*token.0,
        token_file.as_os_str().is_empty(),
        &**token_sha256,
    ) {
        ("", false, "") => {
            let path = folder.join(token_file);
            files.push(Fingerprint::new(&path));
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {path:?}"))?;
            of_token(text.trim())?
        }
        ("", true, hex) if !hex.is_empty() => {
            parse_hex(hex).context("token_sha256: expected 64 hex digits")?
        }
        (token, true, "") => of_token(token)?,
        _ => bail!("exactly one of token, token_file and token_sha256 is required"),
    };
    if name.is_empty() || scopes.is_empty() {
        bail!("a name and at least one of the scopes read, write and admin are required");
    }
    // It may continue on the next line, of which a truncated file has nothing.
    if name.contains(char::is_whitespace) {
        bail!("name: {name:?} contains white space");
    }
    Ok(Token {
        name: name.clone(),
        digest,
        scopes: scopes.clone(),
    })
}

fn of_token(token: &str) -> Result<Digest> {
    if token.is_empty() {
        bail!("the token is empty");
    }
    // No header can contain it, and it may continue on the next line.
    if token.contains(char::is_whitespace) {
        bail!("the token contains white space");
    }
    Ok(sha256(&[token.as_bytes()]))
}

fn parse_hex(hex: &str) -> Option<Digest> {
    HEXLOWER_PERMISSIVE
        .decode(hex.as_bytes())
        .ok()?
        .try_into()
        .ok()
}

/// Returns the digest of one string, or of several, each with its length before it.
pub fn sha256(parts: &[&[u8]]) -> Digest {
    let whole = match parts {
        [one] => one.to_vec(),
        parts => parts
            .iter()
            .flat_map(|part| [&(part.len() as u64).to_le_bytes()[..], part].concat())
            .collect(),
    };
    digest(&SHA256, &whole)
        .as_ref()
        .try_into()
        .expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::file::parse;

    #[test]
    fn invalid_users_and_tokens_are_rejected() {
        let check = |text: &str, expect: &str| {
            let file = parse(&format!("{text}\n")).unwrap();
            let rejected = credentials(&file, Path::new(""), &mut Vec::new()).unwrap_err();
            assert!(format!("{rejected:#}").contains(expect), "{rejected:#}");
        };
        check(
            "basic_auth_users: {ann: s3cret}",
            "basic_auth_users.ann: the value is not a bcrypt hash",
        );
        check(
            "bearer_tokens: [{name: x, scopes: [read]}]",
            "bearer_tokens[0]: the token is empty",
        );
        check(
            "bearer_tokens:\n- name: x\n  scopes: [read]\n  token: a\n    b",
            "bearer_tokens[0]: the token contains white space",
        );
        check(
            "bearer_tokens: [{name: x y, token: a, scopes: [read]}]",
            "name: \"x y\" contains white space",
        );
        check(
            "bearer_tokens: [{token: x, scopes: [read]}]",
            "a name and at least one of the scopes",
        );
        check(
            "bearer_tokens: [{name: x, token: x}]",
            "at least one of the scopes",
        );
        check(
            "bearer_tokens: [{name: x, token_sha256: abc, scopes: [read]}]",
            "expected 64 hex digits",
        );
        check(
            "bearer_tokens: [{name: x, token: a, token_file: b, scopes: [read]}]",
            "exactly one of",
        );
        check(
            "bearer_tokens: [{name: x, token_file: nowhere, scopes: [read]}]",
            "read \"nowhere\"",
        );
    }
}
