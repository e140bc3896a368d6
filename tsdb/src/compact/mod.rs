//! Merging blocks: which ones (`plan`), how (`merge`), and doing it (`run`).
//!
//! Used by the merge task (`background`) and the admin's calls. A merge reads its sources page by page, writes a block beside
//! them, reads all of that back and then swaps it in; nobody waits for it, and what fails changes nothing.

mod merge;
mod plan;
mod run;
mod throttle;

pub(crate) use merge::{Merging, merge};
pub(crate) use plan::{precedence, superseded, window_of};
pub use run::CompactionStats;
pub(crate) use throttle::Throttle;
