//! Write-ahead log (WAL): what shards have accepted and no block holds yet.
//!
//! Used by `shard` (append, commit), the flush (cut, checkpoint), `background` (sync) and `replay`. Format:
//! docs/format/wal.md, version 3. A store has several logs, each shared by some of its shards.
//!
//! Each log has two sequences of segments: `series-*` with series definitions and metadata, `samples-*` with samples and
//! exemplars. A segment is a header and frames ([`frame`]); a frame holds one record ([`record`]). Appends encode into
//! memory; [`Wal::commit`] then writes all pending records to the operating system, so that concurrent requests share one
//! write and one sync. A flush cuts the log ([`Wal::rotate`]), writes the samples before the cut to blocks and replaces the
//! segments before it by a [`checkpoint`].
//!
//! Invariants
//! 1. A commit returns only when all records appended before it are in the operating system's hands; under
//!    [`WalSync::Always`](crate::WalSync::Always) they survive a power cut as well.
//! 2. Definitions are written before the samples that need them, and synced before them.
//! 3. An incomplete write to a full disk is cut off before the next write; its records are written again from memory.
//! 4. After a failed sync or a failed cut every later append is `Error::Poisoned`: a retry could lie.
//! 5. A file that an earlier process wrote is never appended to.
//! 6. Replay cuts a torn tail. It copies damage before that to the quarantine, counts it and skips to the next valid frame.
//! 7. A segment is removed only when a later checkpoint is durable. As long as an older checkpoint exists, so do all
//!    segments that it needs.
//!
//! Threads: appends of samples are serialized by the shards' log, definitions by a shard's lock; commits and syncs have
//! locks of their own (`writer`). Crash: whole frames, then possibly a torn one; a checkpoint is complete or absent.

mod epoch;
mod file_name;

mod compression;
pub(crate) mod frame;
mod frame_buffer;
pub(crate) mod record;

mod segment;
mod writer;

pub(crate) mod checkpoint;
pub(crate) mod quarantine;
pub(crate) mod reader;

pub mod inspect;
mod reserve;
mod snapshot;

pub(crate) use compression::Decompressor;
pub(crate) use epoch::{Epoch, remove_epochs_before};
pub(crate) use file_name::Cut;
pub(crate) use file_name::SegmentKind;
pub(crate) use frame::HEADER_SIZE;
pub(crate) use record::{LoggedHistogram, SampleColumn, StartTimestamp, StartTimestamps};
pub(crate) use reserve::Reserve;
pub(crate) use snapshot::write_snapshot_log;
pub(crate) use writer::{Health, Position, Wal, WalOptions};
