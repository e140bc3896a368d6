//! The responses of OTLP/HTTP, in the encoding of the request.
//!
//! A success is an `ExportMetricsServiceResponse`, an error a `google.rpc.Status`.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prost::Message;
use serde_json::{Value, json};
use varve_ingest::OtlpEncoding;
use varve_wire::rpc::{ExportMetricsResponse, PartialSuccess, RpcStatus};

/// Media type of protobuf.
pub(super) const PROTOBUF: &str = "application/x-protobuf";
/// Media type of JSON.
pub(super) const JSON: &str = "application/json";

/// Returns the encoding of a media type, which may have parameters.
pub(super) fn encoding_of(content_type: &str) -> Option<OtlpEncoding> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case(PROTOBUF) {
        Some(OtlpEncoding::Protobuf)
    } else if media_type.eq_ignore_ascii_case(JSON) {
        Some(OtlpEncoding::Json)
    } else {
        None
    }
}

/// Responds to a request of which at least a part was stored. The number of rejected data points is
/// 0 if only a generated sample, such as one of `target_info`, or an exemplar was rejected.
pub(super) fn success(encoding: OtlpEncoding, rejected: Option<PartialSuccess>) -> Response {
    let json = match &rejected {
        None => json!({}),
        // In JSON, an integer of 64 bits is a string.
        Some(partial) => json!({"partialSuccess": {
            "rejectedDataPoints": partial.rejected_data_points.to_string(),
            "errorMessage": partial.error_message,
        }}),
    };
    let response = ExportMetricsResponse {
        partial_success: rejected,
    };
    respond(StatusCode::OK, encoding, &response, &json)
}

/// Responds with an error.
pub(super) fn error(status: StatusCode, encoding: OtlpEncoding, message: String) -> Response {
    let code = code_of(status);
    let json = json!({"code": code, "message": message});
    let body = RpcStatus {
        code,
        message,
        details: Vec::new(),
    };
    respond(status, encoding, &body, &json)
}

/// Responds with a message, which is `json` in JSON.
fn respond(
    status: StatusCode,
    encoding: OtlpEncoding,
    message: &impl Message,
    json: &Value,
) -> Response {
    let (media_type, body) = match encoding {
        OtlpEncoding::Protobuf => (PROTOBUF, message.encode_to_vec()),
        OtlpEncoding::Json => (JSON, json.to_string().into_bytes()),
    };
    (status, [(header::CONTENT_TYPE, media_type)], body).into_response()
}

/// Returns the code of gRPC for a status of HTTP, as `google.rpc.Code` pairs them. Clients do not
/// depend on it.
fn code_of(status: StatusCode) -> i32 {
    match status {
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND => 5,
        StatusCode::METHOD_NOT_ALLOWED => 12,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        status if status.is_client_error() => 3,
        _ => 13,
    }
}
