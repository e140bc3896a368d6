//! What a shard knows of a series.

use super::chunk_log::ChunkRef;
use crate::chunk::{OpenChunk, StartTimestamps};
use crate::recover::windows::WindowSet;

/// State of one series.
#[derive(Debug)]
pub(super) struct SeriesState {
    /// Timestamp of the last in-order sample, and the open chunk if it is of floats without start
    /// timestamps.
    pub(super) open: OpenChunk,
    /// The last finished chunk.
    pub(super) last: ChunkRef,
    pub(super) windows: WindowSet,
    /// Timestamp of the newest sample of the WAL before the open chunk: see
    /// [`SeriesState::newest_in_wal_ms`].
    pub(super) wal_ms: i64,
    /// The open chunk is in [`Shard::encoders`].
    pub(super) has_encoder: bool,
    /// Head chunks have not been reached yet.
    pub(super) has_head_chunks: bool,
}

impl SeriesState {
    pub(super) const NEW: Self = Self {
        open: OpenChunk::after(i64::MIN),
        last: ChunkRef::NONE,
        windows: WindowSet::EMPTY,
        wal_ms: i64::MIN,
        has_encoder: false,
        has_head_chunks: false,
    };

    /// Returns the timestamp of the newest sample of the WAL so far, also of one that a head chunk
    /// has.
    pub(super) fn newest_in_wal_ms(&self) -> i64 {
        if self.has_open_chunk() {
            self.open.last_ms()
        } else {
            self.wal_ms
        }
    }

    /// Returns `true` if samples of the WAL are in an open chunk.
    pub(super) fn has_open_chunk(&self) -> bool {
        self.has_encoder || self.open.n_samples() > 0
    }

    /// Returns `true` if the next float needs an encoder, because the plain open chunk has no start
    /// timestamps.
    pub(super) fn needs_encoder(&self, starts: StartTimestamps, start_ms: i64) -> bool {
        match starts {
            StartTimestamps::Drop => false,
            StartTimestamps::Keep => true,
            // A series that has start timestamps sometimes does not change its chunk each time.
            StartTimestamps::KeepKnown => start_ms != 0 || self.has_encoder,
        }
    }
}
