//! The file of the active-request log: what a server was working on, to read after a crash. Format:
//! docs/format/active-requests.md, version 2; version 1 is read.
//!
//! The server writes slots; `varve status last-words` and the API read them.

mod grafana;
mod read;
mod slot;

use std::path::{Path, PathBuf};

pub use grafana::GrafanaSource;
pub use read::{RecordedRequests, read};
pub use slot::{HEADER_SIZE, Header, Record, RequestState, SIZE, Version};

/// The log of the running process, or of the last one.
pub const FILE: &str = "requests.active";
/// The log of the previous process.
pub const PREVIOUS_FILE: &str = "requests.previous.active";
/// The route of rule queries.
pub const RULE_ROUTE: &str = "rule";

/// Returns the logs of a data directory, the newest first.
pub fn files(dir: &Path) -> [PathBuf; 2] {
    [dir.join(FILE), dir.join(PREVIOUS_FILE)]
}
