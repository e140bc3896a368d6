//! An HTTP/1.1 client for benches and tools: one connection, one request at a time, kept open between requests.
//!
//! It is hyper's, which the server has anyway, on a runtime of the calling thread.

use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST, RETRY_AFTER};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::usage::TOOLS_AGENT;

/// How long a write may take; as Prometheus' `remote_timeout`.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a read may take: a query of everything, or the server's own merging of all that it has.
const READ_TIMEOUT: Duration = Duration::from_secs(1200);
/// Size of an answer that is kept: that of a day of samples of a series, or a peer's own metrics.
const ANSWER_SIZE_MAX: u64 = 64 << 20;

/// An http URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// Host and port.
    authority: String,
    /// Path, without a slash at its end.
    path: String,
}

/// What a server answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
    /// Bytes of the body as it came, also of what was not kept.
    pub(crate) n_bytes: u64,
}

/// What happens to an answer that is longer than what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excess {
    /// It is an error.
    Refused,
    /// It is read and counted, and nothing of it is kept.
    Dropped,
}

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Client {
    url: Url,
    runtime: Runtime,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// Sent with each request as a bearer token.
    token: Option<String>,
}

impl Url {
    /// Reads `http://host:port/path`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Err("expected http://host:port/path; only plain HTTP is spoken here".to_owned());
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.is_empty() || path.contains(['?', '#']) || path.parse::<hyper::Uri>().is_err() && !path.is_empty()
        {
            return Err("expected http://host:port/path".to_owned());
        }
        let with_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if with_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Self { authority, path: path.trim_end_matches('/').to_owned() })
    }

    /// Returns the URL of a path below this one.
    pub(crate) fn join(&self, path: &str) -> Self {
        Self { authority: self.authority.clone(), path: format!("{}{path}", self.path) }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the body as text, cut to what fits a message.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(500)]).trim().to_owned()
    }
}

impl Client {
    /// Makes a client; the connection is opened with the first request.
    pub(crate) fn new(url: &Url) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { url: url.clone(), runtime: runtime.context("start a runtime")?, connection: None, token: None })
    }

    /// Makes a client that sends the bearer token of a file, if there is one, with each request.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn with_token_file(url: &Url, path: Option<&Path>) -> Result<Self> {
        let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read token file {path:?}"));
        let token = path.map(read).transpose()?.map(|token| token.trim().to_owned());
        Ok(Self { token, ..Self::new(url)? })
    }

    /// Returns the URL that requests go to.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Reads `path` below the URL.
    pub(crate) fn get(&mut self, path: &str) -> Result<Answer> {
        self.read(Request::get(format!("{}{path}", self.url.path)), Excess::Refused)
    }

    /// Reads `path` below the URL to its end, however long that is; the body of a long answer is not kept.
    pub(crate) fn drain(&mut self, path: &str) -> Result<Answer> {
        self.read(Request::get(format!("{}{path}", self.url.path)), Excess::Dropped)
    }

    /// Posts nothing to `path` below the URL.
    pub(crate) fn post(&mut self, path: &str) -> Result<Answer> {
        self.read(Request::post(format!("{}{path}", self.url.path)), Excess::Refused)
    }

    fn read(&mut self, request: hyper::http::request::Builder, excess: Excess) -> Result<Answer> {
        self.send(request, Bytes::new(), READ_TIMEOUT, excess)
    }

    /// Sends a write request to the URL itself.
    pub(crate) fn write(&mut self, body: Bytes) -> Result<Answer> {
        let request = Request::post(if self.url.path.is_empty() { "/" } else { &self.url.path })
            .header("content-type", "application/x-protobuf")
            .header("content-encoding", "snappy")
            .header("x-prometheus-remote-write-version", "0.1.0");
        self.send(request, body, WRITE_TIMEOUT, Excess::Refused)
    }

    fn send(
        &mut self,
        request: hyper::http::request::Builder,
        body: Bytes,
        timeout: Duration,
        excess: Excess,
    ) -> Result<Answer> {
        let request = request.header(HOST, &self.url.authority).header("user-agent", TOOLS_AGENT);
        let request = match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        let request = request.body(Full::new(body)).context("build a request")?;
        let (url, connection) = (&self.url, &mut self.connection);
        let answer = self.runtime.block_on(async {
            match tokio::time::timeout(timeout, exchange(url, connection, request, excess)).await {
                Ok(answer) => answer,
                Err(_) => bail!("{url} has not answered within {timeout:?}"),
            }
        });
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }
}

async fn exchange(
    url: &Url,
    connection: &mut Option<SendRequest<Full<Bytes>>>,
    request: Request<Full<Bytes>>,
    excess: Excess,
) -> Result<Answer> {
    // Between requests nobody looks at the connection: `ready` finds out whether the server has closed it.
    let is_open = match connection.as_mut() {
        Some(open) => open.ready().await.is_ok(),
        None => false,
    };
    let sender = if is_open { connection.take() } else { None };
    let sender = match sender {
        Some(sender) => sender,
        None => connect(url).await?,
    };
    let sender = connection.insert(sender);
    let response = sender.send_request(request).await.with_context(|| format!("send a request to {url}"))?;
    let (head, body) = response.into_parts();
    let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let (body, n_bytes) = collect(body, excess).await.with_context(|| format!("read the answer of {url}"))?;
    Ok(Answer { status: head.status.as_u16(), retry_after: retry_after.map(Duration::from_secs), body, n_bytes })
}

/// Reads a body to its end; returns what is kept of it, and its length.
async fn collect(mut body: Incoming, excess: Excess) -> Result<(Bytes, u64)> {
    let (mut kept, mut n_bytes) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        n_bytes += data.len() as u64;
        if n_bytes <= ANSWER_SIZE_MAX {
            kept.extend_from_slice(&data);
        } else if excess == Excess::Refused {
            bail!("it is longer than {ANSWER_SIZE_MAX} bytes");
        } else {
            kept = Vec::new();
        }
    }
    Ok((kept.into(), n_bytes))
}

/// Escapes text for a query string.
pub(crate) fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

async fn connect(url: &Url) -> Result<SendRequest<Full<Bytes>>> {
    // Resolving blocks, but there is nothing else on this thread.
    let found = url.authority.to_socket_addrs().with_context(|| format!("find {}", url.authority))?;
    let found: Vec<_> = found.collect();
    let stream = TcpStream::connect(&found[..]).await.with_context(|| format!("connect to {}", url.authority))?;
    stream.set_nodelay(true).context("set a connection up")?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.context("set a connection up")?;
    // Its errors reach the requests.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<&str>) {
        assert_eq!(Url::parse(text).ok().map(|url| url.to_string()).as_deref(), expect, "{text}");
    }

    #[test]
    fn text_is_escaped_for_a_query_string() {
        assert_eq!(escape("{a=\"b\"}"), "%7Ba%3D%22b%22%7D");
    }

    #[test]
    fn urls_are_read_with_port_and_path() {
        check("http://localhost:9898/api/v1/write", Some("http://localhost:9898/api/v1/write"));
        check("http://[::1]:9898/", Some("http://[::1]:9898"));
        check("http://store", Some("http://store:80"));
        check("https://store:1", None);
        check("http:///write", None);
        check("http://store:1/a b", None);
    }
}
