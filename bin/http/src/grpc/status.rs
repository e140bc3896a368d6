//! The status of a call, in the trailers of its response, and the only place where an error becomes
//! a gRPC code.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message as _;
use varve_context::Limit;
use varve_wire::grpc::ACCEPTED;
use varve_wire::rpc::{Any, Duration, RetryInfo, RpcStatus};

use crate::error::{ApiError, ErrorKind, LimitHit};

/// The ASCII characters that a status message escapes.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// A status code of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Ok = 0,
    Canceled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Aborted = 10,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: Code,
    pub(super) message: String,
    /// The limit that the call exceeded.
    limit: Option<Limit>,
    /// Seconds after which the client may retry, for a `RetryInfo`.
    retry_after_s: Option<u64>,
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            limit: None,
            retry_after_s: None,
        }
    }

    /// Adds a `RetryInfo`.
    pub(super) fn retried_after(self, seconds: u64) -> Self {
        Self {
            retry_after_s: Some(seconds),
            ..self
        }
    }

    pub(super) const fn ok() -> Self {
        Self {
            code: Code::Ok,
            message: String::new(),
            limit: None,
            retry_after_s: None,
        }
    }

    /// Returns the headers of the status.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(3);
        headers.insert("grpc-status", HeaderValue::from(self.code as u16));
        if !self.message.is_empty() {
            let message =
                HeaderValue::try_from(utf8_percent_encode(&self.message, ESCAPED).to_string());
            headers.insert(
                "grpc-message",
                message.expect("percent-encoded text is visible ASCII"),
            );
        }
        if let Some(seconds) = self.retry_after_s {
            let details = BASE64.encode(self.with_retry_info(seconds).encode_to_vec());
            headers.insert(
                "grpc-status-details-bin",
                HeaderValue::try_from(details).expect("Base64 is visible ASCII"),
            );
        }
        headers
    }

    fn with_retry_info(&self, seconds: u64) -> RpcStatus {
        let retry_delay = Duration {
            seconds: seconds.cast_signed(),
            nanos: 0,
        };
        let info = RetryInfo {
            retry_delay: Some(retry_delay),
        };
        let detail = Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: info.encode_to_vec(),
        };
        RpcStatus {
            code: self.code as i32,
            message: self.message.clone(),
            details: vec![detail],
        }
    }

    /// Returns a response without messages.
    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = self.headers();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        response
            .headers_mut()
            .insert("grpc-accept-encoding", HeaderValue::from_static(ACCEPTED));
        if let Some(limit) = self.limit {
            response.extensions_mut().insert(LimitHit(limit));
        }
        response
    }
}

/// The media type of requests and responses.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

impl From<ApiError> for Status {
    /// A limit is `ResourceExhausted`, with its flag in the message.
    fn from(error: ApiError) -> Self {
        let ApiError {
            kind,
            mut message,
            limit,
            ..
        } = error;
        let code = match kind {
            ErrorKind::TooLarge => Code::ResourceExhausted,
            ErrorKind::Execution | ErrorKind::Unavailable | ErrorKind::TooManyRequests
                if limit.is_some() =>
            {
                Code::ResourceExhausted
            }
            ErrorKind::BadData | ErrorKind::UnsupportedMedia => Code::InvalidArgument,
            ErrorKind::SlowRequest | ErrorKind::Timeout => Code::DeadlineExceeded,
            // As in Thanos' own service.
            ErrorKind::Execution => Code::Aborted,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Canceled => Code::Canceled,
            ErrorKind::Disabled => Code::Unimplemented,
            ErrorKind::Unavailable | ErrorKind::TooManyRequests => Code::Unavailable,
            ErrorKind::Internal => Code::Internal,
        };
        if let Some(limit) = limit.filter(|limit| !message.contains(limit.name())) {
            write!(message, " ({limit})").expect("a string grows");
        }
        Self {
            code,
            message,
            limit,
            retry_after_s: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_that_thanos_expects() {
        let limit = |kind| ApiError::new(kind, "too much").with_limit("--query.max-memory");
        for (error, code, message) in [
            (
                limit(ErrorKind::Execution),
                Code::ResourceExhausted,
                "too much (--query.max-memory)",
            ),
            (
                limit(ErrorKind::Unavailable),
                Code::ResourceExhausted,
                "too much (--query.max-memory)",
            ),
            (ApiError::bad_data("a"), Code::InvalidArgument, "a"),
            (ApiError::unavailable("a"), Code::Unavailable, "a"),
            (
                ApiError::new(ErrorKind::Timeout, "a --x").with_limit("--x"),
                Code::DeadlineExceeded,
                "a --x",
            ),
            (ApiError::new(ErrorKind::Execution, "a"), Code::Aborted, "a"),
        ] {
            let status = Status::from(error);
            assert_eq!((status.code, &*status.message), (code, message));
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        let headers = Status::new(Code::Internal, "50 %\né").headers();
        assert_eq!(headers["grpc-message"], "50 %25%0A%C3%A9");
        assert_eq!(headers["grpc-status"], "13");
        assert!(!Status::ok().headers().contains_key("grpc-message"));
    }
}
