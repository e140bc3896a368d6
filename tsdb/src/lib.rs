//! The storage engine of Varve: an embeddable, synchronous time series database.
//!
//! Ten names are the whole of it: a [`Db`] is opened with [`Options`]; [`Labels`] name a series, for which it gives a
//! [`SeriesHandle`]; [`Sample`]s go in by the [`WriteBatch`], and come out by [`Matcher`]s and a [`TimeRange`] under a
//! [`QueryContext`]; what goes wrong is an [`Error`]. All else is for what these leave out: histograms and exemplars,
//! figures, the log seen from outside. `examples/embed.rs`:
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
//!    [`Series::read`] decodes their samples into columns. What a selection sees does not change while it runs.
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

mod background;
mod batch;
mod block;
mod blocks;
mod cardinality;
mod chunk;
pub mod collections;
mod compact;
mod context;
pub mod damage;
mod db;
mod error;
mod exemplars;
mod flush;
mod fs;
mod groups;
mod head;
mod histogram;
mod import_writer;
mod importing;
mod index;
mod labels;
mod logs;
mod matcher;
mod memory;
mod metadata;
mod options;
pub mod originals;
mod ranking;
mod regexp;
mod replaying;
mod requests;
mod retention;
mod sample;
mod select;
mod shard;
mod snapshot;
mod starts;
mod store;
mod tombstones;
pub mod varint;
mod wal;

pub use batch::{RejectReason, Rejected, SeriesHandle, WriteBatch};
#[cfg(feature = "testing")]
pub use block::RowCodec;
pub use cardinality::{Cardinality, NameCount};
pub use compact::CompactionStats;
pub use context::{CHECK_INTERVAL, Interrupt, QueryContext};
pub use db::{BlockSummary, Db, LABELS_SIZE_MAX, METADATA_FAMILIES_MAX, METADATA_SIZE_MAX, SeriesCost, Stats};
pub use error::{Error, Result};
pub use exemplars::{
    EXEMPLAR_LABELS_LEN_MAX, EXEMPLAR_LABELS_SIZE, Exemplar, ExemplarSet, ExemplarStats, RejectExemplar,
    RejectedExemplar, SeriesExemplars,
};
pub use flush::FlushStats;
pub use fs::{
    AppendFile, Clock, Fs, Lock, ReadFile, ReadOnlyFs, RealFs, StateFile, StateFileError, SystemClock, size_of_file,
    size_of_files,
};
#[cfg(any(test, feature = "testing"))]
pub use fs::{Fault, FaultFs, ManualClock, MemFs, PowerCut};
pub use groups::SeriesGroup;
pub use histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts, ResetHint};
pub use import_writer::ImportWriter;
pub use index::Texts;
pub use labels::{Labels, LabelsBuilder, LabelsError, METRIC_NAME, is_legacy_name};
pub use matcher::{MatchOp, Matcher};
pub use memory::{Charge, MemoryBudget, Relief};
pub use metadata::Metadata;
pub use options::{EXEMPLARS_MAX, Options, WalOnCorruption, WalSync};
pub use regexp::{Regexp, RegexpError, Rewrite};
pub use replaying::{ReplayState, ReplayStatus};
pub use sample::{STALE_NAN_BITS, Sample, SampleColumns, TimeRange, is_stale_nan};
pub use select::{LabelHint, SelectHints, Series, SeriesSet};
pub use wal::ReplayStats;
pub use wal::survey as log;
