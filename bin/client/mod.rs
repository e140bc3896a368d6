//! An HTTP/1.1 client for benches and tools, in plain text or over TLS: one connection, one request at a time, kept open
//! between requests.
//!
//! It is hyper's, which the server has anyway, on a runtime of the calling thread.

mod access;
mod tls;
mod url;

use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use access::Access;
pub(crate) use url::{Url, escape};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, RETRY_AFTER};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use varve_ingest::remote_write::Version;

use crate::server::usage::TOOLS_AGENT;

/// How long a write may take; as Prometheus' `remote_timeout`.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a read may take: a query of everything, or the server's own merging of all that it has.
const READ_TIMEOUT: Duration = Duration::from_secs(1200);
/// Size of an answer that is kept: that of a day of samples of a series, or a peer's own metrics.
const ANSWER_SIZE_MAX: u64 = 64 << 20;

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
    /// What goes with each request.
    access: Access,
    /// How connections are encrypted, if the URL says so.
    tls: Option<Arc<ClientConfig>>,
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
    ///
    /// # Errors
    /// If the operating system does not let it.
    pub(crate) fn new(url: &Url) -> Result<Self> {
        Self::with_access(url, Access::default())
    }

    /// Makes a client that sends the bearer token of a file, if there is one, with each request.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn with_token_file(url: &Url, path: Option<&Path>) -> Result<Self> {
        Self::with_access(url, Access::with_token_file(path)?)
    }

    /// Makes a client that speaks to the server as `access` says.
    ///
    /// # Errors
    /// If a certificate of it cannot be used.
    pub(crate) fn with_access(url: &Url, mut access: Access) -> Result<Self> {
        if let Some(basic) = &url.basic {
            access.authorize("Basic", basic)?;
        }
        let tls = match url.is_https {
            true => Some(Arc::new(tls::client_config(&access.tls)?)),
            false => None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("start a runtime")?;
        Ok(Self { url: url.clone(), runtime, connection: None, access, tls })
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

    /// Posts a form to `path` below the URL.
    pub(crate) fn post_form(&mut self, path: &str, form: &str) -> Result<Answer> {
        let request = Request::post(format!("{}{path}", self.url.path))
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request, Bytes::copy_from_slice(form.as_bytes()), READ_TIMEOUT, Excess::Refused)
    }

    /// Posts nothing to `path` below the URL.
    pub(crate) fn post(&mut self, path: &str) -> Result<Answer> {
        self.read(Request::post(format!("{}{path}", self.url.path)), Excess::Refused)
    }

    fn read(&mut self, request: hyper::http::request::Builder, excess: Excess) -> Result<Answer> {
        self.send(request, Bytes::new(), READ_TIMEOUT, excess)
    }

    /// Sends a write request to the URL itself.
    pub(crate) fn write(&mut self, body: Bytes, version: Version) -> Result<Answer> {
        let (content_type, version) = match version {
            Version::V1 => ("application/x-protobuf", "0.1.0"),
            Version::V2 => ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0"),
        };
        let request = Request::post(if self.url.path.is_empty() { "/" } else { &self.url.path })
            .header("content-type", content_type)
            .header("content-encoding", "snappy")
            .header("x-prometheus-remote-write-version", version);
        self.send(request, body, WRITE_TIMEOUT, Excess::Refused)
    }

    fn send(
        &mut self,
        request: hyper::http::request::Builder,
        body: Bytes,
        timeout: Duration,
        excess: Excess,
    ) -> Result<Answer> {
        let request = request.header(HOST, self.url.authority()).header("user-agent", TOOLS_AGENT);
        let mut request = request.body(Full::new(body)).context("build a request")?;
        for (name, value) in &self.access.headers {
            request.headers_mut().append(name, value.clone());
        }
        let Self { url, runtime, connection, access, tls } = self;
        let answer = runtime.block_on(async {
            let server = Server { url, access, tls: tls.as_ref() };
            match tokio::time::timeout(timeout, exchange(&server, connection, request, excess)).await {
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

/// How to connect.
struct Server<'a> {
    url: &'a Url,
    access: &'a Access,
    tls: Option<&'a Arc<ClientConfig>>,
}

async fn exchange(
    server: &Server<'_>,
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
        None => server.connect().await?,
    };
    let (sender, url) = (connection.insert(sender), server.url);
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

impl Server<'_> {
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let Self { url, access, tls } = self;
        let authority = url.authority();
        // Resolving blocks, but there is nothing else on this thread.
        let found = (url.host.as_str(), url.port).to_socket_addrs().with_context(|| format!("find {authority}"))?;
        let found: Vec<_> = found.collect();
        let stream = TcpStream::connect(&found[..]).await.with_context(|| format!("connect to {authority}"))?;
        stream.set_nodelay(true).context("set a connection up")?;
        let Some(tls) = tls else { return set_up(stream).await };
        let name = tls::server_name(&access.tls, &url.host)?;
        let tls = TlsConnector::from(Arc::clone(tls));
        set_up(tls.connect(name, stream).await.with_context(|| format!("speak TLS with {authority}"))?).await
    }
}

async fn set_up(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.context("set a connection up")?;
    // Its errors reach the requests.
    tokio::spawn(connection);
    Ok(sender)
}
