//! An HTTP client that hands out every answer, whatever its status, and raw connections for what no client would send.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use super::PATIENCE;
use super::remote_write::WriteRequest;

/// A client of one server.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    address: SocketAddr,
    agent: Agent,
}

/// An answer, with its body as far as it came.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Why the body broke off.
    pub(crate) cut: Option<String>,
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).proxy(None).timeout_global(Some(PATIENCE));
        Self { address, agent: config.build().into() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.try_get(path).unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }

    pub(crate) fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.agent.get(self.url(path)).call().map_err(|e| e.to_string()).map(Answer::read)
    }

    /// GETs with parameters.
    pub(crate) fn query(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        let request = self.agent.get(self.url(path)).query_pairs(params.iter().copied());
        Answer::read(request.call().unwrap_or_else(|e| panic!("GET {path} {params:?}: {e}")))
    }

    /// POSTs parameters as a form.
    pub(crate) fn form(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        let sent = self.agent.post(self.url(path)).send_form(params.iter().copied());
        Answer::read(sent.unwrap_or_else(|e| panic!("POST {path} {params:?}: {e}")))
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_post(path, headers, body).unwrap_or_else(|e| panic!("POST {path}: {e}"))
    }

    pub(crate) fn try_post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, String> {
        let request = headers.iter().fold(self.agent.post(self.url(path)), |request, (n, v)| request.header(*n, *v));
        request.send(body).map_err(|e| e.to_string()).map(Answer::read)
    }

    /// Makes a call of any method; an empty body is none.
    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let request = ureq::http::Request::builder().method(method).uri(self.url(path));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = match (method, body) {
            ("POST" | "PUT", _) | (_, [_, ..]) => self.agent.run(request.body(body).expect("a valid request")),
            _ => self.agent.run(request.body(()).expect("a valid request")),
        };
        Answer::read(answer.unwrap_or_else(|e| panic!("{method} {path}: {e}")))
    }

    /// Writes as a remote-write sender does.
    pub(crate) fn write(&self, request: &WriteRequest) -> Answer {
        self.write_body(&request.to_body())
    }

    /// Sends the body of a remote-write request.
    pub(crate) fn write_body(&self, body: &[u8]) -> Answer {
        self.try_write_body(body).unwrap_or_else(|e| panic!("remote write: {e}"))
    }

    /// Sends the body of a remote-write request; the error means that nobody knows what became of it.
    pub(crate) fn try_write_body(&self, body: &[u8]) -> Result<Answer, String> {
        self.try_post("/api/v1/write", REMOTE_WRITE_HEADERS, body)
    }

    /// Opens a connection to write whatever to.
    pub(crate) fn connect(&self) -> RawConnection {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout that is not zero");
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
        let cut = body.into_with_config().limit(u64::MAX).reader().read_to_end(&mut bytes).err();
        let cut = cut.map(|error| error.to_string());
        Self { status: head.status.as_u16(), headers: head.headers, body: bytes, cut }
    }

    /// Checks the status.
    #[track_caller]
    pub(crate) fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("an answer is UTF-8")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("headers are ASCII"))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Returns `data` of a successful answer.
    #[track_caller]
    pub(crate) fn data(&self) -> Value {
        let mut json = self.json();
        assert_eq!((self.status, &json["status"]), (200, &Value::from("success")), "{self:?}");
        json["data"].take()
    }

    /// Returns `errorType` and `error` of a failed answer.
    #[track_caller]
    pub(crate) fn error(&self) -> (String, String) {
        let json = self.json();
        let text = |key: &str| json[key].as_str().unwrap_or_else(|| panic!("no {key}: {self:?}")).to_owned();
        assert_eq!(json["status"], "error", "{self:?}");
        (text("errorType"), text("error"))
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 2000;
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]);
        write!(f, "status {}, {} bytes: {body}", self.status, self.body.len())?;
        self.cut.iter().try_for_each(|reason| write!(f, " (cut: {reason})"))
    }
}

/// A connection without a client's manners.
#[derive(Debug)]
pub(crate) struct RawConnection(TcpStream);

impl RawConnection {
    /// Sends bytes; an error means that the server closed the connection, which the answer tells more about.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> &mut Self {
        let _closed_by_server = self.0.write_all(bytes);
        self
    }

    /// Sends no more: the server reads the end of the stream.
    pub(crate) fn end(&mut self) -> &mut Self {
        let _closed_by_server = self.0.shutdown(std::net::Shutdown::Write);
        self
    }

    /// Reads up to `size` bytes, less if the server closes the connection.
    pub(crate) fn read(&mut self, size: u64) -> String {
        let mut bytes = Vec::new();
        read(&mut (&self.0).take(size), &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads until the server closes the connection.
    pub(crate) fn read_to_end(&mut self) -> String {
        self.read(u64::MAX)
    }

    /// Bounds the time of a read.
    pub(crate) fn patience(&mut self, timeout: Duration) -> &mut Self {
        self.0.set_read_timeout(Some(timeout)).expect("a timeout that is not zero");
        self
    }
}

fn read(from: &mut impl Read, bytes: &mut Vec<u8>) {
    match from.read_to_end(bytes) {
        // A server that refuses resets the connection when the client had more to say.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
        read => drop(read.unwrap_or_else(|e| panic!("read: {e}, after {:?}", String::from_utf8_lossy(bytes)))),
    }
}
