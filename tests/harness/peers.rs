//! The real programs that Varve works with: Prometheus, promtool, the node exporter. Tests are skipped if a program that
//! they need is not on the PATH.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::http::Http;
use super::process::Process;
use super::wait_until;

/// Returns `true` if a program that a test needs is missing, and prints that the test is skipped.
pub(crate) fn missing(programs: &[&str]) -> bool {
    let Some(program) = programs.iter().find(|program| find(program).is_none()) else { return false };
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not eprintln!, whose output the test harness captures while tests pass.
    let _ = writeln!(std::io::stderr(), "skipped: {program} is not on PATH ({test})");
    true
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A running Prometheus with its own data directory.
#[derive(Debug)]
pub(crate) struct Prometheus {
    http: Http,
    process: Process,
    dir: TempDir,
}

impl Prometheus {
    /// Starts a Prometheus that accepts remote writes, and waits until it is ready.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, &[])
    }

    /// As [`Self::start`], with more flags.
    pub(crate) fn start_with(config: &str, flags: &[&str]) -> Self {
        Self::start_on(config, flags, |_| {})
    }

    /// As [`Self::start_with`], on a data directory that `fill` creates.
    pub(crate) fn start_on(config: &str, flags: &[&str], fill: impl FnOnce(&Path)) -> Self {
        let dir = TempDir::new().expect("make a temporary directory");
        fill(&dir.path().join("data"));
        let config_file = dir.path().join("prometheus.yml");
        std::fs::write(&config_file, config).expect("write the configuration");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .args(["--web.listen-address=127.0.0.1:0", "--web.enable-remote-write-receiver", "--web.enable-lifecycle"])
            .args(flags);
        let mut process = Process::start("prometheus", &mut command);
        let http = Http::new(process.listening_address());
        wait_until("prometheus to be ready", || {
            assert!(process.is_running(), "prometheus has exited:\n{}", process.output());
            http.try_get("/-/ready").is_ok_and(|answer| answer.status == 200)
        });
        Self { http, process, dir }
    }

    /// Reloads with another configuration.
    pub(crate) fn reload(&self, config: &str) {
        std::fs::write(self.dir.path().join("prometheus.yml"), config).expect("write the configuration");
        let answer = self.http.post("/-/reload", &[], b"");
        assert_eq!(answer.status, 200, "{answer:?}\n{}", self.process.output());
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }
}

/// A running node exporter.
#[derive(Debug)]
pub(crate) struct NodeExporter {
    address: SocketAddr,
    _process: Process,
}

impl NodeExporter {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("prometheus-node-exporter");
        command.arg("--web.listen-address=127.0.0.1:0");
        let mut process = Process::start("node exporter", &mut command);
        Self { address: process.listening_address(), _process: process }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Runs promtool.
pub(crate) fn promtool(args: &[&str]) -> Output {
    Command::new("promtool").args(args).output().expect("run promtool")
}
