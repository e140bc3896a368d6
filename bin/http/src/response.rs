//! Small responses: data in Prometheus' envelope, and plain text.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::json::{MIME_TYPE, extend_html_safe};

/// Responds with small data in Prometheus' envelope, safe in HTML, as Go writes it.
pub(crate) fn success<T: Serialize + ?Sized>(data: &T) -> Response {
    enveloped(&html_safe(data))
}

/// Responds as [`success`] does, with a warning if there is one.
pub(crate) fn success_with_warning<T: Serialize + ?Sized>(
    data: &T,
    warning: Option<String>,
) -> Response {
    let mut json = html_safe(data);
    if let Some(warning) = warning {
        json.extend_from_slice(b",\"warnings\":");
        json.extend_from_slice(&html_safe(&[warning]));
    }
    enveloped(&json)
}

/// Responds with small data in Prometheus' envelope, without the escapes that make it safe in HTML.
pub(crate) fn success_unescaped<T: Serialize + ?Sized>(data: &T) -> Response {
    enveloped(json(data).as_bytes())
}

/// Responds with plain text, as Go's `http.Error` does.
pub(crate) fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, text.into()).into_response()
}

/// Responds to a path that is not served.
pub(crate) fn no_page() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn json<T: Serialize + ?Sized>(data: &T) -> String {
    serde_json::to_string(data).expect("responses are strings, numbers, arrays and objects of them")
}

fn html_safe<T: Serialize + ?Sized>(data: &T) -> Vec<u8> {
    let json = json(data);
    let mut safe = Vec::with_capacity(json.len());
    extend_html_safe(&mut safe, json.as_bytes());
    safe
}

fn enveloped(json: &[u8]) -> Response {
    let body = [b"{\"status\":\"success\",\"data\":", json, b"}"].concat();
    ([(header::CONTENT_TYPE, MIME_TYPE)], body).into_response()
}
