//! /api/v1/otlp/v1/metrics: OpenTelemetry's metrics in protobuf. Statuses and words are those of Prometheus' receiver.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_ingest::Compression;

use super::remote_write::{answer, ingest, text};
use crate::http::App;

const MEDIA_TYPE: &str = "application/x-protobuf";

/// POST /api/v1/otlp/v1/metrics.
pub(crate) async fn write(State(app): State<Arc<App>>, request: Request) -> Response {
    let (content_type, encoding) =
        (text(request.headers(), header::CONTENT_TYPE), text(request.headers(), header::CONTENT_ENCODING));
    if content_type != MEDIA_TYPE {
        let reason = format!("unsupported content type: {content_type}, supported: [{MEDIA_TYPE}]");
        return answer(StatusCode::BAD_REQUEST, &reason);
    }
    let compression = match encoding {
        "" => Compression::Identity,
        "gzip" => Compression::Gzip,
        _ => {
            let reason = format!("unsupported compression: {encoding}. Only \"gzip\" or no compression supported");
            return answer(StatusCode::BAD_REQUEST, &reason);
        }
    };
    match ingest(app, request, move |receiver, origin, body| receiver.write_otlp(origin, compression, body)).await {
        Ok(written) if written.rejects.is_empty() => StatusCode::OK.into_response(),
        Ok(written) => answer(StatusCode::BAD_REQUEST, &written.rejects.to_string()),
        Err(response) => response,
    }
}
