//! The storage engine of Varve: an embeddable, synchronous time series database.
//!
//! Ten names are enough to use it, of this crate and of `varve_model`. A [`Db`] is opened with
//! [`Options`]. [`Labels`] identify a series, for which it returns a [`SeriesHandle`]; [`Sample`]s
//! are appended with a [`WriteBatch`], and selected with [`Matcher`]s and a [`TimeRange`] under a
//! [`ReadContext`]. Failures are [`Error`]s. The modules contain the rest: exemplars, statistics,
//! and the inspection of logs. `examples/embed.rs`:
//!
#![doc = concat!("```rust,ignore\n", include_str!("../examples/embed.rs"), "```")]
//!
//! # The life of a sample
//! 1. The caller resolves a label set once with [`Db::series`]. The hash of the label set selects a
//!    shard. The head of the shard assigns a slot to the series, and the log of the shard gets a
//!    definition record. The caller keeps the [`SeriesHandle`].
//! 2. Samples of known series are collected in a [`WriteBatch`] and appended with one
//!    [`Db::append`]. Each affected shard is locked once: samples are checked by the rules of
//!    Prometheus and appended to the open chunks of their series. New samples are encoded as one
//!    record per affected log. Many samples of this process ([`WriteBatch::own`]) are appended in
//!    parts, with one lock and one record per part.
//! 3. The append then commits: the first of several concurrent appends writes the records of all,
//!    and syncs them under [`WalSync::Always`]. The append returns after that.
//! 4. Every [`Options::flush_interval`] a flush freezes the open chunks of all shards at one
//!    instant, writes them to parts, one per window of two hours, and truncates the logs. Another
//!    thread merges parts into blocks, and blocks into larger ones. Retention removes the oldest
//!    blocks.
//! 5. [`Db::select`] finds series through the indexes of heads and blocks and returns them in label
//!    order, each once; [`Series::read`](select::Series::read) decodes their samples into columns.
//!    What a selection sees does not change while it runs.
//! 6. The next [`Db::open`] replays the log since the last flush in parallel; with
//!    [`Options::wal_replay_in_background`] the store can be used during the replay.
//!
//! # Invariants
//! 1. Acknowledged data is written to the operating system: it survives the end of the process.
//! 2. A sample is stored once; an append can be retried safely after an error. Of two values for
//!    one timestamp the first accepted one wins, before and after flush, merge and restart.
//! 3. Samples of a series ascend strictly in time and keep every bit of their values.
//! 4. Every state of the disk can be opened: a torn tail is truncated, damage is skipped and
//!    quarantined.
//! 5. Every read runs under a [`ReadContext`]: a deadline, a cancellation flag, a memory budget,
//!    and the matchers that every series must pass.
//!
//! This crate does not depend on HTTP, protobuf, PromQL or YAML. The modules, from the outside in:
//! `db` and `select` use the `store` and its `background` tasks. A store has `shard`s with a `head`
//! (`index`, `chunk`) and the WAL (`wal`, and `replay` at start), and a set of `block`s, which
//! `compact` merges. `isolation` decides what a reader sees. The crate `varve_env` is the only
//! access to the disk and the clock.
//!
//! [`Labels`]: varve_model::Labels
//! [`Matcher`]: varve_model::Matcher
//! [`Sample`]: varve_model::Sample
//! [`TimeRange`]: varve_model::TimeRange

#![forbid(unsafe_code)]

mod db;
mod error;
mod label_hint;
mod limits;
mod options;
mod read_context;

mod batch;

mod chunk;
mod head;
mod index;
mod isolation;
mod shard;

mod replay;
mod wal;

mod block;
mod compact;
pub mod select;

mod background;
mod store;

pub use batch::{SeriesHandle, WriteBatch};
pub use db::Db;
pub use error::{Error, Result};
pub use head::BudgetGroup;
pub use options::{Options, WalOnCorruption, WalSync};
pub use read_context::ReadContext;
pub use store::import_writer::{ImportBatch, ImportWriter};

pub use wal::inspect;

/// The timestamps that a store accepts.
pub mod bounds {
    pub use crate::head::Bounds;
}

/// Which samples changed since a read, for caches of results.
pub mod changes {
    pub use crate::isolation::changes::{NameGroups, ReadVersion};
}

/// Exemplars: examples attached to a series, such as the trace of one request.
pub mod exemplars {
    pub use crate::batch::{RejectExemplar, RejectedExemplar};
    pub use crate::options::EXEMPLARS_MAX;
    pub use crate::shard::exemplars::{ExemplarSet, SeriesExemplars};
}

/// How long the samples of some series are retained.
pub mod retention {
    pub use crate::compact::retention::RetentionSize;
    pub use crate::compact::retention::rules::RetentionRule;
}

/// Statistics of an open store.
pub mod stats {
    pub use crate::compact::CompactionStats;
    pub use crate::db::cardinality::{Cardinality, NameCount};
    pub use crate::db::costs::{Cost, Costs};
    pub use crate::db::{BlockSummary, SeriesCost, Stats};
    pub use crate::replay::{ReplayState, ReplayStats, ReplayStatus};
    pub use crate::select::KeptSelectionStats;
    pub use crate::shard::exemplars::ExemplarStats;
    pub use crate::store::FlushStats;
    pub use crate::store::family_table::MetadataStats;
}
