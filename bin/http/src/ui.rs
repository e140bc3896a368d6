//! The web page: files of `bin/ui/dist`, embedded in the binary.
//!
//! It is served before the store is open, and without credentials, because it contains no data. It
//! asks for credentials itself. All its URLs are relative, so that it works under any prefix that a
//! proxy adds.

use std::sync::{LazyLock, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;

use super::response::plain;
use super::serving::compression::{Coding, gzip_best, zstd_best};
use super::serving::state::HttpState;

/// Paths of the page: one for each of its views, and `/graph` for links to Prometheus' page.
const PAGES: [&str; 15] = [
    "/overview",
    "/query",
    "/graph",
    "/explore",
    "/alerts",
    "/rules",
    "/targets",
    "/jobs",
    "/cardinality",
    "/churn",
    "/usage",
    "/running",
    "/teams",
    "/senders",
    "/store",
];
const ASSETS: &str = "/assets/";
/// Paths that redirect, and the view to which they do: the first page, and pages that only
/// Prometheus has. Views are relative, so that a prefix stays.
const REDIRECTS: [(&str, &str); 7] = [
    ("/", "overview"),
    ("/alertmanager-discovery", "alerts"),
    ("/config", "store"),
    ("/flags", "store"),
    ("/status", "store"),
    ("/service-discovery", "targets"),
    ("/tsdb-status", "cardinality"),
];

/// Content security policy. Allows scripts, styles and requests of the page's own origin only.
/// Forbids frames around the page, and the conversion of text to scripts.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);
/// The names of assets contain a hash of their contents.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

static FILES: LazyLock<Vec<StaticFile>> = LazyLock::new(|| {
    Vec::from(include!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../ui/dist/files.rs"
    )))
});

/// A file of the page.
struct StaticFile {
    /// Path below `dist`.
    path: &'static str,
    media_type: &'static str,
    etag: &'static str,
    content: &'static [u8],
    gzip: OnceLock<Bytes>,
    zstd: OnceLock<Bytes>,
}

impl StaticFile {
    const fn new(
        path: &'static str,
        media_type: &'static str,
        etag: &'static str,
        content: &'static [u8],
    ) -> Self {
        Self {
            path,
            media_type,
            etag,
            content,
            gzip: OnceLock::new(),
            zstd: OnceLock::new(),
        }
    }

    fn find(path: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.path == path)
    }

    /// Returns the file in a content coding, or `None` if files are not offered in it. Compresses
    /// the file at first use, and blocks meanwhile.
    fn coded(&self, coding: Coding) -> Option<Bytes> {
        let coded = match coding {
            Coding::Gzip => self.gzip.get_or_init(|| gzip_best(self.content).into()),
            Coding::Zstd => self.zstd.get_or_init(|| zstd_best(self.content).into()),
            Coding::Deflate => return None,
        };
        Some(coded.clone())
    }

    async fn respond(&'static self, request: &HeaderMap, cache: HeaderValue) -> Response {
        let common = [
            (header::ETAG, HeaderValue::from_static(self.etag)),
            (header::CACHE_CONTROL, cache),
            (header::VARY, HeaderValue::from_static("Accept-Encoding")),
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (
                header::REFERRER_POLICY,
                HeaderValue::from_static("no-referrer"),
            ),
            (
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            ),
        ];
        let known = request
            .get(header::IF_NONE_MATCH)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        // A proxy that compresses makes the tag weak.
        if known
            .split(',')
            .any(|tag| tag.trim().trim_start_matches("W/") == self.etag)
        {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let media_type = [(header::CONTENT_TYPE, self.media_type)];
        let Some(coding) = Coding::negotiate(request) else {
            return (common, media_type, self.content).into_response();
        };
        let Ok(Some(body)) = tokio::task::spawn_blocking(move || self.coded(coding)).await else {
            return (common, media_type, self.content).into_response();
        };
        (
            common,
            media_type,
            [(header::CONTENT_ENCODING, coding.name())],
            Body::from(body),
        )
            .into_response()
    }
}

/// Returns the routes of the page.
pub(super) fn router() -> Router<HttpState> {
    let router = Router::new().route("/assets/{file}", get(asset));
    let router = PAGES
        .iter()
        .fold(router, |router, path| router.route(path, get(page)));
    REDIRECTS.iter().fold(router, |router, &(path, view)| {
        router.route(path, get(move || redirect(view)))
    })
}

/// Returns `true` if a request is for the page itself rather than for data.
pub(super) fn is_for_page(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && (path.starts_with(ASSETS)
            || PAGES.contains(&path)
            || REDIRECTS.iter().any(|&(from, _)| from == path))
}

async fn redirect(view: &'static str) -> Response {
    (StatusCode::FOUND, [(header::LOCATION, view)]).into_response()
}

async fn page(headers: HeaderMap) -> Response {
    let file = StaticFile::find("index.html").expect("the table of files has the page");
    file.respond(&headers, REVALIDATE).await
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match StaticFile::find(&format!("assets/{name}")) {
        Some(file) => file.respond(&headers, IMMUTABLE).await,
        None => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_refers_only_to_embedded_files() {
        let page = std::str::from_utf8(StaticFile::find("index.html").unwrap().content).unwrap();
        let named: Vec<&str> = page
            .split('"')
            .filter(|text| text.starts_with("assets/"))
            .collect();
        let scripts = named.iter().filter(|path| path.ends_with(".js")).count();
        assert!(scripts >= 1, "{named:?}");
        assert_eq!(
            named.len(),
            1 + scripts,
            "a style sheet and scripts: {named:?}"
        );
        for path in named.iter() {
            assert!(StaticFile::find(path).is_some(), "{path}");
        }
    }

    #[test]
    fn only_the_page_itself_needs_no_credentials() {
        let check = |method: Method, path: &str, expect| {
            assert_eq!(is_for_page(&method, path), expect, "{method} {path}")
        };
        check(Method::GET, "/", true);
        check(Method::GET, "/query", true);
        check(Method::GET, "/targets", true);
        check(Method::HEAD, "/assets/x.js", true);
        check(Method::POST, "/query", false);
        check(Method::GET, "/query/", false);
        check(Method::GET, "/metrics", false);
        check(Method::GET, "/api/v1/query", false);
        check(Method::GET, "/assets", false);
    }
}
