//! Where a storage account is, and credentials for it.

use varve_client::Secret;

use crate::authorization::SharedKey;
use crate::credentials::TokenSource;

/// A storage account.
pub(super) struct Account {
    /// Host and optional port.
    pub(super) host: String,
    pub(super) is_insecure: bool,
    /// What precedes the name of a container in a path, without a final slash.
    pub(super) path: String,
    pub(super) credentials: AzureCredentials,
}

#[derive(Debug, Clone)]
pub(crate) enum AzureCredentials {
    SharedKey(SharedKey),
    /// Encoded parameters for the query of each request.
    SharedAccessSignature(Secret),
    Tokens(TokenSource),
}
