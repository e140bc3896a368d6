//! /api/v1/write: remote write 1.0 and 2.0, by content type. Responses are plain text, as the
//! remote-write specification demands.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_ingest::Written;
use varve_ingest::remote_write::Version;

use super::ingest::{ingest, respond};
use crate::error::{ApiError, ErrorKind, Result};
use crate::serving::request_body::header_text;
use crate::serving::state::HttpState;

/// The messages of both versions, as content types name them.
const MESSAGE_V1: &str = "prometheus.WriteRequest";
const MESSAGE_V2: &str = "io.prometheus.write.v2.Request";

const MEDIA_TYPE: &str = "application/x-protobuf";

/// POST /api/v1/write.
pub(crate) async fn write(State(state): State<HttpState>, request: Request) -> Result {
    let version = negotiate(request.headers())
        .map_err(|reason| ApiError::new(ErrorKind::UnsupportedMedia, reason).plain())?;
    let outcome = ingest(&state, request, move |receiver, origin, body| {
        receiver.write(origin, version, body)
    })
    .await;
    // The response to a request that has to be retried confirms no samples.
    let counts = outcome.as_ref().map(Counts::of).unwrap_or_default();
    let mut response = outcome
        .and_then(|written| respond(&written, StatusCode::NO_CONTENT))
        .into_response();
    if version == Version::V2 {
        counts.add_headers(&mut response);
    }
    Ok(response)
}

/// The numbers of stored items of a request, for the headers of its response.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    samples: u64,
    histograms: u64,
    exemplars: u64,
}

impl Counts {
    fn of(written: &Written) -> Self {
        // Includes samples dropped by relabel rules and deduplicated ones. Otherwise a sender would
        // count them as failed.
        let mut all = written.stored;
        all += written.dropped;
        all += written.deduplicated;
        let exemplars = &written.exemplars;
        Self {
            samples: all.total - all.histograms,
            histograms: all.histograms,
            exemplars: exemplars.stored,
        }
    }

    /// Adds the headers of remote write 2.0, which successful and failed responses have.
    fn add_headers(self, response: &mut Response) {
        let headers = response.headers_mut();
        for (name, n) in [
            ("x-prometheus-remote-write-samples-written", self.samples),
            (
                "x-prometheus-remote-write-histograms-written",
                self.histograms,
            ),
            (
                "x-prometheus-remote-write-exemplars-written",
                self.exemplars,
            ),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(n));
        }
    }
}

/// Returns the version that the headers declare, 1.0 by default. The error messages are
/// Prometheus'.
fn negotiate(headers: &HeaderMap) -> Result<Version, String> {
    let encoding = header_text(headers, header::CONTENT_ENCODING);
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("snappy") {
        return Err(format!(
            "{encoding} encoding (compression) is not accepted by this server; only snappy is acceptable"
        ));
    }
    let content_type = header_text(headers, header::CONTENT_TYPE);
    let mut parts = content_type.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if !media_type.is_empty() && !media_type.eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(format!(
            "expected {MEDIA_TYPE} as the first (media) part, got {content_type} content-type"
        ));
    }
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!(
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to be key-values, \
                 got {part} in {content_type} content-type"
            ));
        };
        if !name.trim().eq_ignore_ascii_case("proto") {
            continue;
        }
        return match value.trim().trim_matches('"') {
            MESSAGE_V1 => Ok(Version::V1),
            MESSAGE_V2 => Ok(Version::V2),
            message => Err(format!(
                "got {content_type} content type; unknown type for remote write protobuf message {message}, \
                 supported: {MESSAGE_V1}, {MESSAGE_V2}"
            )),
        };
    }
    Ok(Version::V1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoding: &'static str, content_type: &'static str, expect: Result<Version, &str>) {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONTENT_ENCODING, encoding),
            (header::CONTENT_TYPE, content_type),
        ] {
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        match (negotiate(&headers), expect) {
            (Ok(version), Ok(expect)) => assert_eq!(version, expect),
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
            (got, expect) => panic!("{encoding} {content_type}: {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn the_content_type_selects_the_version() {
        check("snappy", "application/x-protobuf", Ok(Version::V1));
        check(
            "snappy",
            "application/x-protobuf;proto=prometheus.WriteRequest",
            Ok(Version::V1),
        );
        check(
            "snappy",
            "application/x-protobuf; proto=io.prometheus.write.v2.Request",
            Ok(Version::V2),
        );
        check(
            "snappy",
            "application/x-protobuf;charset=x;proto=io.prometheus.write.v2.Request",
            Ok(Version::V2),
        );
        check(
            "Snappy",
            "Application/X-Protobuf; charset=utf-8; Proto=\"io.prometheus.write.v2.Request\"",
            Ok(Version::V2),
        );
        check("", "", Ok(Version::V1));
        check(
            "gzip",
            "application/x-protobuf",
            Err("gzip encoding (compression) is not accepted by this server"),
        );
        check(
            "snappy",
            "application/json",
            Err("got application/json content-type"),
        );
        check(
            "snappy",
            "application/x-protobuf;proto=x.Y",
            Err("unknown type for remote write protobuf message x.Y"),
        );
        check(
            "snappy",
            "application/x-protobuf;proto",
            Err("expected parameters to be key-values, got proto in"),
        );
    }
}
