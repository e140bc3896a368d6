//! A server that a benchmark runs on loopback. It is killed when its handle is dropped.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::client::Client;

/// Maximum time for a server to start, or to stop.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The resolution of the measured start times.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A directory under the system's temporary directory. It is removed when its handle is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

/// A running server.
#[derive(Debug)]
pub(crate) struct ServerProcess {
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
        // The system removes leftover files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl ServerProcess {
    /// Starts `program` and waits until GET `ready` succeeds. `flags` adds the listen address to
    /// the command.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        ready: &str,
        flags: impl FnOnce(&mut Command, String),
    ) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(program);
        flags(&mut command, format!("127.0.0.1:{port}"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut peer = Self { name, child, port };
        let client = Client::new(&peer.url(""));
        peer.wait("start", TIMEOUT, |peer| {
            peer.check_runs()?;
            Ok(client
                .get(ready)
                .is_ok_and(|response| response.is_success()))
        })?;
        Ok(peer)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns an error if the server has exited.
    pub(crate) fn check_runs(&mut self) -> Result<()> {
        match self.child.try_wait().context("wait for a server")? {
            Some(status) => bail!("{} exited: {status}", self.name),
            None => Ok(()),
        }
    }

    /// Sends SIGTERM and waits until the server has exited.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let status = Command::new("sh")
            .args(["-c", "kill -TERM \"$0\"", &self.pid().to_string()])
            .status()
            .context("send SIGTERM")?;
        ensure!(status.success(), "send SIGTERM to {}: {status}", self.name);
        self.wait("stop", TIMEOUT, |peer| {
            let status = peer.child.try_wait().context("wait for a server")?;
            Ok(status.is_some())
        })
    }

    /// Polls until `is_done` returns `true`.
    pub(crate) fn wait(
        &mut self,
        what: &str,
        timeout: Duration,
        mut is_done: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let started = Instant::now();
        while !is_done(self)? {
            ensure!(
                started.elapsed() < timeout,
                "waited {timeout:?} for {} to {what}",
                self.name
            );
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the total size of the files under a directory, or of the files named `name`. Ignores
/// files removed during the walk.
pub(crate) fn size_bytes(dir: &Path, name: Option<&str>) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let mut total = 0;
    for entry in entries.flatten() {
        total += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_bytes(&entry.path(), name),
            Ok(metadata) if name.is_none_or(|name| entry.file_name() == name) => metadata.len(),
            _ => 0,
        };
    }
    total
}

/// Returns a free port.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}
