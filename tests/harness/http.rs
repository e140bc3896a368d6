//! An HTTP client that returns every response, whatever its status, and raw connections for invalid
//! requests.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use prost::Message as _;
use serde_json::Value;
use ureq::http::{HeaderMap, Request, Response};
use ureq::middleware::MiddlewareNext;
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, SendBody};

use super::PATIENCE;
use super::messages::remote_write::{WriteRequest, snappy, v2};

/// A client of one server.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    address: SocketAddr,
    agent: Agent,
    scheme: &'static str,
    /// Prepended to all paths.
    prefix: String,
}

/// TLS and credentials of a client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// `None` for plain text.
    pub(crate) tls: Option<TlsConfig>,
    /// The header `Authorization`.
    pub(crate) authorization: Option<String>,
}

/// A response with the received part of its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Why the body was truncated.
    pub(crate) cut: Option<String>,
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of(address, &Access::default())
    }

    /// Creates a client with TLS settings and credentials.
    pub(crate) fn of(address: SocketAddr, access: &Access) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(PATIENCE));
        // Each request has a connection of its own: the server may close an idle one just when a
        // request is sent on it.
        let mut config = config.max_idle_connections(0);
        if let Some(tls) = &access.tls {
            config = config.tls_config(tls.clone());
        }
        if let Some(authorization) = access.authorization.clone() {
            config = config.middleware(
                move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                    let value = authorization.parse().expect("a valid header");
                    request.headers_mut().insert("authorization", value);
                    next.handle(request)
                },
            );
        }
        let scheme = if access.tls.is_some() {
            "https"
        } else {
            "http"
        };
        Self {
            address,
            agent: config.build().into(),
            scheme,
            prefix: String::new(),
        }
    }

    /// Returns a client of the same server with other TLS settings and credentials.
    pub(crate) fn with(&self, access: &Access) -> Self {
        Self::of(self.address, access).below(&self.prefix)
    }

    /// Returns a client that prepends a prefix to all paths, as in `--web.route-prefix`.
    pub(crate) fn below(self, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..self
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}{}{path}", self.scheme, self.address, self.prefix)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.try_get(path)
            .unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }

    pub(crate) fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.agent
            .get(self.url(path))
            .call()
            .map_err(|e| e.to_string())
            .map(Answer::read)
    }

    /// Sends a GET request with parameters.
    pub(crate) fn query(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        let request = self
            .agent
            .get(self.url(path))
            .query_pairs(params.iter().copied());
        Answer::read(
            request
                .call()
                .unwrap_or_else(|e| panic!("GET {path} {params:?}: {e}")),
        )
    }

    /// Sends a POST request with a form.
    pub(crate) fn form(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        let sent = self
            .agent
            .post(self.url(path))
            .send_form(params.iter().copied());
        Answer::read(sent.unwrap_or_else(|e| panic!("POST {path} {params:?}: {e}")))
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        Answer::read(
            self.agent
                .delete(self.url(path))
                .call()
                .unwrap_or_else(|e| panic!("DELETE {path}: {e}")),
        )
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_post(path, headers, body)
            .unwrap_or_else(|e| panic!("POST {path}: {e}"))
    }

    pub(crate) fn try_post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, String> {
        let request = headers
            .iter()
            .fold(self.agent.post(self.url(path)), |request, (n, v)| {
                request.header(*n, *v)
            });
        request
            .send(body)
            .map_err(|e| e.to_string())
            .map(Answer::read)
    }

    /// Sends a request with any method; an empty body means none.
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(self.url(path));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let answer = match (method, body) {
            ("POST" | "PUT", _) | (_, [_, ..]) => {
                self.agent.run(request.body(body).expect("a valid request"))
            }
            _ => self.agent.run(request.body(()).expect("a valid request")),
        };
        Answer::read(answer.unwrap_or_else(|e| panic!("{method} {path}: {e}")))
    }

    /// Sends a remote-write request.
    pub(crate) fn write(&self, request: &WriteRequest) -> Answer {
        self.write_body(&request.to_body())
    }

    /// Sends a remote-write request of version 2.0.
    pub(crate) fn write_v2(&self, request: &v2::Request) -> Answer {
        let headers = [
            ("Content-Encoding", "snappy"),
            (
                "Content-Type",
                "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            ),
        ];
        self.post("/api/v1/write", &headers, &snappy(&request.encode_to_vec()))
    }

    /// Sends the body of a remote-write request.
    pub(crate) fn write_body(&self, body: &[u8]) -> Answer {
        self.try_write_body(body)
            .unwrap_or_else(|e| panic!("remote write: {e}"))
    }

    /// Sends the body of a remote-write request; on an error the outcome is unknown.
    pub(crate) fn try_write_body(&self, body: &[u8]) -> Result<Answer, String> {
        self.try_post("/api/v1/write", REMOTE_WRITE_HEADERS, body)
    }

    /// Opens a connection; `None` if there are too many.
    pub(crate) fn try_connect(&self) -> Option<RawConnection> {
        TcpStream::connect(self.address).ok().map(RawConnection)
    }

    /// Opens a raw connection.
    pub(crate) fn connect(&self) -> RawConnection {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("the timeout is not zero");
        RawConnection(stream)
    }
}

