//! Errors of queries. Each variant has its own status and error type in the HTTP API.

use varve_context::{Interrupt, Limit};

use varve_promql::ParseError;
use varve_promql::ast::ValueType;

/// An error of a query. The messages are those of Prometheus. The HTTP API returns them in the
/// field `error`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a valid query. `bad_data`, 400.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The query is invalid for these times. `bad_data`, 400.
    #[error("{0}")]
    Invalid(String),
    /// The evaluation failed. `execution`, 422.
    #[error("{0}")]
    Execution(String),
    /// The query uses a part of the language that is parsed but not supported. `execution`, 422.
    #[error("{0}")]
    Unsupported(String),
    /// The deadline passed. `timeout`, 503.
    #[error("query timed out in expression evaluation")]
    Timeout,
    /// The client has disconnected. `canceled`, 499.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// The server is stopping. `unavailable`, 503.
    #[error("query was canceled in expression evaluation: the server is shutting down")]
    Shutdown,
    /// A server operator ended the query. `canceled`, 499.
    #[error("query was canceled in expression evaluation: an operator ended it")]
    Killed,
    /// The query exceeds a limit on samples or memory. `execution`, 422.
    #[error("{text}")]
    Limit {
        /// The limit.
        what: Limit,
        /// The message.
        text: String,
    },
    /// The store failed, or is temporarily out of memory. `internal`, 500, or `unavailable`, 503.
    #[error(transparent)]
    Storage(varve_tsdb::Error),
}

/// A result with [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl From<varve_promql::Error> for Error {
    fn from(error: varve_promql::Error) -> Self {
        match error {
            varve_promql::Error::Parse(error) => Self::Parse(error),
            varve_promql::Error::Context(error) => error.into(),
            other => Self::Execution(other.to_string()),
        }
    }
}

impl From<varve_context::Error> for Error {
    fn from(error: varve_context::Error) -> Self {
        varve_tsdb::Error::from(error).into()
    }
}

impl From<varve_tsdb::Error> for Error {
    fn from(error: varve_tsdb::Error) -> Self {
        match error {
            varve_tsdb::Error::Interrupted(Interrupt::Deadline) => Self::Timeout,
            varve_tsdb::Error::Interrupted(Interrupt::Canceled) => Self::Canceled,
            varve_tsdb::Error::Interrupted(Interrupt::Shutdown) => Self::Shutdown,
            varve_tsdb::Error::Interrupted(Interrupt::Killed) => Self::Killed,
            varve_tsdb::Error::Interrupted(Interrupt::Heaviest) => Self::Limit {
                what: Limit::QueryMemoryTotal,
                text: error.to_string(),
            },
            varve_tsdb::Error::Interrupted(Interrupt::Pressure) => Self::Limit {
                what: Limit::ProcessMemory,
                text: error.to_string(),
            },
            // Retrying helps if the limit is shared by all requests, but not if it applies to one
            // request.
            varve_tsdb::Error::Limit {
                what: Limit::QueryMemoryTotal,
                ..
            } => Self::Storage(error),
            varve_tsdb::Error::Limit { what, .. } => Self::Limit {
                what,
                text: error.to_string(),
            },
            other => Self::Storage(other),
        }
    }
}

impl Error {
    /// Two series of a vector have the same labels at the same time.
    pub(crate) fn same_labels() -> Self {
        Self::Execution("vector cannot contain metrics with the same labelset".into())
    }

    /// The plan has no value of the expected type. The type checker prevents this.
    pub(crate) fn mistyped(expected: ValueType) -> Self {
        Self::Execution(format!("the plan has no value of type {expected:?}"))
    }

    /// The query would hold more than `--query.max-samples` samples at once.
    pub(crate) fn too_many_samples() -> Self {
        let text =
            "query processing would load too many samples into memory in query execution".into();
        Self::Limit {
            what: Limit::QuerySamples,
            text,
        }
    }
}
