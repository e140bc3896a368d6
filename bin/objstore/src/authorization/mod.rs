//! How requests to a bucket prove who sends them.

mod signature_v4;

use anyhow::Result;
use jiff::Timestamp;

use crate::call::Call;
use crate::credentials::{CachedCredentials, CachedToken, TokenSource};
pub(crate) use signature_v4::{Signer, Unsigned};

/// Credentials, and what is made of them for each request.
#[derive(Debug)]
pub(crate) enum Authorization {
    /// A signature of S3.
    Signature {
        credentials: CachedCredentials,
        region: String,
    },
    /// A token of OAuth 2.
    Bearer(CachedToken),
    /// Nothing: an emulator.
    Anonymous,
}

impl Authorization {
    /// Returns the authorization with tokens of a source, or none.
    pub(crate) fn of_tokens(source: Option<TokenSource>) -> Self {
        match source {
            Some(source) => Self::Bearer(CachedToken::new(source)),
            None => Self::Anonymous,
        }
    }

    /// Returns the headers to add to a request. `headers` are all others, including `host`.
    ///
    /// # Errors
    /// If there are no valid credentials, and their issuer gives none.
    pub(crate) fn headers(
        &mut self,
        call: &Call<'_>,
        headers: &[(String, String)],
        now: Timestamp,
    ) -> Result<Vec<(String, String)>> {
        match self {
            Self::Signature {
                credentials,
                region,
            } => {
                let signer = Signer {
                    credentials: credentials.get(now)?,
                    region,
                };
                let unsigned = Unsigned {
                    method: call.method,
                    path: &call.path,
                    query: &call.encoded_query(),
                    headers,
                    body: &call.body,
                };
                Ok(signer.sign(unsigned, now))
            }
            Self::Bearer(token) => {
                let value = format!("Bearer {}", token.get(now)?.0);
                Ok(vec![("authorization".to_owned(), value)])
            }
            Self::Anonymous => Ok(Vec::new()),
        }
    }

    /// Forgets credentials that the server has refused, so that the next request gets new ones.
    /// Returns `false` if these would be the same.
    pub(crate) fn renew(&mut self) -> bool {
        match self {
            Self::Signature { credentials, .. } => credentials.forget(),
            Self::Bearer(token) => token.forget(),
            Self::Anonymous => false,
        }
    }
}
