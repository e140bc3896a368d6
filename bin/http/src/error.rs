//! Maps all errors to a status code, and to Prometheus' error object or plain text.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_config::flags::QueueTimeoutStatus;
use varve_context::{Interrupt, Limit};
use varve_ingest::WriteError;
use varve_system::excerpt::truncate;

use super::json;
use super::response::plain;

/// The result of a request, or of a part of it.
pub(crate) type Result<T = Response, E = ApiError> = std::result::Result<T, E>;

/// The error of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub kind: ErrorKind,
    pub(crate) message: String,
    /// The limit that the request exceeded, if any.
    pub(crate) limit: Option<Limit>,
    /// Seconds after which the client may retry. If `None`, the [`ErrorKind`] decides.
    pub(crate) retry_after_s: Option<u64>,
    /// Whether the response is plain text instead of JSON.
    pub(crate) is_plain: bool,
}

/// Extension of a response whose request exceeded a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitHit(pub(crate) Limit);

/// The deadline of a query.
const QUERY_TIMEOUT: Limit = Limit::Other("--query.timeout");

/// The kind of an error. It determines Prometheus' `errorType` and the status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is malformed.
    BadData,
    /// The media type or encoding of the request is not supported.
    UnsupportedMedia,
    /// The request is too large.
    TooLarge,
    /// The client took too long to send the request.
    SlowRequest,
    /// The request is valid but cannot be executed.
    Execution,
    NotFound,
    /// The client disconnected, or an operator killed the request.
    Canceled,
    /// The deadline passed.
    Timeout,
    /// The feature is not enabled.
    Disabled,
    /// The server is overloaded or stopping. The same request may succeed later.
    Unavailable,
    /// Like `Unavailable`, for writes on servers that are configured to respond with 429.
    TooManyRequests,
    /// The server failed.
    Internal,
}

/// Maximum bytes of a message.
const MESSAGE_SIZE_MAX: usize = 16 << 10;

/// Seconds after which a client may retry a request that was rejected as unavailable.
pub(crate) const RETRY_AFTER_S: u64 = 5;

/// Maximum `Retry-After` of a write, in seconds. Not longer, because the sender also delays samples
/// of known series until then.
const RETRY_AFTER_MAX_S: u128 = 30;

