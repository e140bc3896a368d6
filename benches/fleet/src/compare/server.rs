//! The compared servers: starting, crashing, and flushing everything to disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::args::{CompareArgs, ServerKind};
use crate::client::Client;
use crate::server_process::{Scratch, ServerProcess, size_bytes};

/// Maximum time for a server to flush and merge everything.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// A program to compare.
#[derive(Debug)]
pub(crate) struct Server {
    kind: ServerKind,
    program: PathBuf,
}

/// A running server with its own data directory.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    server: &'a Server,
    scratch: Scratch,
    process: Option<ServerProcess>,
}

/// Disk usage of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) total_bytes: u64,
    pub(crate) index_bytes: u64,
}

/// Returns the requested servers, Varve first.
pub(crate) fn list(args: &CompareArgs) -> Result<Vec<Server>> {
    let mut kinds = args.servers.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let mut servers = Vec::new();
    for kind in kinds {
        servers.push(Server {
            kind,
            program: program(kind, args)?,
        });
    }
    Ok(servers)
}

/// Returns the path of a server's program.
fn program(kind: ServerKind, args: &CompareArgs) -> Result<PathBuf> {
    match kind {
        ServerKind::Varve => match &args.varve {
            Some(program) => Ok(program.clone()),
            None => Ok(std::env::current_exe()
                .context("find varve beside varve-bench")?
                .with_file_name("varve")),
        },
        ServerKind::Prometheus => Ok(args.prometheus.clone()),
        ServerKind::VictoriaMetrics => Ok(args.victoria_metrics.clone()),
    }
}

impl Server {
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            ServerKind::Varve => "Varve",
            ServerKind::Prometheus => "Prometheus",
            ServerKind::VictoriaMetrics => "VictoriaMetrics",
        }
    }

    /// Returns the first non-empty line of `--version`.
    pub(crate) fn version(&self) -> String {
        let flag = if self.kind == ServerKind::VictoriaMetrics {
            "-version"
        } else {
            "--version"
        };
        let output = Command::new(&self.program).arg(flag).output();
        let line = output.ok().and_then(|output| {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text)
                .lines()
                .find(|line| !line.is_empty())
                .map(str::to_owned)
        });
        line.unwrap_or_else(|| self.program.display().to_string())
    }

    /// Starts the server with default settings on an empty data directory.
    pub(crate) fn start(&self) -> Result<Running<'_>> {
        let scratch = Scratch::new(self.name())?;
        let process = Some(self.start_on(scratch.path())?);
        Ok(Running {
            server: self,
            scratch,
            process,
        })
    }

    fn start_on(&self, dir: &Path) -> Result<ServerProcess> {
        let data = dir.join("data");
        match self.kind {
            ServerKind::Varve => ServerProcess::start(
                self.name(),
                &self.program,
                "/-/ready",
                |command, address| {
                    command.args([
                        "serve",
                        "--web.enable-admin-api",
                        "--self-scrape-interval=0",
                    ]);
                    command.arg(format!("--web.listen-address={address}"));
                    command.arg(format!("--storage.tsdb.path={}", data.display()));
                },
            ),
            ServerKind::Prometheus => {
                let config = dir.join("prometheus.yml");
                std::fs::write(&config, "global: {}\n").context("write a configuration")?;
                ServerProcess::start(
                    self.name(),
                    &self.program,
                    "/-/ready",
                    |command, address| {
                        command.args([
                            "--web.enable-remote-write-receiver",
                            "--web.enable-admin-api",
                        ]);
                        command.arg(format!("--config.file={}", config.display()));
                        command.arg(format!("--storage.tsdb.path={}", data.display()));
                        command.arg(format!("--web.listen-address={address}"));
                    },
                )
            }
            ServerKind::VictoriaMetrics => {
                ServerProcess::start(self.name(), &self.program, "/health", |command, address| {
                    command.arg(format!("-storageDataPath={}", data.display()));
                    command.arg(format!("-httpListenAddr={address}"));
                })
            }
        }
    }
}

impl Running<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.process().pid()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.process().url(path)
    }

    fn process(&self) -> &ServerProcess {
        self.process
            .as_ref()
            .expect("runs except between `kill` and `restart`")
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Starts the server again on the files that the crash left.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.process = Some(self.server.start_on(self.scratch.path())?);
        Ok(())
    }

    /// Flushes and merges everything, and returns the disk usage.
    pub(crate) fn flush(mut self) -> Result<Disk> {
        let client = Client::new(&self.url(""));
        let data = self.scratch.path().join("data");
        match self.server.kind {
            ServerKind::Varve => {
                post(&client, "/api/v1/admin/tsdb/compact")?;
                let index_bytes = metric(&client, "varve_tsdb_blocks_index_bytes")?
                    .context("find varve_tsdb_blocks_index_bytes")?;
                Ok(Disk {
                    total_bytes: size_bytes(&data, None),
                    index_bytes,
                })
            }
            ServerKind::Prometheus => {
                post(&client, "/api/v1/admin/tsdb/snapshot")?;
                // A snapshot contains the head as a block, and no WAL.
                let blocks = data.join("snapshots");
                Ok(Disk {
                    total_bytes: size_bytes(&blocks, None),
                    index_bytes: size_bytes(&blocks, Some("index")),
                })
            }
            ServerKind::VictoriaMetrics => {
                for path in ["/internal/force_flush", "/internal/force_merge"] {
                    let response = client.get(path)?;
                    ensure!(
                        response.is_success(),
                        "{path} returned {}: {}",
                        response.status,
                        response.text()
                    );
                }
                let process = self.process.as_mut().expect("is running");
                process.wait("merge", TIMEOUT, |_| is_merged(&client))?;
                let index_bytes = ["indexdb", "data/indexdb"]
                    .map(|dir| size_bytes(&data.join(dir), None))
                    .iter()
                    .sum();
                Ok(Disk {
                    total_bytes: size_bytes(&data, None),
                    index_bytes,
                })
            }
        }
    }
}

/// Returns `true` if VictoriaMetrics has no part in memory and at most one part for each of two
/// months.
fn is_merged(client: &Client) -> Result<bool> {
    let parts = |kind: &str| metric(client, &format!("vm_parts{{type=\"storage/{kind}\"}}"));
    let in_memory = parts("inmemory")?;
    let small = parts("small")?;
    let big = parts("big")?;
    Ok(in_memory == Some(0) && small.unwrap_or(0) + big.unwrap_or(0) <= 2)
}

fn post(client: &Client, path: &str) -> Result<()> {
    let response = client.post(path)?;
    ensure!(
        response.is_success(),
        "{path} returned {}: {}",
        response.status,
        response.text()
    );
    Ok(())
}

/// Reads a metric from the `/metrics` of the server.
fn metric(client: &Client, series: &str) -> Result<Option<u64>> {
    let metrics = client.get("/metrics")?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Ok(value
        .and_then(|value| value.parse::<f64>().ok())
        .map(|value| value as u64))
}
