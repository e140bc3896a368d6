//! The HTTP client of the tools, of the notifier, of object storage and of traces, with TLS. It
//! speaks HTTP/1.1, or HTTP/2 for gRPC.
//!
//! It uses hyper, which the server needs anyway. The tools run it on a tokio runtime of the calling
//! thread.

#![forbid(unsafe_code)]

mod access;
mod secret;
mod tls;
pub mod tls_settings;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use access::{
    Access, Authorization, BasicAuth, Header, HttpClientConfig, TlsSettings, is_reserved,
    resolve_path,
};
pub use secret::Secret;
pub use url::{PERCENT_ENCODED, Url, encode_form, escape};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{HOST, HeaderMap};
use hyper::http::request::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

/// The status of a response to a request without valid credentials.
pub const UNAUTHORIZED: u16 = 401;
/// Bytes of a path in an error.
const SHOWN_SIZE_MAX: usize = 200;

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, up to [`ClientOptions::response_size_max`].
    pub body: Bytes,
}

/// A client of one server, on a tokio runtime. It keeps one connection open between requests and
/// sends one request at a time.
#[derive(Debug)]
pub struct AsyncClient {
    url: Url,
    connection: Option<Connection>,
    is_http2: bool,
    /// Headers and TLS settings.
    access: Access,
    /// TLS configuration, if the URL is https.
    tls: Option<Arc<ClientConfig>>,
    options: ClientOptions,
}

/// An open connection.
#[derive(Debug)]
enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// The error of a response that is longer than [`ClientOptions::response_size_max`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTooLarge {
    /// The maximum.
    pub size_max: usize,
}

impl fmt::Display for ResponseTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the response is longer than {} bytes", self.size_max)
    }
}

impl std::error::Error for ResponseTooLarge {}

/// Limits of a client, and how it names itself.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// Maximum time from the start of a request to the end of its response.
    pub timeout: Duration,
    /// Maximum size of a body in bytes.
    pub response_size_max: usize,
    /// The header `User-Agent`.
    pub user_agent: &'static str,
    /// Hints that end the errors of connections.
    pub remedies: Remedies,
}

/// Hints that end the errors of connections that cannot be opened. The client knows no flags, so its
/// caller words them. Empty texts are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Remedies {
    /// If no address of the server accepts a connection.
    pub connect: &'static str,
    /// If an unknown authority issued the certificate of the server.
    pub unknown_issuer: &'static str,
}

/// A client of one server that blocks the calling thread.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    client: AsyncClient,
}

impl Response {
    /// Returns `true` if the status code is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the error that the body has in the format of Prometheus' API, else its beginning.
    /// Names the flag of an API that is disabled, which Prometheus' texts do not, and the flags of
    /// the tools for credentials.
    pub fn error(&self) -> String {
        let json: Option<Value> = serde_json::from_slice(&self.body).ok();
        let error = match json.as_ref().and_then(|json| json.get("error")?.as_str()) {
            Some(error) => error.to_owned(),
            None => self.text(),
        };
        let remedy = match error.as_str() {
            "admin APIs disabled" => ": --web.enable-admin-api enables them",
            "Lifecycle API is not enabled." => " --web.enable-lifecycle enables it.",
            _ if self.status == UNAUTHORIZED => {
                ": --token-file or --http.config.file gives the credentials"
            }
            _ => "",
        };
        error + remedy
    }

    /// Returns the beginning of the body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(500)])
            .trim()
            .to_owned()
    }
}

