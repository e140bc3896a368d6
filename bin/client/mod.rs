//! An HTTP/1.1 client for the tools, in plain text or over TLS: one connection, one request at a time, kept open
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

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use crate::server::usage::TOOLS_AGENT;

/// How long a request may take: a query of everything.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// The longest response that is read.
const ANSWER_SIZE_MAX: usize = 64 << 20;

/// What a server answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
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
        self.send(Request::get(format!("{}{path}", self.url.path)), Bytes::new())
    }

    /// Posts a form to `path` below the URL.
    pub(crate) fn post_form(&mut self, path: &str, form: &str) -> Result<Answer> {
        let request = Request::post(format!("{}{path}", self.url.path))
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request, Bytes::copy_from_slice(form.as_bytes()))
    }

    fn send(&mut self, request: hyper::http::request::Builder, body: Bytes) -> Result<Answer> {
        let request = request.header(HOST, self.url.authority()).header("user-agent", TOOLS_AGENT);
        let mut request = request.body(Full::new(body)).context("build a request")?;
        for (name, value) in &self.access.headers {
            request.headers_mut().append(name, value.clone());
        }
        let Self { url, runtime, connection, access, tls } = self;
        let answer = runtime.block_on(async {
            let server = Server { url, access, tls: tls.as_ref() };
            match tokio::time::timeout(TIMEOUT, exchange(&server, connection, request)).await {
                Ok(answer) => answer,
                Err(_) => bail!("{url} has not answered within {TIMEOUT:?}"),
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
    let body = collect(body).await.with_context(|| format!("read the answer of {url}"))?;
    Ok(Answer { status: head.status.as_u16(), body })
}

/// Reads a body to its end.
async fn collect(mut body: Incoming) -> Result<Bytes> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        read.extend_from_slice(&data);
        ensure!(read.len() <= ANSWER_SIZE_MAX, "it is longer than {ANSWER_SIZE_MAX} bytes");
    }
    Ok(read.into())
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
