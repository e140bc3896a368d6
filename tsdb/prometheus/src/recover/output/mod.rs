//! Writes what was replayed as blocks, one per window, in ascending order of time.
//!
//! All threads prepare groups of series in parallel (`window`), while one of them writes those
//! before: to blocks of Prometheus (`prometheus_blocks`), or of the store (`store_blocks`).

mod pipeline;
mod postings;
mod prometheus_blocks;
mod store_blocks;
mod window;

use super::recovery::Target;
use super::series::SeriesTable;
pub(crate) use prometheus_blocks::write_blocks;
pub(crate) use store_blocks::write_store_blocks;
use window::PREPARED_LEN;

/// Memory per series while a block is written, besides its labels: position, sort key, number, end
/// of labels.
const SERIES_SIZE: usize = 32;
/// Memory per label pair while a block is written, besides its strings: ranks and table entry, and
/// its series count per thread.
const PAIR_SIZE: usize = 128;
const PAIR_SIZE_PER_WORKER: usize = 4;
/// Estimated memory of a prepared series.
const PREPARED_SIZE: usize = 2 << 10;
/// Memory of an [`ImportWriter`](varve_tsdb::ImportWriter): most of it are postings.
const STORE_WRITER_SIZE: usize = 80 << 20;

/// Estimates the additional memory, in bytes, for writing the series of a table.
pub(crate) fn memory(target: Target, table: &SeriesTable, n_workers: usize) -> usize {
    let writer_size = match target {
        Target::Prometheus => n_workers * postings::MEMORY_PER_WORKER,
        Target::Store { .. } => STORE_WRITER_SIZE,
    };
    let pairs_size =
        table.pairs.len() * (PAIR_SIZE + n_workers * PAIR_SIZE_PER_WORKER) + table.pairs.size();
    let prepared_size = n_workers * PREPARED_LEN * PREPARED_SIZE;
    table.labels.size() + table.len() * SERIES_SIZE + pairs_size + prepared_size + writer_size
}
