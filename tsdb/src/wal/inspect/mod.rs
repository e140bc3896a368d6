//! Inspection and repair of the WAL of a data directory.
//!
//! Used by `varve wal`; public as `varve_tsdb::inspect`. A replay uses the same code to read frames
//! and records. But nothing is applied to a head, and damage is recorded as a
//! [`Damage`](varve_env::damage::Damage) instead of ending the inspection.
//!
//! 1. [`list`] finds the files and decides which of them are live.
//! 2. [`read_file`] passes the decoded frames of a file ([`Content`]) to a callback.
//! 3. [`inspect`] reads all files and computes statistics; [`repair`] rewrites damaged files.
//!
//! Invariants
//! 1. Reading changes nothing and takes no lock: a server may be running. Concurrent writes of a
//!    server may look like torn tails. Files that it removes are counted in
//!    [`WalInspection::n_removed_files`].
//! 2. At most one window of one file and one record are in memory. An inspection also holds the
//!    refs of all series.

mod content;
mod duplicates;
mod files;
mod missing;
mod read;
mod repair;
mod statistics;
#[cfg(test)]
mod tests;

pub use content::{Content, LoggedSample, LoggedStart, RECORD_NAMES};
pub use files::{Role, WalFile, is_varve_directory, list};
pub use read::{FileIntegrity, FoundFrame, read_file};
pub use repair::{RenamedFile, RepairedFile, WalRepair, repair};
pub use statistics::{FileSummary, PartSizes, WalInspection, inspect};

pub use super::file_name::SegmentKind;
pub use super::record::SampleSizes;
