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
    let format = format(request.headers()).map_err(|reason| ApiError::bad_data(reason).plain())?;
    let write = ingest(&state, request, move |receiver, origin, body| {
        receiver.write_otlp(origin, format, body)
    });
    respond(&write.await?, StatusCode::OK)
}

fn format(headers: &HeaderMap) -> Result<(OtlpEncoding, Compression), String> {
    let encoding = match header_text(headers, header::CONTENT_TYPE) {
        PROTOBUF => OtlpEncoding::Protobuf,
        JSON => OtlpEncoding::Json,
        other => {
            return Err(format!(
                "unsupported content type: {other}, supported: [{JSON}, {PROTOBUF}]"
            ));
        }
    };
    match header_text(headers, header::CONTENT_ENCODING) {
        "" => Ok((encoding, Compression::Identity)),
        "gzip" => Ok((encoding, Compression::Gzip)),
        other => Err(format!(
            "unsupported compression: {other}. Only \"gzip\" or no compression supported"
        )),
    }
}
