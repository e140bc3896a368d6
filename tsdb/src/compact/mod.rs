//! Compaction: which blocks to merge (`plan`), how to merge them (`merge`), and which ones to remove (`retention`).
//!
//! Used by `store::compaction`. A merge reads its sources page by page, writes a new block and verifies it before it
//! replaces the sources; a failure changes nothing.

mod merge;
mod plan;
mod retention;
mod run;
mod throttle;

pub(crate) use merge::{Merging, merge};
pub(crate) use plan::window_of;
pub use run::CompactionStats;
pub(crate) use throttle::Throttle;
