//! How requests to a bucket prove who sends them.

mod shared_key;
mod signature_v4;

use anyhow::Result;
use jiff::Timestamp;
use varve_client::Secret;

use crate::call::Call;
use crate::credentials::{CachedCredentials, CachedToken, TokenSource};
pub(crate) use shared_key::SharedKey;
pub(crate) use signature_v4::{Signer, Unsigned};

/// Credentials, and what is made of them for each request.
#[derive(Debug)]
pub(crate) enum Authorization {
    /// A signature of S3.
    Signature {
        credentials: CachedCredentials,
        region: String,
    },
    /// A signature of Azure, by the key of the account.
    SharedKey(SharedKey),
    /// A shared access signature of Azure: parameters for the query of each request.
    SharedAccessSignature(Secret),
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
            Self::SharedKey(key) => Ok(key.sign(call, headers, now)),
            Self::SharedAccessSignature(_) | Self::Anonymous => Ok(Vec::new()),
        }
    }

    /// Returns the parameters to add to the query of a request, encoded, or nothing.
    pub(crate) fn query(&self) -> &str {
        match self {
            Self::SharedAccessSignature(signature) => &signature.0,
            _ => "",
        }
    }

    /// Forgets credentials that the server has refused, so that the next request gets new ones.
    /// Returns `false` if these would be the same.
    pub(crate) fn renew(&mut self) -> bool {
        match self {
            Self::Signature { credentials, .. } => credentials.forget(),
            Self::Bearer(token) => token.forget(),
            Self::SharedKey(_) | Self::SharedAccessSignature(_) | Self::Anonymous => false,
        }
    }
}
