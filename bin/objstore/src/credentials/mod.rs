//! Credentials of buckets: keys and tokens, and who issues them.

pub(crate) mod aws;
pub(crate) mod azure;
pub(crate) mod google;
mod issuer;
mod renewal;
#[cfg(test)]
pub(crate) mod test_issuer;
mod token;

pub(crate) use aws::{CachedCredentials, Credentials};
pub(crate) use issuer::check_confidential;
pub(crate) use token::{CachedToken, TokenSource};
