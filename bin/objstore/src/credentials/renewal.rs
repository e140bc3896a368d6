//! Credentials that expire: kept, and renewed before.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

/// Credentials are renewed this long before they expire.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Minimum time between two attempts to renew credentials that are still valid.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);

/// Credentials, and when they expire.
#[derive(Debug, Clone)]
pub(super) struct Expiring<T> {
    pub(super) value: T,
    /// `None`: never.
    pub(super) expires: Option<Timestamp>,
}

/// The current credentials of a source.
#[derive(Debug)]
pub(super) struct Cached<T> {
    current: Option<Expiring<T>>,
    /// When they were last requested.
    requested: Option<Timestamp>,
}

impl<T> Expiring<T> {
    fn expires_within(&self, duration: Duration, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| {
            expires
                .checked_sub(duration)
                .map_or(true, |renew| renew <= now)
        })
    }
}

impl<T> Cached<T> {
    pub(super) fn new() -> Self {
        Self {
            current: None,
            requested: None,
        }
    }

    /// Returns credentials that are valid now. Fetches new ones if those expire soon; if that fails,
    /// they are used until they expire.
    ///
    /// # Errors
    /// If there are none and none can be fetched.
    pub(super) fn get(
        &mut self,
        now: Timestamp,
        fetch: impl FnOnce() -> Result<Expiring<T>>,
    ) -> Result<&T> {
        let is_due = match &self.current {
            Some(current) if !current.expires_within(Duration::ZERO, now) => {
                current.expires_within(RENEW_BEFORE, now) && self.may_request_again(now)
            }
            _ => true,
        };
        if is_due {
            self.requested = Some(now);
            match fetch() {
                Ok(credentials) => self.current = Some(credentials),
                Err(error) => {
                    let is_usable = self
                        .current
                        .as_ref()
                        .is_some_and(|current| !current.expires_within(Duration::ZERO, now));
                    if !is_usable {
                        return Err(error.context("get credentials"));
                    }
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "cannot renew the credentials of the bucket"
                    );
                }
            }
        }
        self.current
            .as_ref()
            .map(|current| &current.value)
            .context("there are no credentials for the bucket")
    }

    /// Forgets credentials that the server has refused. Returns `false` if they do not expire, so
    /// that new ones would be the same.
    pub(super) fn forget(&mut self) -> bool {
        let expires = self.current.take_if(|current| current.expires.is_some());
        expires.is_some()
    }

    /// Returns `true` if the last attempt to renew is long enough ago, so that an issuer that does
    /// not answer does not delay each request.
    fn may_request_again(&self, now: Timestamp) -> bool {
        self.requested.is_none_or(|requested| {
            let since = now.duration_since(requested);
            since.is_negative() || since.unsigned_abs() >= RENEW_INTERVAL
        })
    }
}
