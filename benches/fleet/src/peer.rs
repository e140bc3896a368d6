//! A peer that a bench runs: on loopback, with a fresh folder, gone when its handle is.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::client::Client;

/// How long a peer may take to start, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often a peer that starts is asked whether it is ready. How long that takes is measured: it is exact to this.
const START_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A folder under the system's temporary one, removed with its handle.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

/// A running server.
#[derive(Debug)]
pub(crate) struct Peer {
    name: &'static str,
    child: Child,
    port: u16,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("varve-bench-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

impl Peer {
    /// Starts a program and waits until `ready` answers; `command` gets the address to listen on.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        ready: &str,
        flags: impl FnOnce(&mut Command, String),
    ) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(program);
        flags(&mut command, format!("127.0.0.1:{port}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let mut peer = Self { name, child, port };
        let client = Client::new(&peer.url(""));
        peer.wait_at(START_POLL_INTERVAL, "start", PATIENCE, |peer| {
            if let Some(status) = peer.child.try_wait().context("ask for the state of a child")? {
                bail!("{} ended at once: {status}", peer.name);
            }
            Ok(client.get(ready).is_ok_and(|answer| answer.is_success()).then_some(()))
        })?;
        Ok(peer)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Asks again and again until `found` has an answer.
    pub(crate) fn wait<T>(
        &mut self,
        what: &str,
        patience: Duration,
        found: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        self.wait_at(POLL_INTERVAL, what, patience, found)
    }

    fn wait_at<T>(
        &mut self,
        interval: Duration,
        what: &str,
        patience: Duration,
        mut found: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let started = Instant::now();
        while started.elapsed() < patience {
            if let Some(found) = found(self)? {
                return Ok(found);
            }
            thread::sleep(interval);
        }
        bail!("waited {patience:?} for {} to {what}", self.name)
    }

    /// Ends the server in order, so that all it holds is in its files.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = self.pid().to_string();
        // The standard library sends no signal but SIGKILL.
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid]).status().context("run sh")?;
        anyhow::ensure!(sent.success(), "send SIGTERM to {}", self.name);
        self.wait("stop", PATIENCE, |peer| peer.child.try_wait().context("ask for the state of a child"))?;
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Adds up the files under a folder; what vanishes meanwhile counts nothing.
pub(crate) fn size_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size_bytes(&entry.path()),
        Ok(_) => entry.metadata().map_or(0, |metadata| metadata.len()),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// Finds a port that nobody listens on.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}
