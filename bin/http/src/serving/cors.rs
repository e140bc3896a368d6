//! Prometheus' CORS headers, which allow pages of `--web.cors.origin` to read responses.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use varve_regexp::Regexp;

use super::state::HttpState;

/// Adds the headers to a response.
pub(crate) async fn cors(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = next.run(request).await;
    add_headers(
        &state.app.settings.web.cors_origin,
        origin.as_ref(),
        response.headers_mut(),
    );
    response
}

/// Adds the headers for a request of this origin.
pub(crate) fn add_headers(allowed: &Regexp, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = origin.filter(|origin| !origin.is_empty()) else {
        return;
    };
    for (name, value) in [
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Accept, Authorization, Content-Type, Origin",
        ),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if origin.to_str().is_ok_and(|origin| allowed.is_match(origin)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: &str, origin: &str, expect: Option<&str>) {
        let mut headers = HeaderMap::new();
        let origin = HeaderValue::from_str(origin).unwrap();
        add_headers(
            &Regexp::parse(allowed).unwrap(),
            Some(&origin),
            &mut headers,
        );
        let allowed_origin = headers
            .get(header::ACCESS_CONTROL_ALLOW_ORIGIN)
            .map(|value| value.to_str().unwrap());
        assert_eq!(allowed_origin, expect, "{allowed} {origin:?}");
        assert_eq!(
            headers.contains_key(header::ACCESS_CONTROL_ALLOW_METHODS),
            !origin.is_empty()
        );
    }

    #[test]
    fn an_allowed_origin_is_returned() {
        check(".*", "http://a", Some("http://a"));
        check("https?://(a|b)", "https://b", Some("https://b"));
        check("https?://(a|b)", "https://bc", None);
        check(".*", "", None);
    }
}
