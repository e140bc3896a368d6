//! Errors of a request: it must end, or it exceeds a limit.

use crate::interrupt::Interrupt;
use crate::limit::Limit;

/// The result of an operation within the limits of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A limit was exceeded. A smaller request may succeed.
    #[error("{what}: {used} exceeds the limit of {limit}")]
    Limit {
        /// The limit.
        what: Limit,
        /// The quantity that the request would have used.
        used: u64,
        /// Maximum of the quantity.
        limit: u64,
    },
    /// The request's deadline passed or it was canceled.
    #[error(transparent)]
    Interrupted(#[from] Interrupt),
}

impl From<varve_regexp::LimitExceeded> for Error {
    fn from(exceeded: varve_regexp::LimitExceeded) -> Self {
        Self::Limit {
            what: Limit::Other(exceeded.what),
            used: exceeded.used as u64,
            limit: exceeded.limit as u64,
        }
    }
}
