//! The one place where an error becomes a status code and Prometheus' error object.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_tsdb::Interrupt;

use super::{json, plain};

/// Why a call of the API failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// The bound that was hit, by its flag.
    pub(crate) limit: Option<&'static str>,
}

/// Goes with a response whose request hit a bound: the bound's flag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitHit(pub(crate) &'static str);

/// What went wrong, by Prometheus' `errorType`s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The request cannot be understood.
    BadData,
    /// The request is larger than may be sent.
    TooLarge,
    /// The client took too long to send the request.
    SlowRequest,
    /// The request can be understood, not answered.
    Execution,
    /// There is no such thing.
    NotFound,
    /// The client has gone.
    Canceled,
    /// The deadline passed.
    Timeout,
    /// What is asked for is not switched on.
    Disabled,
    /// The server is full or stopping; the same request may succeed later.
    Unavailable,
    /// The server failed.
    Internal,
}

/// Seconds after which a client may repeat what was refused as unavailable.
pub(crate) const RETRY_AFTER_S: &str = "5";

/// The flag that bounds what all queries may hold. A single one is bounded by less.
pub(crate) const MEMORY_OF_ALL: &str = "--query.max-memory-total";

/// Nginx' code for a client that closed the connection, which Prometheus uses too.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl ErrorKind {
    /// Returns the value of `errorType`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BadData | Self::TooLarge | Self::SlowRequest => "bad_data",
            Self::Execution => "execution",
            Self::NotFound => "not_found",
            Self::Canceled => "canceled",
            Self::Timeout => "timeout",
            Self::Unavailable | Self::Disabled => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// Returns the status code.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::BadData => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowRequest => StatusCode::REQUEST_TIMEOUT,
            Self::Execution => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Canceled => {
                StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("499 has three digits, as a status code must")
            }
            Self::Timeout | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            // As Prometheus answers what it calls unavailable.
            Self::Internal | Self::Disabled => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), limit: None }
    }

    /// Names the bound that was hit.
    pub(crate) fn of_limit(self, flag: &'static str) -> Self {
        Self { limit: Some(flag), ..self }
    }

    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadData, message)
    }

    /// Refuses a parameter in Prometheus' words.
    pub(crate) fn invalid_parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter \"{name}\": {reason}"))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
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

impl ApiError {
    /// Answers in plain text, where Prometheus does.
    pub(crate) fn into_plain(self) -> Response {
        let mut response = plain(self.kind.status(), format!("{}\n", self.message));
        self.mark(&mut response);
        response
    }

    /// Adds to an answer when to come again, and for those who count, which bound was hit.
    fn mark(&self, response: &mut Response) {
        if self.kind == ErrorKind::Unavailable {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        if let Some(flag) = self.limit {
            response.extensions_mut().insert(LimitHit(flag));
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response =
            (self.kind.status(), [(header::CONTENT_TYPE, json::MIME_TYPE)], self.to_json()).into_response();
        self.mark(&mut response);
        // For those whose errors are no JSON.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<varve_tsdb::Error> for ApiError {
    fn from(error: varve_tsdb::Error) -> Self {
        use varve_tsdb::Error;
        let (kind, limit) = match &error {
            Error::Interrupted(Interrupt::Deadline) => (ErrorKind::Timeout, Some("--query.timeout")),
            Error::Interrupted(Interrupt::Canceled | Interrupt::Killed) => (ErrorKind::Canceled, None),
            Error::Interrupted(Interrupt::Shutdown) => (ErrorKind::Unavailable, None),
            Error::Interrupted(Interrupt::Heaviest) => (ErrorKind::Execution, Some(MEMORY_OF_ALL)),
            Error::Interrupted(Interrupt::Pressure) => (ErrorKind::Execution, Some("--memory.refuse-at")),
            // Others hold what there is: the same request may find room when they are through.
            Error::Limit { what: MEMORY_OF_ALL, .. } => (ErrorKind::Unavailable, Some(MEMORY_OF_ALL)),
            Error::Limit { what, .. } => (ErrorKind::Execution, Some(*what)),
            Error::Replaying { .. } | Error::ReplayFailed { .. } => (ErrorKind::Unavailable, None),
            _ => (ErrorKind::Internal, None),
        };
        Self { limit, ..Self::new(kind, error.to_string()) }
    }
}

impl From<varve_query::Error> for ApiError {
    fn from(error: varve_query::Error) -> Self {
        use varve_query::Error;
        let (kind, limit) = match error {
            Error::Parse(refused) => return refused.into(),
            Error::Invalid(_) => return Self::invalid_parameter("query", error),
            Error::Limit { what, .. } => (ErrorKind::Execution, Some(what)),
            Error::Execution(_) | Error::Unsupported(_) => (ErrorKind::Execution, None),
            Error::Timeout => (ErrorKind::Timeout, Some("--query.timeout")),
            Error::Canceled | Error::Killed => (ErrorKind::Canceled, None),
            Error::Shutdown => (ErrorKind::Unavailable, None),
            Error::Storage(error) => return error.into(),
            _ => (ErrorKind::Internal, None),
        };
        Self { limit, ..Self::new(kind, error.to_string()) }
    }
}

impl From<varve_query::promql::ParseError> for ApiError {
    fn from(refused: varve_query::promql::ParseError) -> Self {
        Self { limit: refused.limit(), ..Self::invalid_parameter("query", refused) }
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
        assert_eq!(response.headers().contains_key(header::RETRY_AFTER), body.contains("unavailable"), "{body}");
    }

    #[test]
    fn errors_have_the_status_and_type_of_prometheus() {
        check(
            ApiError::invalid_parameter("step", "a < \"b\""),
            400,
            r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"step\": a \u003c \"b\""}"#,
        );
        let timeout = varve_tsdb::Error::Interrupted(Interrupt::Deadline);
        check(timeout, 503, r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#);
        let canceled = varve_tsdb::Error::Interrupted(Interrupt::Canceled);
        check(canceled, 499, r#"{"status":"error","errorType":"canceled","error":"query was canceled"}"#);
        check(
            varve_tsdb::Error::Limit { what: "--query.max-memory", used: 2, limit: 1 },
            422,
            r#"{"status":"error","errorType":"execution","error":"--query.max-memory: 2 exceeds the limit of 1"}"#,
        );
        let short = || varve_tsdb::Error::Limit { what: MEMORY_OF_ALL, used: 2, limit: 1 };
        let body = "--query.max-memory-total: 2 exceeds the limit of 1";
        let body = format!(r#"{{"status":"error","errorType":"unavailable","error":"{body}"}}"#);
        check(short(), 503, &body);
        check(varve_query::Error::from(short()), 503, &body);
        let replaying = varve_tsdb::Error::Replaying { progress: "1 % of the log".into() };
        let body = "the time range that is asked for is not replayed yet: 1 % of the log";
        let body = format!(r#"{{"status":"error","errorType":"unavailable","error":"{body}"}}"#);
        check(varve_query::Error::Storage(replaying), 503, &body);
        check(ApiError::unavailable("full"), 503, r#"{"status":"error","errorType":"unavailable","error":"full"}"#);
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
            r#"{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}"#,
        );
    }
}
