//! /api/v1/import/prometheus: a scrape body, written as if it had been scraped now. Parameters are VictoriaMetrics'.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use varve_ingest::Compression;
use varve_ingest::text::{Import, TextFormat};

use super::remote_write::{answer, ingest, text};
use crate::http::App;
use crate::http::params::Form;

/// POST /api/v1/import/prometheus.
pub(crate) async fn prometheus(State(app): State<Arc<App>>, request: Request) -> Response {
    let import = match import(request.headers(), request.uri().query().unwrap_or_default()) {
        Ok(import) => import,
        Err((status, reason)) => return answer(status, &reason),
    };
    match ingest(app, request, move |receiver, origin, body| receiver.import(origin, body, &import)).await {
        Ok(written) if written.rejects.is_empty() => StatusCode::NO_CONTENT.into_response(),
        Ok(written) => answer(StatusCode::BAD_REQUEST, &written.rejects.to_string()),
        Err(response) => response,
    }
}

fn import(headers: &HeaderMap, query: &str) -> Result<Import, (StatusCode, String)> {
    let encoding = text(headers, header::CONTENT_ENCODING);
    let compression = Compression::from_content_encoding(encoding).ok_or_else(|| {
        let reason = format!("{encoding} encoding is not accepted; gzip, zstd, deflate and snappy are");
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, reason)
    })?;
    let is_open = text(headers, header::CONTENT_TYPE).starts_with("application/openmetrics-text");
    let bad_request = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let mut form = Form::default();
    form.add(query.as_bytes()).map_err(|refused| bad_request(refused.message))?;
    let extra_label = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(bad_request(format!("invalid parameter \"extra_label\": {pair:?} is not name=value"))),
    };
    Ok(Import {
        format: if is_open { TextFormat::OpenMetrics } else { TextFormat::Prometheus },
        compression,
        now_ms: Timestamp::now().as_millisecond(),
        extra_labels: form.all("extra_label").map(extra_label).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_parameters_say_how_to_import() {
        let mut headers = HeaderMap::new();
        let plain = import(&headers, "extra_label=job%3Dx&extra_label=a=b=c").unwrap();
        assert_eq!((plain.format, plain.compression), (TextFormat::Prometheus, Compression::Identity));
        assert_eq!(plain.extra_labels, [("job", "x"), ("a", "b=c")].map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(import(&headers, "extra_label=x").unwrap_err().0, 400);
        headers.insert(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0".parse().unwrap());
        headers.insert(header::CONTENT_ENCODING, "zstd".parse().unwrap());
        let open = import(&headers, "").unwrap();
        assert_eq!((open.format, open.compression), (TextFormat::OpenMetrics, Compression::Zstd));
        headers.insert(header::CONTENT_ENCODING, "br".parse().unwrap());
        assert_eq!(import(&headers, "").unwrap_err().0, 415);
    }
}
