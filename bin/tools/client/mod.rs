//! The HTTP/1.1 client of the tools, with TLS. It keeps one connection open between requests and sends one request at a
//! time.
//!
//! It uses hyper, which the server needs anyway, on a tokio runtime of the calling thread.

mod access;
mod args;
mod tls;
mod url;

use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use access::Access;
pub(crate) use args::ServerArgs;
pub(crate) use url::{Url, escape, unescape};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use crate::server::usage::TOOLS_AGENT;

/// Timeout of a request. A query of all data can take minutes.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// Bytes of a path in an error.
const SHOWN_SIZE_MAX: usize = 200;
/// Maximum size of a response.
const RESPONSE_SIZE_MAX: usize = 64 << 20;

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Client {
    url: Url,
    runtime: Runtime,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// Headers and TLS settings.
    access: Access,
    /// TLS configuration, if the URL is https.
    tls: Option<Arc<ClientConfig>>,
}

impl Response {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the beginning of the body as text, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(500)]).trim().to_owned()
    }
}

impl Client {
    /// Creates a client with credentials and TLS settings.
    ///
    /// # Errors
    /// If a certificate or key is invalid.
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

    /// Returns the base URL.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a GET request to `path` below the URL.
    pub(crate) fn get(&mut self, path: &str) -> Result<Response> {
        self.send(Request::get(format!("{}{path}", self.url.path)), Bytes::new())
    }

    /// Sends a GET request to `path` below the URL and returns the `data` of the response.
    ///
    /// # Errors
    /// If the response is an error or is not JSON.
    pub(crate) fn get_data(&mut self, path: &str) -> Result<Value> {
        let response = self.get(path)?;
        self.data(path, &response)
    }

    /// Returns the `data` of a response.
    fn data(&self, path: &str, response: &Response) -> Result<Value> {
        let shown = &path[..path.floor_char_boundary(SHOWN_SIZE_MAX)];
        ensure!(response.is_success(), "{} returned {} for {shown}: {}", self.url, response.status, response.text());
        let mut json: Value =
            serde_json::from_slice(&response.body).with_context(|| format!("parse the response of {shown}"))?;
        Ok(json.get_mut("data").map(Value::take).unwrap_or_default())
    }

    /// Sends a form to `path` below the URL and returns the `data` of the response.
    ///
    /// # Errors
    /// As [`Self::get_data`].
    pub(crate) fn post_data(&mut self, path: &str, form: &str) -> Result<Value> {
        let response = self.post_form(path, form)?;
        self.data(path, &response)
    }

    /// Sends a form to `path` below the URL.
    pub(crate) fn post_form(&mut self, path: &str, form: &str) -> Result<Response> {
        let request = Request::post(format!("{}{path}", self.url.path))
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request, Bytes::copy_from_slice(form.as_bytes()))
    }

    fn send(&mut self, request: hyper::http::request::Builder, body: Bytes) -> Result<Response> {
        let request = request.header(HOST, self.url.authority()).header("user-agent", TOOLS_AGENT);
        let mut request = request.body(Full::new(body)).context("build a request")?;
        for (name, value) in &self.access.headers {
            request.headers_mut().append(name, value.clone());
        }
        let Self { url, runtime, connection, access, tls } = self;
        let response = runtime.block_on(async {
            let server = Server { url, access, tls: tls.as_ref() };
            match tokio::time::timeout(TIMEOUT, exchange(&server, connection, request)).await {
                Ok(response) => response,
                Err(_) => bail!("no response from {url} within {TIMEOUT:?}"),
            }
        });
        if response.is_err() {
            self.connection = None;
        }
        response
    }
}

/// The server, and the settings to connect to it.
struct Server<'a> {
    url: &'a Url,
    access: &'a Access,
    tls: Option<&'a Arc<ClientConfig>>,
}

async fn exchange(
    server: &Server<'_>,
    connection: &mut Option<SendRequest<Full<Bytes>>>,
    request: Request<Full<Bytes>>,
) -> Result<Response> {
    // `ready` fails if the server has closed the connection since the last request.
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
    let body = collect(body).await.with_context(|| format!("read the response of {url}"))?;
    Ok(Response { status: head.status.as_u16(), body })
}

/// Reads a body to its end.
async fn collect(mut body: Incoming) -> Result<Bytes> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        read.extend_from_slice(&data);
        ensure!(read.len() <= RESPONSE_SIZE_MAX, "the response is longer than {RESPONSE_SIZE_MAX} bytes");
    }
    Ok(read.into())
}

impl Server<'_> {
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let Self { url, access, tls } = self;
        let authority = url.authority();
        // Resolving blocks the thread, but nothing else runs on it.
        let addresses =
            (url.host.as_str(), url.port).to_socket_addrs().with_context(|| format!("resolve {authority}"))?;
        let addresses: Vec<_> = addresses.collect();
        let stream = TcpStream::connect(&addresses[..]).await.with_context(|| format!("connect to {authority}"))?;
        stream.set_nodelay(true).context("open a connection")?;
        let Some(tls) = tls else { return http1(stream).await };
        let name = tls::server_name(&access.tls, &url.host)?;
        let tls = TlsConnector::from(Arc::clone(tls));
        http1(tls.connect(name, stream).await.with_context(|| format!("TLS handshake with {authority}"))?).await
    }
}

async fn http1(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.context("open a connection")?;
    // Requests report the errors of the connection.
    tokio::spawn(connection);
    Ok(sender)
}
