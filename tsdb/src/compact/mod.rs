//! Compaction: selects blocks to merge (`plan`), merges them (`merge`), and selects blocks to
//! remove (`retention`).
//!
//! Used by `store::compaction`. A merge reads its sources page by page, writes a new block and
//! verifies it before it replaces the sources; a failure changes nothing.

mod merge;
mod plan;
pub(crate) mod retention;
mod stats;
mod throttle;

pub(crate) use merge::{Merging, merge};
pub(crate) use plan::{Horizon, Merge, full, plan, rewrite, window_of};
pub use stats::CompactionStats;
pub(crate) use throttle::Throttle;
