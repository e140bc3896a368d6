//! What all kinds of accounts of Google share.

use anyhow::{Result, ensure};

/// What a token allows: all that the account may do with objects.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
/// Where tokens are issued and renewed, unless the credentials name another URL.
pub(super) const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// Lifetime in seconds of an assertion, the maximum of Google, and of the token that it is exchanged
/// for.
pub(super) const LIFETIME_SECONDS: i64 = 3600;
/// The universe of `storage.googleapis.com`.
const UNIVERSE: &str = "googleapis.com";

/// Checks that credentials are for the universe of the bucket; empty stands for it.
pub(super) fn check_universe(domain: &str) -> Result<()> {
    ensure!(
        domain == UNIVERSE || domain.is_empty(),
        "universe_domain {domain:?} is not supported"
    );
    Ok(())
}