/// Nginx' status code for a client that closed the connection. Prometheus uses it as well.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl ErrorKind {
    /// Returns the value of `errorType`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BadData | Self::UnsupportedMedia | Self::TooLarge | Self::SlowRequest => {
                "bad_data"
            }
            Self::Execution => "execution",
            Self::NotFound => "not_found",
            Self::Canceled => "canceled",
            Self::Timeout => "timeout",
            Self::Unavailable | Self::TooManyRequests | Self::Disabled => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// Returns `true` if the same request may succeed later.
    pub(crate) fn is_retryable(self) -> bool {
        self.status().is_server_error() || self == Self::TooManyRequests
    }

    /// Returns the status code.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadData => StatusCode::BAD_REQUEST,
            Self::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowRequest => StatusCode::REQUEST_TIMEOUT,
            Self::Execution => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Canceled => StatusCode::from_u16(CLIENT_CLOSED_REQUEST)
                .expect("499 has three digits, as a status code must"),
            Self::Timeout | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            // Prometheus responds with 500 to its error type `unavailable`.
            Self::Internal | Self::Disabled => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl ApiError {
    /// Returns `true` if the request exceeded a memory limit, or was the heaviest when all requests
    /// together did.
    pub(crate) fn is_memory_limit(&self) -> bool {
        self.kind == ErrorKind::Execution && self.limit.is_some_and(Limit::is_memory_of_queries)
    }

    /// Creates an error. A long message is cut, because it may quote a long parameter.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_SIZE_MAX {
            message = format!("{}...", truncate(&message, MESSAGE_SIZE_MAX));
        }
        Self {
            kind,
            message,
            limit: None,
            retry_after_s: None,
            is_plain: false,
        }
    }

    /// Sets the name of the limit that the request exceeded, for instance its flag.
    pub(crate) fn with_limit(self, name: &'static str) -> Self {
        Self {
            limit: Some(Limit::Other(name)),
            ..self
        }
    }

    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadData, message)
    }

    /// Returns the error for an invalid parameter, in Prometheus' words.
    pub(crate) fn invalid_parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter \"{name}\": {reason}"))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn internal(message: impl ToString) -> Self {
        Self::new(ErrorKind::Internal, message.to_string())
    }

    /// Returns the error of a request without a result: the store is not open, or the server dropped
    /// the job before it ran.
    pub(crate) fn stopping() -> Self {
        Self::unavailable("the server is stopping")
    }

    /// Returns the error of a request whose work panicked.
    pub(crate) fn panicked() -> Self {
        Self::internal("the request panicked, see the server's log")
    }

    /// Responds in plain text, as Prometheus does outside of /api/v1 and to remote write and read.
    pub(crate) fn plain(self) -> Self {
        Self {
            is_plain: true,
            ..self
        }
    }

    /// Writes `{"status":"error","errorType":...,"error":...}`.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64 + self.message.len());
        body.extend_from_slice(b"{\"status\":\"error\",\"errorType\":");
        json::write_html_string(&mut body, self.kind.name().as_bytes());
        body.extend_from_slice(b",\"error\":");
        json::write_html_string(&mut body, self.message.as_bytes());
        body.push(b'}');
        body
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let mut response = if self.is_plain {
            plain(status, format!("{}\n", self.message))
        } else {
            (
                status,
                [(header::CONTENT_TYPE, json::MIME_TYPE)],
                self.to_json(),
            )
                .into_response()
        };
        if matches!(
            self.kind,
            ErrorKind::Unavailable | ErrorKind::TooManyRequests
        ) {
            let retry_after_s = self.retry_after_s.unwrap_or(RETRY_AFTER_S);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(retry_after_s));
        }
        if let Some(limit) = self.limit {
            response.extensions_mut().insert(LimitHit(limit));
        }
        response
    }
}

impl From<varve_context::Error> for ApiError {
    fn from(error: varve_context::Error) -> Self {
        varve_tsdb::Error::from(error).into()
    }
}

impl From<varve_tsdb::Error> for ApiError {
    fn from(error: varve_tsdb::Error) -> Self {
        use varve_tsdb::Error;
        let (kind, limit) = match &error {
            Error::Interrupted(Interrupt::Deadline) => (ErrorKind::Timeout, Some(QUERY_TIMEOUT)),
            Error::Interrupted(Interrupt::Canceled | Interrupt::Killed) => {
                (ErrorKind::Canceled, None)
            }
            Error::Interrupted(Interrupt::Shutdown) => (ErrorKind::Unavailable, None),
            Error::Interrupted(Interrupt::Heaviest) => {
                (ErrorKind::Execution, Some(Limit::QueryMemoryTotal))
            }
            Error::Interrupted(Interrupt::Pressure) => {
                (ErrorKind::Execution, Some(Limit::ProcessMemory))
            }
            // Other queries hold the memory. The same request may succeed after they end.
            Error::Limit {
                what: Limit::QueryMemoryTotal,
                ..
            } => (ErrorKind::Unavailable, Some(Limit::QueryMemoryTotal)),
            Error::Limit { what, .. } => (ErrorKind::Execution, Some(*what)),
            Error::Replaying { .. } | Error::ReplayFailed { .. } => (ErrorKind::Unavailable, None),
            _ => (ErrorKind::Internal, None),
        };
        Self {
            limit,
            ..Self::new(kind, error.to_string())
        }
    }
}

/// What makes a query cheaper.
const CHEAPER: &str = "Shorten the range, select fewer series, or record the expression";

