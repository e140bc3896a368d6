//! The log of a data directory seen from outside: what is in it, where it is damaged, and mending it.
//!
//! Used by `varve wal`, for whose sake it is public, as `varve_tsdb::log`. Frames and records are read by the same code as in
//! a replay; here nothing is applied to a head, and what is wrong is noted as a [`Damage`](crate::fs::damage::Damage)
//! instead of ending the work.
//!
//! 1. [`list`] finds the files and tells which of them count.
//! 2. [`read_file`] hands out the frames of one, decoded ([`Content`]).
//! 3. [`survey`] reads all of them and adds up; [`repair`] writes damaged ones anew.
//!
//! Invariants
//! 1. Reading changes nothing and takes no lock: a server may be running. What it writes meanwhile is seen in part, and
//!    looks like a torn end; what it removes is counted in [`Survey::n_gone`].
//! 2. One window of one file and one record are in memory, and for a survey the refs of all series.

mod content;
mod files;
mod read;
mod repair;
mod summary;
#[cfg(test)]
mod tests;

pub use content::{Content, LoggedSample, LoggedStart, RECORD_NAMES, SampleSizes};
pub use files::{LogFile, Role, is_varve_directory, list};
pub use read::{FileEnd, FoundFrame, read_file};
pub use repair::{Mended, Repair, repair};
pub use summary::{FileSummary, PartSizes, Survey, survey};

pub use super::SegmentKind;
