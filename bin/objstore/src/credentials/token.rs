//! Tokens of OAuth 2 for a bucket.

use anyhow::Result;
use jiff::Timestamp;
use varve_client::Secret;

use super::renewal::{Cached, Expiring};
use super::{azure, google};

/// Where tokens come from.
#[derive(Debug, Clone)]
pub(crate) enum TokenSource {
    Azure(azure::Source),
    Google(google::Source),
}

/// A source, and its token until that expires.
#[derive(Debug)]
pub(crate) struct CachedToken {
    source: TokenSource,
    cached: Cached<Secret>,
}

impl TokenSource {
    fn fetch(&self, now: Timestamp) -> Result<Expiring<Secret>> {
        match self {
            Self::Azure(source) => source.fetch(now),
            Self::Google(source) => source.fetch(now),
        }
    }
}

impl CachedToken {
    pub(crate) fn new(source: TokenSource) -> Self {
        Self {
            source,
            cached: Cached::new(),
        }
    }

    /// Returns a token that is valid now.
    ///
    /// # Errors
    /// If there is none and the source has none.
    pub(crate) fn get(&mut self, now: Timestamp) -> Result<&Secret> {
        self.cached.get(now, || self.source.fetch(now))
    }

    /// Forgets the token. Returns `false` if there is none.
    pub(crate) fn forget(&mut self) -> bool {
        self.cached.forget()
    }
}
