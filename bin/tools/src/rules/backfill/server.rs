//! The server of a backfill. What would make an import fail is found before the first query.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use varve_advise::counted;
use varve_client::{Client, Response};
use varve_model::TimeRange;
use varve_system::machine::files::is_locked;
use varve_system::machine::hostname;
use varve_system::quantity::{parse_duration, print_duration};

use super::request::post;
use crate::data_dir::ensure_varve;
use crate::report::time;

/// The flag that limits the age of samples.
const RETENTION_FLAG: &str = "storage.tsdb.retention.time";

/// A server and its data directory on this machine.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) data_dir: PathBuf,
    /// Maximum age of samples. 0 for no limit.
    pub(super) retention: Duration,
}

impl Server {
    /// Checks that the server imports blocks from `data_dir`, and imports those that are there
    /// already.
    ///
    /// # Errors
    /// If it is not the directory of a running server, or of another one; if the admin API is
    /// disabled; if the import fails.
    pub(super) fn new(mut client: Client, data_dir: &Path) -> Result<Self> {
        let flags = client.get_data("/api/v1/status/flags")?;
        check_data_dir(&mut client, &flags, data_dir)?;
        let retention = flags[RETENTION_FLAG].as_str().unwrap_or("0s");
        let retention = parse_duration(retention).map_err(Error::msg)?;
        let mut server = Self {
            client,
            data_dir: data_dir.to_owned(),
            retention,
        };
        let import_dir = server.import_dir();
        let response = server.import()?;
        let imported = server.client.data("the import", &response);
        let imported =
            imported.with_context(|| format!("import what is in {import_dir:?} already"))?;
        let n_blocks = imported["blocks"].as_u64().unwrap_or(0);
        if n_blocks > 0 {
            eprintln!(
                "imported {} that {import_dir:?} had",
                counted(n_blocks, "block")
            );
        }
        Ok(server)
    }

    /// Returns the directory from which the server imports blocks.
    pub(super) fn import_dir(&self) -> PathBuf {
        self.data_dir.join("import")
    }

    /// Lets the server import blocks.
    ///
    /// # Errors
    /// If no response arrives. Any status is a response.
    pub(super) fn import(&mut self) -> Result<Response> {
        post(&mut self.client, "/api/v1/admin/tsdb/import", "")
    }

    /// Returns the part of a range that the retention keeps.
    ///
    /// # Errors
    /// If all of it is too old.
    pub(super) fn kept(&mut self, range: TimeRange) -> Result<TimeRange> {
        let start_ms = self.kept_from_ms(range.end_ms)?.max(range.start_ms);
        if start_ms == range.start_ms {
            return Ok(range);
        }
        let retention = print_duration(self.retention);
        ensure!(
            start_ms < range.end_ms,
            "the retention of {retention} (--{RETENTION_FLAG}) would remove all samples of the range"
        );
        eprintln!(
            "the backfill starts at {}: the retention of {retention} (--{RETENTION_FLAG}) would remove older samples",
            time(start_ms)
        );
        Ok(TimeRange { start_ms, ..range })
    }

    /// Returns the time from which the retention keeps samples, once there are samples up to
    /// `end_ms`. It counts back from the newest sample.
    pub(super) fn kept_from_ms(&mut self, end_ms: i64) -> Result<i64> {
        if self.retention.is_zero() {
            return Ok(i64::MIN);
        }
        let head = self.client.get_data("/api/v1/status/tsdb?limit=1")?;
        let blocks = self.client.get_data("/api/v1/status/tsdb/blocks")?;
        let blocks = blocks["blocks"].as_array().into_iter().flatten();
        let newest_ms = blocks
            .map(|block| &block["maxTime"])
            .chain([&head["headStats"]["maxTime"]])
            .filter_map(Value::as_i64)
            .fold(end_ms, i64::max);
        let now_ms = newest_ms.min(Timestamp::now().as_millisecond());
        let retention_ms = i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX);
        Ok(now_ms.saturating_sub(retention_ms).saturating_add(1))
    }
}

/// Checks that a server has `data_dir` open. A server in a container may know it by another path, and
/// then any server may have it open.
fn check_data_dir(client: &mut Client, flags: &Value, data_dir: &Path) -> Result<()> {
    ensure_varve(data_dir).context("--path")?;
    let runtime = client.get_data("/api/v1/status/runtimeinfo")?;
    let working_dir = runtime["CWD"].as_str().unwrap_or_default();
    let named = flags["storage.tsdb.path"].as_str().unwrap_or_default();
    let named = Path::new(working_dir).join(named);
    if runtime["hostname"].as_str() == Some(hostname().as_str())
        && let Ok(own) = named.canonicalize()
    {
        let given = data_dir.canonicalize();
        ensure!(
            given.is_ok_and(|given| given == own),
            "--path: the data directory of the server is {named:?}, not {data_dir:?}"
        );
    }
    let lock = data_dir.join("lock");
    File::open(&lock).with_context(|| format!("--path: open {lock:?}"))?;
    ensure!(
        is_locked(data_dir),
        "--path: no server has {data_dir:?} open"
    );
    Ok(())
}
