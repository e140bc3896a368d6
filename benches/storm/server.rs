//! The server of the bench, and connections to it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ureq::Agent;

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
        command
            .args([
                "serve",
                "--web.listen-address=127.0.0.1:0",
                "--storage.tsdb.path",
            ])
            .arg(data);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let address = log
            .by_ref()
            .find_map(|line| listening_address(&line.ok()?))
            .expect("it says where it listens");
        log.by_ref()
            .find(|line| line.as_ref().is_ok_and(|line| line.contains("ready")))
            .expect("it gets ready")
            .ok();
        // The server must not block on a full pipe.
        thread::spawn(move || log.for_each(drop));
        Self { child, address }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Connection {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None);
        Connection {
            agent: config.build().into(),
            address: self.address,
        }
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
    address
        .split_whitespace()
        .next()?
        .trim_matches('"')
        .parse()
        .ok()
}

/// A persistent connection with one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    agent: Agent,
    address: SocketAddr,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All samples were stored.
    Stored,
    /// The request must be retried after a delay.
    Again(Duration),
}

impl Connection {
    /// Sends a remote-write request and waits for the response.
    pub(crate) fn send(&mut self, body: &[u8]) -> Outcome {
        let request = self
            .agent
            .post(format!("http://{}/api/v1/write", self.address));
        let request = request
            .header("content-encoding", "snappy")
            .header("content-type", "application/x-protobuf");
        let mut response = request.send(body).expect("the server responds");
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response
            .body_mut()
            .read_to_string()
            .expect("the response is complete");
        match (response.status().as_u16(), retry_after) {
            (204, _) => Outcome::Stored,
            (503, Some(seconds)) => Outcome::Again(Duration::from_secs(seconds)),
            (status, _) => panic!("{status}: {body}"),
        }
    }

    /// Sends a GET request and returns the body.
    pub(crate) fn get(&mut self, path: &str) -> String {
        let mut response = self
            .agent
            .get(format!("http://{}{path}", self.address))
            .call()
            .expect("the server responds");
        let body = response
            .body_mut()
            .read_to_string()
            .expect("the response is complete");
        assert_eq!(response.status(), 200, "{body}");
        body
    }
}
