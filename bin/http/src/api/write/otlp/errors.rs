//! Errors of OTLP/HTTP: a `google.rpc.Status`, whatever layer or handler responds.
//!
//! Clients print its message, and nothing of another body. They retry after 429, 502, 503 and 504
//! only, so a failure of the server is a 503.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;
use varve_ingest::OtlpEncoding;

use super::{is_otlp, response};
use crate::error::RETRY_AFTER_S;
use crate::serving::request_body::header_text;

/// Maximum size of the body of an error.
const BODY_SIZE_MAX: usize = 1 << 20;

/// Rewrites the errors of OTLP/HTTP.
pub(crate) async fn rewrite(request: Request, next: Next) -> Response {
    if !is_otlp(request.uri().path()) {
        return next.run(request).await;
    }
    let content_type = header_text(request.headers(), header::CONTENT_TYPE);
    let encoding = response::encoding_of(content_type).unwrap_or(OtlpEncoding::Protobuf);
    let response = next.run(request).await;
    if response.status().is_client_error() || response.status().is_server_error() {
        rewritten(response, encoding).await
    } else {
        response
    }
}

async fn rewritten(response: Response, encoding: OtlpEncoding) -> Response {
    let (mut head, body) = response.into_parts();
    let status = match head.status {
        StatusCode::INTERNAL_SERVER_ERROR => StatusCode::SERVICE_UNAVAILABLE,
        status => status,
    };
    let text = message(body).await.unwrap_or_default();
    let text = match text.as_str() {
        "" => status.canonical_reason().unwrap_or_default().to_owned(),
        _ => text,
    };
    let (of_error, body) = response::error(status, encoding, text).into_parts();
    head.status = of_error.status;
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(of_error.headers);
    if head.status == StatusCode::SERVICE_UNAVAILABLE {
        let retry_after = head.headers.entry(header::RETRY_AFTER);
        retry_after.or_insert_with(|| HeaderValue::from(RETRY_AFTER_S));
    }
    Response::from_parts(head, body)
}

/// Returns the text of an error: the body, or the field `error` of Prometheus' error object.
async fn message(body: Body) -> Option<String> {
    let bytes = to_bytes(body, BODY_SIZE_MAX).await.ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let object: Option<Value> = serde_json::from_str(&text).ok();
    let error = object.as_ref().and_then(|object| object["error"].as_str());
    Some(error.unwrap_or(text.trim_end()).to_owned())
}
