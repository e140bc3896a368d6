//! The compared servers: starting, crashing, and flushing everything to disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::args::{ProgramArgs, ServerKind};
use crate::client::Client;
use crate::server_process::{ServerProcess, size_bytes};

/// Maximum time for a server to flush and merge everything.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Prometheus looks for blocks to compact every minute. Without a compaction in this time there is
/// nothing left to compact.
const COMPACTION_PAUSE: Duration = Duration::from_secs(90);

/// A program to compare.
#[derive(Debug)]
pub(crate) struct Server {
    kind: ServerKind,
    program: PathBuf,
    /// How many days the server retains samples. `None`: its default.
    retention_days: Option<u64>,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    server: &'a Server,
    dir: PathBuf,
    process: Option<ServerProcess>,
}

/// Disk usage of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) total_bytes: u64,
    pub(crate) index_bytes: u64,
    /// The WAL, if the server has one that `total_bytes` includes.
    pub(crate) wal_bytes: u64,
    /// `None` if the server has no blocks.
    pub(crate) n_blocks: Option<u64>,
}

/// Returns the requested servers, Varve first.
pub(crate) fn list(
    kinds: &[ServerKind],
    programs: &ProgramArgs,
    retention_days: Option<u64>,
) -> Result<Vec<Server>> {
    let mut kinds = kinds.to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    let mut servers = Vec::new();
    for kind in kinds {
        servers.push(Server {
            kind,
            program: program(kind, programs)?,
            retention_days,
        });
    }
    Ok(servers)
}

/// Returns the path of a server's program.
fn program(kind: ServerKind, programs: &ProgramArgs) -> Result<PathBuf> {
    match kind {
        ServerKind::Varve => match &programs.varve {
            Some(program) => Ok(program.clone()),
            None => Ok(std::env::current_exe()
                .context("find varve beside varve-bench")?
                .with_file_name("varve")),
        },
        ServerKind::Prometheus => Ok(programs.prometheus.clone()),
        ServerKind::VictoriaMetrics => Ok(programs.victoria_metrics.clone()),
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

    /// Starts the server with default settings. Its data is below `dir`.
    pub(crate) fn start(&self, dir: &Path) -> Result<Running<'_>> {
        Ok(Running {
            server: self,
            dir: dir.to_owned(),
            process: Some(self.start_on(dir)?),
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
                    if let Some(days) = self.retention_days {
                        command.arg(format!("--storage.tsdb.retention.time={days}d"));
                    }
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
                        if let Some(days) = self.retention_days {
                            command.arg(format!("--storage.tsdb.retention.time={days}d"));
                        }
                    },
                )
            }
            ServerKind::VictoriaMetrics => {
                ServerProcess::start(self.name(), &self.program, "/health", |command, address| {
                    command.arg(format!("-storageDataPath={}", data.display()));
                    command.arg(format!("-httpListenAddr={address}"));
                    if let Some(days) = self.retention_days {
                        command.arg(format!("-retentionPeriod={days}d"));
                    }
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

    fn process_mut(&mut self) -> &mut ServerProcess {
        self.process
            .as_mut()
            .expect("runs except between `kill` and `restart`")
    }

    /// Returns the directory of the server's data.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns an error if the server has exited.
    pub(crate) fn check_runs(&mut self) -> Result<()> {
        self.process_mut().check_runs()
    }

    /// Asks the server to exit, and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.process_mut().stop()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Starts the server again on the files that the crash left.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.process = Some(self.server.start_on(&self.dir)?);
        Ok(())
    }

    /// Waits until Prometheus has compacted what it compacts on its own. The others are told to, by
    /// [`Self::flush`].
    pub(crate) fn wait_for_compactions(&mut self) -> Result<()> {
        if self.server.kind != ServerKind::Prometheus {
            return Ok(());
        }
        let client = Client::new(&self.url(""));
        let mut seen = None;
        let mut since = Instant::now();
        self.process_mut().wait("compact", TIMEOUT, |_| {
            let n_compactions = metric(&client, "prometheus_tsdb_compactions_total")?;
            if n_compactions != seen {
                seen = n_compactions;
                since = Instant::now();
            }
            Ok(since.elapsed() >= COMPACTION_PAUSE)
        })
    }

    /// Flushes and merges everything, and returns the disk usage.
    pub(crate) fn flush(&mut self) -> Result<Disk> {
        let client = Client::new(&self.url(""));
        let data = self.data_dir();
        match self.server.kind {
            ServerKind::Varve => {
                post(&client, "/api/v1/admin/tsdb/compact")?;
                let index_bytes = metric(&client, "varve_tsdb_blocks_index_bytes")?
                    .context("find varve_tsdb_blocks_index_bytes")?;
                Ok(Disk {
                    total_bytes: size_bytes(&data, None),
                    index_bytes,
                    wal_bytes: size_bytes(&data.join("wal"), None),
                    n_blocks: metric(&client, "prometheus_tsdb_blocks_loaded")?,
                })
            }
            ServerKind::Prometheus => {
                post(&client, "/api/v1/admin/tsdb/snapshot")?;
                // A snapshot contains the head as a block, and no WAL.
                let snapshots = data.join("snapshots");
                let disk = Disk {
                    total_bytes: size_bytes(&snapshots, None),
                    index_bytes: size_bytes(&snapshots, Some("index")),
                    wal_bytes: 0,
                    n_blocks: metric(&client, "prometheus_tsdb_blocks_loaded")?,
                };
                std::fs::remove_dir_all(&snapshots).context("remove the snapshot")?;
                Ok(disk)
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
                let n_partitions = n_partitions(&data);
                self.process_mut()
                    .wait("merge", TIMEOUT, |_| is_merged(&client, n_partitions))?;
                let index_bytes = ["indexdb", "data/indexdb"]
                    .map(|dir| size_bytes(&data.join(dir), None))
                    .iter()
                    .sum();
                Ok(Disk {
                    total_bytes: size_bytes(&data, None),
                    index_bytes,
                    wal_bytes: 0,
                    n_blocks: None,
                })
            }
        }
    }
}

/// Returns the number of VictoriaMetrics' partitions, one for each month such as `2026_11`.
fn n_partitions(data: &Path) -> u64 {
    let mut n_partitions = 0;
    if let Ok(entries) = std::fs::read_dir(data.join("data/small")) {
        for entry in entries.flatten() {
            n_partitions += u64::from(entry.file_name() != "snapshots");
        }
    }
    n_partitions
}

/// Returns `true` if VictoriaMetrics has no part in memory and at most one part for each partition.
fn is_merged(client: &Client, n_partitions: u64) -> Result<bool> {
    let parts = |kind: &str| metric(client, &format!("vm_parts{{type=\"storage/{kind}\"}}"));
    let in_memory = parts("inmemory")?;
    let small = parts("small")?;
    let big = parts("big")?;
    Ok(in_memory == Some(0) && small.unwrap_or(0) + big.unwrap_or(0) <= n_partitions)
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
