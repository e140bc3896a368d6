//! Why a query gave no value, by what the HTTP API answers.

use varve_tsdb::Interrupt;

use crate::promql::ParseError;

/// Why a query gave no value. The texts are Prometheus' own; they go into the API's `error` field as they are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a query. `bad_data`, 400.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The query parses and cannot be prepared for these times. `bad_data`, 400.
    #[error("{0}")]
    Invalid(String),
    /// The evaluation failed. `execution`, 422.
    #[error("{0}")]
    Execution(String),
    /// A part of the language that is parsed and not evaluated yet. `execution`, 422.
    #[error("{0}")]
    Unsupported(String),
    /// The deadline passed. `timeout`, 503.
    #[error("query timed out in expression evaluation")]
    Timeout,
    /// The client has gone. `canceled`, 499.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// The server is stopping. `unavailable`, 503.
    #[error("query was canceled in expression evaluation: the server is shutting down")]
    Shutdown,
    /// An operator ended the query. `canceled`, 499.
    #[error("query was canceled in expression evaluation: an operator ended it")]
    Killed,
    /// The query would hold more samples or bytes than it may. `execution`, 422.
    #[error("{text}")]
    Limit {
        /// The bound's name.
        what: &'static str,
        /// What is said of it.
        text: String,
    },
    /// The store failed, or has no memory left for now. `internal`, 500, or `unavailable`, 503.
    #[error(transparent)]
    Storage(varve_tsdb::Error),
}

/// The result of a step of a query.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl From<varve_tsdb::Error> for Error {
    fn from(error: varve_tsdb::Error) -> Self {
        match error {
            varve_tsdb::Error::Interrupted(Interrupt::Deadline) => Self::Timeout,
            varve_tsdb::Error::Interrupted(Interrupt::Canceled) => Self::Canceled,
            varve_tsdb::Error::Interrupted(Interrupt::Shutdown) => Self::Shutdown,
            varve_tsdb::Error::Interrupted(Interrupt::Killed) => Self::Killed,
            varve_tsdb::Error::Interrupted(Interrupt::Heaviest) => {
                Self::Limit { what: "--query.max-memory-total", text: error.to_string() }
            }
            varve_tsdb::Error::Interrupted(Interrupt::Pressure) => {
                Self::Limit { what: "--memory.refuse-at", text: error.to_string() }
            }
            // What all requests hold together passes; what one may hold does not.
            varve_tsdb::Error::Limit { what: "--query.max-memory-total", .. } => Self::Storage(error),
            varve_tsdb::Error::Limit { what, .. } => Self::Limit { what, text: error.to_string() },
            other => Self::Storage(other),
        }
    }
}

impl Error {
    /// Two series of one vector would have the same labels at the same time.
    pub(crate) fn same_labels() -> Self {
        Self::Execution("vector cannot contain metrics with the same labelset".into())
    }

    /// More samples than `--query.max-samples` would be held at once.
    pub(crate) fn too_many_samples() -> Self {
        let text = "query processing would load too many samples into memory in query execution".into();
        Self::Limit { what: "--query.max-samples", text }
    }
}
