//! The servers that are compared: how each is started, crashed, and made to put everything on disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::args::{CompareArgs, Contestant};
use crate::client::Client;
use crate::peer::{Peer, Scratch, size_bytes};

/// How long a server may take to put everything on disk and to merge it.
const PATIENCE: Duration = Duration::from_secs(1800);

/// A program that is compared.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Contestant,
    program: PathBuf,
}

/// A server at work on a folder of its own.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    server: &'a Server,
    scratch: Scratch,
    peer: Option<Peer>,
}

/// What a server needs on disk for all that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) total_bytes: u64,
    pub(crate) index_bytes: u64,
}

/// Returns the servers that are asked for, Varve first.
pub(crate) fn list(args: &CompareArgs) -> Result<Vec<Server>> {
    let program = |kind| match kind {
        Contestant::Varve => match &args.varve {
            Some(program) => Ok(program.clone()),
            None => Ok(std::env::current_exe().context("find this program")?.with_file_name("varve")),
        },
        Contestant::Prometheus => Ok(args.prometheus.clone()),
        Contestant::VictoriaMetrics => Ok(args.victoria_metrics.clone()),
    };
    let mut kinds = args.servers.clone();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().map(|kind| Ok(Server { kind, program: program(kind)? })).collect()
}

impl Server {
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Contestant::Varve => "Varve",
            Contestant::Prometheus => "Prometheus",
            Contestant::VictoriaMetrics => "VictoriaMetrics",
        }
    }

    /// Returns the first line that says something of what the program says of its version.
    pub(crate) fn version(&self) -> String {
        let flag = if self.kind == Contestant::VictoriaMetrics { "-version" } else { "--version" };
        let said = Command::new(&self.program).arg(flag).output();
        let line = said.ok().and_then(|said| {
            let text = [said.stdout, said.stderr].concat();
            String::from_utf8_lossy(&text).lines().find(|line| !line.is_empty()).map(str::to_owned)
        });
        line.unwrap_or_else(|| self.program.display().to_string())
    }

    /// Starts it on a fresh folder, at its defaults.
    pub(crate) fn start(&self) -> Result<Running<'_>> {
        let scratch = Scratch::new(self.name())?;
        let peer = Some(self.start_on(scratch.path())?);
        Ok(Running { server: self, scratch, peer })
    }

    fn start_on(&self, folder: &Path) -> Result<Peer> {
        let data = folder.join("data");
        match self.kind {
            Contestant::Varve => Peer::start(self.name(), &self.program, "/-/ready", |command, address| {
                command.args(["serve", "--web.enable-admin-api", "--self-scrape-interval=0"]);
                command.arg(format!("--web.listen-address={address}"));
                command.arg(format!("--storage.tsdb.path={}", data.display()));
            }),
            Contestant::Prometheus => {
                let config = folder.join("prometheus.yml");
                std::fs::write(&config, "global: {}\n").context("write a configuration")?;
                Peer::start(self.name(), &self.program, "/-/ready", |command, address| {
                    command.args(["--web.enable-remote-write-receiver", "--web.enable-admin-api"]);
                    command.arg(format!("--config.file={}", config.display()));
                    command.arg(format!("--storage.tsdb.path={}", data.display()));
                    command.arg(format!("--web.listen-address={address}"));
                })
            }
            Contestant::VictoriaMetrics => Peer::start(self.name(), &self.program, "/health", |command, address| {
                command.arg(format!("-storageDataPath={}", data.display()));
                command.arg(format!("-httpListenAddr={address}"));
            }),
        }
    }
}

impl Running<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.peer().pid()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.peer().url(path)
    }

    fn peer(&self) -> &Peer {
        self.peer.as_ref().expect("it runs but between `kill` and `restart`")
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.peer.take());
    }

    /// Starts it again on what the crash has left.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.peer = Some(self.server.start_on(self.scratch.path())?);
        Ok(())
    }

    /// Makes it put everything on disk and merge it as far as it goes, and tells what that takes.
    pub(crate) fn seal(mut self) -> Result<Disk> {
        let client = Client::new(&self.url(""));
        let data = self.scratch.path().join("data");
        match self.server.kind {
            Contestant::Varve => {
                post(&client, "/api/v1/admin/tsdb/compact")?;
                let index_bytes = metric(&client, "varve_tsdb_blocks_index_bytes")?.context("find its index")?;
                Ok(Disk { total_bytes: size_bytes(&data), index_bytes })
            }
            Contestant::Prometheus => {
                post(&client, "/api/v1/admin/tsdb/snapshot")?;
                // A snapshot holds blocks only: the head as one of them, without the log.
                let blocks = data.join("snapshots");
                Ok(Disk { total_bytes: size_bytes(&blocks), index_bytes: size_of_files(&blocks, "index") })
            }
            Contestant::VictoriaMetrics => {
                for path in ["/internal/force_flush", "/internal/force_merge"] {
                    let answer = client.get(path)?;
                    ensure!(answer.is_success(), "{path} says {}: {}", answer.status, answer.text());
                }
                let peer = self.peer.as_mut().expect("it was started");
                peer.wait("merge", PATIENCE, |_| Ok(is_merged(&client)?.then_some(())))?;
                let index_bytes = size_bytes(&data.join("indexdb")) + size_bytes(&data.join("data").join("indexdb"));
                Ok(Disk { total_bytes: size_bytes(&data), index_bytes })
            }
        }
    }
}

/// Tells whether VictoriaMetrics holds nothing in memory and no more than one part for each of two months.
fn is_merged(client: &Client) -> Result<bool> {
    let mut parts = |kind: &str| metric(client, &format!("vm_parts{{type=\"storage/{kind}\"}}"));
    let (in_memory, small, big) = (parts("inmemory")?, parts("small")?, parts("big")?);
    Ok(in_memory == Some(0) && small.unwrap_or(0) + big.unwrap_or(0) <= 2)
}

fn post(client: &Client, path: &str) -> Result<()> {
    let answer = client.post(path)?;
    ensure!(answer.is_success(), "{path} says {}: {}", answer.status, answer.text());
    Ok(())
}

/// Reads one metric of a server about itself.
fn metric(client: &Client, series: &str) -> Result<Option<u64>> {
    let metrics = client.get("/metrics")?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Ok(value.and_then(|value| value.parse::<f64>().ok()).map(|value| value as u64))
}

/// Adds up the files of one name in the folders of a folder's folders.
fn size_of_files(folder: &Path, name: &str) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let of_entry = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of_files(&entry.path(), name),
        Ok(metadata) if entry.file_name() == name => metadata.len(),
        _ => 0,
    };
    entries.flatten().map(of_entry).sum()
}
