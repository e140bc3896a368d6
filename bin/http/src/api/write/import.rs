//! /api/v1/import/prometheus: stores a scrape body as if it had been scraped now. /api/v1/import:
//! stores JSON lines, which /api/v1/export returns. Parameters and formats are VictoriaMetrics'.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use varve_ingest::compression::Compression;
use varve_ingest::text::{Import, NanMeaning, TextFormat};

use super::ingest::{ingest, respond};
use crate::error::{ApiError, ErrorKind, Result};
use crate::params::{Form, parse_int, short_url_query};
use crate::serving::request_body::header_text;
use crate::serving::state::HttpState;

/// POST /api/v1/import/prometheus.
pub(crate) async fn prometheus(State(state): State<HttpState>, request: Request) -> Result {
    let format = format_of(header_text(request.headers(), header::CONTENT_TYPE));
    import(&state, request, format).await
}

/// Returns the format of a body with a content type. As in Prometheus, OpenMetrics of another
/// version than 2.0.0 is read as 1.0.
fn format_of(content_type: &str) -> TextFormat {
    let mut parameters = content_type.split(';');
    let media_type = parameters.next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/openmetrics-text") {
        return TextFormat::Prometheus;
    }
    let is_version_2 = parameters.any(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or_default();
        name.trim().eq_ignore_ascii_case("version") && value.trim().trim_matches('"') == "2.0.0"
    });
    if is_version_2 {
        TextFormat::OpenMetrics2
    } else {
        TextFormat::OpenMetrics
    }
}

/// POST /api/v1/import.
pub(crate) async fn json_lines(State(state): State<HttpState>, request: Request) -> Result {
    import(&state, request, TextFormat::JsonLines).await
}

async fn import(state: &HttpState, request: Request, format: TextFormat) -> Result {
    let import = Import {
        format,
        ..settings(state, &request)?
    };
    let write = ingest(state, request, move |receiver, origin, body| {
        receiver.import(origin, body, &import)
    });
    respond(&write.await?, StatusCode::NO_CONTENT)
}

/// Returns what headers and URL of a request say. The content type selects a text format.
///
/// # Errors
/// Plain text: if a header or a parameter is invalid.
pub(super) fn settings(state: &HttpState, request: &Request) -> Result<Import> {
    let timeout = state.app.settings.web.read_timeout;
    let headers = request.headers();
    let format = format_of(header_text(headers, header::CONTENT_TYPE));
    short_url_query(request.uri(), request.extensions())
        .and_then(|query| read(headers, query, format, timeout))
        .map_err(ApiError::plain)
}

fn read(
    headers: &HeaderMap,
    query: &[u8],
    format: TextFormat,
    timeout: Duration,
) -> Result<Import> {
    let encoding = header_text(headers, header::CONTENT_ENCODING);
    let compression = Compression::from_content_encoding(encoding).ok_or_else(|| {
        let reason =
            format!("{encoding} encoding is not accepted; gzip, zstd, deflate and snappy are");
        ApiError::new(ErrorKind::UnsupportedMedia, reason)
    })?;
    let mut form = Form::default();
    form.add(query)?;
    let default_timestamp_ms = match form.first("timestamp") {
        "" => Timestamp::now().as_millisecond(),
        text => {
            parse_int(text).map_err(|reason| ApiError::invalid_parameter("timestamp", reason))?
        }
    };
    let mut extra_labels = Vec::new();
    for pair in form.all("extra_label") {
        match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                extra_labels.push((name.to_owned(), value.to_owned()));
            }
            _ => {
                let reason = format!("{pair:?} is not name=value");
                return Err(ApiError::invalid_parameter("extra_label", reason));
            }
        }
    }
    let nan = match form.first("nan") {
        "" => None,
        text => {
            let meaning: Result<NanMeaning, String> = text.parse();
            Some(meaning.map_err(|reason| ApiError::invalid_parameter("nan", reason))?)
        }
    };
    Ok(Import {
        format,
        compression,
        default_timestamp_ms,
        extra_labels,
        nan,
        timeout,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_selects_the_format() {
        for (content_type, expect) in [
            ("", TextFormat::Prometheus),
            ("text/plain; version=2.0.0", TextFormat::Prometheus),
            ("application/openmetrics-text", TextFormat::OpenMetrics),
            (
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                TextFormat::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=3.0.0",
                TextFormat::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=2.0.0",
                TextFormat::OpenMetrics2,
            ),
            (
                "Application/OpenMetrics-Text ; charset=utf-8",
                TextFormat::OpenMetrics,
            ),
            (
                "application/openmetrics-text; charset=utf-8; Version=\"2.0.0\"",
                TextFormat::OpenMetrics2,
            ),
        ] {
            assert_eq!(format_of(content_type), expect, "{content_type}");
        }
    }

    #[test]
    fn headers_and_parameters_select_format_and_labels() {
        let mut headers = HeaderMap::new();
        let read = |headers: &HeaderMap, query: &str| {
            read(
                headers,
                query.as_bytes(),
                TextFormat::Prometheus,
                Duration::MAX,
            )
        };
        let plain = read(&headers, "extra_label=job%3Dx&extra_label=a=b=c").unwrap();
        assert_eq!(plain.compression, Compression::Identity);
        assert_eq!(
            plain.extra_labels,
            [("job", "x"), ("a", "b=c")].map(|(n, v)| (n.to_owned(), v.to_owned()))
        );
        for invalid in ["extra_label=x", "timestamp=1.5", "timestamp=now", "nan=x"] {
            assert_eq!(
                read(&headers, invalid).unwrap_err().kind,
                ErrorKind::BadData,
                "{invalid}"
            );
        }
        let at = read(&headers, "timestamp=1700000000000").unwrap();
        assert_eq!(at.default_timestamp_ms, 1_700_000_000_000);
        assert_eq!(at.nan, None);
        let skip = read(&headers, "nan=skip").unwrap();
        assert_eq!(skip.nan, Some(NanMeaning::Skip));
        headers.insert(header::CONTENT_ENCODING, "zstd".parse().unwrap());
        let open = read(&headers, "").unwrap();
        assert_eq!(open.compression, Compression::Zstd);
        headers.insert(header::CONTENT_ENCODING, "br".parse().unwrap());
        assert_eq!(
            read(&headers, "").unwrap_err().kind,
            ErrorKind::UnsupportedMedia
        );
    }
}
