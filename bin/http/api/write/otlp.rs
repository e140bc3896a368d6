//! /api/v1/otlp/v1/metrics: OTLP metrics in protobuf. Status codes and error messages are the same as in Prometheus'
//! receiver.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use varve_ingest::Compression;

use super::ingest::{ingest, respond};
use crate::http::error::ApiError;
use crate::http::serving::request_body::header_text;
use crate::http::serving::state::HttpState;

const MEDIA_TYPE: &str = "application/x-protobuf";

/// POST /api/v1/otlp/v1/metrics.
pub(crate) async fn write(State(state): State<HttpState>, request: Request) -> Result<Response, ApiError> {
    let compression = compression(request.headers()).map_err(|reason| ApiError::bad_data(reason).plain())?;
    let write = ingest(&state, request, move |receiver, origin, body| receiver.write_otlp(origin, compression, body));
    respond(&write.await?, StatusCode::OK)
}

fn compression(headers: &HeaderMap) -> Result<Compression, String> {
    let content_type = header_text(headers, header::CONTENT_TYPE);
    if content_type != MEDIA_TYPE {
        return Err(format!("unsupported content type: {content_type}, supported: [{MEDIA_TYPE}]"));
    }
    match header_text(headers, header::CONTENT_ENCODING) {
        "" => Ok(Compression::Identity),
        "gzip" => Ok(Compression::Gzip),
        encoding => Err(format!("unsupported compression: {encoding}. Only \"gzip\" or no compression supported")),
    }
}