impl From<varve_query::Error> for ApiError {
    fn from(error: varve_query::Error) -> Self {
        use varve_query::Error;
        let (kind, limit) = match error {
            Error::Parse(rejected) => return rejected.into(),
            Error::Invalid(_) => return Self::invalid_parameter("query", error),
            Error::Limit { what, .. } => (ErrorKind::Execution, Some(what)),
            Error::Execution(_) | Error::Unsupported(_) => (ErrorKind::Execution, None),
            Error::Timeout => (ErrorKind::Timeout, Some(QUERY_TIMEOUT)),
            Error::Canceled | Error::Killed => (ErrorKind::Canceled, None),
            Error::Shutdown => (ErrorKind::Unavailable, None),
            Error::Storage(error) => return error.into(),
            _ => (ErrorKind::Internal, None),
        };
        let text = match limit {
            // The messages of Prometheus for these limits do not name them.
            Some(limit) if limit == QUERY_TIMEOUT || limit == Limit::QuerySamples => {
                format!("{error}. {CHEAPER}; the limit is {}", limit.name())
            }
            _ => error.to_string(),
        };
        Self {
            limit,
            ..Self::new(kind, text)
        }
    }
}

impl From<varve_promql::Error> for ApiError {
    fn from(error: varve_promql::Error) -> Self {
        varve_query::Error::from(error).into()
    }
}

impl From<varve_promql::ParseError> for ApiError {
    fn from(error: varve_promql::ParseError) -> Self {
        Self {
            limit: error.limit(),
            ..Self::invalid_parameter("query", error)
        }
    }
}

impl ApiError {
    /// Returns the error of a write: 5xx, or `queue_timeout_status`, if a retry can succeed, and
    /// 4xx otherwise.
    pub(crate) fn of_write(error: &WriteError, queue_timeout_status: QueueTimeoutStatus) -> Self {
        use varve_tsdb::Error;
        let cause = error.cause();
        let (kind, limit) = match cause {
            WriteError::Malformed(_) => (ErrorKind::BadData, None),
            WriteError::TooLarge { bound, .. } => (ErrorKind::TooLarge, Some(*bound)),
            WriteError::Busy { .. } => (ErrorKind::Unavailable, Some(Limit::WritesMemory)),
            WriteError::Throttled { resource, .. } => {
                (ErrorKind::Unavailable, Some(resource.limit()))
            }
            WriteError::Moved | WriteError::NoLeaderYet { .. } => (ErrorKind::Unavailable, None),
            WriteError::Store(Error::Limit { what, .. }) => (ErrorKind::Unavailable, Some(*what)),
            WriteError::Store(
                Error::Poisoned { .. } | Error::Io { .. } | Error::ReplayFailed { .. },
            ) => (ErrorKind::Unavailable, None),
            _ => (ErrorKind::Internal, None),
        };
        let failed = Self {
            limit,
            ..Self::new(kind, error.to_string())
        };
        match cause {
            WriteError::Busy { .. } => failed.rejected_write(queue_timeout_status),
            WriteError::Throttled { retry_after, .. } => {
                let retry_after_s = retry_after
                    .as_millis()
                    .div_ceil(1000)
                    .min(RETRY_AFTER_MAX_S) as u64;
                Self {
                    retry_after_s: Some(retry_after_s),
                    ..failed
                }
                .rejected_write(queue_timeout_status)
            }
            _ => failed,
        }
    }

