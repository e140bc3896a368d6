//! The storage engine of Varve: an embeddable, synchronous time series database.
//!
//! Ten names are the whole of it: a [`Db`] is opened with [`Options`]; [`Labels`] name a series, for which it gives a
//! [`SeriesHandle`]; [`Sample`]s go in by the [`WriteBatch`], and come out by [`Matcher`]s and a [`TimeRange`] under a
//! [`QueryContext`]; what goes wrong is an [`Error`]. All else is for what these leave out: histograms and exemplars,
//! statistics, the log seen from outside. `examples/embed.rs`:
//!
#![doc = concat!("```rust,ignore\n", include_str!("../examples/embed.rs"), "```")]
//!
//! # The life of a sample
//! 1. The caller resolves a label set once with [`Db::series`]. The label set's hash chooses a shard; the shard's head
//!    gives the series a slot, and its log gets a definition. The [`SeriesHandle`] is kept by the caller.
//! 2. Samples of known series gather in a [`WriteBatch`] and go in with one [`Db::append`]. Each shard that is concerned
//!    is locked once: samples are checked as Prometheus checks them and appended to the series' open chunks. What is new
//!    of them is encoded as one record for each log that is concerned.
//! 3. The append then commits: whoever comes first writes what all concurrent appends have gathered, and syncs it where
//!    [`WalSync::Always`] asks for that. Only then does the append return.
//! 4. Every [`Options::flush_interval`] a flush freezes the open chunks of all shards at one instant, writes them to parts,
//!    one per window of two hours, and cuts the logs. Parts are merged into blocks, blocks into larger ones, in a thread of
//!    its own; retention removes the oldest.
//! 5. [`Db::select`] finds series through the indexes of heads and blocks and hands them out in label order, each once;
//!    [`Series::read`](select::Series::read) decodes their samples into columns. What a selection sees does not change while it runs.
//! 6. At the next [`Db::open`] what was logged since the last flush is replayed in parallel; with
//!    [`Options::wal_replay_in_background`] the store is in use meanwhile.
//!
//! # What holds at every moment
//! 1. What an append acknowledged is in the operating system's hands: it survives the end of the process.
//! 2. A sample is there once; an append that is repeated after an error changes nothing that is there. Of two values for
//!    one timestamp the first that was accepted stands, before and after flush, merge and restart.
//! 3. Samples of a series ascend strictly in time and keep every bit of their values.
//! 4. What is on the disk opens: a torn tail is cut, damage is skipped and kept aside.
//! 5. Every read runs under a [`QueryContext`]: one deadline, one cancel switch, one memory budget.
//!
//! Nothing here knows HTTP, protobuf, PromQL or YAML. The modules, from the outside in: `db` and `select` in front of
//! `store`; `replaying` until that is whole; `shard` with `head` (`index`, `chunk`), `logs` with `wal`; `flush` from there to
//! `blocks` of `block`s, which `compact`, `retention` and `tombstones` look after; `requests` decides what a reader sees;
//! `fs` is the only door to the disk.

#![deny(unsafe_code)]

mod db;
mod error;
mod options;

pub mod context;
pub mod fs;
pub mod labels;
mod sample;

mod chunk;
mod head;
mod index;
mod isolation;
mod logs;
mod shard;

pub mod originals;
mod replaying;
mod wal;

mod block;
mod compact;
pub mod select;

mod background;
mod store;

pub use context::query_context::QueryContext;
pub use db::Db;
pub use error::{Error, Interrupt, Result};
pub use head::SeriesGroup;
pub use labels::label_set::Labels;
pub use labels::matcher::{MatchOp, Matcher};
pub use options::{Options, WalOnCorruption, WalSync};
pub use sample::{RejectReason, Rejected, Sample, SampleColumns, SeriesHandle, TimeRange, WriteBatch};
pub use store::import_writer::ImportWriter;

pub use chunk::varint;
pub use sample::{histogram, staleness};
pub use wal::survey as log;

/// Growing collections whose values are never moved as a whole.
///
/// Used by the heads of the store, and by `varve-prometheus`, whose series tables grow in the same way.
pub mod collections {
    pub use crate::index::{Arena, Column, Piece};
}

/// Exemplars: examples that samples stand for, such as the trace of one request.
pub mod exemplars {
    pub use crate::options::EXEMPLARS_MAX;
    pub use crate::sample::exemplar::{EXEMPLAR_LABELS_LEN_MAX, Exemplar, RejectExemplar, RejectedExemplar};
    pub use crate::store::exemplars::{EXEMPLAR_LABELS_SIZE, ExemplarSet, SeriesExemplars};
}

/// Statistics of an open store.
pub mod stats {
    pub use crate::db::cardinality::{Cardinality, NameCount};
    pub use crate::db::{BlockSummary, SeriesCost, Stats};
    pub use crate::replaying::{ReplayState, ReplayStatus};
    pub use crate::store::compaction::CompactionStats;
    pub use crate::store::exemplars::ExemplarStats;
    pub use crate::store::flush::FlushStats;
    pub use crate::wal::ReplayStats;
}

/// Parts of the store that tests and fuzz targets reach directly.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::block::RowCodec;
}