impl Client {
    /// Creates a client with credentials, TLS settings and limits.
    ///
    /// # Errors
    /// If a certificate or key is invalid.
    pub fn new(url: &Url, access: Access, options: ClientOptions) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Ok(Self {
            client: AsyncClient::new(url, access, options)?,
            runtime: runtime.context("start a runtime")?,
        })
    }

    /// Returns the base URL.
    pub fn url(&self) -> &Url {
        &self.client.url
    }

    /// Sends a request as it is built. Its URI is a path and a query.
    ///
    /// # Errors
    /// If no response arrives within the timeout. Any status is a response.
    pub fn send(&mut self, request: Builder, body: Bytes) -> Result<Response> {
        self.runtime.block_on(self.client.send(request, body))
    }

    /// Sends a GET request to `path` below the URL.
    pub fn get(&mut self, path: &str) -> Result<Response> {
        let request = Request::get(format!("{}{path}", self.client.url.path));
        self.send(request, Bytes::new())
    }

    /// Sends a GET request to `path` below the URL and returns the `data` of the response.
    ///
    /// # Errors
    /// If the response is an error or is not JSON.
    pub fn get_data(&mut self, path: &str) -> Result<Value> {
        let response = self.get(path)?;
        self.data(path, &response)
    }

    /// Returns the `data` of a response to a request for `path`.
    ///
    /// # Errors
    /// If the response is an error or is not JSON.
    pub fn data(&self, path: &str, response: &Response) -> Result<Value> {
        self.ensure_success(path, response)?;
        let mut json: Value = serde_json::from_slice(&response.body)
            .with_context(|| format!("parse the response of {}", shown(path)))?;
        Ok(json.get_mut("data").map(Value::take).unwrap_or_default())
    }

    /// Fails if the response to a request for `path` is an error.
    ///
    /// # Errors
    /// The server, the status, the path and the server's error.
    pub fn ensure_success(&self, path: &str, response: &Response) -> Result<()> {
        ensure!(
            response.is_success(),
            "{} returned {} for {}: {}",
            self.url(),
            response.status,
            shown(path),
            response.error()
        );
        Ok(())
    }

    /// Sends a form to `path` below the URL and returns the `data` of the response.
    ///
    /// # Errors
    /// As [`Self::get_data`].
    pub fn post_data(&mut self, path: &str, form: &str) -> Result<Value> {
        let response = self.post_form(path, form)?;
        self.data(path, &response)
    }

    /// Sends a DELETE request to `path` below the URL.
    ///
    /// # Errors
    /// If no response arrives within the timeout. Any status is a response.
    pub fn delete(&mut self, path: &str) -> Result<Response> {
        let request = Request::delete(format!("{}{path}", self.client.url.path));
        self.send(request, Bytes::new())
    }

    /// Sends a form to `path` below the URL.
    pub fn post_form(&mut self, path: &str, form: &str) -> Result<Response> {
        let request = Request::post(format!("{}{path}", self.client.url.path))
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request, Bytes::copy_from_slice(form.as_bytes()))
    }
}

impl AsyncClient {
    /// Creates a client with credentials and TLS settings. The first request opens the connection.
    ///
    /// # Errors
    /// If a certificate or key is invalid.
    pub fn new(url: &Url, mut access: Access, options: ClientOptions) -> Result<Self> {
        if let Some(basic) = &url.basic {
            access.authorize("Basic", basic)?;
        }
        let tls = if url.is_https {
            Some(Arc::new(tls::client_config(&access.tls)?))
        } else {
            None
        };
        Ok(Self {
            url: url.clone(),
            connection: None,
            is_http2: false,
            access,
            tls,
            options,
        })
    }

    /// Speaks HTTP/2 from the first byte, as gRPC does.
    pub fn with_http2(mut self) -> Self {
        self.is_http2 = true;
        if let Some(tls) = &mut self.tls {
            Arc::make_mut(tls).alpn_protocols = vec![b"h2".to_vec()];
        }
        self
    }

    /// Sends JSON to the URL.
    ///
    /// # Errors
    /// If no response arrives within the timeout. Any status is a response.
    pub async fn post_json(&mut self, body: Bytes) -> Result<Response> {
        self.send(
            Request::post(&*self.url.path).header("content-type", "application/json"),
            body,
        )
        .await
    }