pub(crate) const REMOTE_WRITE_HEADERS: &[(&str, &str)] = &[
    ("Content-Encoding", "snappy"),
    ("Content-Type", "application/x-protobuf"),
    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
];

impl Answer {
    fn read(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let mut bytes = Vec::new();
        let cut = body
            .into_with_config()
            .limit(u64::MAX)
            .reader()
            .read_to_end(&mut bytes)
            .err();
        let cut = cut.map(|error| error.to_string());
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body: bytes,
            cut,
        }
    }

    /// Asserts the status.
    #[track_caller]
    pub(crate) fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a response is UTF-8")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("headers are ASCII"))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Returns `data` of a successful response.
    #[track_caller]
    pub(crate) fn data(&self) -> Value {
        let mut json = self.json();
        assert_eq!(
            (self.status, &json["status"]),
            (200, &Value::from("success")),
            "{self:?}"
        );
        json["data"].take()
    }

    /// Returns `errorType` and `error` of an error response.
    #[track_caller]
    pub(crate) fn error(&self) -> (String, String) {
        let json = self.json();
        let text = |key: &str| {
            json[key]
                .as_str()
                .unwrap_or_else(|| panic!("no {key}: {self:?}"))
                .to_owned()
        };
        assert_eq!(json["status"], "error", "{self:?}");
        (text("errorType"), text("error"))
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 2000;
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]);
        write!(
            f,
            "status {}, {} bytes: {body}",
            self.status,
            self.body.len()
        )?;
        self.cut
            .iter()
            .try_for_each(|reason| write!(f, " (cut: {reason})"))
    }
}

/// A raw TCP connection.
#[derive(Debug)]
pub(crate) struct RawConnection(TcpStream);

impl RawConnection {
    /// Sends bytes. Errors are ignored: if the server closed the connection, the response says why.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> &mut Self {
        let _ = self.0.write_all(bytes);
        self
    }

    /// Closes the sending side: the server reads the end of the stream.
    pub(crate) fn end(&mut self) -> &mut Self {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        self
    }

    /// Reads up to `size` bytes, fewer if the server closes the connection.
    pub(crate) fn read(&mut self, size: u64) -> String {
        let mut bytes = Vec::new();
        read(&mut (&self.0).take(size), &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads up to `size` bytes; returns `None` after the timeout.
    pub(crate) fn try_read(&mut self, size: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; size];
        match self.0.read(&mut bytes) {
            Ok(n) => Some(bytes[..n].to_vec()),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                None
            }
            Err(e) => panic!("read: {e}"),
        }
    }

    /// Reads until the server closes the connection.
    pub(crate) fn read_to_end(&mut self) -> String {
        self.read(u64::MAX)
    }

    /// Reads until the server closes the connection and counts occurrences of `part`. Also returns
    /// the last bytes.
    pub(crate) fn count(&mut self, part: &[u8]) -> (usize, String) {
        const KEPT: usize = 256;
        let (mut seen, mut read, mut n) = (Vec::new(), vec![0; 64 << 10], 0);
        loop {
            let n_read = self.0.read(&mut read).expect("read");
            // The carried bytes are shorter than the part, so that none is counted twice.
            let kept = seen.len().saturating_sub(part.len() - 1);
            let mut window = seen[kept..].to_vec();
            window.extend_from_slice(&read[..n_read]);
            n += window.windows(part.len()).filter(|at| *at == part).count();
            seen.extend_from_slice(&read[..n_read]);
            seen.drain(..seen.len().saturating_sub(KEPT));
            if n_read == 0 {
                return (n, String::from_utf8_lossy(&seen).into_owned());
            }
        }
    }

    /// Sets the timeout of reads.
    pub(crate) fn patience(&mut self, timeout: Duration) -> &mut Self {
        self.0
            .set_read_timeout(Some(timeout))
            .expect("the timeout is not zero");
        self
    }
}

fn read(from: &mut impl Read, bytes: &mut Vec<u8>) {
    // A server that rejects a request resets the connection if the client was still sending.
    if let Err(e) = from.read_to_end(bytes)
        && e.kind() != io::ErrorKind::ConnectionReset
    {
        panic!("read: {e}, after {:?}", String::from_utf8_lossy(bytes));
    }
}
