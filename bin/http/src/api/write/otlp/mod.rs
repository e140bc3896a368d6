//! /api/v1/otlp/v1/metrics: OTLP metrics in protobuf or JSON, as the specification of OTLP/HTTP
//! demands: <https://opentelemetry.io/docs/specs/otlp/#otlphttp>. Prometheus' receiver has no
//! partial success. Its errors are plain text.

pub(crate) mod errors;
mod response;

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use varve_ingest::compression::Compression;
use varve_ingest::{OtlpEncoding, Written};
use varve_wire::rpc::PartialSuccess;

use super::ingest::ingest;
use crate::error::{ApiError, ErrorKind, Result};
use crate::serving::log_limiter::LogLimiter;
use crate::serving::request_body::header_text;
use crate::serving::state::HttpState;

/// Log rate limiter of requests of which some data points were rejected.
static PARTIAL_LOG: LogLimiter = LogLimiter::new();

/// POST /api/v1/otlp/v1/metrics.
pub(crate) async fn write(State(state): State<HttpState>, request: Request) -> Result {
    let encoding = encoding(request.headers())?;
    let compression = compression(request.headers())?;
    let written = ingest(&state, request, move |receiver, origin, body| {
        receiver.write_otlp(origin, encoding, compression, body)
    });
    Ok(response::success(
        encoding,
        partial_success(&written.await?)?,
    ))
}

/// Returns the partial success of a request with rejections, and logs it. `None` if everything was
/// stored.
///
/// # Errors
/// 400 if all data points were rejected: a retry cannot help.
pub(crate) fn partial_success(written: &Written) -> Result<Option<PartialSuccess>> {
    if written.rejections.is_empty() {
        return Ok(None);
    }
    let points = written.points.unwrap_or_default();
    let reason = written.rejections.to_string();
    if points.rejected > 0 && points.rejected == points.sent {
        return Err(ApiError::bad_data(reason).plain());
    }
    if let Some(n_suppressed) = PARTIAL_LOG.admit("partial", Instant::now()) {
        tracing::warn!(
            n_rejected = points.rejected,
            n_sent = points.sent,
            reason,
            n_suppressed,
            "Data points of an OTLP request were rejected"
        );
    }
    Ok(Some(PartialSuccess {
        rejected_data_points: points.rejected.cast_signed(),
        error_message: reason,
    }))
}

/// Returns the encoding of the media type, whose parameters have no meaning.
fn encoding(headers: &HeaderMap) -> Result<OtlpEncoding> {
    let content_type = header_text(headers, header::CONTENT_TYPE);
    response::encoding_of(content_type).ok_or_else(|| {
        unsupported(format!(
            "unsupported content type: {content_type}, supported: [{}, {}]",
            response::JSON,
            response::PROTOBUF
        ))
    })
}

fn compression(headers: &HeaderMap) -> Result<Compression> {
    let name = header_text(headers, header::CONTENT_ENCODING);
    Compression::from_content_encoding(name).ok_or_else(|| {
        unsupported(format!(
            "unsupported compression: {name}, supported: gzip, zstd, snappy, deflate, identity"
        ))
    })
}

fn unsupported(reason: String) -> ApiError {
    ApiError::new(ErrorKind::UnsupportedMedia, reason).plain()
}

/// Returns `true` if a path is one of OTLP/HTTP.
fn is_otlp(path: &str) -> bool {
    path.starts_with("/api/v1/otlp/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn media_types_and_encodings_have_any_case_and_parameters() {
        for (text, expect) in [
            ("application/x-protobuf", Some(OtlpEncoding::Protobuf)),
            (
                "Application/X-Protobuf; charset=utf-8",
                Some(OtlpEncoding::Protobuf),
            ),
            ("application/json;charset=utf-8", Some(OtlpEncoding::Json)),
            ("text/plain", None),
            ("", None),
        ] {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(text))]);
            assert_eq!(encoding(&headers).ok(), expect, "{text}");
        }
        for (text, expect) in [
            ("GZIP", Some(Compression::Gzip)),
            ("zstd", Some(Compression::Zstd)),
            ("Snappy", Some(Compression::Snappy)),
            ("deflate", Some(Compression::Deflate)),
            ("identity", Some(Compression::Identity)),
            ("br", None),
        ] {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(text))]);
            assert_eq!(compression(&headers).ok(), expect, "{text}");
        }
    }
}