    /// Sends a request as it is built. Its URI is a path and a query. Trailers of the response are
    /// among its headers.
    ///
    /// # Errors
    /// If no response arrives within the timeout. Any status is a response.
    pub async fn send(&mut self, request: Builder, body: Bytes) -> Result<Response> {
        let ClientOptions {
            timeout,
            user_agent,
            ..
        } = self.options;
        let has_host = request
            .headers_ref()
            .is_some_and(|headers| headers.contains_key(HOST));
        let request = if has_host || self.is_http2 {
            request
        } else {
            request.header(HOST, self.url.authority())
        };
        let request = request.header("user-agent", user_agent);
        let mut request = request.body(Full::new(body)).context("build a request")?;
        if self.is_http2 {
            let scheme = if self.url.is_https { "https" } else { "http" };
            let uri = format!("{scheme}://{}{}", self.url.authority(), request.uri());
            *request.uri_mut() = uri.parse().context("build a request")?;
        }
        for (name, value) in &self.access.headers {
            request.headers_mut().append(name, value.clone());
        }
        let response = match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(response) => response,
            Err(_) => Err(anyhow!("no response from {} within {timeout:?}", self.url)),
        };
        if response.is_err() {
            self.connection = None;
        }
        response
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Response> {
        // `ready` fails if the server has closed the connection since the last request.
        let is_open = match self.connection.as_mut() {
            Some(open) => open.ready().await.is_ok(),
            None => false,
        };
        let sender = if is_open {
            self.connection.take()
        } else {
            None
        };
        let sender = match sender {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let sent = self.connection.insert(sender).send(request).await;
        let response = sent.with_context(|| format!("send a request to {}", self.url))?;
        let (mut head, body) = response.into_parts();
        let body = collect(body, self.options.response_size_max, &mut head.headers).await;
        let body = body.with_context(|| format!("read the response of {}", self.url))?;
        Ok(Response {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    }

    async fn connect(&self) -> Result<Connection> {
        let Self {
            url,
            access,
            tls,
            is_http2,
            options,
            ..
        } = self;
        let remedies = options.remedies;
        let authority = url.authority();
        let addresses = tokio::net::lookup_host((url.host.as_str(), url.port)).await;
        let addresses: Vec<_> = addresses
            .with_context(|| format!("resolve {authority}"))?
            .collect();
        let stream = TcpStream::connect(&addresses[..])
            .await
            .with_context(|| in_brackets(format!("connect to {authority}"), remedies.connect))?;
        stream.set_nodelay(true).context("open a connection")?;
        let Some(tls) = tls else {
            return Connection::open(stream, *is_http2).await;
        };
        let name = tls::server_name(&access.tls, &url.host)?;
        let tls = TlsConnector::from(Arc::clone(tls));
        let stream = tls.connect(name, stream).await.map_err(|error| {
            let remedy = if tls::is_unknown_issuer(&error) {
                remedies.unknown_issuer
            } else {
                ""
            };
            let what = format!("TLS handshake with {authority}");
            anyhow::Error::new(error).context(in_brackets(what, remedy))
        })?;
        Connection::open(stream, *is_http2).await
    }
}

impl Connection {
    async fn open(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        is_http2: bool,
    ) -> Result<Self> {
        let stream = TokioIo::new(stream);
        // Requests report the errors of the connection.
        if is_http2 {
            let opened = http2::handshake(TokioExecutor::new(), stream).await;
            let (sender, connection) = opened.context("open a connection")?;
            tokio::spawn(connection);
            Ok(Self::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(stream)
                .await
                .context("open a connection")?;
            tokio::spawn(connection);
            Ok(Self::Http1(sender))
        }
    }

    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        }
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<hyper::Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }
}

/// Returns a path for errors, without parameters: an encoded query is unreadable.
fn shown(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or(path);
    &path[..path.floor_char_boundary(SHOWN_SIZE_MAX)]
}

/// Appends a remedy, if there is one.
fn in_brackets(what: String, remedy: &str) -> String {
    match remedy {
        "" => what,
        remedy => format!("{what} ({remedy})"),
    }
}

/// Reads a body to its end. Adds its trailers to `headers`.
async fn collect(mut body: Incoming, size_max: usize, headers: &mut HeaderMap) -> Result<Bytes> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => read.extend_from_slice(&data),
            Err(frame) => headers.extend(frame.into_trailers().ok().into_iter().flatten()),
        }
        if read.len() > size_max {
            return Err(ResponseTooLarge { size_max }.into());
        }
    }
    Ok(read.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_connection_names_the_remedy() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let options = ClientOptions {
            timeout: Duration::from_secs(10),
            response_size_max: 1,
            user_agent: "test",
            remedies: Remedies {
                connect: "--url names another",
                unknown_issuer: "",
            },
        };
        let url = Url::parse(&address.to_string()).unwrap();
        let mut client = Client::new(&url, Access::default(), options).unwrap();
        let error = format!("{:#}", client.get("/").unwrap_err());
        let expect = format!("connect to {address} (--url names another): ");
        assert!(error.starts_with(&expect), "{error}");
    }
}
