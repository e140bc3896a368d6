//! An HTTP/2 client: one connection with concurrent requests, whose responses are read as slowly as
//! a test wants.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The initial flow-control window in bytes: the protocol's default.
const WINDOW: u32 = (64 << 10) - 1;

/// A connection.
pub(crate) struct Http2 {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

/// The response to a gRPC call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) status: String,
    /// The message of the status.
    pub(crate) message: String,
    /// The messages, and whether each is compressed.
    pub(crate) messages: Vec<(bool, Bytes)>,
    pub(crate) headers: hyper::HeaderMap,
}

/// Returns a message of a gRPC call after its header.
#[expect(clippy::big_endian_bytes, reason = "the protocol has big-endian sizes")]
pub(crate) fn frame(is_compressed: bool, message: &[u8]) -> Vec<u8> {
    let size = u32::try_from(message.len()).expect("a short message");
    [&[u8::from(is_compressed)], &size.to_be_bytes()[..], message].concat()
}

/// A request that was sent.
pub(crate) struct Sent(JoinHandle<hyper::Result<Response<Incoming>>>);

impl Http2 {
    /// Connects in plain text with prior knowledge of HTTP/2.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let runtime = runtime();
        let stream = runtime
            .block_on(TcpStream::connect(address))
            .expect("connect");
        Self::over(runtime, stream)
    }

    /// Connects over TLS and offers protocols. Returns the selected one, and the connection if it
    /// is `h2`.
    pub(crate) fn over_tls(
        address: SocketAddr,
        ca_pem: &str,
        protocols: &[&str],
    ) -> (Option<String>, Option<Self>) {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).expect("a certificate in PEM");
        roots.add(ca).expect("a certificate");
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let runtime = runtime();
        let stream = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("connect");
            let name = ServerName::from(address.ip());
            TlsConnector::from(Arc::new(config))
                .connect(name, stream)
                .await
                .expect("a handshake")
        });
        let chosen = stream
            .get_ref()
            .1
            .alpn_protocol()
            .map(|name| String::from_utf8_lossy(name).into_owned());
        let is_http2 = chosen.as_deref() == Some("h2");
        (chosen, is_http2.then(|| Self::over(runtime, stream)))
    }

    fn over(
        runtime: Runtime,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        let (sender, connection) = runtime.block_on(async {
            let mut builder = Builder::new(TokioExecutor::new());
            builder
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(16 << 20);
            let (sender, connection) = builder
                .handshake(TokioIo::new(stream))
                .await
                .expect("a handshake");
            let connection = tokio::spawn(async move { drop(connection.await) });
            (sender, connection)
        });
        Self {
            runtime,
            sender,
            connection,
        }
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Sent {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://varve{path}"));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body)))
            .expect("a valid request");
        let mut sender = self.sender.clone();
        Sent(
            self.runtime
                .spawn(async move { sender.send_request(request).await }),
        )
    }

    /// Waits for the head of a response.
    pub(crate) fn head(&self, sent: Sent) -> Response<Incoming> {
        self.runtime
            .block_on(sent.0)
            .expect("the task does not panic")
            .expect("a response")
    }

    /// Reads the body of a response; fails if it is truncated.
    pub(crate) fn body(&self, response: Response<Incoming>) -> Result<Bytes, hyper::Error> {
        self.runtime
            .block_on(response.into_body().collect())
            .map(|body| body.to_bytes())
    }

    /// Makes a gRPC call with an encoded message.
    pub(crate) fn call(&self, path: &str, headers: &[(&str, &str)], message: &[u8]) -> Call {
        self.call_with(path, headers, &frame(false, message))
    }

    /// Makes a gRPC call with this body.
    #[expect(clippy::big_endian_bytes, reason = "the protocol has big-endian sizes")]
    pub(crate) fn call_with(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Call {
        let headers = [
            &[("content-type", "application/grpc"), ("te", "trailers")],
            headers,
        ]
        .concat();
        let response = self.head(self.send("POST", path, &headers, body));
        let (head, body) = response.into_parts();
        let body = self
            .runtime
            .block_on(body.collect())
            .expect("a complete response");
        let (status, message) = status(body.trailers().unwrap_or(&head.headers));
        let (mut messages, mut rest) = (Vec::new(), body.to_bytes());
        while !rest.is_empty() {
            let header = rest.split_to(5);
            let size = u32::from_be_bytes(header[1..].try_into().expect("four bytes"));
            messages.push((header[0] != 0, rest.split_to(size as usize)));
        }
        Call {
            status,
            message,
            messages,
            headers: head.headers,
        }
    }

    /// Makes a gRPC call, and returns the size of the body and the rest of the response without its
    /// messages.
    pub(crate) fn measure(&self, path: &str, message: &[u8]) -> (usize, Call) {
        let headers = [("content-type", "application/grpc"), ("te", "trailers")];
        let response = self.head(self.send("POST", path, &headers, &frame(false, message)));
        let (head, mut body) = response.into_parts();
        let (mut size, mut trailers) = (0, head.headers.clone());
        while let Some(frame) = self.runtime.block_on(body.frame()) {
            match frame.expect("a complete response").into_data() {
                Ok(data) => size += data.len(),
                Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
            }
        }
        let (status, message) = status(&trailers);
        (
            size,
            Call {
                status,
                message,
                messages: Vec::new(),
                headers: head.headers,
            },
        )
    }

    /// Sends a GET request and returns status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let response = self.head(self.send("GET", path, &[], b""));
        let status = response.status().as_u16();
        let body = self.body(response).expect("a complete response");
        (
            status,
            String::from_utf8(body.to_vec()).expect("a response is UTF-8"),
        )
    }

    /// Returns `true` if the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_finished()
    }
}

/// Returns status and message of a gRPC call.
fn status(trailers: &hyper::HeaderMap) -> (String, String) {
    let text = |name: &str| {
        trailers
            .get(name)
            .map_or("", |value| value.to_str().expect("ASCII"))
            .to_owned()
    };
    (text("grpc-status"), text("grpc-message"))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("start a runtime")
}
