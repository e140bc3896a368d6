//! The server of the bench, and connections to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A running `varve serve`; it is killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts a server at its defaults on a free port.
    pub(crate) fn start(program: &Path, data: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["serve", "--web.listen-address=127.0.0.1:0", "--storage.tsdb.path"]).arg(data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let address = log.by_ref().find_map(|line| listening_address(&line.ok()?)).expect("it says where it listens");
        log.by_ref().find(|line| line.as_ref().is_ok_and(|line| line.contains("ready"))).expect("it gets ready").ok();
        // The server must not block on a full pipe.
        thread::spawn(move || log.for_each(drop));
        Self { child, address }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_nodelay(true).expect("it is a TCP connection");
        Connection { stream: BufReader::new(stream) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address in a log line such as `msg=Listening address=127.0.0.1:9090`.
fn listening_address(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.split_once("Listening")?.1.split_once("address=")?;
    address.split_whitespace().next()?.trim_matches('"').parse().ok()
}

/// A persistent connection with one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All samples were stored.
    Stored,
    /// The request must be retried after a delay.
    Again(Duration),
}

/// Returns the bytes of a remote-write request.
pub(crate) fn request(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /api/v1/write HTTP/1.1\r\nHost: varve\r\nContent-Encoding: snappy\r\n\
         Content-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

impl Connection {
    /// Sends a request and waits for the response.
    pub(crate) fn send(&mut self, request: &[u8]) -> Outcome {
        self.stream.get_mut().write_all(request).expect("the server reads");
        let (status, retry_after, body) = self.answer();
        match status {
            204 => Outcome::Stored,
            503 => Outcome::Again(Duration::from_secs(retry_after)),
            _ => panic!("{status}: {body}"),
        }
    }

    /// Sends a GET request and returns the body.
    pub(crate) fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: varve\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let (status, _, body) = self.answer();
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Reads a response with a content length: status, `Retry-After`, body.
    fn answer(&mut self) -> (u16, u64, String) {
        let (mut status, mut retry_after, mut size) = (0, 0, 0);
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("the server answers");
            let text = line.trim_end().to_ascii_lowercase();
            if let Some(code) = text.strip_prefix("http/1.1 ") {
                status = code.get(..3).and_then(|code| code.parse().ok()).expect("a status has three digits");
            } else if let Some(seconds) = text.strip_prefix("retry-after: ") {
                retry_after = seconds.parse().expect("it is in seconds");
            } else if let Some(length) = text.strip_prefix("content-length: ") {
                size = length.parse().expect("a length is a number");
            } else if text.is_empty() {
                break;
            }
        }
        let mut body = vec![0; size];
        self.stream.read_exact(&mut body).expect("the answer is whole");
        (status, retry_after, String::from_utf8_lossy(&body).into_owned())
    }
}
