//! The storage engine of Varve: an embeddable, synchronous time series database.
//!
//! # The life of a sample
//! 1. The caller resolves a label set once with [`Db::series`]. The label set's hash chooses a shard; the shard's head
//!    gives the series a slot, and its log gets a definition. The [`SeriesHandle`] is kept by the caller.
//! 2. Samples of known series gather in a [`WriteBatch`] and go in with one [`Db::append`]. Each shard that is concerned
//!    is locked once: samples are checked as Prometheus checks them, appended to the series' open chunks and encoded as
//!    one record for the log.
//! 3. The append then commits: whoever comes first writes what all concurrent appends have gathered, and syncs it where
//!    [`WalSync::Always`] asks for that. Only then does the append return.
//! 4. [`Db::select`] finds series through the shards' indexes and hands them out one by one, with copies of the chunks
//!    that reach into the range; [`Series::read`] decodes them into columns.
//! 5. At the next [`Db::open`] the logs are replayed in parallel.
//!
//! # What holds at every moment
//! 1. What an append acknowledged is in the operating system's hands: it survives the end of the process.
//! 2. A sample is stored once; an append that is repeated after an error changes nothing that is there.
//! 3. Samples of a series ascend strictly in time and keep every bit of their values.
//! 4. What is on the disk opens: a torn tail is cut, damage is skipped and kept aside.
//! 5. Every read runs under a [`QueryContext`]: one deadline, one cancel switch, one memory budget.
//!
//! Nothing here knows HTTP, protobuf, PromQL or YAML. The modules, from the outside in: `db`, `shard`, `head` with
//! `index` and `chunk`, `wal`, `fs`. Blocks (`block`, `compact`, `retention`, `tombstones`) are not there yet: the head
//! holds all samples, bounded by [`Options::head_size_max_bytes`].

#![deny(unsafe_code)]

mod batch;
mod chunk;
mod context;
mod db;
mod error;
mod fs;
mod head;
mod index;
mod labels;
mod matcher;
mod metadata;
mod options;
mod regexp;
mod sample;
mod select;
mod shard;
mod syncer;
mod varint;
mod wal;

pub use batch::{RejectReason, Rejected, SeriesHandle, WriteBatch};
pub use context::{CHECK_INTERVAL, Charge, Interrupt, MemoryBudget, QueryContext};
pub use db::{Db, LABELS_SIZE_MAX, METADATA_FAMILIES_MAX, METADATA_SIZE_MAX, Stats};
pub use error::{Error, Result};
pub use fs::{AppendFile, Clock, Fs, RealFs, SystemClock};
#[cfg(any(test, feature = "testing"))]
pub use fs::{FaultFs, ManualClock};
pub use index::Texts;
pub use labels::{Labels, LabelsBuilder, LabelsError, METRIC_NAME, is_legacy_name};
pub use matcher::{MatchOp, Matcher};
pub use metadata::Metadata;
pub use options::{Options, WalSync};
pub use regexp::{Regexp, RegexpError, Rewrite};
pub use sample::{STALE_NAN_BITS, Sample, SampleColumns, TimeRange, is_stale_nan};
pub use select::{Order, Series, SeriesSet};
pub use wal::ReplayStats;
