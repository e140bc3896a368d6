//! The data of a server: written, flushed and merged once, and described by a file beside it, so
//! that a later run can use it again.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::args::HistoryArgs;
use crate::fleet::{Fleet, FleetOptions};
use crate::parse::to_usize;
use crate::process::{self, ProcessUsage};
use crate::server::Server;
use crate::write::{WriteOptions, write_fleet};

/// Scrape interval.
pub(super) const INTERVAL_MS: i64 = 30_000;
/// Seed of the fleet. `--seed` draws queries, so that one data directory serves many draws.
const FLEET_SEED: u64 = 1;
const DAY_MS: i64 = 86_400_000;
/// The file that describes the data, beside the data directory.
const FILE: &str = "history.json";

/// Parameters of the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Parameters {
    days: u64,
    active_series: u64,
    interval_ms: i64,
    churn_per_hour: f64,
    fleet_seed: u64,
}

/// Description of the data of a server, and what it cost to write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WrittenData {
    pub(super) parameters: Parameters,
    /// The version of the server that wrote it.
    pub(super) version: String,
    /// Time of the first scrape.
    pub(super) start_ms: i64,
    pub(super) n_samples: u64,
    /// Time of the sending. Requests are encoded before they are sent.
    pub(super) write_s: f64,
    /// CPU time of the server from its start to the last acknowledgement.
    pub(super) write_cpu_s: f64,
    /// Time and CPU time from the last acknowledgement until everything is flushed and merged.
    pub(super) merge_s: f64,
    pub(super) merge_cpu_s: f64,
    /// Peak of the resident memory until everything is merged.
    pub(super) peak_bytes: u64,
    /// Disk usage without the WAL, which contains nothing that the blocks do not.
    pub(super) disk_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) wal_bytes: u64,
    pub(super) n_blocks: Option<u64>,
}

impl Parameters {
    pub(super) fn new(args: &HistoryArgs) -> Self {
        Self {
            days: args.days,
            active_series: args.active_series,
            interval_ms: INTERVAL_MS,
            churn_per_hour: args.churn,
            fleet_seed: FLEET_SEED,
        }
    }

    pub(super) fn duration_ms(&self) -> i64 {
        self.days.cast_signed() * DAY_MS
    }

    fn fleet(&self, start_ms: i64) -> Fleet {
        Fleet::new(FleetOptions {
            active_series: to_usize(self.active_series),
            interval_ms: self.interval_ms,
            start_ms,
            churn_per_hour: self.churn_per_hour,
            seed: self.fleet_seed,
            ..FleetOptions::default()
        })
    }
}

#[cfg(test)]
impl WrittenData {
    pub(super) fn for_tests() -> Self {
        Self {
            parameters: Parameters {
                days: 7,
                active_series: 1,
                interval_ms: INTERVAL_MS,
                churn_per_hour: 0.1,
                fleet_seed: FLEET_SEED,
            },
            version: String::new(),
            start_ms: 5,
            n_samples: 1,
            write_s: 1.0,
            write_cpu_s: 1.0,
            merge_s: 1.0,
            merge_cpu_s: 1.0,
            peak_bytes: 1,
            disk_bytes: 1,
            index_bytes: 1,
            wal_bytes: 1,
            n_blocks: None,
        }
    }
}

/// Returns the description of the data that an earlier run left in a directory. Returns `None` if
/// there is no such directory.
///
/// # Errors
/// If the data is incomplete or has other parameters. It is not removed: it may be of use.
pub(super) fn kept(dir: &Path, parameters: &Parameters) -> Result<Option<WrittenData>> {
    if !dir.try_exists().context("look for the data")? {
        return Ok(None);
    }
    let file = dir.join(FILE);
    ensure!(
        file.try_exists().context("look for the data")?,
        "{} has no {FILE}: its data is incomplete; remove the directory",
        dir.display()
    );
    let text = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    let written: WrittenData =
        serde_json::from_slice(&text).with_context(|| format!("parse {}", file.display()))?;
    ensure!(
        written.parameters == *parameters,
        "{} has data of other parameters ({:?}, not {parameters:?}); remove the directory, or use another one",
        dir.display(),
        written.parameters
    );
    Ok(Some(written))
}

/// Starts a server on an empty directory, writes the fleet, flushes and merges everything, and
/// stops the server.
pub(super) fn write(
    server: &Server,
    dir: &Path,
    parameters: &Parameters,
    start_ms: i64,
) -> Result<WrittenData> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let fleet = parameters.fleet(start_ms);
    let n_rounds = parameters.duration_ms() / parameters.interval_ms;
    eprintln!(
        "{}: write {} series, {n_rounds} samples each",
        server.name(),
        fleet.n_places()
    );
    let mut running = server.start(dir)?;
    let options = WriteOptions {
        ahead: true,
        ..WriteOptions::new(&running.url(""))
    };
    let written = write_fleet(&fleet, 0..n_rounds, &options)?;
    written.check()?;
    let after_write = process::usage(running.pid())?;

    eprintln!("{}: flush and merge", server.name());
    let merge_started = Instant::now();
    running.wait_for_compactions()?;
    let disk = running.flush()?;
    let merge_s = merge_started.elapsed().as_secs_f64();
    let after_merge = process::usage(running.pid())?;
    running.stop()?;

    let data = WrittenData {
        parameters: parameters.clone(),
        version: server.version(),
        start_ms,
        n_samples: written.n_samples,
        write_s: written.duration.as_secs_f64(),
        write_cpu_s: after_write.cpu.as_secs_f64(),
        merge_s,
        merge_cpu_s: cpu_s(&after_write, &after_merge),
        peak_bytes: after_merge.peak_bytes,
        disk_bytes: disk.total_bytes.saturating_sub(disk.wal_bytes),
        index_bytes: disk.index_bytes,
        wal_bytes: disk.wal_bytes,
        n_blocks: disk.n_blocks,
    };
    let file = dir.join(FILE);
    let text = serde_json::to_string_pretty(&data).context("describe the data")?;
    std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    Ok(data)
}

fn cpu_s(before: &ProcessUsage, after: &ProcessUsage) -> f64 {
    after.cpu.saturating_sub(before.cpu).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_process::Scratch;

    #[test]
    fn kept_data_is_used_only_if_complete_and_of_the_same_parameters() {
        let parameters = WrittenData::for_tests().parameters;
        let scratch = Scratch::new("kept-data").unwrap();
        let dir = scratch.path().join("server");
        assert!(kept(&dir, &parameters).unwrap().is_none());

        std::fs::create_dir(&dir).unwrap();
        let error = kept(&dir, &parameters).unwrap_err().to_string();
        assert!(error.contains("incomplete"), "{error}");

        let written = WrittenData::for_tests();
        std::fs::write(dir.join(FILE), serde_json::to_vec(&written).unwrap()).unwrap();
        let found = kept(&dir, &parameters).unwrap().unwrap();
        assert_eq!(found.start_ms, written.start_ms);

        let other = Parameters {
            days: 8,
            ..parameters
        };
        let error = kept(&dir, &other).unwrap_err().to_string();
        assert!(error.contains("other parameters"), "{error}");
    }
}