    /// Responds with `status`, either 503 or 429: some senders retry only the first.
    pub(crate) fn rejected_write(self, status: QueueTimeoutStatus) -> Self {
        let is_429 = status == QueueTimeoutStatus::TooManyRequests;
        Self {
            kind: if is_429 {
                ErrorKind::TooManyRequests
            } else {
                self.kind
            },
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: impl Into<ApiError>, status: u16, body: &str) {
        let error = error.into();
        assert_eq!(String::from_utf8(error.to_json()).unwrap(), body);
        let response = error.into_response();
        assert_eq!(response.status().as_u16(), status, "{body}");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(
            response.headers().contains_key(header::RETRY_AFTER),
            body.contains("unavailable"),
            "{body}"
        );
    }

    #[test]
    fn errors_have_the_status_and_type_of_prometheus() {
        varve_config::limits::name_limits();
        check(
            ApiError::invalid_parameter("step", "a < \"b\""),
            400,
            r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"step\": a \u003c \"b\""}"#,
        );
        let timeout = varve_tsdb::Error::Interrupted(Interrupt::Deadline);
        check(
            timeout,
            503,
            r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
        );
        let canceled = varve_tsdb::Error::Interrupted(Interrupt::Canceled);
        check(
            canceled,
            499,
            r#"{"status":"error","errorType":"canceled","error":"query was canceled"}"#,
        );
        check(
            varve_tsdb::Error::Limit {
                what: Limit::QueryMemory,
                used: 2,
                limit: 1,
            },
            422,
            r#"{"status":"error","errorType":"execution","error":"--query.max-memory: 2 exceeds the limit of 1"}"#,
        );
        let exhausted = || varve_tsdb::Error::Limit {
            what: Limit::QueryMemoryTotal,
            used: 2,
            limit: 1,
        };
        let body = "--query.max-memory-total: 2 exceeds the limit of 1";
        let body = format!(r#"{{"status":"error","errorType":"unavailable","error":"{body}"}}"#);
        check(exhausted(), 503, &body);
        check(varve_query::Error::from(exhausted()), 503, &body);
        let replaying = varve_tsdb::Error::Replaying {
            progress: "1 % of the log".into(),
        };
        let body = "the requested time range is not replayed yet: 1 % of the log";
        let body = format!(r#"{{"status":"error","errorType":"unavailable","error":"{body}"}}"#);
        check(varve_query::Error::Storage(replaying), 503, &body);
        check(
            ApiError::unavailable("full"),
            503,
            r#"{"status":"error","errorType":"unavailable","error":"full"}"#,
        );
        check(
            varve_query::Error::Unsupported("histograms".into()),
            422,
            &format!(
                r#"{{"status":"error","errorType":"execution","error":"{}"}}"#,
                varve_query::Error::Unsupported("histograms".into())
            ),
        );
        check(
            varve_query::Error::Timeout,
            503,
            r#"{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation. Shorten the range, select fewer series, or record the expression; the limit is --query.timeout"}"#,
        );
    }

    #[test]
    fn a_long_message_is_cut() {
        let cut = ApiError::bad_data("é".repeat(MESSAGE_SIZE_MAX));
        assert_eq!(
            cut.message,
            format!("{}...", "é".repeat(MESSAGE_SIZE_MAX / 2))
        );
    }

    #[test]
    fn a_write_that_can_be_retried_gets_a_status_with_retry_after() {
        let full = WriteError::Store(varve_tsdb::Error::Limit {
            what: Limit::Other("memory"),
            used: 2,
            limit: 1,
        });
        let retry_after = |response: &Response| {
            response.headers()[header::RETRY_AFTER]
                .to_str()
                .unwrap()
                .to_owned()
        };
        for error in [
            full,
            WriteError::Moved,
            WriteError::Busy {
                in_flight: 1,
                size: 1,
                limit: 1,
            },
        ] {
            let response =
                ApiError::of_write(&error, QueueTimeoutStatus::ServiceUnavailable).into_response();
            assert_eq!(
                (response.status().as_u16(), retry_after(&response).as_str()),
                (503, "5")
            );
        }
        let throttled = |retry_after_ms| WriteError::Throttled {
            resource: varve_ingest::admission::Exhausted::TotalNewSeries,
            team: std::sync::Arc::from(""),
            n_series: 1,
            retry_after: std::time::Duration::from_millis(retry_after_ms),
        };
        for (retry_after_ms, expect) in [(1000, "1"), (1001, "2"), (1_000_000, "30")] {
            for (status, code) in [
                (QueueTimeoutStatus::ServiceUnavailable, 503),
                (QueueTimeoutStatus::TooManyRequests, 429),
            ] {
                let response =
                    ApiError::of_write(&throttled(retry_after_ms), status).into_response();
                assert_eq!(
                    (response.status().as_u16(), retry_after(&response).as_str()),
                    (code, expect)
                );
            }
        }
        let large = WriteError::TooLarge {
            what: "body",
            size: 2,
            limit: 1,
            bound: Limit::Other("--x"),
        };
        assert_eq!(
            ApiError::of_write(&large, QueueTimeoutStatus::TooManyRequests)
                .kind
                .status(),
            413
        );
    }
}
