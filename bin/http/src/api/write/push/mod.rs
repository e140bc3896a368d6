//! /api/v1/import/prometheus/metrics/job/<job>{/<label>/<value>}: what push libraries send to a
//! Pushgateway.
//!
//! A Pushgateway keeps the last push of a group until it is deleted, and is scraped. A store keeps
//! samples: POST and PUT store those of the body at the time of their receipt, with the labels of
//! the path. There is nothing to replace or to delete, so PUT is POST, and DELETE stores nothing:
//! what is no longer pushed disappears from queries after the lookback delta, as a series that is no
//! longer scraped does.

mod families;
mod group;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::IntoResponse;
use varve_ingest::compression::Compression;
use varve_ingest::text::{Import, TextFormat};

use super::import;
use super::ingest::{ingest, respond};
use crate::error::{ApiError, ErrorKind, Result};
use crate::requester::record_of;
use crate::serving::request_body::header_text;
use crate::serving::state::HttpState;

/// The path of the endpoint, before the labels of the group.
pub(crate) const PATH: &str = "/api/v1/import/prometheus/metrics/";
/// Maximum bytes of the text of a message in protobuf.
const TEXT_SIZE_MAX: usize = 64 << 20;

const PROTOBUF: &str = "application/vnd.google.protobuf";

/// POST, PUT and DELETE /api/v1/import/prometheus/metrics/job/<job>{/<label>/<value>}.
pub(crate) async fn push(State(state): State<HttpState>, request: Request) -> Result {
    let path = request.uri().path().strip_prefix(PATH).unwrap_or_default();
    let labels = group::labels(path).map_err(|reason| ApiError::bad_data(reason).plain())?;
    if request.method() == Method::DELETE {
        return Ok(StatusCode::ACCEPTED.into_response());
    }

    let is_protobuf = is_protobuf(request.headers())?;
    let mut import = import::settings(&state, &request)?;
    import.extra_labels.extend(labels);
    if !is_protobuf {
        let write = ingest(&state, request, move |receiver, origin, body| {
            receiver.import(origin, body, &import)
        });
        return respond(&write.await?, StatusCode::OK);
    }

    if import.compression != Compression::Identity {
        let reason = "a compressed body in protobuf is not accepted; send it as it is";
        return Err(ApiError::new(ErrorKind::UnsupportedMedia, reason).plain());
    }
    let record = record_of(request.extensions())?;
    let memory = state.app.requests.memory_of_write(&record).clone();
    let import = Import {
        format: TextFormat::OpenMetrics2,
        ..import
    };
    let write = ingest(&state, request, move |receiver, origin, body| {
        let text = families::to_text(body, TEXT_SIZE_MAX, &memory)?;
        receiver.import(origin, text.bytes(), &import)
    });
    respond(&write.await?, StatusCode::OK)
}

/// Returns `true` if the body is delimited protobuf, and `false` if it is text.
///
/// # Errors
/// If it is another form of protobuf.
fn is_protobuf(headers: &HeaderMap) -> Result<bool> {
    let content_type = header_text(headers, header::CONTENT_TYPE);
    let mut parts = content_type.split(';');
    let media_type = parts.next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case(PROTOBUF) {
        return Ok(false);
    }
    let is_delimited = parts.any(|part| {
        let (name, value) = part.split_once('=').unwrap_or_default();
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("encoding") && value.eq_ignore_ascii_case("delimited")
    });
    if is_delimited {
        Ok(true)
    } else {
        let reason = format!("{content_type} is not accepted; {PROTOBUF}; encoding=delimited is");
        Err(ApiError::new(ErrorKind::UnsupportedMedia, reason).plain())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_content_type_says_whether_a_push_is_protobuf() {
        for (text, expect) in [
            ("", Ok(false)),
            ("text/plain; version=0.0.4; charset=utf-8", Ok(false)),
            (
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
                Ok(true),
            ),
            (
                "Application/Vnd.Google.Protobuf;Encoding=\"Delimited\"",
                Ok(true),
            ),
            ("application/vnd.google.protobuf; encoding=text", Err(())),
            ("application/vnd.google.protobuf", Err(())),
        ] {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(text))]);
            assert_eq!(is_protobuf(&headers).map_err(drop), expect, "{text}");
        }
    }
}
