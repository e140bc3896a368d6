//! An HTTP/1.1 client that keeps its connection open, for one thread.

use std::io::{self, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use ureq::Agent;
use ureq::http::Uri;

use crate::message::Version;

/// Timeout of a write, as Prometheus' `remote_timeout`.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of other requests. Enough to read everything, or for the server to merge everything that
/// it stores.
const READ_TIMEOUT: Duration = Duration::from_secs(1200);
/// Maximum size of a retained body. Longer bodies are only counted, except by a client with a bound.
const BODY_SIZE_MAX: u64 = 64 << 20;
/// Maximum size of the part of an error's body that is shown.
const TEXT_SIZE_MAX: usize = 500;

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    url: String,
    /// Value of the header `Authorization` of GET requests.
    authorization: Option<String>,
    /// Timeout of requests other than writes.
    timeout: Duration,
    /// A longer body is an error. `None`: bodies longer than [`BODY_SIZE_MAX`] are not retained.
    body_size_max: Option<u64>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    /// Empty if the body is longer than [`BODY_SIZE_MAX`] and the client has no bound.
    pub(crate) body: Vec<u8>,
    /// Length of the body in bytes.
    pub(crate) size: u64,
}

impl Client {
    /// Creates a client. The first request opens the connection.
    pub(crate) fn new(url: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        let config = config
            .max_redirects_will_error(false)
            .user_agent("varve-bench");
        Self {
            agent: config.build().into(),
            url: url.to_owned(),
            authorization: None,
            timeout: READ_TIMEOUT,
            body_size_max: None,
        }
    }

    /// Bounds the time of a request and the size of its response's body, which is retained.
    pub(crate) fn with_bounds(self, timeout: Duration, body_size_max: u64) -> Self {
        Self {
            timeout,
            body_size_max: Some(body_size_max),
            ..self
        }
    }

    /// Sends a bearer token with each GET request.
    pub(crate) fn with_token(self, token: Option<&str>) -> Self {
        Self {
            authorization: token.map(|token| format!("Bearer {token}")),
            ..self
        }
    }

    /// Sends a GET request to `path` below the URL.
    ///
    /// # Errors
    /// If the server cannot be reached or aborts the response.
    pub(crate) fn get(&self, path: &str) -> Result<Response> {
        let mut request = self
            .agent
            .get(format!("{}{path}", self.url))
            .config()
            .timeout_global(Some(self.timeout))
            .build();
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        self.receive(request.call())
    }

    /// Sends a POST request without a body to `path` below the URL.
    ///
    /// # Errors
    /// The errors of [`Self::get`].
    pub(crate) fn post(&self, path: &str) -> Result<Response> {
        let request = self
            .agent
            .post(format!("{}{path}", self.url))
            .config()
            .timeout_global(Some(self.timeout))
            .build();
        self.receive(request.send_empty())
    }

    /// Sends a remote-write request to the URL itself.
    ///
    /// # Errors
    /// The errors of [`Self::get`].
    pub(crate) fn write(&self, body: &[u8], version: Version) -> Result<Response> {
        let (content_type, version) = match version {
            Version::V1 => ("application/x-protobuf", "0.1.0"),
            Version::V2 => (
                "application/x-protobuf;proto=io.prometheus.write.v2.Request",
                "2.0.0",
            ),
        };
        let request = self
            .agent
            .post(&self.url)
            .config()
            .timeout_global(Some(WRITE_TIMEOUT))
            .build();
        let request = request
            .header("content-type", content_type)
            .header("content-encoding", "snappy");
        self.receive(
            request
                .header("x-prometheus-remote-write-version", version)
                .send(body),
        )
    }

    fn receive(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Response> {
        let mut response = response.context("send a request")?;
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let reader = response.body_mut().as_reader();
        let (body, size) = read_body(reader, self.body_size_max).context("read the response")?;
        let status = response.status().as_u16();
        Ok(Response {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            body,
            size,
        })
    }
}

impl Response {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the beginning of the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(TEXT_SIZE_MAX)])
            .trim()
            .to_owned()
    }
}

fn read_body(mut reader: impl Read, size_max: Option<u64>) -> io::Result<(Vec<u8>, u64)> {
    let mut body = Vec::new();
    let n_retained = reader
        .by_ref()
        .take(size_max.unwrap_or(BODY_SIZE_MAX))
        .read_to_end(&mut body)? as u64;
    if size_max.is_some() {
        if reader.read(&mut [0])? > 0 {
            return Err(io::Error::other(format!(
                "the body is longer than {n_retained} bytes"
            )));
        }
        return Ok((body, n_retained));
    }
    let n_counted = io::copy(&mut reader, &mut io::sink())?;
    if n_counted > 0 {
        body = Vec::new();
    }
    Ok((body, n_retained + n_counted))
}

/// Parses the URL of a server, such as `http://127.0.0.1:9898/api/v1/write`. Without a scheme it is
/// http.
///
/// # Errors
/// The reason why the URL is not valid.
pub(crate) fn parse_url(text: &str) -> Result<String, String> {
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let uri: Uri = url
        .parse()
        .map_err(|_| "expected http://host:port/path".to_owned())?;
    match (uri.scheme_str(), uri.host(), uri.query()) {
        (Some("http" | "https"), Some(_), None) => Ok(url.trim_end_matches('/').to_owned()),
        _ => Err("expected http://host:port/path".to_owned()),
    }
}

/// Escapes text for a query string.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_no_slash_at_the_end() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(parse_url(text).ok().as_deref(), expect, "{text}")
        };
        check(
            "http://localhost:9898/api/v1/write",
            Some("http://localhost:9898/api/v1/write"),
        );
        check("http://[::1]:9898/", Some("http://[::1]:9898"));
        check("localhost:9090", Some("http://localhost:9090"));
        check("ftp://store:1", None);
        check("http:///write", None);
        check("http://store:1/a b", None);
        check("http://store:1/?a", None);
    }

    #[test]
    fn text_is_escaped_for_a_query_string() {
        assert_eq!(escape("{a=\"b\"}"), "%7Ba%3D%22b%22%7D");
    }

    #[test]
    fn a_bounded_body_is_retained_or_an_error() {
        let (body, size) = read_body(&b"four"[..], Some(4)).unwrap();
        assert_eq!((body.as_slice(), size), (&b"four"[..], 4));
        assert!(read_body(&b"four"[..], Some(3)).is_err());
    }
}
