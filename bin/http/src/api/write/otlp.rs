//! /api/v1/otlp/v1/metrics: OTLP metrics in protobuf or JSON. Status codes and error messages are
//! the same as in Prometheus' receiver.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use varve_ingest::OtlpEncoding;
use varve_ingest::compression::Compression;

use super::ingest::{ingest, respond};
use crate::error::{ApiError, Result};
use crate::serving::request_body::header_text;
use crate::serving::state::HttpState;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// POST /api/v1/otlp/v1/metrics.
pub(crate) async fn write(State(state): State<HttpState>, request: Request) -> Result {
    let headers = request.headers();
    let encoding = encoding(headers).map_err(|reason| ApiError::bad_data(reason).plain())?;
    let compression = compression(headers).map_err(|reason| ApiError::bad_data(reason).plain())?;
    let write = ingest(&state, request, move |receiver, origin, body| {
        receiver.write_otlp(origin, encoding, compression, body)
    });
    respond(&write.await?, StatusCode::OK)
}

fn encoding(headers: &HeaderMap) -> Result<OtlpEncoding, String> {
    match header_text(headers, header::CONTENT_TYPE) {
        PROTOBUF => Ok(OtlpEncoding::Protobuf),
        JSON => Ok(OtlpEncoding::Json),
        other => Err(format!(
            "unsupported content type: {other}, supported: [{JSON}, {PROTOBUF}]"
        )),
    }
}

fn compression(headers: &HeaderMap) -> Result<Compression, String> {
    match header_text(headers, header::CONTENT_ENCODING) {
        "" => Ok(Compression::Identity),
        "gzip" => Ok(Compression::Gzip),
        other => Err(format!(
            "unsupported compression: {other}. Only \"gzip\" or no compression supported"
        )),
    }
}
