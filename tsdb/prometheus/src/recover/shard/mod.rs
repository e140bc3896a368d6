//! A shard: a part of the series with their chunks (open, finished and out-of-order).
//!
//! Invariants
//! 1. No chunk crosses a boundary of [`WINDOW_MS`](super::WINDOW_MS), except for head chunks and
//!    out-of-order chunks.
//! 2. In-order samples of a series ascend in time, including the samples of its head chunks.
//! 3. A spill changes no sample: chunks that end because of it are marked as split.
//!
//! Threads: one thread at a time changes a shard.

mod shard;

mod chunk_log;
mod eviction;
mod found_chunk;
mod layout;
mod out_of_order;
mod sample;
mod series_state;
pub(super) mod spill;
#[cfg(test)]
mod tests;

pub(crate) use found_chunk::{ChunkLocation, FoundChunk};
pub(super) use layout::ShardLayout;
pub(crate) use sample::{EXTRA, Extra, FullSample, RoutedSample, ShardBatch, Value};
pub(crate) use shard::{SERIES_SIZE, Shard};
pub use spill::SPILL_DIR;
pub(super) use spill::SpillDir;
