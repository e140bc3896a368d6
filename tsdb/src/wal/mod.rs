//! Write-ahead log (WAL): the series and samples that the store has accepted and no block contains
//! yet.
//!
//! Used by `shard` (append, commit), the flush (rotate, checkpoint), `background` (sync) and
//! `replay`. Format: docs/format/wal.md, version 3. The WAL consists of several logs ([`Log`]),
//! each shared by some of the shards.
//!
//! Each log has two sequences of segments: `series-*` with series definitions and metadata,
//! `samples-*` with samples and exemplars. A segment is a header and frames ([`frame`]); a frame
//! holds one record ([`record`]). Appends encode into memory; [`Log::commit`] then writes all
//! pending records to the operating system, so that concurrent requests share one write and one
//! sync. A flush rotates the log ([`Log::rotate`]), writes the samples before the rotation to
//! blocks and replaces the segments before the rotation with a [`checkpoint`].
//!
//! Invariants
//! 1. A commit returns only when all records appended before it are written to the operating
//!    system. Under [`WalSync::Always`](crate::WalSync::Always) they also survive a power cut.
//! 2. Definitions are written before the samples that need them, and synced before them.
//! 3. An incomplete write to a full disk is truncated before the next write; its records are
//!    written again from memory.
//! 4. After a failed sync or a failed rotation every later append fails with `Error::Poisoned`: a
//!    retried sync could report success for lost data.
//! 5. A file that an earlier process wrote is never appended to.
//! 6. A process creates a segment only after the previous one is complete. Replay truncates a torn
//!    tail of its last segment. Replay copies other damage to the quarantine, counts it and skips
//!    to the next valid frame.
//! 7. A segment is removed only when a later checkpoint is durable. While an older checkpoint
//!    exists, all segments that it needs exist.
//!
//! Threads: the shared log of the shards serializes appends of samples, the lock of a shard
//! serializes definitions. Commits and syncs have their own locks (`writer`). Crash: whole frames,
//! then possibly a torn one; a checkpoint is complete or absent.

mod epoch;
mod file_name;
mod missing;

mod compression;
pub(crate) mod frame;
mod frame_buffer;
mod frame_file;
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
pub(crate) use epoch::{Epoch, log_of, remove_epochs_before};
pub(crate) use file_name::{CheckpointPosition, SegmentKind, is_closed};
pub(crate) use frame::HEADER_SIZE;
pub(crate) use missing::{MissingFiles, missing_directories, missing_segments, n_replaced_epochs};
pub(crate) use record::{LoggedHistogram, SampleColumn, StartTimestamp, StartTimestamps};
pub(crate) use reserve::Reserve;
pub(crate) use snapshot::write_snapshot_log;
pub(crate) use writer::{Health, Log, LogOptions, Position};
