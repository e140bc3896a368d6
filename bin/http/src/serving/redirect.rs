//! Redirects from other spellings of a path: double and trailing slashes, `.` and `..`. Go's server
//! redirects these, and clients rely on it: a base URL that ends in a slash yields
//! `//api/v1/query`.

use std::borrow::Cow;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::state::HttpState;

/// The prefix of the API's paths.
pub(crate) const API: &str = "/api/v1/";

/// Redirects paths that are not clean. So no handler sees an empty path element, such as the label
/// name in `/api/v1/label//values`.
pub(crate) async fn clean_only(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> Response {
    let prefix = state.app.settings.web.route_prefix.escaped();
    match to_clean(&prefix, request.method(), request.uri()) {
        Some(elsewhere) => elsewhere,
        None => next.run(request).await,
    }
}

/// Redirects to the clean spelling of a path, below `prefix`. Returns `None` if the path is clean.
fn to_clean(prefix: &str, method: &Method, uri: &Uri) -> Option<Response> {
    let path = uri.path();
    let plain = clean(path);
    if plain != path {
        return redirect(
            StatusCode::TEMPORARY_REDIRECT,
            method,
            uri,
            &format!("{prefix}{plain}"),
        );
    }
    let is_api = path == API.trim_end_matches('/');
    if is_api {
        redirect(
            StatusCode::TEMPORARY_REDIRECT,
            method,
            uri,
            &format!("{prefix}{API}"),
        )
    } else {
        None
    }
}

/// Redirects to one of the `served` paths that differs by a trailing slash, below `prefix`. Returns
/// `None` if there is none.
pub(crate) fn to_served(
    prefix: &str,
    method: &Method,
    uri: &Uri,
    served: &[&str],
) -> Option<Response> {
    let path = uri.path().strip_suffix('/')?;
    let is_served = served.iter().any(|served| fits(served, path));
    if is_served {
        to_other_slash(method, uri, &format!("{prefix}{path}"))
    } else {
        None
    }
}

/// Redirects to a path that differs by a trailing slash.
pub(super) fn to_other_slash(method: &Method, uri: &Uri, path: &str) -> Option<Response> {
    // A client keeps its method only with 307.
    let status = if *method == Method::GET {
        StatusCode::MOVED_PERMANENTLY
    } else {
        StatusCode::TEMPORARY_REDIRECT
    };
    redirect(status, method, uri, path)
}

/// Removes empty, `.` and `..` elements. Keeps a trailing slash.
pub(super) fn clean(path: &str) -> Cow<'_, str> {
    if path.starts_with('/') && !path.contains("//") && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let mut elements: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => drop(elements.pop()),
            element => elements.push(element),
        }
    }
    let ends_in_folder = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
    let end = if ends_in_folder && !elements.is_empty() {
        "/"
    } else {
        ""
    };
    Cow::Owned(format!("/{}{end}", elements.join("/")))
}

/// Returns `true` if a path matches the path of an endpoint, whose elements in braces match any
/// element.
fn fits(served: &str, path: &str) -> bool {
    let mut served_elements = served.split('/');
    let mut path_elements = path.split('/');
    loop {
        match (served_elements.next(), path_elements.next()) {
            (None, None) => return true,
            (Some(served), Some(element)) if served == element || served.starts_with('{') => {}
            _ => return false,
        }
    }
}

/// Redirects to a path with the query of the request.
pub(super) fn redirect(
    status: StatusCode,
    method: &Method,
    uri: &Uri,
    path: &str,
) -> Option<Response> {
    let query = uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    // Browsers treat a backslash as a slash, and two slashes lead to another host.
    let location = format!("{}{query}", path.replace('\\', "%5C"));
    let escaped = location
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;");
    let value = HeaderValue::from_str(&location).ok()?;
    let reason = status.canonical_reason().unwrap_or_default();
    let mut response = match *method {
        Method::GET => format!("<a href=\"{escaped}\">{reason}</a>.\n\n").into_response(),
        _ => ().into_response(),
    };
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, value);
    if matches!(*method, Method::GET | Method::HEAD) {
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        );
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(response: Option<Response>) -> Option<(u16, String)> {
        response.map(|of| {
            (
                of.status().as_u16(),
                of.headers()[header::LOCATION].to_str().unwrap().to_owned(),
            )
        })
    }

    #[test]
    fn a_path_is_cleaned() {
        let check = |uri: &'static str, expect: Option<&str>| {
            let got = location(to_clean("", &Method::POST, &Uri::from_static(uri)));
            assert_eq!(got, expect.map(|to| (307, to.to_owned())), "{uri}");
        };
        check("/api/v1/labels", None);
        check("/api/v1/labels/", None);
        check("/", None);
        check("//", Some("/"));
        check(
            "//api/v1/labels?a=/../b//c",
            Some("/api/v1/labels?a=/../b//c"),
        );
        check("/api//v1/./labels", Some("/api/v1/labels"));
        check("/api/v1/label//values", Some("/api/v1/label/values"));
        check("/api/v1/label/.x/values", None);
        check("/api/v1/../../..//evil.example/", Some("/evil.example/"));
        check("/..", Some("/"));
        check("//\\evil.example", Some("/%5Cevil.example"));
        check("/api/v1?x=1", Some("/api/v1/?x=1"));
    }

    #[test]
    fn a_trailing_slash_redirects_to_a_served_path() {
        const SERVED: [&str; 3] = ["/api/v1/query", "/api/v1/label/{name}/values", "/-/healthy"];
        let check = |method: Method, uri: &'static str, expect: Option<(u16, &str)>| {
            let got = location(to_served(
                "/a%20b",
                &method,
                &Uri::from_static(uri),
                &SERVED,
            ));
            assert_eq!(
                got,
                expect.map(|(status, to)| (status, to.to_owned())),
                "{uri}"
            );
        };
        check(
            Method::GET,
            "/api/v1/query/?query=1",
            Some((301, "/a%20b/api/v1/query?query=1")),
        );
        check(
            Method::POST,
            "/api/v1/query/",
            Some((307, "/a%20b/api/v1/query")),
        );
        check(
            Method::GET,
            "/api/v1/label/job/values/",
            Some((301, "/a%20b/api/v1/label/job/values")),
        );
        check(Method::GET, "/-/healthy/", Some((301, "/a%20b/-/healthy")));
        check(Method::GET, "/api/v1/query", None);
        check(Method::GET, "/api/v1/nonsense/", None);
        check(Method::GET, "/", None);
    }

    #[test]
    fn the_body_is_escaped() {
        let shown = redirect(
            StatusCode::MOVED_PERMANENTLY,
            &Method::GET,
            &Uri::from_static("/?a=1&b='"),
            "/x",
        )
        .unwrap();
        let body = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(axum::body::to_bytes(shown.into_body(), 100));
        assert_eq!(
            body.unwrap(),
            "<a href=\"/x?a=1&amp;b=&#39;\">Moved Permanently</a>.\n\n"
        );
    }
}
